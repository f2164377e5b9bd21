import type { RecordedEvent } from '../event-log/port.ts'
import { organizationOfStream } from '../events/streams.ts'

/** An event with its whole envelope. Data and metadata are parsed: the exact bytes are the event log's. */
export const eventJson = (recorded: RecordedEvent) => ({
  position: recorded.position.toString(),
  stream: recorded.stream,
  revision: recorded.revision,
  event_id: recorded.id,
  type: recorded.type,
  organization_id: organizationOfStream(recorded.stream),
  recorded_at: new Date(recorded.recordedAtMs).toISOString(),
  metadata: JSON.parse(recorded.metadata) as unknown,
  data: JSON.parse(recorded.data) as unknown,
})
