import pg from 'pg'
import type { ProjectedEvent, Projection, Statement, TableName } from '../../projections/projection.ts'
import { Fenced } from './checkpoints.ts'
import { concerns, type Decoded, type Folded } from './project.ts'

/** What is wrong with one event, for one projection. The live projector and a rebuild find it in the same way. */

export type Poison = Folded['poison'][number]

const wrongStatement = /^(21|22|23|42(?!501))/

/**
 * The statement was wrong, not the connection, the server, its permissions or the lease. Errors of our own folds count
 * as well.
 */
export const isDataError = (error: unknown): boolean => {
  if (error instanceof pg.DatabaseError) return wrongStatement.test(error.code ?? '')
  return !(error instanceof Fenced || (error instanceof Error && 'code' in error))
}

/**
 * Writes a batch event by event, because the database refused it as a whole. What cannot be read, folded or written
 * goes to `refused`, in the order of the log; a projection of money ends there.
 *
 * `write` makes the statements and the progress to `position` so, or neither of them.
 */
export const eventByEvent = async (
  projection: Projection,
  { events, unreadable }: Decoded,
  {
    table,
    write,
    refused,
  }: {
    table: TableName
    write: (position: bigint, statements: readonly Statement[]) => Promise<void>
    refused: (poison: Poison) => Promise<void>
  },
): Promise<{ ended: boolean }> => {
  const own: (ProjectedEvent | Poison)[] = [
    ...events,
    ...unreadable.map(({ event, error }) => ({ position: event.position, stream: event.stream, error })),
  ]
    .filter(({ stream }) => concerns(projection, stream))
    .sort((a, b) => (a.position < b.position ? -1 : 1))
  for (const one of own) {
    const poison = 'error' in one ? one : await tried(one, projection, table, write)
    if (poison === null) continue
    await refused(poison)
    if (projection.money) return { ended: true }
  }
  return { ended: false }
}

const tried = async (
  event: ProjectedEvent,
  projection: Projection,
  table: TableName,
  write: (position: bigint, statements: readonly Statement[]) => Promise<void>,
): Promise<Poison | null> => {
  try {
    await write(event.position, projection.fold([event], table))
    return null
  } catch (error) {
    if (!isDataError(error)) throw error
    return {
      position: event.position,
      stream: event.stream,
      error: error instanceof Error ? error.message : String(error),
    }
  }
}

const errorCharsMax = 500

/** Sets an event aside, in the caller's transaction. Once set aside it stays as it is. */
export const park = async (
  client: pg.ClientBase,
  projection: string,
  { position, stream, error }: Poison,
): Promise<void> => {
  await client.query(
    'insert into parked_events (projection, position, stream, error) values ($1, $2, $3, $4) on conflict do nothing',
    // A parser quotes what it could not read, and the row that tells of a character PostgreSQL refuses must be taken.
    [projection, position.toString(), readable(stream), readable(error).slice(0, errorCharsMax)],
  )
}

const readable = (text: string): string => text.replace(/\p{Cc}/gu, '\u{fffd}').toWellFormed()
