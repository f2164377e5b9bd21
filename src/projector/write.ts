import type pg from 'pg'
import type { Logger } from 'pino'
import type { Projection } from '../../projections/projection.ts'
import { begin } from '../concurrency/transaction.ts'
import { type LogPlace, type Position, placeOf, type RecordedEvent } from '../event-log/port.ts'
import { type Decoded, decodeBatch, within } from './batch.ts'
import { haltProjections, moveCheckpoints } from './checkpoints.ts'
import type { Folded, Folder, Poison } from './fold.ts'
import { eventByEvent, isDataError, isTableError, setAside } from './isolate.ts'
import { writeChanges } from './tables.ts'

/** A live projection, with the position of its rows. */
export type Standing = {
  readonly folder: Folder
  readonly generation: number
  position: Position
}

type Writing = {
  readonly client: pg.PoolClient
  /** The live projections. A projection whose tables cannot be written is halted and removed from this set. */
  readonly standing: Set<Standing>
  readonly epoch: bigint
  readonly logger: Logger
}

/**
 * Folds batches of events into the rows of projections, and writes these and the checkpoints in the same transaction. Throws `Fenced`
 * if another projector has taken over, and the errors of the database. In both cases, the current transaction is rolled back.
 */
export const createBatchWriter = (
  writing: Writing,
): { write(recorded: readonly RecordedEvent[]): Promise<void> } => ({
  write: async (recorded) => {
    const [first, last] = [recorded[0], recorded.at(-1)]
    if (first === undefined || last === undefined) return
    const to = placeOf(last)
    const behind = [...writing.standing].filter(({ position }) => position < to.position)
    const folded = await foldTogether(writing, behind, { recorded, first, to })
    if (folded !== null && (await writeTogether(writing, folded, to)) === 'written') return
    const decoded = decodeBatch(recorded)
    for (const one of behind)
      await writeAlone(writing, one, {
        decoded: within(decoded, { after: one.position, to: to.position }),
        to,
      })
  },
})

type Batch = { readonly decoded: Decoded; readonly to: LogPlace }
type FoldedBatch = readonly { readonly one: Standing; readonly made: Folded }[]

/**
 * Folds a batch into all projections. Resolves with null, and folds nothing, if one of them cannot apply the batch. Returns without
 * keeping the decoded events: V8 would move them to the old generation if they were kept until the rows are written.
 */
const foldTogether = async (
  { client }: Writing,
  behind: readonly Standing[],
  { recorded, first, to }: { recorded: readonly RecordedEvent[]; first: RecordedEvent; to: LogPlace },
): Promise<FoldedBatch | null> => {
  const decoded = decodeBatch(recorded)
  for (const { folder, position } of behind)
    await folder.prepare(client, within(decoded, { after: position, to: to.position }))
  if (decoded.unreadable.length > 0 || behind.some(({ position }) => position >= first.position)) return null
  const folded: { readonly one: Standing; readonly made: Folded }[] = []
  for (const one of behind) {
    const made = one.folder.fold(decoded)
    folded.push({ one, made })
    if (made.poison.length === 0) continue
    undo(folded)
    return null
  }
  return folded
}

const undo = (folded: FoldedBatch): void => {
  for (const { made } of folded.toReversed()) made.undo()
}

/** Writes all projections in one transaction. If PostgreSQL refuses the rows, writes nothing and returns `refused`. */
const writeTogether = async (
  writing: Writing,
  folded: FoldedBatch,
  to: LogPlace,
): Promise<'written' | 'refused'> => {
  const { client } = writing
  const all = folded.map(({ one }) => one)
  try {
    await transaction(client, async () => {
      // Checkpoints are moved first, so that a projector without the lease changes no rows, and two transactions cannot deadlock.
      await move(writing, all, to)
      for (const { one, made } of folded) await writeChanges(client, made.changes, one.folder.table)
    })
  } catch (error) {
    undo(folded)
    if (isDataError(error) || isTableError(error)) return 'refused'
    throw error
  }
  for (const one of all) one.position = to.position
  return 'written'
}

const writeAlone = async (writing: Writing, one: Standing, { decoded, to }: Batch): Promise<void> => {
  const { client } = writing
  const { projection, table, fold } = one.folder
  const { changes, poison, undo } = fold(decoded)
  try {
    await transaction(client, async () => {
      await move(writing, [one], to)
      await writeChanges(client, changes, table)
      for (const bad of poison) await setAside(client, projection, bad)
    })
  } catch (error) {
    undo()
    if (isTableError(error)) return giveUp(writing, one, error)
    if (!isDataError(error)) throw error
    return isolate(writing, one, { decoded, to })
  }
  for (const bad of poison) tell(writing.logger, projection, bad)
  one.position = to.position
}

/** Writes a refused batch event by event, to find the faulty event. */
const isolate = async (writing: Writing, one: Standing, { decoded, to }: Batch): Promise<void> => {
  const { client, logger } = writing
  const { projection, table } = one.folder
  const places = new Map(decoded.recorded.map((event) => [event.position, event]))
  const step = async (position: Position, work: () => Promise<void>): Promise<void> => {
    const event = places.get(position)
    if (event === undefined) throw new Error(`the batch contains no event at ${position}`)
    await transaction(client, async () => {
      await move(writing, [one], placeOf(event))
      await work()
    })
    one.position = position
  }
  await eventByEvent(one.folder, decoded, {
    write: (position, changes) => step(position, () => writeChanges(client, changes, table)),
    refused: async (poison) => {
      await step(poison.position, () => setAside(client, projection, poison))
      tell(logger, projection, poison)
    },
  })
  if (one.position < to.position) await transaction(client, () => move(writing, [one], to))
  one.position = to.position
}

const move = ({ client, epoch }: Writing, all: readonly Standing[], to: LogPlace): Promise<void> =>
  moveCheckpoints(
    client,
    all.map(({ folder: { projection }, generation, position }) => ({
      ...projection,
      generation,
      from: position,
    })),
    { to, epoch },
  )

const giveUp = async (
  { client, standing, logger }: Writing,
  one: Standing,
  error: unknown,
): Promise<void> => {
  const { name } = one.folder.projection
  standing.delete(one)
  await haltProjections(client, [name], `its tables cannot be written: ${String(error)}`)
  logger.fatal(
    { err: error, projection: name },
    'projector: a projection was halted, because its tables cannot be written; rebuild it',
  )
}

const tell = (
  logger: Logger,
  { name, money, guards }: Projection,
  { stream, position, error }: Poison,
): void => {
  const fields = { projection: name, stream, position: position.toString(), error }
  if (money)
    logger.fatal(
      fields,
      'projector: a stream was halted at an event that cannot be applied; its rows do not include this event or later ones',
    )
  else if (guards)
    logger.fatal(
      fields,
      'projector: an event of a projection about access was set aside, because it cannot be applied',
    )
  else logger.error(fields, 'projector: an event was set aside, because it cannot be applied')
}

const transaction = async (client: pg.PoolClient, work: () => Promise<void>): Promise<void> => {
  await client.query(begin)
  try {
    await work()
    await client.query('commit')
  } catch (error) {
    await client.query('rollback').catch(() => undefined)
    throw error
  }
}
