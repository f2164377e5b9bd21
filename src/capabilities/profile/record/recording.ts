import type { Logger } from 'pino'
import type { EventLog } from '../../../event-log/port.ts'
import type { ProviderAnswer } from '../sources/provider.ts'
import { freshAgeMaxMs } from './freshness.ts'
import { belongs, type KnownAlias } from './identity.ts'
import { newSubjectId, recordProfileEvent } from './records.ts'
import { type Asked, type Payload, type Retrieved, unavailable } from './retrieved.ts'
import { allAliases, findAlias, idsOf, type SubjectParts, subjectFor } from './subjects.ts'

export type RecordingParts = SubjectParts & {
  readonly eventLog: Pick<EventLog, 'append' | 'read'>
  readonly identifierHmac: (identifier: string) => string
  readonly logger: Logger
}

/** The state when the provider answered. `subjectId` is the person to whom the identifier led when the provider was asked. */
type Context = {
  readonly subjectId: string | null
  /** The recently confirmed identifiers of the subject `subjectId`. */
  readonly known: readonly KnownAlias[]
  readonly provider: string
  readonly atMs: number
}

type Found = Extract<ProviderAnswer, { kind: 'found' }>

/** The limit for a payload, because an event can have a megabyte, a character can take four bytes, and sealing makes the text longer. */
const payloadCharactersMax = 180_000
const tooMuchRetrySeconds = 60

const formerAliasesMax = 64

/** Records a provider's data if it is about the requested person, and makes older data unreadable. */
export const recordFound = async (
  parts: RecordingParts,
  asked: Asked,
  answer: Found,
  context: Context,
): Promise<Retrieved> => {
  const { vault, clock } = parts
  const { ids, data, observedAtMs, redirected } = answer
  const { atMs, provider } = context
  const own = { kind: asked.ref.kind, hmac: asked.hmac }
  const hmacs = {
    lid: parts.identifierHmac(`lid:${ids.lid}`),
    urn: ids.urn === null ? null : parts.identifierHmac(`urn:${ids.urn}`),
  }
  if (!belongs(own, hmacs, { known: context.known, redirected }))
    return recordMissed(parts, asked, 'mismatch', context)
  const subjectId = await subjectFor(parts, context.subjectId, hmacs)
  const merged = context.subjectId === subjectId ? null : context.subjectId
  const current = currentAliases(own, hmacs)
  const former = merged === null ? [] : await formerAliases(parts, merged, current)
  const text = JSON.stringify({ ids, data } satisfies Payload)
  if (text.length > payloadCharactersMax) {
    parts.logger.warn(
      { characters: text.length },
      'profile provider: the data about one person is too large to store',
    )
    return unavailable(tooMuchRetrySeconds)
  }
  const sealed = await vault.seal({
    subjectId,
    hmacs: [...new Set([...current, ...former].map(({ hmac }) => hmac))],
    text,
  })
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
  await record(parts, { type: 'ProfileFetched', data: fetched }, atMs)
  // Older data is never returned, so it does not have to be readable.
  await vault.destroy(subjectId, sealed.keyId)
  if (merged !== null) await merge(parts, merged, atMs)
  const ageMs = Math.max(0, clock.now() - observedAtMs)
  return { kind: 'found', source: ageMs <= freshAgeMaxMs ? 'fresh' : 'cached', ageMs, subjectId, ids, data }
}

/**
 * Records that a provider found no person. If this provider knew the person before, the person is marked as deleted. Otherwise, the
 * identifier leads to no person.
 */
export const recordAbsent = async (
  parts: RecordingParts,
  asked: Asked,
  reason: 'gone' | 'not_found' | 'inaccessible',
  context: Context,
): Promise<Retrieved> => {
  const { vault } = parts
  const { subjectId, provider, atMs } = context
  if (await vault.suppressed([asked.hmac])) return { kind: 'missing' }
  if (subjectId === null || !(await isAbout(parts, asked, context)))
    return recordMissed(parts, asked, reason === 'gone' ? 'not_found' : reason, context)
  const observed_at = new Date(atMs).toISOString()
  const gone = { subject_id: subjectId, provider, reason, observed_at }
  await record(parts, { type: 'ProfileGone', data: gone }, atMs)
  if (reason === 'gone') await vault.destroy(subjectId)
  return { kind: 'deleted', subjectId, ageMs: 0 }
}

const recordMissed = async (
  parts: RecordingParts,
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
  await record(parts, { type: 'ProfileMissed', data }, atMs)
  return { kind: 'missing' }
}

const record = (
  { eventLog }: RecordingParts,
  event: Parameters<typeof recordProfileEvent>[1],
  atMs: number,
): Promise<void> => recordProfileEvent(eventLog, event, { actor: 'system', at: new Date(atMs).toISOString() })

/** Whether the source knew the person and was asked with an identifier that it knew. Its answer is about the person only in this case. */
const isAbout = async (
  parts: RecordingParts,
  asked: Asked,
  { subjectId, known, provider }: Context,
): Promise<boolean> => {
  if (subjectId === null || !known.some(({ hmac }) => hmac === asked.hmac)) return false
  const row = await findAlias(parts, asked.hmac)
  if (row?.subject_id !== subjectId || row.provider !== provider) return false
  const ids = await idsOf(parts, asked.hmac)
  // A person who is already marked as deleted has no readable data.
  if (ids === null) return row.gone_at !== null
  return (asked.ref.kind === 'lid' ? ids.lid : ids.urn) === asked.ref.value
}

/** Merges two subjects that are the same person: the subject without a number is released, and its identifiers pass to the other one. */
const merge = async (parts: RecordingParts, subjectId: string, atMs: number): Promise<void> => {
  await parts.vault.destroy(subjectId)
  const erased_at = new Date(atMs).toISOString()
  const erased = { subject_id: subjectId, reason: 'merged' as const, erased_at, note: null }
  await record(parts, { type: 'ProfileErased', data: erased }, atMs)
}

const currentAliases = (own: KnownAlias, { lid, urn }: { lid: string; urn: string | null }): KnownAlias[] => {
  const aliases: KnownAlias[] = [own, { kind: 'lid', hmac: lid }]
  if (urn !== null) aliases.push({ kind: 'urn', hmac: urn })
  return [...new Map(aliases.map((alias) => [alias.hmac, alias])).values()]
}

const formerAliases = async (
  parts: RecordingParts,
  merged: string,
  current: readonly KnownAlias[],
): Promise<KnownAlias[]> =>
  (await allAliases(parts, merged))
    .filter(({ hmac }) => !current.some((alias) => alias.hmac === hmac))
    .map(({ kind, hmac }) => ({ kind, hmac }))
    .slice(0, formerAliasesMax)
