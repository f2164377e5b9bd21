import type { EventLog, Position } from '../port.ts'
import type { Checkpoint, CheckpointStream } from './checkpoint-stream.ts'
import { createOwnership, leafDigestOf } from './leaves.ts'
import {
  consistencyRanges,
  inclusionRanges,
  isConsistent,
  leafHash,
  rootFromInclusion,
} from './merkle-tree.ts'
import { signerOf, verifierKey } from './signed-note.ts'
import type { TreeStore } from './store.ts'
import { inclusionProof, rangeRoot, tilesOf } from './tiles.ts'

/** A proof that a signed checkpoint contains an event. */
export type InclusionProof = {
  /** The index of the event's leaf, counted from 0. */
  readonly index: number
  /** The leaf: the event's digest in base64url. Its hash in the tree is the SHA-256 of 0x00 and these 32 bytes. */
  readonly leaf: string
  /** The hashes of the proof, from the leaf upwards, 32 bytes each, in base64. */
  readonly hashes: readonly string[]
  readonly note: string
  readonly checkpoint: Checkpoint
  /** The signing key in the format of C2SP signed notes: `<origin>+<id>+<key>`. */
  readonly verifierKey: string
}

/** The stored tiles do not match the log, so either the tiles or the log were changed. `message` contains the event. */
export class ProofFault extends Error {
  override name = 'ProofFault'
}

type Proving = {
  readonly eventLog: Pick<EventLog, 'at'>
  readonly store: TreeStore
  readonly read: () => Promise<CheckpointStream>
}

/** See `Checkpoints.proofOfInclusion`. The tiles are trusted only if they connect the log's own event to the signed root. */
export const prove = async (
  { eventLog, store, read }: Proving,
  position: Position,
): Promise<InclusionProof | null> => {
  const { last: checkpoint, keys } = await read()
  if (checkpoint === null || BigInt(checkpoint.position) < position) return null
  const [event, index] = await Promise.all([eventLog.at(position), store.leafAt(position)])
  if (event === null || !createOwnership()(event)) return null
  const key = signerOf(checkpoint.note, checkpoint.origin, keys)
  const { size } = checkpoint
  const tiles =
    index === null || index >= size ? null : await store.tiles(tilesOf(inclusionRanges(index, size)))
  const leaf = leafDigestOf(event)
  const hashes = index === null || tiles === null ? null : inclusionProof(index, size, tiles)
  const root =
    index === null || hashes === null
      ? null
      : rootFromInclusion(leafHash(Buffer.from(leaf, 'base64url')), hashes, { index, size })
  if (index === null || hashes === null || key === undefined || root?.toString('base64') !== checkpoint.root)
    throw new ProofFault(
      `the event at position ${position} cannot be proved: the stored tree does not connect it to the checkpoint at ${size} leaves. ` +
        'Rebuild the stored tree with "event-log checkpoint --rebuild". If this is refused, run "event-log verify"',
    )
  return {
    index,
    leaf,
    hashes: hashes.map((hash) => hash.toString('base64')),
    note: checkpoint.note,
    checkpoint,
    verifierKey: verifierKey(checkpoint.origin, key.publicKey),
  }
}

/** A proof that an earlier tree is the beginning of a later one (RFC 6962 §2.1.2). */
export type ConsistencyProof = {
  /** The size of the earlier tree. */
  readonly size: number
  readonly root: string
  /** The hashes of the proof, 32 bytes each, in base64. */
  readonly hashes: readonly string[]
  readonly checkpoint: Checkpoint
}

/** See `Checkpoints.proofOfConsistency`. Also throws `ProofFault` if the last checkpoint is smaller than `size`. */
export const proveConsistency = async (
  { store, read }: Pick<Proving, 'store' | 'read'>,
  size: number,
): Promise<ConsistencyProof | null> => {
  const { last: checkpoint } = await read()
  if (checkpoint === null) return null
  if (size > checkpoint.size)
    throw new ProofFault(`the last checkpoint is at ${checkpoint.size} leaves, so it is smaller than ${size}`)
  const earlier = { from: 0, to: size }
  const ranges = consistencyRanges(size, checkpoint.size)
  const tiles = await store.tiles(tilesOf([earlier, ...ranges]))
  const root = rangeRoot(earlier, tiles)
  const hashes = ranges.map((range) => rangeRoot(range, tiles)).filter((hash) => hash !== null)
  const last = { size: checkpoint.size, root: Buffer.from(checkpoint.root, 'base64') }
  if (root === null || !isConsistent({ size, root }, last, hashes))
    throw new ProofFault(
      `the stored tree does not connect ${size} leaves to the checkpoint at ${checkpoint.size}. Run "event-log verify"`,
    )
  return {
    size,
    root: root.toString('base64'),
    hashes: hashes.map((hash) => hash.toString('base64')),
    checkpoint,
  }
}
