import { randomUUID } from 'node:crypto'
import { appendChained } from '../event-log/append-chained.ts'
import { appendNext } from '../event-log/append-next.ts'
import { eventIdOf } from '../event-log/event-id.ts'
import { AppendConflict, type NewEvent, StreamMissing } from '../event-log/port.ts'
import { encodeEvent } from '../event-log/stored-event.ts'
import type { DomainEventOf } from '../events/catalogue.ts'
import { operatorStream } from '../events/streams.ts'
import type { Foundation } from '../foundation/foundation.ts'

/** What is recorded of a rotation of SECRET_KEY, in the stream of operators. */

type Recording = { readonly foundation: Pick<Foundation, 'eventLog'>; readonly actor: string }

export const recordRenewed = async (
  { foundation, actor }: Recording,
  event: DomainEventOf<'SecretsRenewed'>,
): Promise<void> => {
  await appendNext(foundation.eventLog, operatorStream, [
    encoded(event, `${event.type}/${randomUUID()}`, actor),
  ])
}

const encoded = (
  event: DomainEventOf<'SecretKeyRotated' | 'SecretsRenewed'>,
  once: string,
  actor: string,
): NewEvent =>
  encodeEvent(event, {
    id: eventIdOf(operatorStream, once, 0),
    actor,
    effectiveAt: new Date().toISOString(),
  })

const pageMax = 1_000
const conflictsMax = 8

/** Of two commands at once one records it: the second finds the event, wherever in the stream it is. */
export const recordOnce = async (
  { foundation: { eventLog }, actor }: Recording,
  event: DomainEventOf<'SecretKeyRotated'>,
  once: string,
): Promise<void> => {
  const own = encoded(event, once, actor)
  for (let conflicts = 0; ; conflicts++) {
    let revision = -1
    for (let more = true; more; ) {
      const page = await eventLog
        .read(operatorStream, { from: revision + 1, max: pageMax })
        .catch((error: unknown) => {
          if (error instanceof StreamMissing) return []
          throw error
        })
      if (page.some(({ id }) => id === own.id)) return
      revision = page.at(-1)?.revision ?? revision
      more = page.length === pageMax
    }
    try {
      await appendChained(eventLog, operatorStream, revision === -1 ? 'none' : revision, [own])
      return
    } catch (error) {
      if (!(error instanceof AppendConflict) || conflicts >= conflictsMax) throw error
    }
  }
}
