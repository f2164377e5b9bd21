import type pg from 'pg'
import type { Logger } from 'pino'
import {
  aliasesOf,
  type ProfileAliasRow,
  profileOf,
  type SubjectAliasRow,
} from '../../../../projections/profile-cache.ts'
import { unavailableWhenAway } from '../../../call/unavailable.ts'
import type { EventLog } from '../../../event-log/port.ts'
import type { ProfileData, ProfileIds, ProfileRef, ProviderAnswer } from '../sources/provider.ts'
import { aliasAgeMaxMs, freshAgeMaxMs } from './freshness.ts'
import { belongs, type KnownAlias } from './identity.ts'
import { createLookUps, type LookUp } from './look-ups.ts'
import { newSubjectId, recordProfileEvent } from './records.ts'
import type { Vault } from './vault.ts'

/** What a provider's answer means for whom it was asked, written into the event log. */

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

/** What is sealed. */
export type Payload = { readonly ids: ProfileIds; readonly data: ProfileData }

/** Who is asked for; `hmac` is what the event log knows the identifier by. */
export type Asked = { readonly ref: ProfileRef; readonly hmac: string }

/** Whom the identifier led to when the provider was asked, and what it said. */
type Context = {
  readonly subjectId: string | null
  /** Identifiers confirmed lately for that subject. */
  readonly known: readonly KnownAlias[]
  /** Who answered, and when. */
  readonly provider: string
  readonly atMs: number
}

type Recording = {
  lookUp(hmac: string): Promise<LookUp>
  find(hmac: string): Promise<ProfileAliasRow | undefined>
  knownAliases(subjectId: string): Promise<KnownAlias[]>
  /** The identifiers last told of whom an identifier leads to; null where they cannot be read any more. */
  idsOf(hmac: string): Promise<ProfileIds | null>
  found(
    asked: Asked,
    answer: Extract<ProviderAnswer, { kind: 'found' }>,
    context: Context,
  ): Promise<Retrieved>
  absent(asked: Asked, reason: Absence, context: Context): Promise<Retrieved>
}

type Absence = 'gone' | 'not_found' | 'inaccessible'

export type RecordingParts = {
  readonly pool: pg.Pool
  readonly eventLog: Pick<EventLog, 'append' | 'read'>
  readonly vault: Vault
  readonly identifierHmac: (identifier: string) => string
  readonly clock: { now(): number }
  readonly logger: Logger
}

/** An event takes a megabyte, and text takes up to four bytes a character before it is sealed. */
const payloadCharactersMax = 180_000
const tooMuchRetrySeconds = 60

const formerAliasesMax = 64

