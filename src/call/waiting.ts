import { within } from '../concurrency/deadline.ts'
import { Unavailable } from '../event-log/port.ts'
import type { Gates } from './dependencies.ts'

/**
 * How long a caller waits for a 503: at most 12 s, and one of them is for work that no timer bounds. Every question of a call must be
 * answered within the rest; late work may still finish, without its caller.
 */
const callWaitMaxMs = 11_000

/** The part of it that is kept for the refusal. */
export const refusalWaitMs = 500

/** The rest of it for a call that started then, on the clock of `performance.now()`. */
export const waitLeftMs = ({ startedMs }: { readonly startedMs: number }): number =>
  Math.max(0, callWaitMaxMs - refusalWaitMs - (performance.now() - startedMs))

/** Retry-After equals the duration of the outage so far, within these bounds. */
const retryAfterMostSeconds = 30

/** When a caller who is refused now should come again. */
export const retryAfterSeconds = (gates: Gates | undefined): number => {
  const shutMs = Math.max(gates?.eventLog.shutForMs() ?? 0, gates?.database.shutForMs() ?? 0)
  return Math.min(retryAfterMostSeconds, Math.max(1, Math.round(shutMs / 1_000)))
}

/** Waits for work, but no longer than that. Late work continues without its caller. */
export const unavailableWhenLate = <Value>(
  work: Promise<Value>,
  { waitMs, what }: { readonly waitMs: number; readonly what: string },
): Promise<Value> =>
  within(work, { waitMs }, () => {
    throw new Unavailable(`${what}: no answer within ${waitMs} ms`)
  })
