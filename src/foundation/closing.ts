/** Opened resources, to be closed in the reverse order. */
export type Closing = {
  add(close: () => unknown): void
  /** Closes the last one first. If one fails, the others are still closed. Throws `AggregateError` after all were tried. */
  close(): Promise<void>
}

export const createClosing = (): Closing => {
  const opened: (() => unknown)[] = []
  return {
    add: (close) => opened.push(close),
    close: async () => {
      const errors: unknown[] = []
      for (const close of opened.splice(0).reverse())
        try {
          await close()
        } catch (error) {
          errors.push(error)
        }
      if (errors.length > 0) throw new AggregateError(errors, 'not everything could be closed')
    },
  }
}

/**
 * Returns the result of `open`. If it fails half-way, the resources it has added are closed, and the error of `open` is thrown, not
 * those of closing.
 */
export const openingWith = async <Opened>(open: (closing: Closing) => Promise<Opened>): Promise<Opened> => {
  const closing = createClosing()
  try {
    return await open(closing)
  } catch (error) {
    await closing.close().catch(() => undefined)
    throw error
  }
}
