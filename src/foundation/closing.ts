/** Open resources, which are closed in reverse order. */
export type Closing = {
  add(close: () => unknown): void
  /** Closes the last resource first. If some resources cannot be closed, closes the others, and then throws `AggregateError`. */
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
      if (errors.length > 0) throw new AggregateError(errors, 'some resources could not be closed')
    },
  }
}

/** Returns the result of `open`. If `open` fails, closes the resources that it has added, and rethrows the error. */
export const openingWith = async <Opened>(open: (closing: Closing) => Promise<Opened>): Promise<Opened> => {
  const closing = createClosing()
  try {
    return await open(closing)
  } catch (error) {
    await closing.close().catch(() => undefined)
    throw error
  }
}
