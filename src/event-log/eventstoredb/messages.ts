import type { UUID } from '@eventstore/db-client/generated/shared_pb.js'
import sharedPb from '@eventstore/db-client/generated/shared_pb.js'
import type {
  BatchAppendReq,
  BatchAppendResp,
  ReadReq,
  ReadResp,
} from '@eventstore/db-client/generated/streams_pb.js'
import streamsPb from '@eventstore/db-client/generated/streams_pb.js'
import { recordedMsIn } from '../hash-chain.ts'
import {
  AppendConflict,
  type ExpectedRevision,
  logStart,
  type NewEvent,
  type Position,
  type RecordedEvent,
  TooLarge,
  Unavailable,
  UnknownOutcome,
} from '../port.ts'

/**
 * The EventStoreDB messages for the event log. Data and metadata are sent as unchanged bytes. They are declared as JSON, so that the
 * EventStoreDB user interface shows them.
 */

const jsonContent = 'application/json'
const ticksPerMillisecond = 10_000n
/** The server's unsigned form of −1, which means "no revision" or "no position". */
const unsignedMinusOne = '18446744073709551615'
/** A filtered subscription reports its progress after this many events. */
export const searchWindow = 512

const empty = () => new sharedPb.Empty()

const identifierOf = (stream: string) => {
  const identifier = new sharedPb.StreamIdentifier()
  identifier.setStreamName(Buffer.from(stream))
  return identifier
}

/**
 * An append in one message. It contains no deadline, because the server would compare a deadline with its own clock, which can be wrong.
 * The server's own write timeout applies instead.
 */
export const appendRequest = (
  correlationId: string,
  stream: string,
  expected: ExpectedRevision,
  events: readonly NewEvent[],
): BatchAppendReq => {
  const options = new streamsPb.BatchAppendReq.Options()
  options.setStreamIdentifier(identifierOf(stream))
  if (expected === 'none') options.setNoStream(empty())
  else options.setStreamPosition(String(expected))
  const request = new streamsPb.BatchAppendReq()
  request.setCorrelationId(uuidMessage(correlationId))
  request.setOptions(options)
  request.setIsFinal(true)
  request.setProposedMessagesList(
    events.map(({ id, type, data, metadata }) => {
      const message = new streamsPb.BatchAppendReq.ProposedMessage()
      message.setId(uuidMessage(id))
      message.getMetadataMap().set('type', type).set('content-type', jsonContent)
      message.setData(Buffer.from(data))
      message.setCustomMetadata(Buffer.from(metadata))
      return message
    }),
  )
  return request
}

type AppendReply = {
  readonly correlationId: string
  /** `conflict`: a conflict for which the server did not report the revision. */
  readonly outcome: { readonly revision: number } | { readonly error: Error } | { readonly conflict: true }
}

export const appendReply = (
  response: BatchAppendResp,
  place: (correlationId: string) => { stream: string; expected: ExpectedRevision } | undefined,
): AppendReply => {
  const correlationId = uuidText(response.getCorrelationId())
  const { stream, expected } = place(correlationId) ?? { stream: '', expected: 'none' }
  const success = response.getSuccess()
  if (success !== undefined)
    return { correlationId, outcome: { revision: Number(success.getCurrentRevision()) } }
  const details = response.getError()?.getDetails()
  const type = details?.getTypeUrl().split('/').at(-1) ?? ''
  const said = `an append to ${stream}: ${response.getError()?.getMessage() ?? 'no reason given'} (${type})`
  if (type === 'event_store.client.WrongExpectedVersion') {
    const conflict = sharedPb.WrongExpectedVersion.deserializeBinary(
      details?.getValue_asU8() ?? new Uint8Array(),
    )
    const actual = conflict.hasCurrentStreamRevision()
      ? conflict.getCurrentStreamRevision()
      : unsignedMinusOne
    if (actual === unsignedMinusOne && !conflict.hasCurrentNoStream())
      return { correlationId, outcome: { conflict: true } }
    const revision = actual === unsignedMinusOne ? -1 : Number(actual)
    return { correlationId, outcome: { error: new AppendConflict(stream, expected, revision) } }
  }
  return { correlationId, outcome: { error: refusal(type, said) } }
}

const refusal = (type: string, said: string): Error => {
  switch (type) {
    case 'event_store.client.MaximumAppendSizeExceeded':
      return new TooLarge(said)
    // "Not handled" means that the server is starting, busy or not the leader, and did not read the append.
    case 'google.protobuf.Empty':
    // `checkAppend` has already refused invalid appends. The server has refused this attempt, but an earlier attempt may have been written.
    case 'event_store.client.BadRequest':
    case 'event_store.client.AccessDenied':
    case 'event_store.client.StreamDeleted':
      return new Unavailable(said)
    // After a timeout in the server, an internal error, or an answer of a later version, the append may have been written.
    default:
      return new UnknownOutcome(said)
  }
}

