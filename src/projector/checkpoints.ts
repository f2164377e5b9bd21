import type pg from 'pg'
import { type EventLog, type LogPlace, logStart, type Position, stillHolds } from '../event-log/port.ts'

export type Checkpoint = {
  readonly name: string
  readonly version: number
  /** How often a rebuild has replaced the projection's rows. */
  readonly generation: number
  readonly position: Position
  /** The event at `position`, or null at the beginning of the log. */
  readonly place: LogPlace | null
  readonly state: 'live' | 'halted'
  readonly error: string | null
  readonly updatedAt: Date
}

/** Returns the position and state of every projection. */
export const readCheckpoints = async (client: pg.ClientBase | pg.Pool): Promise<Checkpoint[]> => {
  const { rows } = await client.query<{
    name: string
    version: number
    generation: number
    position: string
    event_id: string | null
    digest: string | null
    state: 'live' | 'halted'
    error: string | null
    updated_at: Date
  }>(
    'select name, version, generation, position, event_id, digest, state, error, updated_at from projection_checkpoints order by name',
  )
  return rows.map(({ position: text, event_id, digest, updated_at, ...row }) => {
    const position = BigInt(text)
    const place = event_id === null || digest === null ? null : { position, eventId: event_id, digest }
    return { ...row, position, place, updatedAt: updated_at }
  })
}

/**
 * Returns the checkpoints whose event is not in the log, because the log was restored from an older copy or replaced. The rows of
 * such a projection were folded from other events. Throws the errors of `EventLog.at`.
 */
export const strayCheckpoints = async (
  eventLog: Pick<EventLog, 'at'>,
  checkpoints: readonly Checkpoint[],
): Promise<Checkpoint[]> => {
  const held = new Map<string, Promise<boolean>>()
  const stray: Checkpoint[] = []
  for (const checkpoint of checkpoints) {
    const { position, place } = checkpoint
    if (position === logStart) continue
    if (place === null) {
      stray.push(checkpoint)
      continue
    }
    // Most checkpoints have the same position and event. After a restore, the events at the same position can differ.
    const key = `${position} ${place.digest}`
    const known = held.get(key) ?? stillHolds(eventLog, place)
    held.set(key, known)
    if (!(await known)) stray.push(checkpoint)
  }
  return stray
}

/** Returns a message about checkpoints whose event is not in the log. */
export const strayMessage = (checkpoints: readonly Checkpoint[]): string =>
  `the event log no longer contains the event that ${checkpoints
    .map(({ name, position }) => `${name} is at (${position})`)
    .join(', ')}: it was restored from an older copy or replaced. ` +
  'These rows are no longer updated. Stop the service and run "projection rebuild --all". It lists the facts that only the rows contain, and asks for confirmation'

/** The batch must be rolled back, because the projector has lost its lease or a rebuild has replaced the rows. */
export class Fenced extends Error {
  override name = 'Fenced'
}

/**
 * Moves checkpoints in the caller's transaction. Throws `Fenced` if a checkpoint is no longer at its expected position.
 */
export const moveCheckpoints = async (
  client: pg.ClientBase,
  moves: readonly { name: string; version: number; generation: number; from: Position }[],
  { to, epoch }: { to: LogPlace; epoch: bigint },
): Promise<void> => {
  const { rowCount } = await client.query(
    `update projection_checkpoints c set position = $3, event_id = $6, digest = $7, updated_at = now()
       from unnest($1::text[], $2::bigint[], $5::integer[], $8::integer[]) as u (name, position, version, generation)
      where c.name = u.name and c.position = u.position and c.version = u.version and c.generation = u.generation
        and c.lease_epoch = $4 and c.state = 'live'`,
    [
      moves.map(({ name }) => name),
      moves.map(({ from }) => from.toString()),
      to.position.toString(),
      epoch.toString(),
      moves.map(({ version }) => version),
      to.eventId,
      to.digest,
      moves.map(({ generation }) => generation),
    ],
  )
  if (rowCount !== moves.length) throw new Fenced('another projector has moved a checkpoint')
}

/** Halts projections at their current positions until they are rebuilt. */
export const haltProjections = async (
  client: pg.ClientBase | pg.Pool,
  names: readonly string[],
  error: string,
): Promise<void> => {
  await client.query(
    `update projection_checkpoints set state = 'halted', error = $2, updated_at = now()
      where name = any ($1::text[]) and state = 'live'`,
    [names, error.slice(0, errorCharsMax)],
  )
}

const errorCharsMax = 1_000

/** Returns the streams of all projections whose rows are halted at an event. */
export const readHaltedStreams = async (client: pg.ClientBase | pg.Pool): Promise<HaltedStream[]> => {
  const { rows } = await client.query<{
    projection: string
    stream: string
    position: string
    error: string
  }>('select projection, stream, position, error from halted_streams order by projection, stream')
  return rows.map(({ position, ...row }) => ({ ...row, position: BigInt(position) }))
}

export type HaltedStream = {
  readonly projection: string
  readonly stream: string
  /** The position of the first event that the stream's rows do not contain. */
  readonly position: Position
  readonly error: string
}
