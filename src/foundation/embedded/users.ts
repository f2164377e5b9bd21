/**
 * Who uses the embedded PostgreSQL: the last process that leaves stops it, whichever of them started it. Two commands at once on
 * an installation that is stopped would else end each other's connections.
 *
 * Each process holds a shared lock on `postgres.users`. Who joins and who leaves takes turns (`postgres.turn`): so a process
 * that finds itself alone stays alone until it has stopped the server, and of two that leave together one finds itself alone.
 */
import { setTimeout as delay } from 'node:timers/promises'
import type { Place } from './cluster.ts'
import { type Lock, lockFile } from './lock.ts'

const pollMs = 10
/** A turn takes moments, but for that of the last one, which stops the server: no one else leaves then. */
const turnMaxMs = 5_000

const turnOf = async (place: Place): Promise<Lock | null> => {
  for (const untilMs = performance.now() + turnMaxMs; ; await delay(pollMs)) {
    const turn = lockFile(place, place.turn, 'exclusive')
    if (turn !== null || performance.now() > untilMs) return turn
  }
}

/** This process uses the server from now on. Waits while the last user stops it; null after `waitMs`, or a few seconds where that is less. */
export const joinUsers = async (place: Place, waitMs: number): Promise<Lock | null> => {
  for (const untilMs = performance.now() + Math.max(waitMs, turnMaxMs); ; await delay(pollMs)) {
    const turn = lockFile(place, place.turn, 'exclusive')
    const use = turn === null ? null : lockFile(place, place.users, 'shared')
    turn?.release()
    if (use !== null || performance.now() > untilMs) return use
  }
}

/** This process uses the server no more. `stop` is called where no other one does, and no one joins until it is done. */
export const leaveUsers = async (place: Place, use: Lock, stop: () => Promise<void>): Promise<void> => {
  const turn = await turnOf(place)
  try {
    use.release()
    // Without a turn it is left to the next start, which finds the server and takes it over.
    const alone = turn === null ? null : lockFile(place, place.users, 'exclusive')
    if (alone === null) return
    try {
      await stop()
    } finally {
      alone.release()
    }
  } finally {
    turn?.release()
  }
}

/** The same at once, where a process exits: without a turn, for it cannot wait. */
export const leaveUsersAtExit = (place: Place, use: Lock, stop: () => void): void => {
  use.release()
  const alone = lockFile(place, place.users, 'exclusive')
  if (alone === null) return
  stop()
  alone.release()
}
