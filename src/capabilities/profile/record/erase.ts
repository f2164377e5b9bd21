import type pg from 'pg'
import { subjectsOf } from '../../../../projections/profile-cache.ts'
import type { CapabilityStorage } from '../../../call/capability.ts'
import { rowsOf } from '../../../concurrency/query.ts'
import { lastOf } from '../../../event-log/append-chained.ts'
import { AppendConflict, type EventLog, type ExpectedRevision } from '../../../event-log/port.ts'
import { profileStream } from '../../../events/streams.ts'
import type { ProfileRef } from '../sources/provider.ts'
import { recordProfileEvent } from './records.ts'
import type { Vault } from './vault.ts'

/**
 * An erasure leaves the person's data in the event log, but makes it unreadable. One transaction destroys the keys of the data and suppresses
 * the person's identifiers, so that no running fetch can restore the data.
 */

export type ErasureParts = {
  readonly pool: pg.Pool
  readonly eventLog: Pick<EventLog, 'append' | 'read'>
  readonly vault: Vault
  readonly identifierHmac: (identifier: string) => string
  /**
   * Removes people from the operator's own data set. The argument and the result are keyed HMACs of identifiers. The result contains all
   * identifiers that these people had in the data set.
   */
  readonly eraseFromDataset: (hmacs: readonly string[]) => Promise<readonly string[]>
  readonly erasures: CapabilityStorage['erasures']
  readonly clock: { now(): number }
}

export type Erasure = {
  readonly subjects: number
  readonly identifiers: number
}

/**
 * Erases and suppresses every person to whom an identifier leads or has ever led. Can be repeated; a failed run has either destroyed the keys
 * or changed nothing. After the promise has resolved, no backup can restore the data. The projection must have caught up before the call.
 */
export const eraseProfile = async (
  parts: ErasureParts,
  ref: ProfileRef,
  { actor, note }: { actor: string; note: string | null },
): Promise<Erasure> => {
  const at = new Date(parts.clock.now())
  const { hmacs, subjectIds } = await forgetAll(parts, [parts.identifierHmac(`${ref.kind}:${ref.value}`)], at)
  await parts.erasures.add([...hmacs], at)
  await recordErased(parts.eventLog, [...subjectIds], { atMs: at.getTime(), actor, note })
  return { subjects: subjectIds.size, identifiers: hmacs.size }
}

/**
 * After a restore, erases everyone who was erased after the backup again, and returns the number of people. If KEY_DIR is an older copy,
 * erasures that only the database contains are added to its list.
 */
export const eraseAgain = async (parts: ErasureParts): Promise<number> => {
  const erased = await parts.erasures.list()
  await addMissing(parts, new Set(erased.flatMap(({ hmacs }) => hmacs)))
  const { rows } = await parts.pool.query<{ hmac: string }>(
    `select hmac from unnest($1::text[]) as u (hmac) where not exists (select from profile_suppressions s where s.hmac = u.hmac)`,
    [erased.flatMap(({ hmacs }) => hmacs)],
  )
  const back = new Set(rows.map(({ hmac }) => hmac))
  const people = erased.filter(({ hmacs }) => hmacs.some((hmac) => back.has(hmac)))
  for (const { at, hmacs } of people) {
    const { subjectIds } = await forgetAll(parts, hmacs, at)
    const again = { atMs: at.getTime(), actor: 'system', note: 'erased before the restore' } as const
    await recordErased(parts.eventLog, [...subjectIds], again)
  }
  return people.length
}

const addMissing = async ({ pool, erasures }: ErasureParts, listed: ReadonlySet<string>): Promise<void> => {
  const { rows } = await pool.query<{ hmac: string; suppressed_at: Date }>(
    'select hmac, suppressed_at from profile_suppressions order by suppressed_at, hmac',
  )
  const missing = rows.filter(({ hmac }) => !listed.has(hmac))
  // One person's identifiers were suppressed at the same time.
  for (const [atMs, people] of Map.groupBy(missing, ({ suppressed_at }) => suppressed_at.getTime()))
    await erasures.add(
      people.map(({ hmac }) => hmac),
      new Date(atMs),
    )
}

