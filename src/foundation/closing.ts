/** What was opened, to be closed in the reverse order. */
export type Closing = {
  add(close: () => unknown): void
  /** Closes the last one first. One that fails keeps no other open. Throws `AggregateError` after all were tried. */
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
 * What `open` opens. If it fails half-way, what it has added is closed, and its own error is thrown: why closing failed as
 * well matters less.
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
