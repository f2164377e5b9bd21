import type { EventLog, RecordedEvent } from '../event-log/port.ts'
import { pagesOf } from '../event-log/read-stream.ts'
import { type DecodedEvent, decodeEvent } from '../event-log/stored-event.ts'
import { guardedKeyEvents } from '../events/keys.ts'
import { isInstant } from '../events/primitives.ts'
import { keyStream } from '../events/streams.ts'
import { isKeyEvent, type KeyEvent } from '../keys/key-state.ts'
import { emptyKeyStream, foldKeyStream, type KeyStream } from '../keys/key-stream.ts'
import { allowList } from './allow-list.ts'

/**
 * Reads the events after `known`. If there is no stream, returns an empty one. If the stream ends before its last revision according to the log's own
 * records, the key is doubtful, because the missing event can be its revocation. Throws `Unavailable` if the log does not answer.
 */
export const readKeyStream = async (
  eventLog: Pick<EventLog, 'read' | 'lastRevision'>,
  keyId: string,
  known: KeyStream = emptyKeyStream,
): Promise<KeyStream> => {
  const stream = await readOn(eventLog, keyId, known)
  // Anyone can invent a key id. Without an event it is refused anyway.
  if (stream.revision === -1) return stream
  const revision = (await eventLog.lastRevision(keyStream(keyId))) ?? -1
  if (revision <= stream.revision) return stream
  // The event can have been written since the first read.
  const again = await readOn(eventLog, keyId, stream)
  return revision <= again.revision ? again : foldKeyStream(again, null, { revision, effectiveAt: '' })
}

const readOn = async (
  eventLog: Pick<EventLog, 'read'>,
  keyId: string,
  known: KeyStream,
): Promise<KeyStream> => {
  let stream = known
  for await (const page of pagesOf(eventLog, keyStream(keyId), { from: known.revision + 1 }))
    for (const recorded of page) stream = foldRecorded(stream, recorded)
  return stream
}

/** Folds one recorded event of the key's stream. A gap or an unreadable event makes the key doubtful. */
export const foldRecorded = (stream: KeyStream, recorded: RecordedEvent): KeyStream => {
  const { revision } = recorded
  if (revision > stream.revision + 1) return foldKeyStream(stream, null, { revision, effectiveAt: '' })
  const event = readable(recorded)
  return foldKeyStream(stream, event, { revision, effectiveAt: event?.metadata.effective_at ?? '' })
}

/** Returns null if the event cannot be decoded, or if a member that access depends on is missing or invalid. */
const readable = (recorded: RecordedEvent): (DecodedEvent & KeyEvent) | null => {
  try {
    const event = decodeEvent(recorded)
    if (!isKeyEvent(event)) return null
    const { success } = guardedKeyEvents[event.type].safeParse(event.data)
    if (!success || keyStream(event.data.key_id) !== recorded.stream) return null
    if (!isInstant(event.metadata.effective_at)) return null
    if (event.type === 'ApiKeyIssued') allowList(event.data.allowed_cidrs)
    return event
  } catch {
    return null
  }
}
