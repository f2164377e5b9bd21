import { logStart, type Position } from '../port.ts'
import { searchWindow } from './messages.ts'
import { readHead, readHeaders } from './read.ts'
import type { Session } from './subscription-session.ts'

/** Finds out whether a subscription that is silent misses events the log holds. */

/** How long an event the log holds may be on its way before the subscription counts as stalled. */
const graceMs = 1_000
/** How many events of others are looked through at a time to prove that nothing was missed among them. */
const proofMax = 4 * searchWindow

type Check = {
  /** After this long without an event, or without a word of the server, silence is a matter to check. */
  readonly heartbeatMs: number
  /** How long a read may hear nothing. */
  readonly silenceMs: number
  readonly signal: AbortSignal
}

/**
 * Nothing came for a while: checks whether there was nothing to come. Throws where there was, and moves `seen` over
 * what it has proved to be of others.
 */
export const checkSilence = async (session: Session, check: Check): Promise<void> => {
  const heard = performance.now() - session.heardAtMs < check.heartbeatMs
  session.beatAtMs = performance.now()
  if (session.filtered) {
    if (session.caughtUp || !heard) await lookThrough(session, check, heard)
  } else if (!heard) {
    const head = await readHead(session.connection, check.silenceMs)
    if (await isStalled(session, head, check.signal)) throw new Error(`events up to ${head} do not arrive`)
  }
}

/** Looks through others' events without the server's filter, a page at a time, for what should have been delivered. */
const lookThrough = async (
  session: Session,
  { silenceMs, heartbeatMs, signal }: Check,
  heard: boolean,
): Promise<void> => {
  const { connection, place, matches } = session
  const from = place === logStart ? undefined : place
  const page = await readHeaders(connection, { direction: 'forwards', from, max: proofMax }, silenceMs)
  const missed = page.find((event) => event.position > session.seen && matches(event))
  if (missed !== undefined) {
    if (await isStalled(session, missed.position, signal))
      throw new Error(`the event at ${missed.position} does not arrive`)
    return
  }
  const last = page.at(-1)
  if (last === undefined) return
  session.place = last.position
  if (last.position > session.seen) session.seen = last.position
  if (page.length < proofMax) session.headAtBeat = last.position
  // A server that never says "caught up" leaves finding out to us: without a pause.
  else if (!session.caughtUp) session.beatAtMs -= heartbeatMs
  else {
    // The proof lags behind others' events. Those alone would bring checkpoints, so silence among them is suspect.
    const head = await readHead(connection, silenceMs)
    if (!heard && head > session.headAtBeat)
      session.failure ??= new Error('others write, and not even checkpoints arrive')
    session.headAtBeat = head
  }
}

/** Whether an event the log holds fails to arrive, after the time it may be on its way. */
const isStalled = async (session: Session, missing: Position, signal: AbortSignal): Promise<boolean> => {
  const deadline = performance.now() + graceMs
  while (
    session.seen < missing &&
    session.call.readableLength === 0 &&
    session.failure === undefined &&
    !signal.aborted
  ) {
    const leftMs = deadline - performance.now()
    if (leftMs <= 0) return true
    await session.notice.wait(leftMs)
  }
  return false
}
