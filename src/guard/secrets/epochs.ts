/**
 * The times at which the key of an epoch is first used and destroyed. Pure.
 *
 * Deleting a row does not destroy its content: the bytes remain in the heap, in the write-ahead log and in backups. So all personal data is sealed
 * under the key of an epoch. The key is stored outside the database and destroyed soon after the epoch ends. After that, deleted data cannot be
 * opened in any remaining copy.
 *
 * An epoch lasts 29 days. Epochs are numbered from the Unix epoch, so a process needs only its clock to find the current one. A key exists for at
 * most 31 days: 29 days in use, 25 hours in which nothing is sealed under it, and up to 23 hours until the hourly job has destroyed it.
 *
 * Data that is kept for a day (stored answers, waiting retries) expires during the 25 hours and is never resealed. Data that is kept longer
 * (profile keys for up to 30 days, the data set) is resealed under the current key. The 25 hours also allow for differences between clocks: every
 * value contains the id of its key, so processes can use the keys of two epochs at the same time.
 */

const hourMs = 3_600_000
const dayMs = 24 * hourMs

export const epochMs = 29 * dayMs
/** The time from the end of an epoch until its key can be destroyed. */
const keptMs = 25 * hourMs
/** Promised by `profiles erase` and src/guides/data.md, "When is an erased person gone from every copy?". */
const keyMsMax = 31 * dayMs

export const epochOf = (atMs: number): number => Math.floor(atMs / epochMs)

/**
 * Whether new values must not be sealed under a key, so that data that is still needed must be resealed. The next epoch's key is not retired,
 * because hosts with a fast clock already use it. A key of a later epoch was created while a clock was wrong.
 */
export const isRetired = (epoch: number, currentEpoch: number): boolean =>
  epoch < currentEpoch || epoch > currentEpoch + 1

/** Whether a retired key can be destroyed when nothing is left to reseal. */
export const mayBeDestroyed = (epoch: number, atMs: number): boolean =>
  isRetired(epoch, epochOf(atMs)) && !(epoch <= epochOf(atMs) && atMs < (epoch + 1) * epochMs + keptMs)

/** Returns the time by which a key is destroyed, provided that jobs are running. */
export const destroyedByMs = (epoch: number): number => epoch * epochMs + keyMsMax