export type ReadRequest = {
  readonly direction: 'forwards' | 'backwards'
  readonly max: number
} & (
  | { readonly stream: string; readonly from: number | undefined }
  /** The first position to read, inclusive. `undefined` means the start of the log or, when reading backwards, its end. */
  | { readonly stream?: never; readonly from: Position | undefined; readonly prefix?: string }
)

const readOptions = (): ReadReq.Options => {
  const options = new streamsPb.ReadReq.Options()
  const uuids = new streamsPb.ReadReq.Options.UUIDOption()
  uuids.setString(empty())
  options.setUuidOption(uuids)
  options.setResolveLinks(false)
  return options
}

const requestOf = (options: ReadReq.Options): ReadReq => {
  const request = new streamsPb.ReadReq()
  request.setOptions(options)
  return request
}

export const readRequest = (read: ReadRequest): ReadReq => {
  const options = readOptions()
  const forwards = read.direction === 'forwards'
  options.setReadDirection(forwards ? 0 : 1)
  options.setCount(String(read.max))
  if (read.stream === undefined && read.prefix !== undefined) options.setFilter(filterBy([read.prefix]))
  else options.setNoFilter(empty())
  if (read.stream === undefined) options.setAll(allFrom(read.from, forwards))
  else {
    const from = new streamsPb.ReadReq.Options.StreamOptions()
    from.setStreamIdentifier(identifierOf(read.stream))
    if (read.from !== undefined) from.setRevision(String(read.from))
    else if (forwards) from.setStart(empty())
    else from.setEnd(empty())
    options.setStream(from)
  }
  return requestOf(options)
}

const allFrom = (position: Position | undefined, forwards: boolean): ReadReq.Options.AllOptions => {
  const from = new streamsPb.ReadReq.Options.AllOptions()
  if (position === undefined) {
    if (forwards) from.setStart(empty())
    else from.setEnd(empty())
    return from
  }
  const place = new streamsPb.ReadReq.Options.Position()
  place.setCommitPosition(position.toString())
  place.setPreparePosition(position.toString())
  from.setPosition(place)
  return from
}

const filterBy = (prefixes: readonly string[]): ReadReq.Options.FilterOptions => {
  const names = new streamsPb.ReadReq.Options.FilterOptions.Expression()
  names.setPrefixList([...prefixes])
  const filter = new streamsPb.ReadReq.Options.FilterOptions()
  filter.setStreamIdentifier(names)
  filter.setMax(searchWindow)
  filter.setCheckpointintervalmultiplier(1)
  return filter
}

/** Follows the whole log after a position (exclusive), filtered by any given prefixes. */
export const subscribeRequest = (after: Position, prefixes: readonly string[]): ReadReq => {
  const options = readOptions()
  options.setAll(allFrom(after === logStart ? undefined : after, true))
  options.setSubscription(new streamsPb.ReadReq.Options.SubscriptionOptions())
  if (prefixes.length === 0) options.setNoFilter(empty())
  else options.setFilter(filterBy(prefixes))
  return requestOf(options)
}

/** The event in a response, including the server's own events, or undefined. */
export const recordedEvent = (response: ReadResp): RecordedEvent | undefined => {
  const read = response.getEvent()
  const record = read?.getEvent()
  if (read === undefined || record === undefined) return undefined
  const position = read.hasCommitPosition() ? read.getCommitPosition() : record.getCommitPosition()
  const fields = record.getMetadataMap()
  const metadata = text(record.getCustomMetadata_asU8())
  const createdMs = Number(BigInt(fields.get('created') ?? 0) / ticksPerMillisecond)
  return {
    id: uuidText(record.getId()),
    type: fields.get('type') ?? '',
    data: text(record.getData_asU8()),
    metadata,
    stream: text(record.getStreamIdentifier()?.getStreamName_asU8() ?? new Uint8Array()),
    revision: Number(record.getStreamRevision()),
    position: position === unsignedMinusOne ? logStart : BigInt(position),
    recordedAtMs: recordedMsIn(metadata, createdMs),
  }
}

/** Decodes UTF-8 and, unlike TextDecoder, keeps a byte order mark. */
const text = (bytes: Uint8Array): string =>
  Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString()

const uuidMessage = (id: string): UUID => {
  const message = new sharedPb.UUID()
  message.setString(id)
  return message
}

const uuidText = (uuid: UUID | undefined): string => {
  const halves = uuid?.getStructured()
  if (halves === undefined) return uuid?.getString() ?? ''
  const hex = [halves.getMostSignificantBits(), halves.getLeastSignificantBits()]
    .map((half) => BigInt.asUintN(64, BigInt(half)).toString(16).padStart(16, '0'))
    .join('')
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-')
}
