import type pg from 'pg'
import { type SubjectAliasRow, subjectsOf } from '../../../../projections/profile-cache.ts'
import type { CapabilityStorage } from '../../../call/capability.ts'
import type { EventLog } from '../../../event-log/port.ts'
import type { ProfileRef } from '../sources/provider.ts'
import { recordProfileEvent } from './records.ts'
import type { Vault } from './vault.ts'

/**
 * Forgetting a person. Their data in the event log stays, unreadable: its keys are destroyed first, in the same
 * transaction that suppresses their identifiers, so that no running fetch can bring them back.
 */

export type ErasureParts = {
  readonly pool: pg.Pool
  readonly eventLog: Pick<EventLog, 'append' | 'read'>
  readonly vault: Vault
  readonly identifierHmac: (identifier: string) => string
  /** Removes people from the operator's own data set, and returns the identifiers it knew them by: keyed HMACs, as in the question. */
  readonly eraseFromDataset: (hmacs: readonly string[]) => Promise<readonly string[]>
  readonly erasures: CapabilityStorage['erasures']
  readonly clock: { now(): number }
}

export type Erasure = {
  /** Subjects whose data became unreadable. */
  readonly subjects: number
  /** Identifiers that will never be fetched, served or imported again. */
  readonly identifiers: number
}

/**
 * Erases and suppresses everyone an identifier leads or ever led to. The projection must have caught up. Repeatable: a second run
 * suppresses the same identifiers and finds nothing left. A failed run has destroyed the keys, or done nothing. Once it resolves, no
 * backup can restore the data.
 */
export const eraseProfile = async (
  parts: ErasureParts,
  ref: ProfileRef,
  { actor, note }: { actor: string; note: string | null },
): Promise<Erasure> => {
  const at = new Date(parts.clock.now())
  const { hmacs, subjectIds } = await forgetAll(parts, [parts.identifierHmac(`${ref.kind}:${ref.value}`)], at)
  await parts.erasures.add([...hmacs], at)
  await recordErased(parts.eventLog, [...subjectIds], { reason: 'request', atMs: at.getTime(), actor, note })
  return { subjects: subjectIds.size, identifiers: hmacs.size }
}

/**
 * Erases again everyone who was erased after the backup of these rows was made. Returns how many people; 0 if nothing was
 * restored.
 */
export const eraseAgain = async (parts: ErasureParts): Promise<number> => {
  const erased = await parts.erasures.list()
  const { rows } = await parts.pool.query<{ hmac: string }>(
    `select hmac from unnest($1::text[]) as u (hmac) where not exists (select from profile_suppressions s where s.hmac = u.hmac)`,
    [erased.flatMap(({ hmacs }) => hmacs)],
  )
  const back = new Set(rows.map(({ hmac }) => hmac))
  const people = erased.filter(({ hmacs }) => hmacs.some((hmac) => back.has(hmac)))
  for (const { at, hmacs } of people) {
    const { subjectIds } = await forgetAll(parts, hmacs, at)
    const again = { atMs: at.getTime(), actor: 'system', note: 'erased before the restore' } as const
    await recordErased(parts.eventLog, [...subjectIds], { reason: 'request', ...again })
  }
  return people.length
}

/** Destroys the keys of everyone that the identifiers lead to, and suppresses those and all their other identifiers. */
const forgetAll = async (
  { pool, vault, eraseFromDataset }: ErasureParts,
  begunWith: readonly string[],
  at: Date,
): Promise<{ readonly hmacs: ReadonlySet<string>; readonly subjectIds: ReadonlySet<string> }> => {
  const hmacs = new Set(begunWith)
  const subjectIds = new Set<string>()
  // Each source may know the person by identifiers the other does not: repeat until neither names a new identifier.
  for (let known = -1, rounds = 0; hmacs.size > known && rounds < roundsMax; rounds++) {
    known = hmacs.size
    const { text, values } = subjectsOf([...hmacs])
    for (const { hmac, subject_id } of (await pool.query<SubjectAliasRow>(text, [...values])).rows) {
      hmacs.add(hmac)
      subjectIds.add(subject_id)
    }
    // Suppressed before they are removed: no import brings them back in between.
    for (const destroyed of await vault.forget({ hmacs: [...hmacs], subjectIds: [...subjectIds], at })) {
      subjectIds.add(destroyed.subjectId)
      for (const hmac of destroyed.hmacs) hmacs.add(hmac)
    }
    for (const hmac of await eraseFromDataset([...hmacs])) hmacs.add(hmac)
  }
  return { hmacs, subjectIds }
}

/** A person has few identifiers, and each further round has found another one. */
const roundsMax = 16

const recordErased = async (
  eventLog: Pick<EventLog, 'append' | 'read'>,
  subjectIds: readonly string[],
  {
    reason,
    atMs,
    actor,
    note,
  }: { reason: 'request' | 'retention'; atMs: number; actor: string; note: string | null },
): Promise<void> => {
  const at = new Date(atMs).toISOString()
  for (const subject_id of subjectIds)
    await recordProfileEvent(
      eventLog,
      { type: 'ProfileErased', data: { subject_id, reason, erased_at: at, note } },
      { actor, at },
    )
}

/** Spec §8: nothing older than 30 days is served, so nothing older is kept. */
const retentionMs = 720 * 3_600_000
export const retainedAtOnceMax = 500

/**
 * Destroys the keys of payloads older than 30 days and records it in the event log. Returns how many subjects; call again while
 * it returns the maximum. A subject fetched again since then keeps its newer payload: that fetch destroyed the older key itself.
 */
export const dropOldProfiles = async ({
  eventLog,
  vault,
  clock,
}: Pick<ErasureParts, 'eventLog' | 'vault' | 'clock'>): Promise<number> => {
  const atMs = clock.now()
  const subjectIds = await vault.olderThan(new Date(atMs - retentionMs), retainedAtOnceMax)
  for (const subjectId of subjectIds) {
    await recordErased(eventLog, [subjectId], { reason: 'retention', atMs, actor: 'system', note: null })
    await vault.destroy(subjectId)
  }
  return subjectIds.length
}
