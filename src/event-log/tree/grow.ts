import { hash } from 'node:crypto'
import { type EventLog, logStart, type Position, placeOf, type RecordedEvent, stillHolds } from '../port.ts'
import { leafDigestOf, ownEventsAfter } from './leaves.ts'
import { writeLeafHash } from './merkle-tree.ts'
import { packPositions, type StoredTile, type StoredTree, type TreeStore } from './store.ts'
import { TileStack, tileName, tileWidth } from './tiles.ts'

/** Extends the stored tiles to the end of the log. After an interruption, the next call continues from the stored tiles. */

/** The number of leaves that are collected in memory before they are stored. */
const leavesPerWrite = 16_384

/** The first leaf of a copied log: the base64url SHA-256 of a checkpoint's whole note in UTF-8. */
export const noteDigest = (note: string): string => hash('sha256', note, 'base64url')

type Growing = {
  readonly eventLog: Pick<EventLog, 'head' | 'subscribe' | 'at'>
  readonly store: TreeStore
  readonly tree: { readonly origin: string; readonly previousNote: string | null }
}

export type GrownTree = StoredTree & { readonly root: Buffer }

/**
 * Resolves with the stored tree, which extends at least to the end of the log at the time of the call. With `rebuild`, all tiles are rebuilt.
 */
export const growTree = async (growing: Growing, { rebuild = false } = {}): Promise<GrownTree> => {
  const { eventLog, store, tree } = growing
  if (rebuild) await store.begin(tree.origin)
  for (;;) {
    const stored = await store.read()
    const usable =
      stored !== null &&
      stored.origin === tree.origin &&
      // A log that was restored from an older copy no longer contains the last event of the stored tiles.
      (stored.place === null || (await stillHolds(eventLog, stored.place)))
    const growth = usable ? await growthOf(growing, stored) : null
    if (growth !== null) {
      if (await growOn(growing, growth)) return { ...growth.reached, root: growth.stack.root() }
      // If the size differs, another process has only extended the tiles between two queries.
    } else if ((await store.read())?.size === stored?.size) await store.begin(tree.origin)
  }
}

type Growth = {
  reached: StoredTree
  readonly stack: TileStack
  /** The positions of the leaves in the last level-0 tile. */
  positions: Position[]
  readonly completed: StoredTile[]
  last: RecordedEvent | null
}

/** The state from which the tree grows, or null if the stored tiles do not match the stored size. */
const growthOf = async ({ store, tree }: Growing, stored: StoredTree): Promise<Growth | null> => {
  const begun = await stackAt(store, stored.size)
  // A different number of positions means that the stored tile does not match the size.
  if (begun === null || begun.known !== stored.size % tileWidth) return null
  const { stack, positions } = begun
  const growth: Growth = { reached: stored, stack, positions, completed: [], last: null }
  if (stored.size === 0 && tree.previousNote !== null)
    addLeaf(growth, { digest: noteDigest(tree.previousNote), position: logStart })
  return growth
}

/**
 * Builds the tree at a size from the stored tiles, with the positions of the leaves in its last level-0 tile. Returns null if stored tiles or
 * positions are missing. `known` is the number of positions that are stored for that tile.
 */
export const stackAt = async (
  store: TreeStore,
  size: number,
): Promise<{ stack: TileStack; positions: Position[]; known: number } | null> => {
  const tiles = await store.tiles(lastTiles(size))
  const stack = TileStack.at(size, (level, index) => tiles.get(tileName({ level, index })))
  const known = await store.positionsIn(Math.floor(size / tileWidth))
  const positions = known.slice(0, size % tileWidth)
  return stack === null || positions.length < size % tileWidth
    ? null
    : { stack, positions, known: known.length }
}

const lastTiles = (size: number): { level: number; index: number }[] => {
  const places: { level: number; index: number }[] = []
  for (let level = 0, entries = size; entries > 0; level++, entries = Math.floor(entries / tileWidth))
    places.push({ level, index: Math.floor(entries / tileWidth) })
  return places
}

const addLeaf = (growth: Growth, { digest, position }: { digest: string; position: Position }): void => {
  growth.positions.push(position)
  growth.stack.add(
    (target, at) => writeLeafHash(digest, target, at),
    (tile) => {
      const positions = tile.level === 0 ? packPositions(growth.positions) : null
      if (tile.level === 0) growth.positions = []
      growth.completed.push({ ...tile, positions })
    },
  )
}

/** Adds new leaves up to the end of the log. Returns false if another process has changed the stored tree in the meantime. */
const growOn = async ({ eventLog, store }: Growing, growth: Growth): Promise<boolean> => {
  const known = growth.reached.place ?? undefined
  for await (const { events } of ownEventsAfter(eventLog, known && { after: known.position, known }))
    for (const event of events) {
      addLeaf(growth, { digest: leafDigestOf(event), position: event.position })
      growth.last = event
      if (growth.completed.length * tileWidth >= leavesPerWrite && !(await write(store, growth))) return false
    }
  return growth.stack.size === growth.reached.size || write(store, growth)
}

const write = async (store: TreeStore, growth: Growth): Promise<boolean> => {
  const { reached, stack, positions, completed, last } = growth
  const to: StoredTree = {
    origin: reached.origin,
    size: stack.size,
    place: last === null ? reached.place : placeOf(last),
  }
  const partial = stack
    .partial()
    .map((tile) => ({ ...tile, positions: tile.level === 0 ? packPositions(positions) : null }))
  if (!(await store.grow(reached, to, [...completed, ...partial]))) return false
  completed.length = 0
  growth.reached = to
  return true
}
