import type { Outage } from '../outage.ts'
import {
  EventsUnreadable,
  LogRewritten,
  type RecordedEvent,
  type SubscribeOptions,
  type SubscriptionItem,
} from '../port.ts'
import type { Known, Look, Reads } from './reads.ts'
import type { WakeUp } from './wake-up.ts'

const batchMaxDefault = 1_000
const reconnectPauseMs = 250

/**
 * Catches up and follows, one look at the log after the other, until the signal aborts. Looks again where the database
 * cannot be asked. Fails where the log is another one, or holds what cannot be opened.
 */
export async function* followLog(
  {
    lookAfter,
    wakeUp,
    looking,
  }: { readonly lookAfter: Reads['lookAfter']; readonly wakeUp: WakeUp; readonly looking: Outage },
  { after, known, prefixes, batchMax = batchMaxDefault, signal }: SubscribeOptions,
): AsyncGenerator<SubscriptionItem> {
  let position = after
  let last: Known | undefined = known && { position: known.position, id: known.eventId }
  let caughtUp = false
  while (!signal.aborted) {
    const rings = wakeUp.rings()
    let look: Look
    try {
      look = await lookAfter({ after: position, last }, prefixes, batchMax)
      looking.works()
    } catch (error) {
      if (signal.aborted) return
      if (error instanceof LogRewritten || error instanceof EventsUnreadable) throw error
      looking.failed(error)
      await wakeUp.pause(reconnectPauseMs, signal)
      continue
    }
    yield* itemsOf(look, { after: position, batchMax, signal })
    if (signal.aborted) return
    position = look.position
    last = look.events.at(-1) ?? last
    if (position < look.head) continue
    if (!caughtUp) {
      caughtUp = true
      yield { kind: 'caught-up', position }
    }
    await wakeUp.after(rings, signal)
  }
}

/** What one look found, in batches of the size that was asked for: a segment may hold more. */
function* itemsOf(
  { events, position }: Look,
  { after, batchMax, signal }: Pick<SubscribeOptions, 'after' | 'signal'> & { readonly batchMax: number },
): Generator<SubscriptionItem> {
  if (events.length === 0 && position > after) yield { kind: 'idle', position }
  for (let from = 0; from < events.length && !signal.aborted; from += batchMax) {
    const batch: readonly RecordedEvent[] = events.slice(from, from + batchMax)
    const end = from + batchMax < events.length ? batch.at(-1)?.position : position
    yield { kind: 'events', events: batch, position: end ?? position }
  }
}
