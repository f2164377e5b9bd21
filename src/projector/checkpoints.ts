import type pg from 'pg'
import type { Position } from '../event-log/port.ts'

export type Checkpoint = {
  readonly name: string
  readonly version: number
  readonly position: Position
  readonly state: 'live' | 'halted'
  readonly error: string | null
  readonly updatedAt: Date
}

/** Where every projection stands. */
export const readCheckpoints = async (client: pg.ClientBase | pg.Pool): Promise<Checkpoint[]> => {
  const { rows } = await client.query<{
    name: string
    version: number
    position: string
    state: 'live' | 'halted'
    error: string | null
    updated_at: Date
  }>('select name, version, position, state, error, updated_at from projection_checkpoints order by name')
  return rows.map(({ position, updated_at, ...row }) => ({
    ...row,
    position: BigInt(position),
    updatedAt: updated_at,
  }))
}

/** The projector lost its lease, or somebody moved the checkpoint: nothing of the batch may stay. */
export class Fenced extends Error {
  override name = 'Fenced'
}

/** Moves checkpoints from where they stood, in the caller's transaction. Throws `Fenced` when one stands elsewhere. */
export const moveCheckpoints = async (
  client: pg.ClientBase,
  moves: readonly { name: string; version: number; from: Position }[],
  { to, epoch }: { to: Position; epoch: bigint },
): Promise<void> => {
  const { rowCount } = await client.query(
    `update projection_checkpoints c set position = $3, updated_at = now()
       from unnest($1::text[], $2::bigint[], $5::integer[]) as u (name, position, version)
      where c.name = u.name and c.position = u.position and c.version = u.version and c.lease_epoch = $4 and c.state = 'live'`,
    [
      moves.map(({ name }) => name),
      moves.map(({ from }) => from.toString()),
      to.toString(),
      epoch.toString(),
      moves.map(({ version }) => version),
    ],
  )
  if (rowCount !== moves.length) throw new Fenced('a checkpoint was moved by another projector')
}
