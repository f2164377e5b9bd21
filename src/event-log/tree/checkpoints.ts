import type { EventLog, Position } from '../port.ts'
import { announcementOf, appendedTo } from './append.ts'
import { type Checkpoint, createStreamReader } from './checkpoint-stream.ts'
import { CheckpointRefused, type Making, makeCheckpoint } from './make-checkpoint.ts'
import { type ConsistencyProof, type InclusionProof, prove, proveConsistency } from './prove.ts'
import { isSignature } from './signed-note.ts'
import type { SigningKeyFiles } from './signing-key.ts'
import type { TreeStore } from './store.ts'

/**
 * Signed checkpoints of the whole event log, and proofs for an outsider that an event is in it. A checkpoint is a note
 * with the number of leaves and the root of the tree over them, signed.
 */

export { type Checkpoint, CheckpointFault } from './checkpoint-stream.ts'
export { CheckpointRefused } from './make-checkpoint.ts'
export type { InclusionProof } from './prove.ts'

export type Checkpoints = {
  /**
   * Signs a checkpoint over everything the log holds now and appends it. `rebuild`: over tiles that are rebuilt from the log.
   * Throws `CheckpointRefused` if that cannot be done, `CheckpointFault` if the stream `checkpoint` is not sound.
   */
  make(options?: { rebuild?: boolean }): Promise<Checkpoint>
  /** The last one; null before the first. */
  last(): Promise<Checkpoint | null>
  /** The proof up to the last checkpoint; null while none covers this position, or no event of ours is there. */
  proofOfInclusion(position: Position): Promise<InclusionProof | null>
  /** That the tree at an earlier size is the beginning of the last checkpoint's; null before the first checkpoint. */
  proofOfConsistency(size: number): Promise<ConsistencyProof | null>
  /** Signs a text that is not a checkpoint with the announced key; null if no key was announced, or the key is not here. */
  sign(text: string): Promise<KeySignature | null>
  /** Whether the signature is valid for a key which the log announced. */
  isSigned(text: string, signature: KeySignature): Promise<boolean>
  /** Announces a new signing key: vouched for by the current key, or by an operator if that is lost. */
  announceKey(by: { actor: string; reason: string }): Promise<{ keyId: string; vouchedFor: boolean }>
}

/** In base64url. */
type KeySignature = { readonly keyId: string; readonly value: string }

/** The name of the job that makes a checkpoint on request. */
export const askedCheckpointJob = 'checkpoint-asked'
/** Requests gather for this many seconds, and one checkpoint answers all of them. */
const gatherSeconds = 20

/** Asks for a checkpoint that covers everything the log holds now: it is made within a minute, by the process that runs jobs. */
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

/** As `Checkpoints.announceKey`. */
const announceKey = async (
  { eventLog, keys, read }: Making,
  { actor, reason }: { actor: string; reason: string },
): Promise<{ keyId: string; vouchedFor: boolean }> => {
  const stream = await read()
  const announced = stream.keys.at(-1)
  const present = announced === undefined ? null : await keys.find(announced.id)
  // If the announced key is lost, the key that is here in its place, if any, is announced.
  const key = present === null ? await keys.first() : await keys.next()
  if (key.id === announced?.id) throw new CheckpointRefused(`the log has announced ${key.id} already`)
  const previous = announced === undefined ? null : { id: announced.id, key: present }
  const event = announcementOf(key, { previous, actor, reason })
  if (!(await appendedTo(eventLog, stream, [event], actor)))
    throw new CheckpointRefused(
      'another process wrote to the stream of checkpoints in the meantime. Ask again',
    )
  // The new key replaces the old one.
  await keys.find(key.id)
  return { keyId: key.id, vouchedFor: present !== null }
}
