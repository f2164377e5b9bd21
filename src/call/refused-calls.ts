import type { Logger } from 'pino'
import type { PriceBook } from '../billing/price-book.ts'
import { within } from '../concurrency/deadline.ts'
import type { CallsRefused } from '../events/calls.ts'
import type { Capability } from '../events/capabilities.ts'
import type { DirectoryKey } from '../guard/key-directory.ts'
import type { RatePolicy } from '../guard/limits/rate-limit.ts'
import { CommandRefused, type Instruction } from '../ledger/command.ts'
import type { PriceBooks } from '../ledger/prices/price-books.ts'
import type { Ledger } from '../ledger/write/ledger.ts'

/**
 * Counts refused calls, so that a caller cannot fill the event log for free (decision 24). Refusals by a rate limit are recorded as
 * one `RateLimitExceeded` per key, policy and minute. All other refusals, after the first ones of a minute, are recorded as one
 * `CallsRefused` per key, code and minute. Each process records its own counts.
 *
 * If a process is killed, its unwritten counts of at most a minute are lost. Refused calls cost nothing.
 */
export type RefusedCalls = {
  rateLimited(key: DirectoryKey, policy: RatePolicy, nowMs: number): void
  /**
   * Whether the key's next refusal is recorded individually. If so, it counts toward `singlesMax`. `nowMs` is a time of
   * `performance.now()`.
   */
  single(key: DirectoryKey, nowMs: number): boolean
  /** Whether `single` would return false. */
  singlesSpent(key: DirectoryKey, nowMs: number): boolean
  refused(key: DirectoryKey, refusal: CountedRefusal, nowMs: number): void
  /** Writes all counts, before the process ends. */
  flush(): Promise<void>
}

type CountedRefusal = Pick<CallsRefused, 'code' | 'outcome'> & { readonly capability: Capability }

/** The maximum number of refusals of one key per minute that are recorded individually. */
const singlesMax = 60
const windowMs = 60_000
const countersMax = 100_000
/** The maximum number of concurrent writes, far below the limit of a ledger's queue. */
const writtenAtOnceMax = 256
/** The time limit of one attempt to write a count. */
const writeWaitMs = 5_000
/** Together with the ledger's `drainMaxMs`, this is less than the time in which a process must end. */
const flushWaitMs = 10_000

type Cause =
  | { readonly kind: 'rate_limit'; readonly policy: RatePolicy }
  | ({ readonly kind: 'refusal' } & Pick<CallsRefused, 'code' | 'outcome'>)

type Counter = {
  readonly key: DirectoryKey
  readonly cause: Cause
  readonly windowStartMs: number
  /** Distinguishes the counters of this process, because a late call can open a second counter for the same minute. */
  readonly serial: number
  readonly counts: Map<Capability | 'any', number>
  /** The ledger's revision before the first attempt to write the count. The count can only be in later events. */
  absentUpTo?: number
}

type Parts = {
  readonly ledger: Pick<Ledger, 'submit' | 'figures'>
  readonly prices: PriceBooks
  readonly logger: Logger
  /** Distinguishes this process's counts from those of other processes for the same key and minute. */
  readonly instanceId: string
}

export const createRefusedCalls = (parts: Parts): RefusedCalls => {
  const counters = createCounters(parts)
  let singles = new Map<string, number>()
  let singlesOfMs = 0
  const taken = (keyId: string): number => singles.get(keyId) ?? 0

  return {
    rateLimited: (key, policy, nowMs) => counters.count(key, { kind: 'rate_limit', policy }, 'any', nowMs),
    single: ({ keyId }, nowMs) => {
      // Calls can end in a different order than they began. A call of the previous minute must not reopen that minute.
      if (windowOf(nowMs) > singlesOfMs) {
        singles = new Map()
        singlesOfMs = windowOf(nowMs)
      }
      if (taken(keyId) >= singlesMax && !counters.full()) return false
      singles.set(keyId, taken(keyId) + 1)
      return true
    },
    singlesSpent: ({ keyId }, nowMs) =>
      windowOf(nowMs) <= singlesOfMs && taken(keyId) >= singlesMax && !counters.full(),
    refused: (key, { capability, ...refusal }, nowMs) =>
      counters.count(key, { kind: 'refusal', ...refusal }, capability, nowMs),
    flush: counters.flush,
  }
}

