import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import type pg from 'pg'
import type { Logger } from 'pino'
import {
  aliasesOf,
  type ProfileAliasRow,
  profileOf,
  type SubjectAliasRow,
} from '../../../projections/profile-cache.ts'
import { unavailableWhenAway } from '../../call/unavailable.ts'
import type { EventLog } from '../../event-log/port.ts'
import type { Claims } from './claims.ts'
import { aliasAgeMaxMs, cachedAgeMaxMs, freshAgeMaxMs, judge, type Known } from './freshness.ts'
import { belongs, type KnownAlias } from './identity.ts'
import type { ProfileData, ProfileIds, ProfileProvider, ProfileRef, ProviderAnswer } from './provider.ts'
import { newSubjectId, recordProfileEvent } from './records.ts'
import type { Vault } from './vault.ts'

/**
 * Where a profile comes from: the cache while it is young enough, else a provider, asked once for everybody who waits
 * for the same person, in this process and in the others.
 */

export type Retrieved =
  | {
      readonly kind: 'found'
      readonly source: 'cached' | 'fresh'
      readonly ageMs: number
      readonly subjectId: string
      readonly ids: ProfileIds
      readonly data: ProfileData
    }
  | { readonly kind: 'deleted'; readonly subjectId: string; readonly ageMs: number }
  | { readonly kind: 'missing' }
  | { readonly kind: 'unavailable'; readonly retryAfterSeconds: number }

export type RetrievalParts = {
  readonly pool: pg.Pool
  readonly eventLog: Pick<EventLog, 'append' | 'read'>
  readonly vault: Vault
  readonly claims: Claims
  readonly provider: ProfileProvider
  readonly identifierHmac: (identifier: string) => string
  readonly clock: { now(): number }
  readonly logger: Logger
  readonly limits?: Partial<RetrievalLimits>
}

type RetrievalLimits = typeof retrievalLimits
export const retrievalLimits = {
  /** From asking to answering: past it the caller is told to come back, and the fetch goes on into the cache. */
  answerMaxMs: 8_000,
  /** Providers asked at once by this process; one more is told to come back. */
  fetchesMax: 100,
  /** Of those, for refreshing what is served from the cache meanwhile. */
  refreshesMax: 10,
  /** How often a process looks whether another one's fetch is done. */
  claimPauseMs: 50,
  /** How long a fetch waits until its own result can be read back. */
  visibleMaxMs: 2_000,
}

export type Retrieval = {
  /** `beforeUpstream` is awaited before a provider is asked on this caller's behalf; what it throws ends the call. */
  retrieve(
    ref: ProfileRef,
    options: { wants: 'cached' | 'fresh'; beforeUpstream: () => Promise<void> },
  ): Promise<Retrieved>
  /** Waits for fetches nobody waits for any more. */
  close(): Promise<void>
}

const retryAfterSeconds = { late: 2, busy: 1, failed: 5 } as const
const retryAfterSecondsMax = 60
/** An event takes a megabyte, and text takes up to four bytes a character before it is sealed. */
const payloadCharactersMax = 180_000

/** A fetch everybody who asks for the same person waits for. */
type Fetch = { readonly result: Promise<Retrieved>; readonly done: Promise<void> }

