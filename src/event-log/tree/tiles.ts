import { hashBytes, inclusionRanges, type LeafRange, nodeHash, rootOf, splitOf } from './merkle-tree.ts'

/**
 * The tree, divided into tiles as defined by C2SP tlog-tiles. A tile of level 0 contains the hashes of 256 leaves, and a tile of
 * level n + 1 contains the roots of 256 tiles of level n. The last tile of a level can be partial. Pure.
 */

export const tileWidth = 256

export type Tile = {
  readonly level: number
  readonly index: number
  /** The consecutive hashes. The last tile of a level can have fewer than 256. */
  readonly hashes: Buffer
}

export const tileName = ({ level, index }: Pick<Tile, 'level' | 'index'>): string => `${level}/${index}`

/** Builds tiles from leaves, in order. Keeps only the last tile of each level in memory. */
export class TileStack {
  #size = 0
  readonly #levels: { hashes: Buffer; count: number }[] = []

  get size(): number {
    return this.#size
  }

  /** Returns the stack for a tree of this size, or null if a tile is missing or too short. `lastTile` returns the last tile of a level. */
  static at(size: number, lastTile: (level: number, index: number) => Buffer | undefined): TileStack | null {
    const stack = new TileStack()
    for (let level = 0, entries = size; entries > 0; level++, entries = Math.floor(entries / tileWidth)) {
      const count = entries % tileWidth
      const own = stack.#level(level)
      if (count === 0) continue
      const hashes = lastTile(level, Math.floor(entries / tileWidth))
      if (hashes === undefined || hashes.length < count * hashBytes) return null
      hashes.copy(own.hashes, 0, 0, count * hashBytes)
      own.count = count
    }
    stack.#size = size
    return stack
  }

  /**
   * Adds a leaf. `write` must write the hash of the leaf into the buffer. Calls `completed` for every tile that this leaf completes, the lowest
   * level first.
   */
  add(write: (target: Buffer, at: number) => void, completed: (tile: Tile) => void): void {
    const lowest = this.#level(0)
    write(lowest.hashes, lowest.count * hashBytes)
    lowest.count++
    this.#size++
    let entries = this.#size
    for (let level = 0; this.#level(level).count === tileWidth; level++) {
      const full = this.#level(level)
      const hashes = Buffer.from(full.hashes)
      full.count = 0
      entries = entries / tileWidth
      completed({ level, index: entries - 1, hashes })
      const next = this.#level(level + 1)
      rootOf(hashes).copy(next.hashes, next.count * hashBytes)
      next.count++
    }
  }

  /** Returns the incomplete tiles, the lowest level first. */
  partial(): Tile[] {
    return this.#levels.flatMap(({ hashes, count }, level) =>
      count === 0
        ? []
        : [
            {
              level,
              index: Math.floor(this.#size / tileWidth ** (level + 1)),
              hashes: Buffer.from(hashes.subarray(0, count * hashBytes)),
            },
          ],
    )
  }

  root(): Buffer {
    let root: Buffer | null = null
    for (const { hashes, count } of this.#levels) {
      const own = hashes.subarray(0, count * hashBytes)
      if (root !== null) root = rootOf(Buffer.concat([own, root]))
      else if (count > 0) root = rootOf(own)
    }
    return root ?? rootOf(Buffer.alloc(0))
  }

  #level(level: number): { hashes: Buffer; count: number } {
    const known = this.#levels[level]
    if (known !== undefined) return known
    const added = { hashes: Buffer.alloc(tileWidth * hashBytes), count: 0 }
    this.#levels[level] = added
    return added
  }
}

/** A complete subtree of 2^height leaves. `index` counts the subtrees of this height from 0. */
type Subtree = { readonly height: number; readonly index: number }

const heightOf = (leaves: number): number => Math.round(Math.log2(leaves))
const tileHeight = heightOf(tileWidth)

const subtreesOf = ({ from, to }: LeafRange): Subtree[] => {
  const leaves = to - from
  if (leaves === 0) return []
  const split = leaves === 1 ? 1 : splitOf(leaves)
  if (split * 2 === leaves || leaves === 1) return [{ height: heightOf(leaves), index: from / leaves }]
  return [...subtreesOf({ from, to: from + split }), ...subtreesOf({ from: from + split, to })]
}

const placeOf = ({
  height,
  index,
}: Subtree): Pick<Tile, 'level' | 'index'> & { first: number; count: number } => {
  const level = Math.floor(height / tileHeight)
  const count = 2 ** (height % tileHeight)
  const first = index * count
  return { level, index: Math.floor(first / tileWidth), first: first % tileWidth, count }
}

/** Returns the tiles that are needed to calculate the roots of these ranges, without duplicates. */
export const tilesOf = (ranges: readonly LeafRange[]): Pick<Tile, 'level' | 'index'>[] => {
  const tiles = ranges.flatMap(subtreesOf).map(placeOf)
  return [
    ...new Map(tiles.map(({ level, index }) => [tileName({ level, index }), { level, index }])).values(),
  ]
}

/** The hashes of tiles, by `tileName`. */
export type TileHashes = ReadonlyMap<string, Buffer>

/** Returns the root over a range of leaves, or null if a tile is missing or too short. The range must start where a subtree of its size can start. */
export const rangeRoot = ({ from, to }: LeafRange, tiles: TileHashes): Buffer | null => {
  if (from === to) return rootOf(Buffer.alloc(0))
  const [subtree, more] = subtreesOf({ from, to })
  if (subtree === undefined) return null
  if (more === undefined) {
    const { first, count, ...tile } = placeOf(subtree)
    const hashes = tiles.get(tileName(tile))?.subarray(first * hashBytes, (first + count) * hashBytes)
    return hashes === undefined || hashes.length < count * hashBytes ? null : rootOf(hashes)
  }
  const middle = from + splitOf(to - from)
  const [left, right] = [rangeRoot({ from, to: middle }, tiles), rangeRoot({ from: middle, to }, tiles)]
  return left === null || right === null ? null : nodeHash(left, right)
}

/** Returns the hashes that prove a leaf in a tree of this size, or null if a tile is missing. */
export const inclusionProof = (index: number, size: number, tiles: TileHashes): Buffer[] | null => {
  const hashes = inclusionRanges(index, size).map((range) => rangeRoot(range, tiles))
  return hashes.every((hash) => hash !== null) ? hashes : null
}
