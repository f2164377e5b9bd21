import { randomUUID } from 'node:crypto'
import { appendNext } from '../event-log/append-next.ts'
import { eventIdOf } from '../event-log/event-id.ts'
import type { NewEvent } from '../event-log/port.ts'
import { encodeEvent } from '../event-log/stored-event.ts'
import type { DomainEventOf } from '../events/catalogue.ts'
import { operatorStream } from '../events/streams.ts'
import type { Foundation } from '../foundation/foundation.ts'
import { recordOperationOnce } from './operator-events.ts'

/** What is recorded of a rotation of SECRET_KEY, and of a key that is given up, in the stream of operators. */

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

/** Of two commands at once one records it: the second finds the event, wherever in the stream it is. */
export const recordOnce = async (
  { foundation: { eventLog }, actor }: Recording,
  event: DomainEventOf<'SecretKeyRotated' | 'SecretKeyGivenUp'>,
  once: string,
): Promise<void> => {
  await recordOperationOnce(eventLog, event, { actor, once })
}
