import { strict as assert } from 'node:assert'
import { type EventLog, logStart } from '../port.ts'
import { announcementOf, appendedTo, type Keyed, treeBegun } from './append.ts'
import type { Checkpoint, CheckpointStream } from './checkpoint-stream.ts'
import { type GrownTree, growTree } from './grow.ts'
import { signedNote } from './signed-note.ts'
import type { SigningKey, SigningKeyFiles } from './signing-key.ts'
import type { TreeStore } from './store.ts'
import { rangeRoot, tilesOf } from './tiles.ts'

/** A checkpoint cannot be signed, or an event cannot be proved. `message` contains the reason and the remedy. */
export class CheckpointRefused extends Error {
  override name = 'CheckpointRefused'
}

export type Making = {
  readonly eventLog: Pick<EventLog, 'append' | 'read' | 'subscribe' | 'head' | 'at'>
  readonly store: TreeStore
  readonly keys: SigningKeyFiles
  readonly read: () => Promise<CheckpointStream>
}

/** The maximum number of attempts. Each can conflict with another process, and the first checkpoint needs two appends before its own. */
const attemptsMax = 10

/** See `Checkpoints.make`. */
export const makeCheckpoint = async (making: Making, { rebuild = false } = {}): Promise<Checkpoint> => {
  const wanted = await making.eventLog.head()
  for (let attempt = 0; attempt < attemptsMax; attempt++) {
    const stream = await making.read()
    const { last } = stream
    // Another process has made a checkpoint that covers the required position.
    if (attempt > 0 && last !== null && BigInt(last.position) >= wanted) return last
    const key = await signingKeyOf(making, stream)
    const begun = beginning(stream, key)
    const next = begun ?? [await signed(making, { stream, key, rebuild: rebuild && attempt === 0 })]
    const appended = await appendedTo(making.eventLog, stream, next)
    if (appended && begun === null) return (await making.read()).last ?? missing()
  }
  throw new CheckpointRefused(
    'no checkpoint was made, because other processes kept appending to its stream first. Try again',
  )
}

const missing = (): never => {
  throw new CheckpointRefused('the checkpoint that was appended is not in the log')
}

/** Returns the last announced key. Before the first announcement, returns the key in KEY_DIR, which is created if it is missing. */
const signingKeyOf = async ({ keys }: Making, stream: CheckpointStream): Promise<SigningKey> => {
  const announced = stream.keys.at(-1)
  const key = announced === undefined ? await keys.first() : await keys.find(announced.id)
  if (key !== null) return key
  throw new CheckpointRefused(
    `no checkpoint can be signed: ${keys.path} does not contain the key ${announced?.id}, which was announced in the log. Set the correct ` +
      'KEY_DIR or, if the key is lost, announce another one: event-log announce-key --reason TEXT',
  )
}

/** The events that must come before the first checkpoint, or null if they are already in the log. */
const beginning = (stream: CheckpointStream, key: SigningKey): readonly Keyed[] | null => {
  const announcement: Keyed[] =
    stream.keys.length > 0 ? [] : [announcementOf(key, { previous: null, actor: 'system', reason: null })]
  const tree: Keyed[] = stream.tree === null ? [treeBegun(null)] : []
  return announcement.length + tree.length === 0 ? null : [...announcement, ...tree]
}

/** Extends the tree to the end of the log, and signs its root. */
const signed = async (
  making: Making,
  { stream, key, rebuild }: { stream: CheckpointStream; key: SigningKey; rebuild: boolean },
): Promise<Keyed> => {
  const { tree, last } = stream
  assert(tree !== null)
  const { origin, size, place, root } = await grownAsSigned({ ...making, tree }, { last, rebuild })
  return {
    key: `checkpoint/${origin}/${size}`,
    event: {
      type: 'LogCheckpointed',
      data: {
        origin,
        size,
        root: root.toString('base64'),
        position: (place?.position ?? logStart).toString(),
        note: signedNote({ origin, size, root }, key),
      },
    },
  }
}

/**
 * Extends the tree to the end of the log. The beginning of the tree must have the last signed root. If the tiles have another root, they are
 * rebuilt. If the log itself has another root, nothing is signed.
 */
const grownAsSigned = async (
  growing: Parameters<typeof growTree>[0],
  { last, rebuild }: { last: Checkpoint | null; rebuild: boolean },
): Promise<GrownTree> => {
  for (let attempt = 0, making = rebuild; attempt < attemptsMax; attempt++) {
    const grown = await growTree(growing, { rebuild: making })
    const before = last === null ? null : await rootAt(growing.store, last.size)
    if (last === null || before?.toString('base64') === last.root) return grown
    // Another process is rebuilding the tiles.
    if (making && before === null) continue
    if (making)
      throw new CheckpointRefused(
        `no checkpoint is signed: the log's first ${last.size} leaves no longer have the root that was signed on ${last.at}. ` +
          'Earlier events were changed or removed. Run "event-log verify"',
      )
    making = true
  }
  throw new CheckpointRefused(
    'no checkpoint was made, because other processes kept rebuilding the tree. Try again',
  )
}

/** The root at an earlier size, from the stored tiles, or null if a tile is missing. */
const rootAt = async (store: TreeStore, size: number): Promise<Buffer | null> => {
  const whole = { from: 0, to: size }
  return rangeRoot(whole, await store.tiles(tilesOf([whole])))
}
