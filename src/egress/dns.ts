import { LRUCache } from 'lru-cache'
import { within } from '../concurrency/deadline.ts'
import type { DnsAnswer, DnsType } from './dns-message.ts'
import { askServers, dnsServers } from './dns-query.ts'

/**
 * DNS with a cache that respects TTLs. Identical questions in progress are sent only once.
 *
 * `node:dns` is not used, because it drops the TTLs of MX records and of negative answers, treats a referral as "there is no mail server", does not
 * share questions, and uses only the system's servers. With `dns.lookup`, four slow names would occupy the whole thread pool, which is also needed
 * for reading files and deriving keys.
 */
export type Dns = {
  /**
   * Never throws. Records are in no particular order. EBUSY: too many different questions are in progress. If `signal` aborts, returns `failed` with
   * ECANCELLED, while the question continues for other callers and the cache.
   */
  resolve(name: string, type: DnsType, options?: { readonly signal?: AbortSignal }): Promise<DnsAnswer>
  status(): DnsStatus
}

/** The outcome of a question that was not in the cache. `busy`: too many questions were in progress. */
type DnsOutcome = Exclude<DnsAnswer['kind'], 'failed'> | 'timeout' | 'failed' | 'busy'

type DnsStatus = {
  readonly queries: Readonly<Record<DnsOutcome, number>>
  readonly cacheHits: number
}

/** The time limit for a question, even if servers are slow. */
const questionDeadlineMs = 5_000
/** If a resolver has not answered within this time, the datagram was probably lost. */
const attemptTimeoutMsDefault = 1_500
/** A zone can allow a day, but asking again earlier costs only one question. */
const ttlSecondsMax = 3_600
const negativeTtlSecondsMax = 300
/** How long to cache a failure, or a negative answer without a TTL (RFC 2308 §5 does not allow longer). */
const failureTtlSeconds = 5
/** The maximum number of questions in progress. If the servers of a zone do not answer, each call about it can have a dozen questions for seconds. */
const underWayMax = 4_096
const entriesMax = 20_000
/** The limit for all names and values together. Zones with long answers can displace other entries, but cannot exhaust memory. */
const charactersMax = 8 * 1024 * 1024
/** The assumed overhead of a record, which is added to the length of its text. */
const recordCharacters = 32
/** The maximum number of records to keep from an answer: the MX records with the best priority, or the first addresses. */
const recordsKept = 32

type Entry = { readonly answer: DnsAnswer; readonly expiresAtMs: number }

/** `servers` must be in a form that `dnsServers` accepts. `clock` returns milliseconds, and should be monotonic (`performance`). */
export const createDns = ({
  servers: texts,
  clock,
  attemptTimeoutMs = attemptTimeoutMsDefault,
}: {
  servers: readonly string[] | null
  clock: { now(): number }
  attemptTimeoutMs?: number
}): Dns => {
  const servers = dnsServers(texts)
  const patience = { attemptTimeoutMs, deadlineMs: questionDeadlineMs }
  const underWay = new Map<string, Promise<DnsAnswer>>()
  const entries = new LRUCache<string, Entry>({
    max: entriesMax,
    maxSize: charactersMax,
    sizeCalculation: ({ answer }, key) => key.length + recordCharacters + textLength(answer),
  })

  const queries: Record<DnsOutcome, number> = {
    records: 0,
    not_found: 0,
    no_data: 0,
    timeout: 0,
    failed: 0,
    busy: 0,
  }
  let cacheHits = 0

  const ask = async (key: string, name: string, type: DnsType): Promise<DnsAnswer> => {
    try {
      const answer = trimmed(await askServers(servers, name, type, patience))
      const outcome = outcomeOf(answer)
      if (outcome !== null) queries[outcome]++
      const ttlSeconds = ttlOf(answer)
      if (ttlSeconds > 0) entries.set(key, { answer, expiresAtMs: clock.now() + ttlSeconds * 1000 })
      return answer
    } finally {
      underWay.delete(key)
    }
  }

  return {
    resolve: async (name, type, { signal } = {}) => {
      const asked = name.toLowerCase()
      const key = `${type} ${asked}`
      const known = entries.get(key)
      if (known !== undefined && clock.now() < known.expiresAtMs) {
        cacheHits++
        return known.answer
      }
      if (signal?.aborted === true) return cancelled
      let question = underWay.get(key)
      if (question === undefined) {
        if (underWay.size >= underWayMax) {
          queries.busy++
          return { kind: 'failed', code: 'EBUSY' }
        }
        question = ask(key, asked, type)
        underWay.set(key, question)
      }
      return within(question, { signal }, () => cancelled)
    },
    status: () => ({ queries: { ...queries }, cacheHits }),
  }
}

const cancelled: DnsAnswer = { kind: 'failed', code: 'ECANCELLED' }

/** Returns null if the name is not a host name, so that no server was asked. */
const outcomeOf = (answer: DnsAnswer): DnsOutcome | null => {
  if (answer.kind !== 'failed') return answer.kind
  if (answer.code === 'EBADNAME') return null
  return answer.code === 'ETIMEOUT' ? 'timeout' : 'failed'
}

const ttlOf = (answer: DnsAnswer): number => {
  if (answer.kind === 'failed') return failureTtlSeconds
  if (answer.kind === 'records') return Math.min(answer.ttlSeconds, ttlSecondsMax)
  return Math.min(answer.ttlSeconds ?? failureTtlSeconds, negativeTtlSecondsMax)
}

const trimmed = (answer: DnsAnswer): DnsAnswer =>
  answer.kind === 'records' && answer.records.length > recordsKept
    ? { ...answer, records: answer.records.toSorted((a, b) => a.priority - b.priority).slice(0, recordsKept) }
    : answer

const textLength = (answer: DnsAnswer): number =>
  answer.kind === 'records'
    ? answer.records.reduce((sum, { value }) => sum + value.length + recordCharacters, 0)
    : 0
