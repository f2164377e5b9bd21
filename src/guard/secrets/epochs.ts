/**
 * When a key-encryption key begins and ends. Pure.
 *
 * Deleting a row does not destroy its content: the bytes stay in the heap, in the write-ahead log and in backups for as
 * long as those exist. So all personal data is sealed under the key of an epoch. That key is kept outside the
 * database and destroyed soon after its epoch. From then on no one can open data that was deleted before, in any remaining copy.
 *
 * Epochs are numbered from the Unix epoch, 29 days each, so every process knows the current one from its clock
 * alone. Numbers that began with an installation's first key would be the same for one
 * installation, but would need a place to be kept, and a loss of that place would look like a new installation.
 *
 * 29 days, so that no key exists for more than 31: the epoch itself, then 25 hours in which nothing more is sealed under the key,
 * then the hourly job that destroys it, with 23 hours to spare for a job that is late.
 *
 * The 25 hours have two purposes. Data that lives for a day (kept answers, waiting retries) expires during them and is never sealed
 * again. And clocks differ: a process whose clock is late continues to seal under the old key for a while. One whose clock is early makes the next
 * key early, and the others can open the values it sealed, because every value names its key. Data that lives longer than a day (profile
 * keys younger than 30 days, the data set) is resealed under the current key in these hours.
 */

const hourMs = 3_600_000
const dayMs = 24 * hourMs

export const epochMs = 29 * dayMs
/** From an epoch's end until its key may be destroyed. */
const keptMs = 25 * hourMs
/** Promised by `profiles erase` and src/guides/data.md, "When is an erased person gone from every copy?". */
const keyMsMax = 31 * dayMs

export const epochOf = (atMs: number): number => Math.floor(atMs / epochMs)

/**
 * Whether a key is no longer used to seal: data that is still needed is resealed under the current key. The next epoch's
 * key is in use where a clock is fast; a key of any later epoch was made while a clock was wrong.
 */
export const isRetired = (epoch: number, currentEpoch: number): boolean =>
  epoch < currentEpoch || epoch > currentEpoch + 1

/** Whether a retired key may be destroyed once nothing is left to reseal. */
export const mayBeDestroyed = (epoch: number, atMs: number): boolean =>
  isRetired(epoch, epochOf(atMs)) && !(epoch <= epochOf(atMs) && atMs < (epoch + 1) * epochMs + keptMs)

/** The time by which a key is destroyed, if jobs run. */
export const destroyedByMs = (epoch: number): number => epoch * epochMs + keyMsMax
