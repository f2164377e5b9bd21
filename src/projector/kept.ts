import type pg from 'pg'
import type { Projection } from '../../projections/projection.ts'
import type { LogPlace, Position } from '../event-log/port.ts'
import { Fenced } from './checkpoints.ts'
import type { Poison } from './fold.ts'
import { type Aside, asideOf, poisonOf } from './noted-build.ts'
import { dropTables, keptTable } from './tables.ts'

/**
 * The rows that the last switch of a projection replaced. They are kept for some days and folded on beside the live ones, so that a rollback is a
 * switch at the same position. A fault of theirs ends the keeping, and never touches the live rows.
 */
export type Kept = {
  readonly name: string
  /** Rows of another version are kept as they are: this release does not know how they were folded. */
  readonly version: number
  readonly generation: number
  readonly position: Position
  readonly place: LogPlace | null
  readonly poison: readonly Poison[]
  readonly keptUntil: Date
}

export const keptDays = 7

export const readKept = async (client: pg.ClientBase | pg.Pool): Promise<Kept[]> => {
  const { rows } = await client.query<{
    name: string
    version: number
    generation: number
    position: string
    event_id: string | null
    digest: string | null
    aside: Aside
    kept_until: Date
  }>(
    'select name, version, generation, position, event_id, digest, aside, kept_until from projection_kept order by name',
  )
  return rows.map(({ position: text, event_id: eventId, digest, aside, kept_until, ...row }) => {
    const position = BigInt(text)
    const place = eventId === null || digest === null ? null : { position, eventId, digest }
    return { ...row, position, place, poison: poisonOf(aside), keptUntil: kept_until }
  })
}

/** Moves kept rows on, in the caller's transaction. Throws `Fenced` where they were rolled back to, replaced or dropped. */
export const moveKept = async (
  client: pg.ClientBase,
  moves: readonly { readonly name: string; readonly generation: number; readonly from: Position }[],
  to: LogPlace,
): Promise<void> => {
  if (moves.length === 0) return
  const { rowCount } = await client.query(
    `update projection_kept k set position = $3, event_id = $4, digest = $5
       from unnest($1::text[], $2::bigint[], $6::integer[]) as u (name, position, generation)
      where k.name = u.name and k.position = u.position and k.generation = u.generation`,
    [
      moves.map(({ name }) => name),
      moves.map(({ from }) => from.toString()),
      to.position.toString(),
      to.eventId,
      to.digest,
      moves.map(({ generation }) => generation),
    ],
  )
  if (rowCount !== moves.length) throw new Fenced('kept rows were rolled back to or dropped')
}

/** What kept rows could not take, in the caller's transaction. */
export const noteKeptPoison = async (
  client: pg.ClientBase,
  name: string,
  poison: readonly Poison[],
): Promise<void> => {
  await client.query('update projection_kept set aside = (aside::jsonb || $2::jsonb)::json where name = $1', [
    name,
    asideOf(poison),
  ])
}

/** The rows are gone, data about people with them. */
export const dropKept = async (
  client: pg.ClientBase,
  projection: Pick<Projection, 'name' | 'tables'>,
): Promise<void> => {
  const { rows } = await client.query<{ version: number }>(
    'delete from projection_kept where name = $1 returning version',
    [projection.name],
  )
  for (const { version } of rows) await dropTables(client, projection, keptTable({ version }))
}

/** Drops what was kept long enough. Returns whose rows. */
export const dropExpiredKept = async (
  pool: pg.Pool,
  projections: readonly Projection[],
): Promise<string[]> => {
  const { rows } = await pool.query<{ name: string }>(
    'select name from projection_kept where kept_until <= now()',
  )
  const dropped: string[] = []
  for (const { name } of rows) {
    const projection = projections.find((one) => one.name === name)
    if (projection === undefined) continue
    const client = await pool.connect()
    try {
      await client.query('begin')
      await client.query('select 1 from projection_checkpoints where name = $1 for update', [name])
      await dropKept(client, projection)
      await client.query('commit')
      dropped.push(name)
    } catch (error) {
      await client.query('rollback').catch(() => undefined)
      throw error
    } finally {
      client.release()
    }
  }
  return dropped
}
