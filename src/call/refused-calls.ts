import type { Logger } from 'pino'
import type { PriceBook } from '../billing/price-book.ts'
import type { CallsRefused } from '../events/calls.ts'
import type { Capability } from '../events/capabilities.ts'
import type { DirectoryKey } from '../guard/key-directory.ts'
import type { RatePolicy } from '../guard/rate-limit.ts'
import type { Instruction } from '../ledger/command.ts'
import { CommandRefused, type Ledger } from '../ledger/commit.ts'
import type { PriceBooks } from '../ledger/price-books.ts'

/**
 * Counts refused calls and records them coalesced, so that nobody can fill the event log for free (decision 24): those
 * refused by a rate limit as one `RateLimitExceeded` per key, policy and minute; those refused for another reason,
 * beyond the first of a minute, as one `CallsRefused` per key, code and minute. Each process records its own counts.
 *
 * What a killed process had not yet written is lost: at most a minute of refusals, which cost nothing.
 */
export type RefusedCalls = {
  rateLimited(key: DirectoryKey, policy: RatePolicy, nowMs: number): void
  /**
   * Whether the key's next refusal is recorded by itself, as one of the first of its minute. Takes one of those. `nowMs`
   * as `performance.now()`.
   */
  single(key: DirectoryKey, nowMs: number): boolean
  /** Whether they are all taken: then `single` would say no. */
  singlesSpent(key: DirectoryKey, nowMs: number): boolean
  refused(key: DirectoryKey, refusal: CountedRefusal, nowMs: number): void
  /** Writes everything counted so far; for the end of the process. */
  flush(): Promise<void>
}

type CountedRefusal = Pick<CallsRefused, 'code' | 'outcome'> & { readonly capability: Capability }

/** Of a key's refusals in a minute. */
const singlesMax = 60
const windowMs = 60_000
const countersMax = 100_000
/** Written at once: well below what a ledger lets wait. */
const writtenAtOnceMax = 256

type Cause =
  | { readonly kind: 'rate_limit'; readonly policy: RatePolicy }
  | ({ readonly kind: 'refusal' } & Pick<CallsRefused, 'code' | 'outcome'>)

type Counter = {
  readonly key: DirectoryKey
  readonly cause: Cause
  readonly windowStartMs: number
  /** Tells it from every other counter of this process: a late call may open another one for the same minute. */
  readonly serial: number
  readonly counts: Map<Capability | 'any', number>
  /** The ledger's revision before the first try to write it: it cannot stand before. */
  absentUpTo?: number
}

export const createRefusedCalls = ({
  ledger,
  prices,
  logger,
  instanceId,
}: {
  ledger: Pick<Ledger, 'submit' | 'lastSeen'>
  prices: PriceBooks
  logger: Logger
  /** Tells this process's counts from another's of the same key and minute. */
  instanceId: string
}): RefusedCalls => {
  /** Still counting. */
  const open = new Map<string, Counter>()
  /** Closed, and not known to be written: the same event until it is. What comes since is another. */
  let unwritten: Counter[] = []
  const singles = new Map<string, number>()
  let singlesOfMs = 0
  let serial = 0
  let timer: NodeJS.Timeout | undefined
  let flushing: Promise<void> = Promise.resolve()

  const write = async (counter: Counter): Promise<Counter[]> => {
    const { key, cause, windowStartMs, counts } = counter
    const atMs = Math.min(windowStartMs + windowMs, Date.now())
    try {
      counter.absentUpTo ??= (await ledger.lastSeen(key.organizationId)).revision
      await ledger.submit(key.organizationId, {
        absentUpTo: counter.absentUpTo,
        key: `refused/${instanceId}/${counter.serial}`,
        atMs,
        actor: `key:${key.keyId}`,
        ...instructionOf(counter, prices.at(atMs)),
      })
      return []
    } catch (error) {
      const told = { err: error, keyId: key.keyId, cause, counts: Object.fromEntries(counts) }
      if (error instanceof CommandRefused) logger.error(told, 'refused calls cannot be recorded')
      else logger.warn(told, 'refused calls could not be recorded yet')
      return error instanceof CommandRefused ? [] : [counter]
    }
  }

  const writeBefore = async (windowStartMs: number): Promise<void> => {
    for (const [id, counter] of open)
      if (counter.windowStartMs < windowStartMs) {
        open.delete(id)
        unwritten.push(counter)
      }
    const due = unwritten
    unwritten = []
    for (let from = 0; from < due.length; from += writtenAtOnceMax) {
      const left = await Promise.all(due.slice(from, from + writtenAtOnceMax).map(write))
      unwritten.push(...left.flat())
    }
  }

  /** One after the other: a counter is in one place, whoever asks. */
  const flushBefore = (windowStartMs: number): Promise<void> => {
    flushing = flushing.then(() => writeBefore(windowStartMs))
    return flushing
  }

  const schedule = (nowMs: number): void => {
    if (timer !== undefined || open.size + unwritten.length === 0) return
    timer = setTimeout(
      () => {
        timer = undefined
        void flushBefore(windowOf(Date.now())).then(() => schedule(Date.now()))
      },
      windowMs - (nowMs % windowMs) + 50,
    )
    timer.unref()
  }

  const full = (): boolean => open.size + unwritten.length >= countersMax

  const count = (key: DirectoryKey, cause: Cause, capability: Capability | 'any', nowMs: number): void => {
    const windowStartMs = windowOf(nowMs)
    const id = `${key.keyId}/${cause.kind === 'rate_limit' ? cause.policy : cause.code}/${windowStartMs}`
    let counter = open.get(id)
    if (counter === undefined) {
      // Never so for other refusals: those are recorded singly then.
      if (full() && cause.kind === 'rate_limit') return
      counter = { key, cause, windowStartMs, serial: serial++, counts: new Map() }
      open.set(id, counter)
    }
    counter.counts.set(capability, (counter.counts.get(capability) ?? 0) + 1)
    schedule(Date.now())
  }

  return {
    rateLimited: (key, policy, nowMs) => count(key, { kind: 'rate_limit', policy }, 'any', nowMs),
    single: ({ keyId }, nowMs) => {
      // Of calls that ended in another order than they began, one of the minute before opens no minute anew.
      if (windowOf(nowMs) > singlesOfMs) {
        singles.clear()
        singlesOfMs = windowOf(nowMs)
      }
      const taken = singles.get(keyId) ?? 0
      if (taken >= singlesMax && !full()) return false
      singles.set(keyId, taken + 1)
      return true
    },
    singlesSpent: ({ keyId }, nowMs) =>
      windowOf(nowMs) <= singlesOfMs && (singles.get(keyId) ?? 0) >= singlesMax && !full(),
    refused: (key, { capability, ...refusal }, nowMs) =>
      count(key, { kind: 'refusal', ...refusal }, capability, nowMs),
    flush: async () => {
      clearTimeout(timer)
      timer = undefined
      await flushBefore(Number.POSITIVE_INFINITY)
      // Whether the first try was written may not be known; the second finds out.
      if (unwritten.length > 0) await flushBefore(Number.POSITIVE_INFINITY)
    },
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
