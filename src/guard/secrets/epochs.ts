/**
 * When the key of an epoch begins and ends. Pure.
 *
 * Deleting a row does not destroy its content: the bytes remain in the heap, in the write-ahead log and in backups. So all personal data is sealed
 * under the key of an epoch. The key is stored outside the database and destroyed soon after the epoch ends. Once the key is destroyed, deleted
 * data cannot be opened in any remaining copy.
 *
 * An epoch has 29 days. Epochs are numbered from the Unix epoch, so a process needs only its clock to find the current one. A key exists for at
 * most 31 days: the epoch of 29 days, then 25 hours in which nothing is sealed under the key, then up to 23 hours until the hourly job has
 * destroyed it.
 *
 * Data that lives for a day (stored answers, waiting retries) expires during the 25 hours and is never resealed. Longer-lived data (profile keys
 * younger than 30 days, the data set) is resealed under the current key. The 25 hours also allow for clocks that differ. A process with a slow
 * clock still seals under the old key, a process with a fast clock already under the next, and every value names its key.
 */

const hourMs = 3_600_000
const dayMs = 24 * hourMs

export const epochMs = 29 * dayMs
/** The time from the end of an epoch until its key may be destroyed. */
const keptMs = 25 * hourMs
/** Promised by `profiles erase` and src/guides/data.md, "When is an erased person gone from every copy?". */
const keyMsMax = 31 * dayMs

export const epochOf = (atMs: number): number => Math.floor(atMs / epochMs)

/**
 * Whether no new values are sealed under a key. Data that is still needed must then be resealed under the current key. The next epoch's key is not
 * retired, because hosts with a fast clock use it. A key of any later epoch was made while a clock was wrong.
 */
export const isRetired = (epoch: number, currentEpoch: number): boolean =>
  epoch < currentEpoch || epoch > currentEpoch + 1

/** Whether a retired key may be destroyed once nothing is left to reseal. */
export const mayBeDestroyed = (epoch: number, atMs: number): boolean =>
  isRetired(epoch, epochOf(atMs)) && !(epoch <= epochOf(atMs) && atMs < (epoch + 1) * epochMs + keptMs)

/** Returns the time by which a key is destroyed, if jobs run. */
export const destroyedByMs = (epoch: number): number => epoch * epochMs + keyMsMax
