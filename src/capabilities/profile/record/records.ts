import { randomUUID } from 'node:crypto'
import { ulid } from 'ulid'
import { appendChained } from '../../../event-log/append-chained.ts'
import { appendNext } from '../../../event-log/append-next.ts'
import type { EventLog, ExpectedRevision } from '../../../event-log/port.ts'
import { encodeEvent } from '../../../event-log/stored-event.ts'
import type { DomainEventOf } from '../../../events/catalogue.ts'
import { profileStream } from '../../../events/streams.ts'

type ProfileEvent = DomainEventOf<'ProfileFetched' | 'ProfileMissed' | 'ProfileGone' | 'ProfileErased'>

/** Makes an id for a new person. The id reveals nothing about the person. */
export const newSubjectId = (): string => `sub_${ulid()}`

/** With `expected`, throws `AppendConflict` if the person's stream does not end there. */
export const recordProfileEvent = async (
  eventLog: Pick<EventLog, 'append' | 'read'>,
  event: ProfileEvent,
  { actor, at, expected }: { actor: string; at: string; expected?: ExpectedRevision },
): Promise<void> => {
  const stream = profileStream(event.data.subject_id)
  const events = [encodeEvent(event, { id: randomUUID(), actor, effectiveAt: at })]
  if (expected === undefined) await appendNext(eventLog, stream, events)
  else await appendChained(eventLog, stream, expected, events)
}
