import { within } from '../../concurrency/deadline.ts'
import type { MatchedRules } from './rules-state.ts'

/**
 * The counters of pixel hits: a port with one contract suite (`test/contract/pixel-counters.ts`), kept in PostgreSQL or
 * in Redis.
 *
 * A cap is a promise: whatever is not known to be counted does not fire. Counters are no events: a hit is one row
 * counted up, not one row more, and what the ledger records of the call says what was answered.
 */

/** One hit that asks to be counted. */
export type HitAsk = {
  readonly organizationId: string
  /** Where the pixel would fire, in its one spelling (`parseHost`). */
  readonly host: string
  /** The caller's name for the hit on this host. Null: every call is a hit of its own. */
  readonly hitId: string | null
  /** When the call arrived, by the clock of the process that took it. The periods in `rules` are of this moment. */
  readonly atMs: number
  readonly rules: MatchedRules
}

/** What became of a hit: the rules it was judged by, whether it fires, and how many hits each limit has counted after it. */
export type HitVerdict = {
  readonly rules: MatchedRules
  readonly fires: boolean
  /** One for each of `rules.limits`. */
  readonly used: readonly number[]
}

export type CounterWindow = Pick<MatchedRules['limits'][number], 'domain' | 'period' | 'periodStart'>

export type PixelCounters = {
  /**
   * Counts the hit against every limit, or against none when one of them is used up or the host is blocked. Exact,
   * whatever happens at once in however many processes.
   *
   * For 24 hours a hit id gets its first verdict for a host again, even under other rules, and is not counted again. A block
   * in force wins over what is remembered: under one nothing fires.
   *
   * Settles within `answerMaxMs`. Rejects when the counters cannot be reached or are late; then the hit may have been
   * counted, and asking again with the same hit id tells.
   */
  take(ask: HitAsk): Promise<HitVerdict>
  /** How many hits each window has counted. Settles and rejects like `take`. */
  used(organizationId: string, windows: readonly CounterWindow[]): Promise<number[]>
  close(): Promise<void>
}

export const answerMaxMs = 1_000
/** Hits that wait at once in one process; one more is refused. As many as a host takes connections. */
export const waitingMax = 10_000
/** How long a hit id gets its first verdict again. */
export const hitMemoryMs = 86_400_000

/**
 * What a hit is told: the verdict it got, now or before. Where its host is blocked by now, that verdict does not count, be it
 * remembered, or shared with a call that came before the block.
 */
export const verdictFor = ({ rules }: HitAsk, verdict: HitVerdict): HitVerdict =>
  rules.blockedBy !== null && verdict.fires ? { rules, fires: false, used: [] } : verdict

/** Late, gone or overloaded: the hit does not fire. */
export class CountersUnavailable extends Error {
  override name = 'CountersUnavailable'
}

/** Settles as `promise` does, or rejects when it has not within `answerMaxMs`. What it waits for goes on. */
export const answeredInTime = <Value>(what: string, promise: Promise<Value>): Promise<Value> =>
  within(promise, { waitMs: answerMaxMs }, () => {
    throw new CountersUnavailable(`${what}: no answer within ${answerMaxMs} ms`)
  })
