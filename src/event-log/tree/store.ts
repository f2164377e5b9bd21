import type pg from 'pg'
import { inTransaction } from '../../concurrency/transaction.ts'
import type { LogPlace, Position } from '../port.ts'
import { type Tile, type TileHashes, tileName, tileWidth } from './tiles.ts'

/** The tree's tiles in PostgreSQL. They are derived from the log, and can be rebuilt at any time. */

export type StoredTree = {
  readonly origin: string
  readonly size: number
  /** The place of the last leaf's event, or null if no leaf belongs to an event yet. */
  readonly place: LogPlace | null
}

/** On level 0, `positions` contains the packed positions of the leaves' events, or 0 for a leaf without an event. */
export type StoredTile = Tile & { readonly positions: Buffer | null }

export type TreeStore = {
  read(): Promise<StoredTree | null>
  /** Deletes all tiles and starts an empty tree. */
  begin(origin: string): Promise<void>
  /**
   * Adds the tiles by which the tree grows from one size to another. If another process has changed the tree in the meantime, adds nothing and
   * returns false.
   */
  grow(
    from: Pick<StoredTree, 'origin' | 'size'>,
    to: StoredTree,
    tiles: readonly StoredTile[],
  ): Promise<boolean>
  /** Returns the hashes of these tiles, by name. Tiles that are not stored are missing in the result. */
  tiles(places: readonly Pick<Tile, 'level' | 'index'>[]): Promise<TileHashes>
  /** Returns the positions of the leaves in a tile of level 0, or none if the tile is not stored. */
  positionsIn(index: number): Promise<Position[]>
  /** Returns the index of the leaf for the event at a position, or null. */
  leafAt(position: Position): Promise<number | null>
}

const positionBytes = 8

export const packPositions = (positions: readonly Position[]): Buffer => {
  const packed = Buffer.alloc(positions.length * positionBytes)
  for (const [n, position] of positions.entries()) packed.writeBigUInt64BE(position, n * positionBytes)
  return packed
}

const unpackPositions = (packed: Buffer = Buffer.alloc(0)): Position[] =>
  Array.from({ length: Math.floor(packed.length / positionBytes) }, (_, n) =>
    packed.readBigUInt64BE(n * positionBytes),
  )

type TreeRow = {
  readonly origin: string
  readonly size: string
  readonly position: string
  readonly event_id: string | null
  readonly digest: string | null
}
const treeOf = ({ origin, size, position, event_id, digest }: TreeRow): StoredTree => ({
  origin,
  size: Number(size),
  place:
    event_id === null || digest === null ? null : { position: BigInt(position), eventId: event_id, digest },
})

export const createTreeStore = (pool: pg.Pool): TreeStore => ({
  read: async () => {
    const { rows } = await pool.query<TreeRow>(
      'select origin, size, position, event_id, digest from log_tree',
    )
    return rows[0] === undefined ? null : treeOf(rows[0])
  },
  begin: (origin) =>
    inTransaction(pool, async (client) => {
      // The row is changed first, so that other processes that extend the tree wait for it and then find another size.
      await client.query(
        `insert into log_tree (origin, size, position) values ($1, 0, 0)
         on conflict (one) do update set origin = excluded.origin, size = 0, position = 0, event_id = null, digest = null`,
        [origin],
      )
      await client.query('delete from log_tree_tiles')
    }),
  grow: (from, to, tiles) =>
    inTransaction(pool, async (client) => {
      const { rowCount } = await client.query(
        `update log_tree set size = $3, position = $4, event_id = $5, digest = $6
          where origin = $1 and size = $2`,
        [
          from.origin,
          from.size,
          to.size,
          (to.place?.position ?? 0n).toString(),
          to.place?.eventId ?? null,
          to.place?.digest ?? null,
        ],
      )
      if (rowCount !== 1) return false
      await client.query(growSql, [
        tiles.map(({ level }) => level),
        tiles.map(({ index }) => index),
        tiles.map(({ hashes }) => hashes),
        tiles.map(({ positions }) => positions?.readBigUInt64BE(0).toString() ?? null),
        tiles.map(({ positions }) => positions),
      ])
      return true
    }),
  tiles: async (places) => {
    const { rows } = await pool.query<{ level: number; index: string; hashes: Buffer }>(
      `select t.level, t.index, t.hashes from log_tree_tiles t
         join unnest($1::smallint[], $2::bigint[]) as place (level, index) on t.level = place.level and t.index = place.index`,
      [places.map(({ level }) => level), places.map(({ index }) => index)],
    )
    return new Map(
      rows.map(({ level, index, hashes }) => [tileName({ level, index: Number(index) }), hashes]),
    )
  },
  positionsIn: async (index) => {
    const { rows } = await pool.query<{ positions: Buffer }>(
      'select positions from log_tree_tiles where level = 0 and index = $1',
      [index],
    )
    return unpackPositions(rows[0]?.positions)
  },
  leafAt: async (position) => {
    const { rows } = await pool.query<{ index: string; positions: Buffer }>(
      `select index, positions from log_tree_tiles
        where level = 0 and first_position <= $1 order by first_position desc limit 1`,
      [position.toString()],
    )
    const at = unpackPositions(rows[0]?.positions).indexOf(position)
    return at === -1 ? null : Number(rows[0]?.index) * tileWidth + at
  },
})

const growSql = `
  insert into log_tree_tiles (level, index, hashes, first_position, positions)
  select * from unnest($1::smallint[], $2::bigint[], $3::bytea[], $4::bigint[], $5::bytea[])
  on conflict (level, index) do update
     set hashes = excluded.hashes, first_position = excluded.first_position, positions = excluded.positions`
