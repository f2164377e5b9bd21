import { LRUCache } from 'lru-cache'
import { within } from '../concurrency/deadline.ts'
import type { DnsAnswer, DnsType } from './dns-message.ts'
import { askServers, dnsServers } from './dns-query.ts'

/**
 * DNS with a cache that honours TTLs: nothing is answered beyond its TTL, and identical questions
 * in progress are sent upstream once.
 *
 * `node:dns` uses only the system's servers. Its binding drops the TTL of MX records and of negative answers, takes a
 * referral for "there is no mail server", and does not share questions. `dns.lookup` would fill the thread pool that file
 * reads and key derivation share: four slow names are enough.
 */
export type Dns = {
  /**
   * Never throws. `signal` ends the wait with `failed` and ECANCELLED; the question continues for others and the cache.
   * Records come in no particular order. EBUSY: too many different questions are in progress.
   */
  resolve(name: string, type: DnsType, options?: { readonly signal?: AbortSignal }): Promise<DnsAnswer>
  /** For metrics. */
  status(): DnsStatus
}

/** The outcome of a question that the cache could not answer. `busy`: too many others were in progress. */
type DnsOutcome = Exclude<DnsAnswer['kind'], 'failed'> | 'timeout' | 'failed' | 'busy'

/** Since it was created. */
type DnsStatus = {
  readonly queries: Readonly<Record<DnsOutcome, number>>
  /** Questions answered from memory. */
  readonly cacheHits: number
}

/** Even with slow servers, there is an answer or a failure within this time. */
const questionDeadlineMs = 5_000
/** A resolver that does not answer in this time has probably lost the datagram. */
const attemptTimeoutMsDefault = 1_500
/** The zone's owner may allow a TTL of a day, but forgetting earlier costs one question. */
const ttlSecondsMax = 3_600
const negativeTtlSecondsMax = 300
/** How long a failure, or a negative answer without a TTL, is not asked for again (RFC 2308 §5 forbids more). */
const failureTtlSeconds = 5
/** If a zone's servers do not answer, every call about it holds a dozen places for seconds. */
const underWayMax = 4_096
const entriesMax = 20_000
/** For names and values together: hostile zones with long answers displace entries, but do not exhaust the process's memory. */
const charactersMax = 8 * 1024 * 1024
/** The cost of a record in addition to its text. */
const recordCharacters = 32
/** For one answer. MX records with the highest priority values are dropped first; addresses in the order they come. */
const recordsKept = 32

type Entry = { readonly answer: DnsAnswer; readonly expiresAtMs: number }

/** `servers` as for `dnsServers`. `clock` counts milliseconds and should never go back (`performance`). */
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

/** Null for a text that is not a host name; no server was asked. */
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
