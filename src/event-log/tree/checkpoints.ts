import type { EventLog, Position } from '../port.ts'
import { announcementOf, appendedTo } from './append.ts'
import { type Checkpoint, createStreamReader } from './checkpoint-stream.ts'
import { CheckpointRefused, type Making, makeCheckpoint } from './make-checkpoint.ts'
import { type ConsistencyProof, type InclusionProof, prove, proveConsistency } from './prove.ts'
import { isSignature } from './signed-note.ts'
import type { SigningKeyFiles } from './signing-key.ts'
import type { TreeStore } from './store.ts'

/**
 * Signed checkpoints of the whole event log, and proofs that an event is in it, which others can verify. A checkpoint is a signed note with the
 * size and the root of the log's tree.
 */

export type Checkpoints = {
  /**
   * Signs a checkpoint that covers the whole log, and appends it. With `rebuild`, the tiles are first rebuilt from the log. Throws
   * `CheckpointRefused` if no checkpoint can be signed, and `CheckpointFault` if the stream `checkpoint` is invalid.
   */
  make(options?: { rebuild?: boolean }): Promise<Checkpoint>
  /** Returns the last checkpoint, or null if there is none. */
  last(): Promise<Checkpoint | null>
  /**
   * Proves that the last checkpoint contains the event at this position. Returns null if no checkpoint covers the position, or if this service
   * did not write the event.
   */
  proofOfInclusion(position: Position): Promise<InclusionProof | null>
  /** Proves that the tree at an earlier size is the beginning of the last checkpoint's tree. Returns null if there is no checkpoint. */
  proofOfConsistency(size: number): Promise<ConsistencyProof | null>
  /** Signs a text that is not a checkpoint with the announced key. Returns null if there is none, or if its file is not in KEY_DIR. */
  sign(text: string): Promise<KeySignature | null>
  /** Whether the signature is valid for an announced key. */
  isSigned(text: string, signature: KeySignature): Promise<boolean>
  /**
   * Announces a new signing key. The announcement is signed with the current key. If that key is lost, the operator's reason is recorded
   * instead, and `vouchedFor` is true.
   */
  announceKey(by: { actor: string; reason: string }): Promise<{ keyId: string; vouchedFor: boolean }>
}

/** `value` is in base64url. */
type KeySignature = { readonly keyId: string; readonly value: string }

/** The name of the job that makes a checkpoint on request. */
export const askedCheckpointJob = 'checkpoint-asked'
/** One checkpoint is made for all requests within this many seconds. */
const gatherSeconds = 20

/** Requests a checkpoint that covers the whole log. A process that runs jobs makes it within a minute. */
export const requestCheckpoint = (queue: {
  send(name: string, data: string, options: { afterSeconds: number; key: string }): Promise<void>
}): Promise<void> => queue.send(askedCheckpointJob, '', { afterSeconds: gatherSeconds, key: 'checkpoint' })

type Dependencies = {
  readonly eventLog: Pick<EventLog, 'append' | 'read' | 'subscribe' | 'head' | 'at'>
  readonly store: TreeStore
  readonly keys: SigningKeyFiles
}

export const createCheckpoints = (dependencies: Dependencies): Checkpoints => {
  const read = createStreamReader(dependencies.eventLog)
  return {
    make: (options) => makeCheckpoint({ ...dependencies, read }, options),
    last: async () => (await read()).last,
    proofOfInclusion: (position) => prove({ ...dependencies, read }, position),
    proofOfConsistency: (size) => proveConsistency({ ...dependencies, read }, size),
    sign: async (text) => {
      const announced = (await read()).keys.at(-1)
      const key = announced === undefined ? null : await dependencies.keys.find(announced.id)
      return key === null ? null : { keyId: key.id, value: key.sign(text).toString('base64url') }
    },
    isSigned: async (text, { keyId, value }) => {
      const announced = (await read()).keys.find(({ id }) => id === keyId)
      return (
        announced !== undefined && isSignature(text, Buffer.from(value, 'base64url'), announced.publicKey)
      )
    },
    announceKey: (by) => announceKey({ ...dependencies, read }, by),
  }
}

const announceKey = async (
  { eventLog, keys, read }: Making,
  { actor, reason }: { actor: string; reason: string },
): Promise<{ keyId: string; vouchedFor: boolean }> => {
  const stream = await read()
  const announced = stream.keys.at(-1)
  const present = announced === undefined ? null : await keys.find(announced.id)
  // If the announced key is lost, any other key that is already in the directory is announced.
  const key = present === null ? await keys.first() : await keys.next()
  if (key.id === announced?.id)
    throw new CheckpointRefused(`the key ${key.id} is already announced in the log`)
  const previous = announced === undefined ? null : { id: announced.id, key: present }
  const event = announcementOf(key, { previous, actor, reason })
  if (!(await appendedTo(eventLog, stream, [event], actor)))
    throw new CheckpointRefused(
      'another process has written to the checkpoint stream in the meantime. Try again',
    )
  // Finding the announced key renames its file, so that it replaces the old key.
  await keys.find(key.id)
  return { keyId: key.id, vouchedFor: present !== null }
}
