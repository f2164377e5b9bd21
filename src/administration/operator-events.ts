import { appendNext } from '../event-log/append-next.ts'
import { eventIdOf } from '../event-log/event-id.ts'
import type { EventLog } from '../event-log/port.ts'
import { encodeEvent } from '../event-log/stored-event.ts'
import type { DomainEvent } from '../events/catalogue.ts'
import { operatorStream } from '../events/streams.ts'

/**
 * Puts down in the event log what an operator did, and returns the event's id. The same `once` is put down once. Throws what
 * `appendNext` throws.
 */
export const recordOperation = async (
  eventLog: Pick<EventLog, 'append' | 'read'>,
  event: DomainEvent,
  { actor, once }: { readonly actor: string; readonly once: string },
): Promise<string> => {
  const id = eventIdOf(operatorStream, once, 0)
  const effectiveAt = new Date().toISOString()
  await appendNext(eventLog, operatorStream, [encodeEvent(event, { id, actor, effectiveAt })])
  return id
}
