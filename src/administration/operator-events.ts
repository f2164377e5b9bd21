import { randomUUID } from 'node:crypto'
import { appendChained } from '../event-log/append-chained.ts'
import { appendNext, repeatConflicts } from '../event-log/append-next.ts'
import type { EventLog } from '../event-log/port.ts'
import { pagesOf } from '../event-log/read-stream.ts'
import { encodeEvent, eventIdOf } from '../event-log/stored-event.ts'
import type { DomainEvent } from '../events/catalogue.ts'
import { operatorStream } from '../events/streams.ts'

/**
 * Records an operator's act in the operators' stream, and returns the event's id. Each call records a new event (see
 * `recordOperationOnce`). Throws the errors of `appendNext`.
 */
export const recordOperation = async (
  eventLog: Pick<EventLog, 'append' | 'read'>,
  event: DomainEvent,
  { actor }: { readonly actor: string },
): Promise<string> => {
  const id = randomUUID()
  const effectiveAt = new Date().toISOString()
  await appendNext(eventLog, operatorStream, [encodeEvent(event, { id, actor, effectiveAt })])
  return id
}

/**
 * Records an operator's act unless the stream already contains an event with this `once`. Used by work that resumes after an
 * interruption.
 */
export const recordOperationOnce = async (
  eventLog: Pick<EventLog, 'append' | 'read'>,
  event: DomainEvent,
  { actor, once }: { readonly actor: string; readonly once: string },
): Promise<void> => {
  const id = eventIdOf(operatorStream, once, 0)
  const own = encodeEvent(event, { id, actor, effectiveAt: new Date().toISOString() })
  await repeatConflicts(operatorStream, async () => {
    let revision = -1
    for await (const page of pagesOf(eventLog, operatorStream, { from: 0 })) {
      if (page.some((one) => one.id === id)) return
      revision += page.length
    }
    await appendChained(eventLog, operatorStream, revision === -1 ? 'none' : revision, [own])
  })
}
