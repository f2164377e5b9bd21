import { within } from '../concurrency/deadline.ts'
import { Unavailable } from '../event-log/port.ts'
import type { Gates } from './dependencies.ts'

/**
 * A caller waits at most 12 s for a 503, including one second for work without a timer. Late work can still finish after its caller
 * has been answered.
 */
const callWaitMaxMs = 11_000

/** The part of `callWaitMaxMs` that is reserved for the refusal. */
export const refusalWaitMs = 500

/** Returns the remaining wait of a call. `startedMs` is a time of `performance.now()`. */
export const waitLeftMs = ({ startedMs }: { readonly startedMs: number }): number =>
  Math.max(0, callWaitMaxMs - refusalWaitMs - (performance.now() - startedMs))

/** The maximum of Retry-After, which otherwise equals the duration of the outage so far. */
const retryAfterMostSeconds = 30

/** Returns the number of seconds after which a refused caller should try again. */
export const retryAfterSeconds = (gates: Gates | undefined): number => {
  const shutMs = Math.max(gates?.eventLog.shutForMs() ?? 0, gates?.database.shutForMs() ?? 0)
  return Math.min(retryAfterMostSeconds, Math.max(1, Math.round(shutMs / 1_000)))
}

/** Waits for work, and throws `Unavailable` after `waitMs`. Late work continues without its caller. */
export const unavailableWhenLate = <Value>(
  work: Promise<Value>,
  { waitMs, what }: { readonly waitMs: number; readonly what: string },
): Promise<Value> =>
  within(work, { waitMs }, () => {
    throw new Unavailable(`${what}: no answer within ${waitMs} ms`)
  })
