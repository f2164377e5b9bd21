import { LRUCache } from 'lru-cache'
import { within } from '../concurrency/deadline.ts'
import type { DnsAnswer, DnsType } from './dns-message.ts'
import { askServers, dnsServers } from './dns-query.ts'

/**
 * DNS with a cache that respects TTLs. Identical questions in progress are sent upstream once.
 *
 * `node:dns` uses only the system's servers, drops the TTLs of MX records and of negative answers, mistakes a referral for "there is no mail
 * server", and does not share questions. With `dns.lookup`, four slow names would occupy the whole thread pool, which file reads and key
 * derivation need.
 */
export type Dns = {
  /**
   * Never throws. Records are in no particular order. EBUSY: too many different questions are in progress. When `signal` aborts, returns
   * `failed` with ECANCELLED, and the question continues for other callers and the cache.
   */
  resolve(name: string, type: DnsType, options?: { readonly signal?: AbortSignal }): Promise<DnsAnswer>
  status(): DnsStatus
}

/** The outcome of a question that the cache could not answer. `busy`: too many questions were in progress. */
type DnsOutcome = Exclude<DnsAnswer['kind'], 'failed'> | 'timeout' | 'failed' | 'busy'

type DnsStatus = {
  readonly queries: Readonly<Record<DnsOutcome, number>>
  readonly cacheHits: number
}

/** Every question has an answer or a failure within this time, even if servers are slow. */
const questionDeadlineMs = 5_000
/** A resolver that has not answered in this time has probably lost the datagram. */
const attemptTimeoutMsDefault = 1_500
/** A zone may allow a day, but asking again earlier costs only one question. */
const ttlSecondsMax = 3_600
const negativeTtlSecondsMax = 300
/** How long a failure, or a negative answer without a TTL, is cached (RFC 2308 §5 forbids longer). */
const failureTtlSeconds = 5
/** The maximum number of questions in progress. If a zone's servers do not answer, each call about it has a dozen of them for seconds. */
const underWayMax = 4_096
const entriesMax = 20_000
/** Limits names and values together: hostile zones with long answers can displace entries, but cannot exhaust memory. */
const charactersMax = 8 * 1024 * 1024
/** Added to the length of a record's text. */
const recordCharacters = 32
/** The maximum number of records kept of one answer: the MX records with the best priority, or the first addresses. */
const recordsKept = 32

type Entry = { readonly answer: DnsAnswer; readonly expiresAtMs: number }

/** `servers` has the form that `dnsServers` accepts. `clock` counts milliseconds and should be monotonic (`performance`). */
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

/** Null: the name is not a host name, and no server was asked. */
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
