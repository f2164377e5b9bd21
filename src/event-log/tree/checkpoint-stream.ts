import { hash } from 'node:crypto'
import type { LogCheckpointed, SigningKeyAnnounced } from '../../events/checkpoints.ts'
import { checkpointStream } from '../../events/streams.ts'
import type { EventLog, RecordedEvent } from '../port.ts'
import { pagesOf } from '../read-stream.ts'
import { type DecodedEvent, decodeEvent } from '../stored-event.ts'
import { headOf, isSignature, NoteFault, signerOf } from './signed-note.ts'

/** The state of the stream `checkpoint`: the signing keys, the current tree, and the last signed checkpoints. */

type AnnouncedKey = {
  readonly id: string
  readonly publicKey: Buffer
  /** The reason why an operator announced the key. Null: the previous key signed the announcement, or this is the first key. */
  readonly reason: string | null
}

type LogTree = {
  readonly origin: string
  /** The last checkpoint of the original log, if this log is a copy. */
  readonly previousNote: string | null
}

export type Checkpoint = LogCheckpointed & {
  readonly revision: number
  readonly eventId: string
  readonly at: string
}

export type CheckpointStream = {
  /** The revision of the stream's last event, or −1 if the stream is empty. */
  readonly revision: number
  /** The announced keys, in order. The last key is the current signing key. */
  readonly keys: readonly AnnouncedKey[]
  /** Null before the first checkpoint. */
  readonly tree: LogTree | null
  /** The last checkpoint of this tree. */
  readonly last: Checkpoint | null
  /** The last checkpoint of any tree. The tree of a copied log begins with this checkpoint. */
  readonly lastOfAll: Checkpoint | null
}

export const emptyStream: CheckpointStream = {
  revision: -1,
  keys: [],
  tree: null,
  last: null,
  lastOfAll: null,
}

/** The stream contains an invalid event: a key without a valid announcement, or a checkpoint without a valid signature. */
export class CheckpointFault extends Error {
  override name = 'CheckpointFault'
  readonly revision: number
  readonly eventId: string
  constructor({ revision, id }: Pick<RecordedEvent, 'revision' | 'id'>, message: string) {
    super(message)
    this.revision = revision
    this.eventId = id
  }
}

/** Derives the id of a key from its bytes. */
export const keyIdOf = (publicKey: Buffer): string =>
  Buffer.from(hash('sha256', publicKey, 'hex'), 'hex')
    .subarray(0, 16)
    .toString('base64url')

/** The text that is signed with the previous key to announce a new key. */
export const announcementText = (announced: {
  readonly key_id: string
  readonly public_key: string
  readonly previous_key_id: string | null
}): string =>
  `enrichment-ledger signing key\n${announced.previous_key_id ?? ''}\n${announced.key_id}\n${announced.public_key}\n`

/** Adds an event to the state. Throws `CheckpointFault` if the event is not valid after the events before it. */
const evolveStream = (stream: CheckpointStream, event: DecodedEvent): CheckpointStream => {
  const { revision } = event.recorded
  switch (event.type) {
    case 'SigningKeyAnnounced':
      return { ...stream, revision, keys: [...stream.keys, keyOf(stream, event.data, event.recorded)] }
    case 'LogTreeBegun': {
      const { origin, previous_note: previousNote } = event.data
      if (previousNote !== (stream.lastOfAll?.note ?? null))
        throw new CheckpointFault(event.recorded, 'the new tree does not begin with the previous checkpoint')
      return { ...stream, revision, tree: { origin, previousNote }, last: null }
    }
    case 'LogCheckpointed': {
      const checkpoint = {
        ...event.data,
        revision,
        eventId: event.recorded.id,
        at: event.metadata.recorded_at,
      }
      const fault = checkpointFault(stream, checkpoint)
      if (fault !== null) throw new CheckpointFault(event.recorded, fault)
      return { ...stream, revision, last: checkpoint, lastOfAll: checkpoint }
    }
    default:
      throw new CheckpointFault(event.recorded, `${event.type} does not belong in this stream`)
  }
}

const keyOf = (
  { keys }: CheckpointStream,
  data: SigningKeyAnnounced,
  recorded: RecordedEvent,
): AnnouncedKey => {
  const before = keys.at(-1)
  const publicKey = Buffer.from(data.public_key, 'base64url')
  const fault = (message: string): CheckpointFault =>
    new CheckpointFault(recorded, `signing key ${data.key_id}: ${message}`)
  if (keyIdOf(publicKey) !== data.key_id) throw fault('its id does not match its bytes')
  if (data.previous_key_id !== (before?.id ?? null))
    throw fault(`it does not follow the previous key (${before?.id ?? 'there is none'})`)
  const vouched =
    before === undefined ||
    (data.signature !== null &&
      isSignature(announcementText(data), Buffer.from(data.signature, 'base64url'), before.publicKey))
  if (!vouched && (data.signature !== null || data.reason === null))
    throw fault('it is neither signed by the previous key nor announced by an operator with a reason')
  return { id: data.key_id, publicKey, reason: vouched ? null : data.reason }
}

/** Returns the fault of a checkpoint, or null if the current key has signed its note and the note matches the event. */
const checkpointFault = ({ keys, tree, last }: CheckpointStream, checkpoint: Checkpoint): string | null => {
  const { origin, size, root, note } = checkpoint
  try {
    const head = headOf(note)
    if (head.origin !== origin || head.size !== size || head.root.toString('base64') !== root)
      return 'the checkpoint does not match its note'
    if (origin !== tree?.origin) return `there is no tree with the name ${origin}`
    if (size <= (last?.size ?? 0))
      return `its tree is not larger than the previous one, which has ${last?.size} leaves`
    if (signerOf(note, origin, keys.slice(-1)) === undefined)
      return 'the key that was announced last did not sign the checkpoint'
    return null
  } catch (error) {
    if (error instanceof NoteFault) return error.message
    throw error
  }
}

/**
 * Returns a function that reads the stream. The state is kept, so that each event is read only once. Throws the errors of reading,
 * `CheckpointFault`, and `UnknownEventType` for events of a newer release.
 */
export const createStreamReader = (
  eventLog: Pick<EventLog, 'read'>,
  { folded }: { readonly folded?: (stream: CheckpointStream) => void } = {},
): (() => Promise<CheckpointStream>) => {
  let known = emptyStream
  const readOn = async (): Promise<CheckpointStream> => {
    for await (const page of pagesOf(eventLog, checkpointStream, { from: known.revision + 1 }))
      for (const recorded of page) {
        known = evolveStream(known, decodeEvent(recorded))
        folded?.(known)
      }
    return known
  }
  // Only one read runs at a time, so that no event is folded twice.
  let reading: Promise<unknown> = Promise.resolve()
  return () => {
    const next = reading.then(readOn)
    reading = next.catch(() => undefined)
    return next
  }
}