export const createRetrieval = (parts: RetrievalParts): Retrieval => {
  const { pool, vault, clock, logger } = parts
  const limits: RetrievalLimits = { ...retrievalLimits, ...parts.limits }
  const fetches = new Map<string, Fetch>()
  let refreshing = 0

  const find = async (hmac: string): Promise<ProfileAliasRow | undefined> => {
    const { text, values } = profileOf(hmac)
    return (await pool.query<ProfileAliasRow>(text, [...values]).catch(unavailableWhenAway)).rows[0]
  }

  /** What is known, opened; null: a provider has to be asked. */
  const served = async (known: Known): Promise<Retrieved | null> => {
    if (known.kind === 'missing') return { kind: 'missing' }
    if (known.kind === 'deleted')
      return { kind: 'deleted', subjectId: known.subjectId, ageMs: ageOf(known.goneAtMs) }
    if (known.kind === 'fetch') return null
    const text = await vault.open(known)
    if (text === null) return null
    const { ids, data } = JSON.parse(text) as Payload
    return {
      kind: 'found',
      source: 'cached',
      ageMs: ageOf(known.observedAtMs),
      subjectId: known.subjectId,
      ids,
      data,
    }
  }

  const ageOf = (atMs: number): number => Math.max(0, clock.now() - atMs)

  /** Joins the fetch under way, or begins one. */
  const fetchShared = (asked: Asked, subjectId: string | null, wants: 'cached' | 'fresh'): Fetch => {
    const keyOf = (mode: 'cached' | 'fresh'): string => `${subjectId ?? asked.hmac} ${mode}`
    const key = keyOf(wants)
    const running = fetches.get(keyOf('fresh')) ?? fetches.get(key)
    if (running !== undefined) return running
    if (fetches.size >= limits.fetchesMax) {
      const busy: Retrieved = { kind: 'unavailable', retryAfterSeconds: retryAfterSeconds.busy }
      return { result: Promise.resolve(busy), done: Promise.resolve() }
    }
    const result = Promise.withResolvers<Retrieved>()
    const done = fetchClaimed(asked, subjectId, wants, result.resolve)
      .catch((error: unknown) => result.reject(error))
      .finally(() => fetches.delete(key))
    // Nobody may be waiting any more.
    result.promise.catch((error: unknown) => logger.warn({ err: error }, 'a profile could not be fetched'))
    const fetch: Fetch = { result: result.promise, done }
    fetches.set(key, fetch)
    return fetch
  }

  /** One process fetches; the others look at what it left. The claim is kept until the result can be read back. */
  const fetchClaimed = async (
    asked: Asked,
    subjectId: string | null,
    wants: 'cached' | 'fresh',
    settle: (result: Retrieved) => void,
  ): Promise<void> => {
    const deadlineMs = performance.now() + limits.answerMaxMs
    const claim = subjectId ?? asked.hmac
    const holder = randomUUID()
    let claimed = await parts.claims.take(claim, holder)
    while (!claimed && performance.now() < deadlineMs) {
      await sleep(limits.claimPauseMs)
      claimed = await parts.claims.take(claim, holder)
    }
    if (!claimed) return settle({ kind: 'unavailable', retryAfterSeconds: retryAfterSeconds.late })
    try {
      // Somebody else may have fetched between our looking and our claim.
      const known = judge(await find(asked.hmac), clock.now(), wants)
      const left = await served(known)
      if (left !== null) return settle(fresher(left, wants))
      const before = known.kind === 'fetch' || known.kind === 'data' ? known.subjectId : null
      const fetched = await askAndRecord(asked, before, { deadlineMs, wants })
      settle(fetched.result)
      if (fetched.changed) await visible(asked.hmac, fetched.atMs)
    } finally {
      await parts.claims.release(claim, holder).catch((error: unknown) => {
        logger.warn({ err: error }, 'a claim on a profile is left to run out')
      })
    }
  }

  /** Waits until the projection shows what was just recorded; without it the next caller would fetch again. */
  const visible = async (hmac: string, atMs: number): Promise<void> => {
    const untilMs = performance.now() + limits.visibleMaxMs
    while (performance.now() < untilMs) {
      const row = await find(hmac)
      const latest = Math.max(row?.fetched_at?.getTime() ?? 0, row?.missed_at?.getTime() ?? 0)
      if (latest >= atMs) return
      await sleep(limits.claimPauseMs)
    }
  }

  const askAndRecord = async (
    asked: Asked,
    subjectId: string | null,
    { deadlineMs, wants }: { deadlineMs: number; wants: 'cached' | 'fresh' },
  ): Promise<{ result: Retrieved; changed: boolean; atMs: number }> => {
    const ageMaxMs = wants === 'fresh' ? freshAgeMaxMs : cachedAgeMaxMs
    const signal = AbortSignal.timeout(Math.max(1, Math.ceil(deadlineMs - performance.now())))
    const aliases = subjectId === null ? [] : await knownAliases(subjectId)
    const first = await parts.provider.fetch(asked.ref, { deadlineMs, ageMaxMs, signal })
    const number = first.kind === 'not_found' && asked.ref.kind === 'lid' ? await numberOf(asked.hmac) : null
    // A name that leads nowhere any more may belong to somebody who changed it. Numbers stay.
    const renamed =
      number === null
        ? null
        : await parts.provider.fetch({ kind: 'urn', value: number }, { deadlineMs, ageMaxMs, signal })
    const answer: ProviderAnswer =
      renamed?.kind === 'found' && renamed.ids.urn === number ? { ...renamed, redirected: true } : first
    const atMs = clock.now()
    const provider = first.provider ?? parts.provider.name
    const context: RecordContext = { subjectId, aliases, atMs, provider }
    switch (answer.kind) {
      case 'found':
        return { result: await recordFound(asked, answer, context), changed: true, atMs }
      case 'gone':
      case 'not_found':
      case 'inaccessible':
        return {
          result: await recordAbsent(asked, answer.kind, context),
          changed: true,
          atMs,
        }
      case 'rate_limited':
      case 'transient':
      case 'malformed': {
        if (answer.kind !== 'rate_limited')
          logger.warn({ detail: answer.detail }, `profile provider: ${answer.kind}`)
        const seconds = answer.kind === 'rate_limited' ? answer.retryAfterSeconds : null
        return {
          result: {
            kind: 'unavailable',
            retryAfterSeconds: Math.min(seconds ?? retryAfterSeconds.failed, retryAfterSecondsMax),
          },
          changed: false,
          atMs,
        }
      }
    }
  }

  /** The number of whom an identifier leads to, if it was ever told and can still be read. */
  const numberOf = async (hmac: string): Promise<string | null> => {
    const row = await find(hmac)
    if (row === undefined || row.key_id === null || row.sealed === null) return null
    const text = await vault.open({ subjectId: row.subject_id, keyId: row.key_id, sealed: row.sealed })
    return text === null ? null : (JSON.parse(text) as Payload).ids.urn
  }

  const knownAliases = async (subjectId: string): Promise<KnownAlias[]> => {
    const { text, values } = aliasesOf(subjectId)
    const { rows } = await pool.query<SubjectAliasRow>(text, [...values]).catch(unavailableWhenAway)
    return rows.flatMap(({ kind, hmac, verified_at: at }) =>
      (kind === 'lid' || kind === 'urn') && at !== null && ageOf(at.getTime()) <= aliasAgeMaxMs
        ? [{ kind, hmac }]
        : [],
    )
  }

  const record = (event: Parameters<typeof recordProfileEvent>[1], atMs: number): Promise<void> =>
    recordProfileEvent(parts.eventLog, event, { actor: 'system', at: new Date(atMs).toISOString() })

  const recordMiss = async (
    asked: Asked,
    reason: 'not_found' | 'inaccessible' | 'mismatch',
    { subjectId, atMs, provider }: RecordContext,
  ): Promise<Retrieved> => {
    await record(
      {
        type: 'ProfileMissed',
        data: {
          subject_id: subjectId ?? newSubjectId(),
          provider,
          reason,
          observed_at: new Date(atMs).toISOString(),
          aliases: [{ kind: asked.ref.kind, hmac: asked.hmac }],
        },
      },
      atMs,
    )
    return { kind: 'missing' }
  }

  /** Somebody known is gone, whatever the source calls it (Spec §2.4); somebody never known was not found. */
  const recordAbsent = async (
    asked: Asked,
    kind: 'gone' | 'not_found' | 'inaccessible',
    context: RecordContext,
  ): Promise<Retrieved> => {
    if (await vault.suppressed([asked.hmac])) return { kind: 'missing' }
    const { subjectId, aliases, atMs, provider } = context
    if (subjectId === null || !aliases.some(({ hmac }) => hmac === asked.hmac))
      return recordMiss(asked, kind === 'gone' ? 'not_found' : kind, context)
    await record(
      {
        type: 'ProfileGone',
        data: {
          subject_id: subjectId,
          provider,
          observed_at: new Date(atMs).toISOString(),
        },
      },
      atMs,
    )
    await vault.destroy(subjectId)
    return { kind: 'deleted', subjectId, ageMs: 0 }
  }

  const recordFound = async (
    asked: Asked,
    answer: Extract<ProviderAnswer, { kind: 'found' }>,
    context: RecordContext,
  ): Promise<Retrieved> => {
    const { atMs, provider } = context
    const lid = parts.identifierHmac(`lid:${answer.ids.lid}`)
    const urn = answer.ids.urn === null ? null : parts.identifierHmac(`urn:${answer.ids.urn}`)
    const identity = { known: context.aliases, redirected: answer.redirected }
    if (!belongs({ kind: asked.ref.kind, hmac: asked.hmac }, { lid, urn }, identity))
      return recordMiss(asked, 'mismatch', context)
    const aliases = distinct([
      { kind: asked.ref.kind, hmac: asked.hmac },
      { kind: 'lid', hmac: lid },
      ...(urn === null ? [] : [{ kind: 'urn' as const, hmac: urn }]),
    ])
    const hmacs = aliases.map(({ hmac }) => hmac)
    const subjectId = await subjectFor(context.subjectId, { lid, urn })
    const text = JSON.stringify({ ids: answer.ids, data: answer.data } satisfies Payload)
    if (text.length > payloadCharactersMax) {
      logger.warn({ characters: text.length }, 'profile provider: more data of one person than are kept')
      return { kind: 'unavailable', retryAfterSeconds: retryAfterSecondsMax }
    }
    const sealed = await vault.seal({ subjectId, hmacs, text })
    if (sealed === null) return { kind: 'missing' }
    await record(
      {
        type: 'ProfileFetched',
        data: {
          subject_id: subjectId,
          provider,
          observed_at: new Date(answer.observedAtMs).toISOString(),
          fetched_at: new Date(atMs).toISOString(),
          aliases,
          key_id: sealed.keyId,
          sealed: sealed.sealed,
        },
      },
      atMs,
    )
    // Nothing older is ever served: nothing older needs to be readable.
    await vault.destroy(subjectId, sealed.keyId)
    const merged = context.subjectId
    if (merged !== null && merged !== subjectId) await merge(merged, atMs)
    const ageMs = ageOf(answer.observedAtMs)
    const source = ageMs <= freshAgeMaxMs ? 'fresh' : 'cached'
    return { kind: 'found', source, ageMs, subjectId, ids: answer.ids, data: answer.data }
  }

  /** A number names a person for good; a name does for a while. */
  const subjectFor = async (
    subjectId: string | null,
    { lid, urn }: { lid: string; urn: string | null },
  ): Promise<string> => {
    const numbered = urn === null ? undefined : await find(urn)
    if (numbered !== undefined) return numbered.subject_id
    if (subjectId !== null) return subjectId
    const named = await find(lid)
    const known = named === undefined ? [] : await knownAliases(named.subject_id)
    // Known by that name under another number, or under none lately: somebody else, or nobody in particular.
    return named !== undefined &&
      known.length > 0 &&
      !(urn !== null && known.some(({ kind }) => kind === 'urn'))
      ? named.subject_id
      : newSubjectId()
  }

  /** Two subjects turned out to be one person: the one without the number is let go. */
  const merge = async (subjectId: string, atMs: number): Promise<void> => {
    await vault.destroy(subjectId)
    await record(
      {
        type: 'ProfileErased',
        data: {
          subject_id: subjectId,
          reason: 'merged',
          erased_at: new Date(atMs).toISOString(),
          note: null,
        },
      },
      atMs,
    )
  }

  const refresh = (asked: Asked, subjectId: string): void => {
    if (refreshing >= limits.refreshesMax) return
    refreshing += 1
    void fetchShared(asked, subjectId, 'fresh')
      .done.catch(() => undefined)
      .finally(() => {
        refreshing -= 1
      })
  }

  return {
    retrieve: async (ref, { wants, beforeUpstream }) => {
      const asked: Asked = { ref, hmac: parts.identifierHmac(`${ref.kind}:${ref.value}`) }
      const [suppressed, row] = await Promise.all([vault.suppressed([asked.hmac]), find(asked.hmac)])
      if (suppressed) return { kind: 'missing' }
      const known = judge(row, clock.now(), wants)
      const cached = await served(known)
      if (cached !== null) {
        if (known.kind === 'data' && known.refresh) refresh(asked, known.subjectId)
        return fresher(cached, wants)
      }
      await beforeUpstream()
      const subjectId = known.kind === 'fetch' || known.kind === 'data' ? known.subjectId : null
      const { result } = fetchShared(asked, subjectId, wants)
      const late: Retrieved = { kind: 'unavailable', retryAfterSeconds: retryAfterSeconds.late }
      const retrieved = await within(result, limits.answerMaxMs, late)
      // A source that has nothing current does not make what it has current.
      return retrieved.kind === 'found' && wants === 'fresh' && retrieved.source !== 'fresh'
        ? { kind: 'unavailable', retryAfterSeconds: retryAfterSeconds.failed }
        : retrieved
    },
    close: async () => {
      await Promise.all([...fetches.values()].map(({ done }) => done.catch(() => undefined)))
    },
  }
}

type Payload = { readonly ids: ProfileIds; readonly data: ProfileData }

type Asked = { readonly ref: ProfileRef; readonly hmac: string }

type RecordContext = {
  readonly subjectId: string | null
  readonly aliases: readonly KnownAlias[]
  readonly atMs: number
  /** As events name it. */
  readonly provider: string
}

/** What was fetched a moment ago is fresh for who asked for fresh data (decision 20). */
const fresher = (retrieved: Retrieved, wants: 'cached' | 'fresh'): Retrieved =>
  retrieved.kind === 'found' && wants === 'fresh' ? { ...retrieved, source: 'fresh' } : retrieved

const distinct = (aliases: readonly KnownAlias[]): KnownAlias[] => [
  ...new Map(aliases.map((alias) => [alias.hmac, alias])).values(),
]

const within = async <T>(result: Promise<T>, deadlineMs: number, late: T): Promise<T> => {
  let timer: NodeJS.Timeout | undefined
  const deadline = new Promise<T>((resolve) => {
    timer = setTimeout(() => resolve(late), deadlineMs)
  })
  try {
    return await Promise.race([result, deadline])
  } finally {
    clearTimeout(timer)
  }
}
