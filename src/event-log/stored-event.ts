import { hash } from 'node:crypto'
import { z } from 'zod'
import { checkEventData, currentVersion, type DomainEvent } from '../events/catalogue.ts'
import type { EventMetadata } from '../events/envelope.ts'
import { textFault } from '../events/text.ts'
import { UnknownEventType, upcast } from '../events/upcast.ts'
import { eventJson, type NewEvent, type RecordedEvent } from './port.ts'

/** The namespace of all derived ids, followed by space for a name. The buffer can be reused, because it is only hashed. */
const scratch = Buffer.alloc(1_024)
const namespaceBytes = scratch.write('5a1c9a1f7e0b5c1e9d7c3f6c2b8e4d10', 'hex')
const nameBytesMax = scratch.length - namespaceBytes

/** Returns the UUIDv5 (RFC 9562 §5.5) of a name. It is deterministic, so that a repeated append or call can be recognized. */
export const uuidV5 = (name: string): string => {
  // A UTF-16 code unit has at most three bytes in UTF-8, so the bytes of a short name do not have to be counted.
  const fits = name.length * 3 <= nameBytesMax || Buffer.byteLength(name) <= nameBytesMax
  const named = fits
    ? scratch.subarray(0, namespaceBytes + scratch.write(name, namespaceBytes))
    : Buffer.concat([scratch.subarray(0, namespaceBytes), Buffer.from(name)])
  const digest = hash('sha1', named, 'hex')
  const variant = '89ab'.charAt(Number.parseInt(digest.charAt(16), 16) & 3)
  return `${digest.slice(0, 8)}-${digest.slice(8, 12)}-5${digest.slice(13, 16)}-${variant}${digest.slice(17, 20)}-${digest.slice(20, 32)}`
}

/**
 * Returns the id of the nth event of a call or command, derived from the organization, the Idempotency-Key or request id, and the index (ledger
 * protocol rule 1).
 */
export const eventIdOf = (scope: string, key: string, index: number): string =>
  uuidV5(`${scope}/${key}/${index}`)

/** A recorded event, upcast to the newest version, with its metadata. */
export type DecodedEvent = DomainEvent & {
  readonly recorded: RecordedEvent
  readonly metadata: EventMetadata
}

/** Decodes a recorded event. Throws `UnknownEventType`, and SyntaxError if the bytes are not JSON. */
export const decodeEvent = (recorded: RecordedEvent): DecodedEvent => {
  try {
    const metadata = JSON.parse(recorded.metadata) as EventMetadata
    return {
      ...upcast(recorded.type, metadata.schema_version, JSON.parse(recorded.data)),
      recorded,
      metadata,
    }
  } catch (error) {
    if (hasEnvelope(recorded)) throw error
    throw new UnknownEventType(whyUnreadable(recorded, error), { cause: error })
  }
}

/** Whether the metadata of an event has the format that all releases of this service write. */
export const hasEnvelope = ({ metadata }: Pick<RecordedEvent, 'metadata'>): boolean => {
  try {
    const envelope: unknown = JSON.parse(metadata)
    if (typeof envelope !== 'object' || envelope === null) return false
    return 'schema_version' in envelope && 'actor' in envelope && 'effective_at' in envelope
  } catch {
    return false
  }
}

/** The reason why an event cannot be read, and the remedy if other software wrote it. */
export const whyUnreadable = (recorded: RecordedEvent, error: unknown): string =>
  hasEnvelope(recorded)
    ? error instanceof Error
      ? error.message
      : String(error)
    : `event ${recorded.revision} of ${recorded.stream}, of type "${recorded.type.slice(0, 100)}", does not belong to this service. Other software writes ` +
      'to this event store. Give the service its own stream names with "event-log copy --to-prefix" and EVENT_LOG_PREFIX'

type NewEnvelope = {
  readonly id: string
  readonly actor: string
  readonly effectiveAt: string
  readonly requestId?: string | undefined
  readonly causationId?: string | undefined
  readonly repeats?: string | undefined
  /** 32 hexadecimal digits. */
  readonly traceId?: string | undefined
}

/** An event does not match its own schema. `message` contains the member and its limit, but not its value. */
export class EventDataError extends Error {
  override name = 'EventDataError'
}

/**
 * Serializes an event for the log. Throws `EventDataError` for data that does not match its schema, and TypeError for data that events cannot
 * contain.
 */
