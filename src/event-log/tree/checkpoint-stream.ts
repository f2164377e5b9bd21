import { hash } from 'node:crypto'
import type { LogCheckpointed, SigningKeyAnnounced } from '../../events/checkpoints.ts'
import { checkpointStream } from '../../events/streams.ts'
import { type EventLog, type RecordedEvent, StreamMissing } from '../port.ts'
import { type DecodedEvent, decodeEvent } from '../stored-event.ts'
import { headOf, isSignature, NoteFault, signerOf } from './signed-note.ts'

/** The state of the stream `checkpoint`: which keys sign, which tree is being grown, and the last signed checkpoints. */

type AnnouncedKey = {
  readonly id: string
  readonly publicKey: Buffer
  /** Null: the key before it signed it, or it is the first. Otherwise the reason an operator gave to announce it. */
  readonly reason: string | null
}

type LogTree = {
  readonly origin: string
  /** The last checkpoint of the original log, if this one is a copy. */
  readonly previousNote: string | null
}

/** A checkpoint as the log holds it. */
export type Checkpoint = LogCheckpointed & {
  readonly revision: number
  readonly eventId: string
  readonly at: string
}

export type CheckpointStream = {
  /** Of the stream's last event; −1: there is none. */
  readonly revision: number
  /** In the order in which they were announced. The last one signs. */
  readonly keys: readonly AnnouncedKey[]
  /** Null before the first checkpoint. */
  readonly tree: LogTree | null
  /** Of this tree. */
  readonly last: Checkpoint | null
  /** The last one of any tree, which a copy begins with. */
  readonly lastOfAll: Checkpoint | null
}

export const emptyStream: CheckpointStream = {
  revision: -1,
  keys: [],
  tree: null,
  last: null,
  lastOfAll: null,
}

/** The stream holds an invalid event: a key that is not vouched for, or a checkpoint its key did not sign. */
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

/** The id of a key, derived from its bytes. */
export const keyIdOf = (publicKey: Buffer): string =>
  Buffer.from(hash('sha256', publicKey, 'hex'), 'hex')
    .subarray(0, 16)
    .toString('base64url')

/** The text that the previous key signs to announce a new one. */
export const announcementText = (announced: {
  readonly key_id: string
  readonly public_key: string
  readonly previous_key_id: string | null
}): string =>
  `enrichment-ledger signing key\n${announced.previous_key_id ?? ''}\n${announced.key_id}\n${announced.public_key}\n`

/** Adds an event. Throws `CheckpointFault` for one that does not follow. */
const evolveStream = (stream: CheckpointStream, event: DecodedEvent): CheckpointStream => {
  const { revision } = event.recorded
  switch (event.type) {
    case 'SigningKeyAnnounced':
      return { ...stream, revision, keys: [...stream.keys, keyOf(stream, event.data, event.recorded)] }
    case 'LogTreeBegun': {
      const { origin, previous_note: previousNote } = event.data
      if (previousNote !== (stream.lastOfAll?.note ?? null))
        throw new CheckpointFault(
          event.recorded,
          'the new tree does not begin with the last checkpoint before it',
        )
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
  if (keyIdOf(publicKey) !== data.key_id) throw fault('its id is not that of its bytes')
  if (data.previous_key_id !== (before?.id ?? null))
    throw fault(`it does not follow the key announced before it, ${before?.id ?? 'of which there is none'}`)
  const vouched =
    before === undefined ||
    (data.signature !== null &&
      isSignature(announcementText(data), Buffer.from(data.signature, 'base64url'), before.publicKey))
  if (!vouched && (data.signature !== null || data.reason === null))
    throw fault('neither the key before it nor an operator vouches for it')
  return { id: data.key_id, publicKey, reason: vouched ? null : data.reason }
}

/** The current key has to have signed it, and the note has to match the event. */
const checkpointFault = ({ keys, tree, last }: CheckpointStream, checkpoint: Checkpoint): string | null => {
  const { origin, size, root, note } = checkpoint
  try {
    const head = headOf(note)
    if (head.origin !== origin || head.size !== size || head.root.toString('base64') !== root)
      return 'the checkpoint and its note say different things'
    if (origin !== tree?.origin) return `no tree was begun as ${origin}`
    if (size <= (last?.size ?? 0))
      return `its tree is no larger than the one before it, of ${last?.size} leaves`
    if (signerOf(note, origin, keys.slice(-1)) === undefined)
      return 'the key that was announced last did not sign the checkpoint'
    return null
  } catch (error) {
    if (error instanceof NoteFault) return error.message
    throw error
  }
}

const pageMax = 1_000

/**
 * Reads the stream, each event once: events that were read before are remembered. Throws the errors of reading, `CheckpointFault`, and
 * `UnknownEventType` for events of a newer release.
 */
export const createStreamReader = (
  eventLog: Pick<EventLog, 'read'>,
  { folded }: { readonly folded?: (stream: CheckpointStream) => void } = {},
): (() => Promise<CheckpointStream>) => {
  let known = emptyStream
  const readOn = async (): Promise<CheckpointStream> => {
    for (;;) {
      const page = await eventLog
        .read(checkpointStream, { from: known.revision + 1, max: pageMax })
        .catch((error: unknown) => {
          if (error instanceof StreamMissing) return []
          throw error
        })
      for (const recorded of page) {
        if (recorded.revision <= known.revision) continue
        known = evolveStream(known, decodeEvent(recorded))
        folded?.(known)
      }
      if (page.length < pageMax) return known
    }
  }
  // One at a time, or an event would be folded twice.
  let reading: Promise<unknown> = Promise.resolve()
  return () => {
    const next = reading.then(readOn)
    reading = next.catch(() => undefined)
    return next
  }
}
