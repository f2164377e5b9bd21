import type pg from 'pg'
import { aliasesOf, type ProfileAliasRow, profileOf } from '../../../../projections/profile-cache.ts'
import { unavailableWhenAway } from '../../../call/unavailable.ts'
import { rowsOf } from '../../../concurrency/query.ts'
import type { ProfileIds } from '../sources/provider.ts'
import { aliasAgeMaxMs } from './freshness.ts'
import type { KnownAlias } from './identity.ts'
import { newSubjectId } from './records.ts'
import type { Payload } from './retrieved.ts'
import type { Vault } from './vault.ts'

export type SubjectParts = {
  readonly pool: pg.Pool
  readonly vault: Vault
  readonly clock: { now(): number }
}

/** Returns the person to whom the keyed HMAC of an identifier leads; undefined if unknown. */
export const findAlias = async (
  { pool }: Pick<SubjectParts, 'pool'>,
  hmac: string,
): Promise<ProfileAliasRow | undefined> => (await rowsOf(pool, profileOf(hmac)).catch(unavailableWhenAway))[0]

/** Every identifier of a subject, no matter how long ago it was confirmed. */
export const allAliases = async (
  { pool }: Pick<SubjectParts, 'pool'>,
  subjectId: string,
): Promise<(KnownAlias & { verifiedAtMs: number | null })[]> => {
  const rows = await rowsOf(pool, aliasesOf(subjectId)).catch(unavailableWhenAway)
  return rows.flatMap(({ kind, hmac, verified_at: at }) =>
    kind === 'lid' || kind === 'urn' ? [{ kind, hmac, verifiedAtMs: at?.getTime() ?? null }] : [],
  )
}

/** The recently confirmed identifiers of a subject. */
export const knownAliases = async (
  parts: Pick<SubjectParts, 'pool' | 'clock'>,
  subjectId: string,
): Promise<KnownAlias[]> =>
  (await allAliases(parts, subjectId))
    .filter(({ verifiedAtMs: at }) => at !== null && parts.clock.now() - at <= aliasAgeMaxMs)
    .map(({ kind, hmac }) => ({ kind, hmac }))

/** The identifiers last received for the person to whom an identifier leads; null if they are unknown or unreadable. */
export const idsOf = async (
  parts: Pick<SubjectParts, 'pool' | 'vault'>,
  hmac: string,
): Promise<ProfileIds | null> => {
  const row = await findAlias(parts, hmac)
  if (row === undefined || row.key_id === null || row.sealed === null) return null
  const payload = { subjectId: row.subject_id, keyId: row.key_id, sealed: row.sealed }
  const text = await parts.vault.open(payload)
  return text === null ? null : (JSON.parse(text) as Payload).ids
}

/**
 * Returns the subject of an answer with these identifiers, or a new one. `subjectId` is the subject to whom the requested identifier led. A
 * number identifies a person permanently, but a name only for a while.
 */
export const subjectFor = async (
  parts: Pick<SubjectParts, 'pool' | 'clock'>,
  subjectId: string | null,
  { lid, urn }: { lid: string; urn: string | null },
): Promise<string> => {
  const numbered = urn === null ? undefined : await findAlias(parts, urn)
  if (numbered !== undefined) return numbered.subject_id
  if (subjectId !== null) return subjectId
  const named = await findAlias(parts, lid)
  const known = named === undefined ? [] : await knownAliases(parts, named.subject_id)
  // If the named subject has another number or no recently confirmed identifier, the answer is about a new subject.
  return named !== undefined &&
    known.length > 0 &&
    !(urn !== null && known.some(({ kind }) => kind === 'urn'))
    ? named.subject_id
    : newSubjectId()
}