export const encodeEvent = (event: DomainEvent, envelope: NewEnvelope): NewEvent => {
  // The parts of these two types have their own limits, and checking them would take longer than serializing them. Other events can contain text
  // that a person has entered.
  if (event.type !== 'KeyUsed' && event.type !== 'CreditCharged') assertFits(event)
  return {
    id: envelope.id,
    type: event.type,
    // The full check takes longer than serializing, so it is made only if the JSON contains a null. TypeScript types exclude values that JSON would
    // drop, JSON.stringify throws for BigInt, and NaN and infinite numbers become null.
    data: faithful(JSON.stringify(event.data), event.data),
    metadata: metadataJson(currentVersion(event.type), envelope),
  }
}

const assertFits = ({ type, data }: DomainEvent): void => {
  try {
    checkEventData(type, currentVersion(type), data)
  } catch (error) {
    if (!(error instanceof z.ZodError)) throw error
    throw new EventDataError(faultOf(error, data), { cause: error })
  }
  // These events contain signed notes, which have line breaks and are not entered by people.
  if (type === 'LogCheckpointed' || type === 'LogTreeBegun') return
  const fault = textFaultIn(data, '')
  if (fault !== null) throw new EventDataError(fault)
}

/** Returns the fault of the first text in the data that breaks the rules for text from people. Schemas only limit the length of text. */
const textFaultIn = (value: unknown, member: string): string | null => {
  if (typeof value === 'string') {
    const fault = textFault(value)
    return fault === null ? null : `${member}: ${fault}`
  }
  if (typeof value !== 'object' || value === null) return null
  for (const [name, inner] of Object.entries(value)) {
    const fault = textFaultIn(
      inner,
      Array.isArray(value) ? `${member}[${name}]` : member === '' ? name : `${member}.${name}`,
    )
    if (fault !== null) return fault
  }
  return null
}

/**
 * Describes the first fault that a schema has found, with the member and the allowed values, such as `reason: at most 200 characters; it has 201`.
 */
export const faultOf = ({ issues }: z.ZodError, data: unknown): string => {
  const [issue] = issues
  if (issue === undefined) return 'the data does not match its schema'
  const member = issue.path
    .map((part, i) => (typeof part === 'number' ? `[${part}]` : `${i === 0 ? '' : '.'}${String(part)}`))
    .join('')
  return `${member === '' ? '' : `${member}: `}${limitOf(issue, at(data, issue.path))}`
}

const typeNames: Readonly<Record<string, string>> = {
  string: 'text',
  number: 'a number',
  int: 'a whole number',
  array: 'a list',
  object: 'an object',
}

const limitOf = (issue: z.core.$ZodIssue, value: unknown): string => {
  switch (issue.code) {
    case 'too_big':
      return bound('at most', issue.maximum, issue.origin, value)
    case 'too_small':
      return bound('at least', issue.minimum, issue.origin, value)
    case 'invalid_type':
      return `${typeNames[issue.expected] ?? issue.expected} is expected${value === undefined ? '; it is missing' : ''}`
    case 'invalid_value':
      return `one of ${issue.values.map(String).join(', ')} is expected`
    case 'invalid_format':
      return `not of the form ${issue.pattern ?? issue.format}`
    case 'unrecognized_keys':
      return `there is no member "${issue.keys[0]?.slice(0, 64)}"`
    default:
      return issue.message
  }
}

const bound = (side: string, limit: number | bigint, origin: string, value: unknown): string => {
  if (typeof value === 'string')
    return `${side} ${limit} character${limit === 1 ? '' : 's'}; it has ${value.length}`
  if (Array.isArray(value)) return `${side} ${limit} entr${limit === 1 ? 'y' : 'ies'}; it has ${value.length}`
  return `${side} ${limit}${origin === 'number' || origin === 'int' ? `; it is ${String(value)}` : ''}`
}

const at = (data: unknown, path: readonly PropertyKey[]): unknown =>
  path.reduce<unknown>(
    (value, part) =>
      typeof value === 'object' && value !== null ? (value as Record<PropertyKey, unknown>)[part] : undefined,
    data,
  )

const faithful = (text: string, data: unknown): string => (text.includes('null') ? eventJson(data) : text)

/**
 * Returns the metadata as JSON, with the members in the order of `EventMetadata`. This runs for every event, and joining texts is twice as fast as
 * JSON.stringify.
 */
const metadataJson = (
  schemaVersion: number,
  { requestId, causationId, repeats, traceId, actor, effectiveAt }: NewEnvelope,
): string => {
  const request = requestId === undefined ? '' : `,"request_id":${JSON.stringify(requestId)}`
  const causation = causationId === undefined ? '' : `,"causation_id":"${causationId}"`
  const repeated = repeats === undefined ? '' : `,"repeats":${JSON.stringify(repeats)}`
  const trace = traceId === undefined ? '' : `,"trace_id":"${traceId}"`
  return `{"schema_version":${schemaVersion}${request}${causation}${repeated}${trace},"actor":${JSON.stringify(actor)},"effective_at":"${effectiveAt}"}`
}
