import { Unavailable } from '../event-log/port.ts'

/**
 * How long a caller waits for a 503: 12 s are promised, and one of them is for what no timer bounds. Whatever a call asks is
 * waited for within what is left; what was asked may still be done, without anybody to hear of it.
 */
const callWaitMaxMs = 11_000

/** What of that is kept for telling a caller so. */
export const refusalWaitMs = 500

/** What is left of it for a call that started then, on the clock of `performance.now()`. */
export const waitLeftMs = ({ startedMs }: { readonly startedMs: number }): number =>
  Math.max(0, callWaitMaxMs - refusalWaitMs - (performance.now() - startedMs))

/** Waits for work no longer than that. Late work goes on, unheard. */
export const unavailableWhenLate = async <Value>(
  work: Promise<Value>,
  { waitMs, what }: { readonly waitMs: number; readonly what: string },
): Promise<Value> => {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Unavailable(`${what}: no word within ${waitMs} ms`)), waitMs)
  })
  try {
    return await Promise.race([work, late])
  } finally {
    clearTimeout(timer)
  }
}
