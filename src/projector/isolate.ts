import pg from 'pg'
import type { Change } from '../../projections/rows.ts'
import { type Decoded, within } from './batch.ts'
import { Fenced } from './checkpoints.ts'
import type { Folder, Poison } from './fold.ts'

/** Finds the faulty events of a projection. The live projector and a rebuild do it in the same way. */

/** The message of an error, or the thrown value as text. */
export const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error))

/** The statement was wrong because of an event's data or the result of our fold, not because of the connection or the server. */
export const isDataError = (error: unknown): boolean => {
  if (error instanceof pg.DatabaseError) return /^(21|22|23)/.test(error.code ?? '')
  return !(error instanceof Fenced || (error instanceof Error && 'code' in error))
}

/** The tables do not match the projection, so no event is at fault. Missing permissions and a read-only database are neither kind. */
export const isTableError = (error: unknown): boolean =>
  error instanceof pg.DatabaseError && /^42(?!501)/.test(error.code ?? '')

/**
 * Writes a prepared batch event by event, because the database refused it as a whole. Events that cannot be read, folded or
 * written are passed to `refused`, in the order of the log; the rows of a stream of money end there.
 *
 * `write` writes the changes together with the progress to `position`, or neither of them.
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

/** Sets an event aside, in the caller's transaction. For money, the rows of its stream end there. The first entry for an event is kept. */
export const setAside = async (
  client: pg.ClientBase,
  { name, money }: { readonly name: string; readonly money: boolean },
  { position, stream, error }: Poison,
): Promise<void> => {
  await client.query(
    money
      ? 'insert into halted_streams (projection, position, stream, error) values ($1, $2, $3, $4) on conflict do nothing'
      : 'insert into parked_events (projection, position, stream, error) values ($1, $2, $3, $4) on conflict do nothing',
    // A parser quotes the text it could not read, and this row must be accepted even if PostgreSQL refuses one of its characters.
    [name, position.toString(), readable(stream), readable(error).slice(0, errorCharsMax)],
  )
}

const readable = (text: string): string => text.replace(/\p{Cc}/gu, '\u{fffd}').toWellFormed()
