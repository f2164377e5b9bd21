import pg from 'pg'
import type { Change } from '../../projections/rows.ts'
import { type Decoded, within } from './batch.ts'
import { Fenced } from './checkpoints.ts'
import type { Folder, Poison } from './fold.ts'

/** Finds the events that a projection cannot apply, for the live projector and for rebuilds. */

export const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error))

/** Whether a statement failed because of its data, instead of the connection or the server. */
export const isDataError = (error: unknown): boolean => {
  if (error instanceof pg.DatabaseError) return /^(21|22|23)/.test(error.code ?? '')
  return !(error instanceof Fenced || (error instanceof Error && 'code' in error))
}

/**
 * Whether a statement failed because the tables do not match the projection, so that no event is faulty. False for missing
 * permissions, and for a read-only database.
 */
export const isTableError = (error: unknown): boolean =>
  error instanceof pg.DatabaseError && /^42(?!501)/.test(error.code ?? '')

/**
 * Writes a prepared batch event by event, after the database has refused the whole batch. Faulty events are passed to `refused` in
 * log order. In a money projection, the rows of a stream are halted at its faulty event.
 *
 * `write` must write the changes and the progress to `position` together.
 */
export const eventByEvent = async (
  folder: Folder,
  decoded: Decoded,
  {
    write,
    refused,
  }: {
    write: (position: bigint, changes: readonly Change[]) => Promise<void>
    refused: (poison: Poison) => Promise<void>
  },
): Promise<void> => {
  for (const { position, stream } of decoded.recorded) {
    const { changes, poison, undo } = folder.fold(within(decoded, { after: position - 1n, to: position }))
    let found = poison[0]
    if (found === undefined && changes.some(({ rows }) => rows.length > 0))
      try {
        await write(position, changes)
      } catch (error) {
        undo()
        if (!isDataError(error)) throw error
        found = { position, stream, error: messageOf(error) }
      }
    if (found === undefined) continue
    if (folder.projection.money) folder.halt(stream)
    await refused(found)
  }
}

const errorCharsMax = 500

/**
 * Sets an event aside, in the caller's transaction. In a money projection, the rows of the event's stream are halted at the event. If
 * the event was already set aside, the existing entry is kept.
 */
export const setAside = async (
  client: pg.ClientBase,
  { name, money }: { readonly name: string; readonly money: boolean },
  { position, stream, error }: Poison,
): Promise<void> => {
  await client.query(
    money
      ? 'insert into halted_streams (projection, position, stream, error) values ($1, $2, $3, $4) on conflict do nothing'
      : 'insert into parked_events (projection, position, stream, error) values ($1, $2, $3, $4) on conflict do nothing',
    // An error message can quote any text, so characters that PostgreSQL does not accept are replaced.
    [name, position.toString(), readable(stream), readable(error).slice(0, errorCharsMax)],
  )
}

const readable = (text: string): string => text.replace(/\p{Cc}/gu, '\u{fffd}').toWellFormed()
