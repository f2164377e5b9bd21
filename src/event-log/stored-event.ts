import type { DomainEvent } from '../events/catalogue.ts'
import { currentVersion } from '../events/catalogue.ts'
import type { EventMetadata } from '../events/envelope.ts'
import { upcast } from '../events/upcast.ts'
import { eventJson, type NewEvent, type RecordedEvent } from './port.ts'

/** A recorded event in today's vocabulary, with its envelope. */
export type DecodedEvent = DomainEvent & {
  readonly recorded: RecordedEvent
  readonly metadata: EventMetadata
}

/** Reads a recorded event. Throws `UnknownEventType`, and SyntaxError where the bytes are no JSON. */
export const decodeEvent = (recorded: RecordedEvent): DecodedEvent => {
  const metadata = JSON.parse(recorded.metadata) as EventMetadata
  return { ...upcast(recorded.type, metadata.schema_version, JSON.parse(recorded.data)), recorded, metadata }
}

export type NewEnvelope = {
  readonly id: string
  readonly actor: string
  readonly effectiveAt: string
  readonly requestId?: string | undefined
  readonly causationId?: string | undefined
}

/** Serialises an event for the log. Throws TypeError for data events cannot hold. */
export const encodeEvent = (event: DomainEvent, envelope: NewEnvelope): NewEvent => ({
  id: envelope.id,
  type: event.type,
  // The catalogue's types let nothing through that JSON would drop, and JSON.stringify refuses BigInt itself; what is not
  // finite would become null. The full check costs more than the serialising.
  data: faithful(JSON.stringify(event.data), event.data),
  metadata: metadataJson(currentVersion(event.type), envelope),
})

const faithful = (text: string, data: unknown): string => (text.includes('null') ? eventJson(data) : text)

/** Put together by hand, member by member as `EventMetadata` lists them: on every event, and twice as fast as an object. */
const metadataJson = (
  schemaVersion: number,
  { requestId, causationId, actor, effectiveAt }: NewEnvelope,
): string => {
  const request = requestId === undefined ? '' : `,"request_id":${JSON.stringify(requestId)}`
  const causation = causationId === undefined ? '' : `,"causation_id":"${causationId}"`
  return `{"schema_version":${schemaVersion}${request}${causation},"actor":${JSON.stringify(actor)},"effective_at":"${effectiveAt}"}`
}
