import type pg from 'pg'
import type { Logger } from 'pino'
import type { Projection, TableName } from '../../projections/projection.ts'
import { type LogPlace, type Position, placeOf, type RecordedEvent } from '../event-log/port.ts'
import { haltProjections, moveCheckpoints } from './checkpoints.ts'
import type { Folded, Folder, Poison } from './fold.ts'
import { eventByEvent, isDataError, isTableError, setAside } from './isolate.ts'
import { type Decoded, decodeBatch, within } from './project.ts'
import { writeChanges } from './tables.ts'

/** A projection at work: how it folds, and how far its rows are. */
export type Standing = { readonly folder: Folder; readonly generation: number; position: Position }

/**
 * Writes batches of events into the rows of projections, rows and checkpoint in one transaction. `standing` holds the
 * projections at work; one whose tables are not what it expects is halted and leaves it. Throws `Fenced` where another
 * projector has taken over, and what the database throws when it is away: nothing was written then.
 */
export const createBatchWriter = ({
  client,
  standing,
  epoch,
  logger,
}: {
  client: pg.PoolClient
  standing: Set<Standing>
  epoch: bigint
  logger: Logger
}): { write(recorded: readonly RecordedEvent[]): Promise<void> } => {
  const move = (all: readonly Standing[], to: LogPlace): Promise<void> =>
    moveCheckpoints(
      client,
      all.map(({ folder: { projection }, generation, position }) => ({
        ...projection,
        generation,
        from: position,
      })),
      { to, epoch },
    )

  /** All projections in one transaction. False: one of them cannot take the batch, and nothing was written. */
  const together = async (level: readonly Standing[], decoded: Decoded, to: LogPlace): Promise<boolean> => {
    const folded: (Folded & { readonly table: TableName })[] = []
    const undo = (): void => {
      for (const one of folded.toReversed()) one.undo()
    }
    for (const { folder } of level) {
      const one = folder.fold(decoded)
      folded.push({ ...one, table: folder.table })
      if (one.poison.length > 0) {
        undo()
        return false
      }
    }
    try {
      await transaction(client, async () => {
        // First, so that a projector that was fenced touches no rows, and so that nobody who holds a checkpoint waits
        // for rows of somebody who waits for the checkpoint.
        await move(level, to)
        for (const { changes, table } of folded) await writeChanges(client, changes, table)
      })
    } catch (error) {
      undo()
      if (isDataError(error) || isTableError(error)) return false
      throw error
    }
    for (const one of level) one.position = to.position
    return true
  }

  const alone = async (one: Standing, decoded: Decoded, to: LogPlace): Promise<void> => {
    const { folder } = one
    const { changes, poison, undo } = folder.fold(decoded)
    try {
      await transaction(client, async () => {
        await move([one], to)
        await writeChanges(client, changes, folder.table)
        for (const bad of poison) await setAside(client, folder.projection, bad)
      })
    } catch (error) {
      undo()
      if (isTableError(error)) return giveUp(one, error)
      if (!isDataError(error)) throw error
      return isolate(one, decoded, to)
    }
    for (const bad of poison) tell(folder.projection, bad)
    one.position = to.position
  }

  /** The database refuses what the fold made of a batch: event by event, to find which. */
  const isolate = async (one: Standing, decoded: Decoded, to: LogPlace): Promise<void> => {
    const { projection } = one.folder
    const places = new Map(decoded.recorded.map((event) => [event.position, event]))
    const step = async (position: Position, work: () => Promise<void>): Promise<void> => {
      const event = places.get(position)
      if (event === undefined) throw new Error(`the batch holds no event at ${position}`)
      await transaction(client, async () => {
        await move([one], placeOf(event))
        await work()
      })
      one.position = position
    }
    await eventByEvent(one.folder, decoded, {
      write: (position, changes) => step(position, () => writeChanges(client, changes, one.folder.table)),
      refused: async (poison) => {
        await step(poison.position, () => setAside(client, projection, poison))
        tell(projection, poison)
      },
    })
    if (one.position < to.position) await transaction(client, () => move([one], to))
    one.position = to.position
  }

  const giveUp = async (one: Standing, error: unknown): Promise<void> => {
    const { name } = one.folder.projection
    standing.delete(one)
    await haltProjections(client, [name], `its tables cannot be written: ${String(error)}`)
    logger.fatal({ err: error, projection: name }, 'projector: a projection stopped; rebuild it')
  }

  const tell = ({ name, money, guards }: Projection, { stream, position, error }: Poison): void => {
    const fields = { projection: name, stream, position: position.toString(), error }
    if (money)
      logger.fatal(fields, 'projector: the rows of a stream stopped; its figures are of before this event')
    else if (guards) logger.fatal(fields, 'projector: an event of a projection that guards is set aside')
    else logger.error(fields, 'projector: an event is set aside')
  }

  return {
    write: async (recorded) => {
      const [first, last] = [recorded[0], recorded.at(-1)]
      if (first === undefined || last === undefined) return
      const to = placeOf(last)
      const decoded = decodeBatch(recorded)
      const level = [...standing].filter(({ position }) => position < to.position)
      for (const { folder, position } of level)
        await folder.prepare(client, within(decoded, { after: position, to: to.position }))
      if (
        level.every(({ position }) => position < first.position) &&
        decoded.unreadable.length === 0 &&
        (await together(level, decoded, to))
      )
        return
      for (const one of level) await alone(one, within(decoded, { after: one.position, to: to.position }), to)
    },
  }
}

const transaction = async (client: pg.PoolClient, work: () => Promise<void>): Promise<void> => {
  await client.query('begin')
  try {
    await work()
    await client.query('commit')
  } catch (error) {
    await client.query('rollback').catch(() => undefined)
    throw error
  }
}
