import type { ProcessId } from './peer.ts'
import type { ProcessRow } from './processes-table.ts'

/**
 * How many of the processes write ledgers. Pure.
 *
 * What several ledgers append at the same time goes into one transaction where one process writes them, and the commands
 * that one process sends to one other go into one message. So few processes write as long as they can: each more makes
 * every append and every message smaller.
 */

export type OwnersLimits = {
  /** What a process writes beside its other work: a half of what it could. */
  readonly commandsPerOwnerSecond: number
  readonly ownersMin: number
}

export const ownersLimits: OwnersLimits = { commandsPerOwnerSecond: 5_000, ownersMin: 1 }

/** A process more is asked for at once, one less only when the rest would have room: a change makes ledgers be read anew. */
const roomShare = 0.7

/** `now` write `perSecond` commands in all. */
export const ownersWanted = (
  now: number,
  perSecond: number,
  { commandsPerOwnerSecond, ownersMin }: OwnersLimits,
): number => {
  const needed = Math.max(ownersMin, Math.ceil(perSecond / commandsPerOwnerSecond))
  if (needed >= now) return needed
  return Math.max(needed, Math.min(now, Math.ceil(perSecond / (commandsPerOwnerSecond * roomShare))))
}

/** What holds for all: what the process that lives longest finds; `now` where that is not known. */
export const ownersAgreed = (
  among: readonly ProcessId[],
  rows: readonly Pick<ProcessRow, 'id' | 'owners'>[],
  now: number,
): number => {
  const [oldest] = among.toSorted()
  return rows.find(({ id }) => id === oldest)?.owners ?? now
}

/** What is smoothed away, in milliseconds: a burst is over before ledgers have moved. */
const smoothingMs = 10_000

/** Commands per second of what is counted, smoothed. Told the count and the time now and then. */
export const createRate = (): ((count: number, nowMs: number) => number) => {
  let last: { readonly count: number; readonly nowMs: number } | undefined
  let rate = 0
  return (count, nowMs) => {
    const passedMs = nowMs - (last?.nowMs ?? nowMs)
    if (last !== undefined && passedMs > 0)
      rate += (((count - last.count) * 1_000) / passedMs - rate) * (1 - Math.exp(-passedMs / smoothingMs))
    if (last === undefined || passedMs > 0) last = { count, nowMs }
    return rate
  }
}