export const createRecording = (parts: RecordingParts): Recording => {
  const { pool, vault, clock, logger } = parts
  const lookUps = createLookUps(pool)

  const find = async (hmac: string): Promise<ProfileAliasRow | undefined> => {
    const { text, values } = profileOf(hmac)
    return (await pool.query<ProfileAliasRow>(text, [...values]).catch(unavailableWhenAway)).rows[0]
  }

  const aliases = async (subjectId: string): Promise<(KnownAlias & { verifiedAtMs: number | null })[]> => {
    const { text, values } = aliasesOf(subjectId)
    const { rows } = await pool.query<SubjectAliasRow>(text, [...values]).catch(unavailableWhenAway)
    return rows.flatMap(({ kind, hmac, verified_at: at }) =>
      kind === 'lid' || kind === 'urn' ? [{ kind, hmac, verifiedAtMs: at?.getTime() ?? null }] : [],
    )
  }

  const knownAliases = async (subjectId: string): Promise<KnownAlias[]> =>
    (await aliases(subjectId))
      .filter(({ verifiedAtMs: at }) => at !== null && clock.now() - at <= aliasAgeMaxMs)
      .map(({ kind, hmac }) => ({ kind, hmac }))

  const idsOf = async (hmac: string): Promise<ProfileIds | null> => {
    const row = await find(hmac)
    if (row === undefined || row.key_id === null || row.sealed === null) return null
    const text = await vault.open({ subjectId: row.subject_id, keyId: row.key_id, sealed: row.sealed })
    return text === null ? null : (JSON.parse(text) as Payload).ids
  }

  const record = (event: Parameters<typeof recordProfileEvent>[1], atMs: number): Promise<void> =>
    recordProfileEvent(parts.eventLog, event, { actor: 'system', at: new Date(atMs).toISOString() })

  const missed = async (
    asked: Asked,
    reason: 'not_found' | 'inaccessible' | 'mismatch',
    { subjectId, atMs, provider }: Context,
  ): Promise<Retrieved> => {
    const data = {
      subject_id: subjectId ?? newSubjectId(),
      provider,
      reason,
      observed_at: new Date(atMs).toISOString(),
      aliases: [{ kind: asked.ref.kind, hmac: asked.hmac }],
    }
    await record({ type: 'ProfileMissed', data }, atMs)
    return { kind: 'missing' }
  }

  /** Whether the source that knew the person was asked by what it knew them by: only then its silence is about them. */
  const isAbout = async (asked: Asked, { subjectId, known, provider }: Context): Promise<boolean> => {
    if (subjectId === null || !known.some(({ hmac }) => hmac === asked.hmac)) return false
    const row = await find(asked.hmac)
    if (row?.subject_id !== subjectId || row.provider !== provider) return false
    const ids = await idsOf(asked.hmac)
    // Nothing readable is left of somebody who was told to be gone before.
    if (ids === null) return row.gone_at !== null
    return (asked.ref.kind === 'lid' ? ids.lid : ids.urn) === asked.ref.value
  }

  /** Two subjects turned out to be one person: the one without the number is let go, and its identifiers are handed on. */
  const merge = async (subjectId: string, atMs: number): Promise<void> => {
    await vault.destroy(subjectId)
    const erased_at = new Date(atMs).toISOString()
    await record(
      { type: 'ProfileErased', data: { subject_id: subjectId, reason: 'merged', erased_at, note: null } },
      atMs,
    )
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

  return {
    lookUp: lookUps.of,
    find,
    knownAliases,
    idsOf,
    absent: async (asked, reason, context) => {
      const { subjectId, provider, atMs } = context
      if (await vault.suppressed([asked.hmac])) return { kind: 'missing' }
      if (subjectId === null || !(await isAbout(asked, context)))
        return missed(asked, reason === 'gone' ? 'not_found' : reason, context)
      const observed_at = new Date(atMs).toISOString()
      await record(
        { type: 'ProfileGone', data: { subject_id: subjectId, provider, reason, observed_at } },
        atMs,
      )
      if (reason === 'gone') await vault.destroy(subjectId)
      return { kind: 'deleted', subjectId, ageMs: 0 }
    },
    found: async (asked, { ids, data, observedAtMs, redirected }, context) => {
      const { atMs, provider } = context
      const lid = parts.identifierHmac(`lid:${ids.lid}`)
      const urn = ids.urn === null ? null : parts.identifierHmac(`urn:${ids.urn}`)
      const own = { kind: asked.ref.kind, hmac: asked.hmac }
      if (!belongs(own, { lid, urn }, { known: context.known, redirected }))
        return missed(asked, 'mismatch', context)
      const current = distinct([
        own,
        { kind: 'lid', hmac: lid },
        ...(urn === null ? [] : [{ kind: 'urn' as const, hmac: urn }]),
      ])
      const subjectId = await subjectFor(context.subjectId, { lid, urn })
      const merged = context.subjectId === subjectId ? null : context.subjectId
      const former = merged === null ? [] : without(await aliases(merged), current).slice(0, formerAliasesMax)
      const text = JSON.stringify({ ids, data } satisfies Payload)
      if (text.length > payloadCharactersMax) {
        logger.warn({ characters: text.length }, 'profile provider: more data of one person than are kept')
        return { kind: 'unavailable', retryAfterSeconds: tooMuchRetrySeconds }
      }
      const hmacs = [...current, ...former].map(({ hmac }) => hmac)
      const sealed = await vault.seal({ subjectId, hmacs, text })
      if (sealed === null) return { kind: 'missing' }
      const fetched = {
        subject_id: subjectId,
        provider,
        observed_at: new Date(observedAtMs).toISOString(),
        fetched_at: new Date(atMs).toISOString(),
        aliases: current,
        former_aliases: former,
        key_id: sealed.keyId,
        sealed: sealed.sealed,
      }
      await record({ type: 'ProfileFetched', data: fetched }, atMs)
      // Nothing older is ever served: nothing older needs to be readable.
      await vault.destroy(subjectId, sealed.keyId)
      if (merged !== null) await merge(merged, atMs)
      const ageMs = Math.max(0, clock.now() - observedAtMs)
      return {
        kind: 'found',
        source: ageMs <= freshAgeMaxMs ? 'fresh' : 'cached',
        ageMs,
        subjectId,
        ids,
        data,
      }
    },
  }
}

const distinct = (aliases: readonly KnownAlias[]): KnownAlias[] => [
  ...new Map(aliases.map((alias) => [alias.hmac, alias])).values(),
]

const without = (aliases: readonly KnownAlias[], taken: readonly KnownAlias[]): KnownAlias[] =>
  aliases
    .filter(({ hmac }) => !taken.some((one) => one.hmac === hmac))
    .map(({ kind, hmac }) => ({ kind, hmac }))
