import { logStart, type RecordedEvent } from '../port.ts'
import { noteDigest } from '../tree/grow.ts'
import { leafDigestOf } from '../tree/leaves.ts'
import { writeLeafHash } from '../tree/merkle-tree.ts'
import { packPositions, type StoredTile, type TreeStore } from '../tree/store.ts'
import { type Tile, TileStack, tileName, tileWidth } from '../tree/tiles.ts'

/** Calculates the tree from the log, and compares it with the signed roots and the stored tiles. */

/** The root that the log must have at a given size. */
export type ExpectedRoot = {
  readonly size: number
  readonly root: string
  /** The position of the last leaf's event; null if it is unknown. */
  readonly position: string | null
  /** Called with a description of the difference if the log has another root. */
  readonly refuted: (why: string) => void
}

export type Roots = {
  /** Adds this service's next event, in log order. */
  add(event: RecordedEvent): void
  /** Compares completed tiles with the stored ones. Must be called after every page, so that few tiles are in memory. */
  settle(): Promise<void>
  end(): Promise<void>
  readonly size: number
  /** The last signed root that matches the log; null if none does. */
  readonly passed: ExpectedRoot | null
}

/** The tree over leaves that were verified earlier, and the positions of the leaves in its last level-0 tile. */
export type BegunTree = { readonly stack: TileStack; readonly positions: readonly bigint[] }

const fetchedTiles = 64

export const createRoots = async ({
  tree,
  expected,
  store,
  tileFault,
  begun = { stack: new TileStack(), positions: [] },
}: {
  readonly tree: { readonly origin: string; readonly previousNote: string | null } | null
  readonly expected: readonly ExpectedRoot[]
  /** The stored tiles to compare; null if no tiles are compared. */
  readonly store: TreeStore | null
  readonly tileFault: (message: string) => void
  readonly begun?: BegunTree
}): Promise<Roots> => {
  const due = [...expected].sort((a, b) => a.size - b.size)
  const stored = store === null ? null : await store.read()
  const tiles =
    store === null || stored === null || stored.origin !== tree?.origin
      ? null
      : compareTiles(store, stored.size, tileFault)
  // Leaves after the last expected root are not hashed.
  const sizeMax = Math.max(due.at(-1)?.size ?? 0, tiles === null ? 0 : (stored?.size ?? 0))
  const { stack } = begun
  let positions = [...begun.positions]
  let { size } = stack
  let next = 0
  let passed: ExpectedRoot | null = null

  const completed = (tile: Tile): void => {
    const lowest = tile.level === 0
    tiles?.completed({ ...tile, positions: lowest ? packPositions(positions) : null })
    if (lowest) positions = []
  }
  const addLeaf = (digest: string, position: bigint): void => {
    size++
    if (size > sizeMax) return
    positions.push(position)
    stack.add((target, at) => writeLeafHash(digest, target, at), completed)
    for (; due[next]?.size === size; next++)
      if (compareRoot(due[next], stack, position)) passed = due[next] ?? null
    if (size === stored?.size) tiles?.reached(stack.partial(), packPositions(positions))
  }
  if (size === 0 && tree !== null && tree.previousNote !== null)
    addLeaf(noteDigest(tree.previousNote), logStart)
  return {
    add: (event) => addLeaf(leafDigestOf(event), event.position),
    settle: async () => tiles?.settle(),
    end: async () => {
      await tiles?.settle()
      for (const { refuted } of due.slice(next))
        refuted(`the log has only ${size} leaves: its end is missing`)
      if (tiles !== null && stored !== null && stored.size > size)
        tileFault(`the stored tree has ${stored.size} leaves, but the log has only ${size}`)
    },
    get size() {
      return size
    },
    get passed() {
      return passed
    },
  }
}

const compareRoot = (expected: ExpectedRoot | undefined, stack: TileStack, position: bigint): boolean => {
  if (expected === undefined) return false
  const root = stack.root().toString('base64')
  if (root !== expected.root)
    expected.refuted(
      `the log's first ${expected.size} leaves have the root ${root}: an earlier event was changed`,
    )
  else if (expected.position !== null && expected.position !== position.toString())
    expected.refuted(`its last leaf is the event at position ${position}, not at ${expected.position}`)
  else return true
  return false
}

type TileComparison = {
  completed(tile: StoredTile): void
  /** Compares the tiles that are partial at the stored size, and the positions in the lowest of these tiles. */
  reached(partial: readonly Tile[], positions: Buffer): void
  settle(): Promise<void>
}

const compareTiles = (
  store: TreeStore,
  storedSize: number,
  tileFault: (message: string) => void,
): TileComparison => {
  let waiting: StoredTile[] = []
  let fetched = new Map<number, StoredTile>()
  const lowest = async (index: number): Promise<StoredTile | undefined> => {
    if (!fetched.has(index))
      fetched = new Map((await store.lowest(index, fetchedTiles)).map((tile) => [tile.index, tile]))
    return fetched.get(index)
  }
  const higher = async (tile: Tile): Promise<StoredTile | undefined> => {
    const hashes = (await store.tiles([tile])).get(tileName(tile))
    return hashes && { ...tile, hashes, positions: null }
  }
  return {
    completed: (tile) => {
      if ((tile.index + 1) * tileWidth ** (tile.level + 1) <= storedSize) waiting.push(tile)
    },
    reached: (partial, positions) => {
      waiting.push(...partial.map((tile) => ({ ...tile, positions: tile.level === 0 ? positions : null })))
    },
    settle: async () => {
      for (const tile of waiting) {
        const there = await (tile.level === 0 ? lowest(tile.index) : higher(tile))
        const same =
          there !== undefined &&
          begins(there.hashes, tile.hashes) &&
          (tile.positions === null || begins(there.positions, tile.positions))
        if (!same)
          tileFault(
            `the stored tile ${tileName(tile)} ${there === undefined ? 'is missing' : 'does not match the log'}; ` +
              'event-log checkpoint --rebuild rebuilds the tiles',
          )
      }
      waiting = []
    },
  }
}

/** Whether a stored tile begins with the expected hashes. A partial tile may have grown in the meantime, so it can contain more hashes. */
const begins = (there: Buffer | null, expected: Buffer): boolean =>
  there?.subarray(0, expected.length).equals(expected) === true
