/** Open resources, closed in reverse order. */
export type Closing = {
  add(close: () => unknown): void
  /** Closes the last resource first. If a resource fails to close, still closes the rest, and then throws `AggregateError`. */
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

/** Returns the result of `open`. If `open` fails, closes the resources it has added, and throws the error of `open`. */
export const openingWith = async <Opened>(open: (closing: Closing) => Promise<Opened>): Promise<Opened> => {
  const closing = createClosing()
  try {
    return await open(closing)
  } catch (error) {
    await closing.close().catch(() => undefined)
    throw error
  }
}
