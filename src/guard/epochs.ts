/**
 * When a key-encryption key begins and ends. Pure.
 *
 * Deleting a row does not destroy what was in it: the bytes stay in the heap, in the write-ahead log and in backups for as
 * long as those exist. So everything about a person is sealed under the key of an epoch. That key is kept outside the
 * database and destroyed soon after its epoch. From then on no one can open what was deleted before, in any copy that is left.
 *
 * Epochs are numbered from the Unix epoch, 29 days each, so every process knows the current one from its clock
 * alone. Numbers that began with an installation's first key would be the same for one
 * installation, but would need a place to be kept, and a loss of that place would look like a new installation.
 *
 * 29 days, so that no key exists for more than 31: the epoch itself, then 25 hours in which nothing is sealed under the key
 * any more, then the hourly job that destroys it, with 23 hours to spare for a job that is late.
 *
 * The 25 hours are for two things. What lives for a day (kept answers, retries that wait) ends by itself in them and is never sealed
 * again. And clocks differ: a process whose clock is late goes on sealing under the old key for a while. One whose clock is early makes the next
 * key early, and the others open what it sealed, because every value names its key. What lives longer than a day (profile
 * keys younger than 30 days, the data set) is sealed anew under the current key in these hours.
 */

const hourMs = 3_600_000
const dayMs = 24 * hourMs

export const epochMs = 29 * dayMs
/** From an epoch's end until its key may be destroyed. */
const keptMs = 25 * hourMs
/** What `profiles erase` promises, and src/guides/operators.md, "What erasing a person means". */
const keyMsMax = 31 * dayMs

export const epochOf = (atMs: number): number => Math.floor(atMs / epochMs)

/**
 * Whether a key is no longer one to seal under: what is still needed is sealed anew under the current one. The next epoch's
 * is in use where a clock is early; any later one was made by a clock that is wrong.
 */
export const isRetired = (epoch: number, currentEpoch: number): boolean =>
  epoch < currentEpoch || epoch > currentEpoch + 1

/** Whether a retired key may be destroyed once nothing is left to seal anew. */
export const mayBeDestroyed = (epoch: number, atMs: number): boolean =>
  isRetired(epoch, epochOf(atMs)) && !(epoch <= epochOf(atMs) && atMs < (epoch + 1) * epochMs + keptMs)

/** By when a key is destroyed, where jobs run. */
export const destroyedByMs = (epoch: number): number => epoch * epochMs + keyMsMax
