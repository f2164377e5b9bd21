import type { RecordedEvent } from '../../event-log/port.ts'
import { organizationOfStream } from '../../events/streams.ts'

/** An event with its whole envelope. Data and metadata are parsed, so they are not the exact bytes of the event log. */
export const eventJson = (recorded: RecordedEvent) => ({
  position: recorded.position.toString(),
  stream: recorded.stream,
  revision: recorded.revision,
  event_id: recorded.id,
  type: recorded.type,
  organization_id: organizationOfStream(recorded.stream),
  recorded_at: new Date(recorded.recordedAtMs).toISOString(),
  metadata: jsonOrText(recorded.metadata),
  data: jsonOrText(recorded.data),
})

/** Other software can write events that are not JSON. */
const jsonOrText = (text: string): unknown => {
  try {
    return JSON.parse(text) as unknown
  } catch {
    return text
  }
}

/**
 * An event with its whole envelope, as one line of JSON. Data and metadata are copied as text, because parsing would take most of
 * an export's time.
 */
export const eventLine = (recorded: RecordedEvent): string => {
  const { position, stream, revision, id, type, recordedAtMs, metadata, data } = recorded
  // This service writes only JSON objects, but text from other software must not break the line.
  if (!isOneObject(metadata) || !isOneObject(data)) return JSON.stringify(eventJson(recorded))
  const organization = organizationOfStream(stream)
  return (
    `{"position":"${position}","stream":${JSON.stringify(stream)},"revision":${revision},"event_id":"${id}",` +
    `"type":${JSON.stringify(type)},"organization_id":${JSON.stringify(organization)},` +
    `"recorded_at":"${new Date(recordedAtMs).toISOString()}","metadata":${metadata},"data":${data}}`
  )
}

const isOneObject = (text: string): boolean =>
  text.startsWith('{') && text.endsWith('}') && !text.includes('\n') && !text.includes('\r')