/** The counters of this process. Each is written when its minute is over. */
const createCounters = (parts: Parts) => {
  const open = new Map<string, Counter>()
  /** Closed counters that may not have been written. Each attempt writes the same event. Later refusals use a new counter. */
  let unwritten: Counter[] = []
  let serial = 0
  let timer: NodeJS.Timeout | undefined
  let flushing: Promise<void> = Promise.resolve()

  const writeBefore = async (windowStartMs: number): Promise<void> => {
    for (const [id, counter] of open)
      if (counter.windowStartMs < windowStartMs) {
        open.delete(id)
        unwritten.push(counter)
      }
    const due = unwritten
    unwritten = []
    for (let from = 0; from < due.length; from += writtenAtOnceMax) {
      const some = due.slice(from, from + writtenAtOnceMax)
      const written = await Promise.all(some.map((counter) => write(counter, parts)))
      unwritten.push(...some.filter((_, n) => written[n] === false))
    }
  }

  /** Runs one flush at a time, so that two flushes never write the same counter. */
  const flushBefore = (windowStartMs: number): Promise<void> => {
    flushing = flushing.then(() => writeBefore(windowStartMs))
    return flushing
  }

  const schedule = (nowMs: number): void => {
    if (timer !== undefined || open.size + unwritten.length === 0) return
    const turn = (): void => {
      timer = undefined
      void flushBefore(windowOf(Date.now())).then(() => schedule(Date.now()))
    }
    timer = setTimeout(turn, windowMs - (nowMs % windowMs) + 50)
    timer.unref()
  }

  const full = (): boolean => open.size + unwritten.length >= countersMax

  return {
    full,
    count: (key: DirectoryKey, cause: Cause, capability: Capability | 'any', nowMs: number): void => {
      const windowStartMs = windowOf(nowMs)
      const id = `${key.keyId}/${cause.kind === 'rate_limit' ? cause.policy : cause.code}/${windowStartMs}`
      let counter = open.get(id)
      if (counter === undefined) {
        // If all counters are in use, a rate-limited call is not counted; every other refusal is recorded individually.
        if (full() && cause.kind === 'rate_limit') return
        counter = { key, cause, windowStartMs, serial: serial++, counts: new Map() }
        open.set(id, counter)
      }
      counter.counts.set(capability, (counter.counts.get(capability) ?? 0) + 1)
      schedule(Date.now())
    },
    flush: async (): Promise<void> => {
      clearTimeout(timer)
      timer = undefined
      const flushed = async (): Promise<void> => {
        await flushBefore(Number.POSITIVE_INFINITY)
        // A second attempt, because it may be unknown whether the first one succeeded.
        if (unwritten.length > 0) await flushBefore(Number.POSITIVE_INFINITY)
      }
      await within(flushed(), { waitMs: flushWaitMs }, () =>
        parts.logger.error('refused calls could not be recorded before the end of the process'),
      )
    },
  }
}

/** Returns false if the count could not be written yet. A count that the ledger's rules forbid is logged and discarded. */
const write = async (counter: Counter, { ledger, prices, logger, instanceId }: Parts): Promise<boolean> => {
  const { key, cause, windowStartMs, counts } = counter
  const atMs = Math.min(windowStartMs + windowMs, Date.now())
  try {
    counter.absentUpTo ??= (await ledger.figures(key.organizationId, { atMs })).revision
    await ledger.submit(key.organizationId, {
      absentUpTo: counter.absentUpTo,
      waitMaxMs: writeWaitMs,
      key: `refused/${instanceId}/${counter.serial}`,
      atMs,
      actor: `key:${key.keyId}`,
      ...instructionOf(counter, prices.at(atMs)),
    })
    return true
  } catch (error) {
    const about = { err: error, keyId: key.keyId, cause, counts: Object.fromEntries(counts) }
    const forbidden = error instanceof CommandRefused
    if (forbidden) logger.error(about, 'refused calls cannot be recorded')
    else logger.warn(about, 'some refused calls have not been recorded yet')
    return forbidden
  }
}

const windowOf = (nowMs: number): number => nowMs - (nowMs % windowMs)

const instructionOf = (
  { key: { keyId }, cause, windowStartMs, counts }: Counter,
  book: PriceBook,
): Instruction => {
  const window = new Date(windowStartMs).toISOString()
  if (cause.kind === 'rate_limit') {
    const exceeded = { key_id: keyId, policy: cause.policy, window, count: counts.get('any') ?? 0 }
    return { kind: 'count_rate_limited', exceeded }
  }
  const { code, outcome } = cause
  const byCapability = [...counts].flatMap(([capability, count]) =>
    capability === 'any' ? [] : [{ capability, count }],
  )
  return {
    kind: 'count_refused',
    refused: { key_id: keyId, code, outcome, window, counts: byCapability },
    book,
  }
}