/** Destroys the keys of every person to whom the identifiers lead, and suppresses all identifiers of these people. */
const forgetAll = async (
  { pool, vault, eraseFromDataset }: ErasureParts,
  begunWith: readonly string[],
  at: Date,
): Promise<{ readonly hmacs: ReadonlySet<string>; readonly subjectIds: ReadonlySet<string> }> => {
  const hmacs = new Set(begunWith)
  const subjectIds = new Set<string>()
  // The read model, the vault and the data set can each contain identifiers that the other two lack, so the search repeats until it finds no
  // new identifiers.
  for (let known = -1, rounds = 0; hmacs.size > known && rounds < roundsMax; rounds++) {
    known = hmacs.size
    for (const { hmac, subject_id } of await rowsOf(pool, subjectsOf([...hmacs]))) {
      hmacs.add(hmac)
      subjectIds.add(subject_id)
    }
    // Identifiers are suppressed before the people are removed, so that no import restores them in between.
    for (const destroyed of await vault.forget({ hmacs: [...hmacs], subjectIds: [...subjectIds], at })) {
      subjectIds.add(destroyed.subjectId)
      for (const hmac of destroyed.hmacs) hmacs.add(hmac)
    }
    for (const hmac of await eraseFromDataset([...hmacs])) hmacs.add(hmac)
  }
  return { hmacs, subjectIds }
}

/** The maximum number of rounds. A person has few identifiers, and every round except the last finds a new one. */
const roundsMax = 16

const recordErased = async (
  eventLog: Pick<EventLog, 'append' | 'read'>,
  subjectIds: readonly string[],
  { atMs, actor, note }: { atMs: number; actor: string; note: string | null },
): Promise<void> => {
  const at = new Date(atMs).toISOString()
  for (const subject_id of subjectIds)
    await recordProfileEvent(
      eventLog,
      { type: 'ProfileErased', data: { subject_id, reason: 'request', erased_at: at, note } },
      { actor, at },
    )
}

/** Data older than 30 days is never returned (Spec §8), so it does not have to stay readable. */
const retentionMs = 720 * 3_600_000
export const retainedAtOnceMax = 500

/**
 * Destroys the keys of payloads older than 30 days, records this, and returns the number of subjects. Must be called again while the number
 * is the maximum. A newer payload of a subject is not affected, even if it is fetched at the same time.
 */
export const dropOldProfiles = async ({
  eventLog,
  vault,
  clock,
}: Pick<ErasureParts, 'eventLog' | 'vault' | 'clock'>): Promise<number> => {
  const atMs = clock.now()
  const before = new Date(atMs - retentionMs)
  const subjectIds = await vault.olderThan(before, retainedAtOnceMax)
  for (const subjectId of subjectIds) {
    // The revision is read before the keys, so that the append fails if a payload is recorded in between. The next run then destroys the old keys.
    const expected = (await lastOf(eventLog, profileStream(subjectId)))?.revision ?? 'none'
    if (!(await vault.holdsNewer(subjectId, before)))
      try {
        await recordDropped(eventLog, subjectId, { atMs, expected })
      } catch (error) {
        if (error instanceof AppendConflict) continue
        throw error
      }
    await vault.destroyOlder(subjectId, before)
  }
  return subjectIds.length
}

const recordDropped = (
  eventLog: ErasureParts['eventLog'],
  subjectId: string,
  { atMs, expected }: { readonly atMs: number; readonly expected: ExpectedRevision },
): Promise<void> => {
  const at = new Date(atMs).toISOString()
  const data = { subject_id: subjectId, reason: 'retention', erased_at: at, note: null } as const
  return recordProfileEvent(eventLog, { type: 'ProfileErased', data }, { actor: 'system', at, expected })
}
