import { randomUUID } from 'node:crypto'
import { ulid } from 'ulid'
import { appendNext } from '../../../event-log/append-next.ts'
import type { EventLog } from '../../../event-log/port.ts'
import { encodeEvent } from '../../../event-log/stored-event.ts'
import type { DomainEventOf } from '../../../events/catalogue.ts'
import { profileStream } from '../../../events/streams.ts'

type ProfileEvent = DomainEventOf<'ProfileFetched' | 'ProfileMissed' | 'ProfileGone' | 'ProfileErased'>

/** Makes an id for a new person. It reveals nothing about them. */
export const newSubjectId = (): string => `sub_${ulid()}`

export const recordProfileEvent = async (
  eventLog: Pick<EventLog, 'append' | 'read'>,
  event: ProfileEvent,
  { actor, at }: { actor: string; at: string },
): Promise<void> => {
  await appendNext(eventLog, profileStream(event.data.subject_id), [
    encodeEvent(event, { id: randomUUID(), actor, effectiveAt: at }),
  ])
}
