import pg from 'pg'
import type { Change } from '../../projections/rows.ts'
import { type Decoded, within } from './batch.ts'
import { Fenced } from './checkpoints.ts'
import type { Folder, Poison } from './fold.ts'

/** What is wrong with one event, for one projection. The live projector and a rebuild find it in the same way. */

/** What an error says, whatever was thrown. */
export const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error))

/** The statement was wrong: what an event holds, or what a fold of ours made of it. Not the connection or the server. */
export const isDataError = (error: unknown): boolean => {
  if (error instanceof pg.DatabaseError) return /^(21|22|23)/.test(error.code ?? '')
  return !(error instanceof Fenced || (error instanceof Error && 'code' in error))
}

/** The tables are not what the projection writes into: no event's fault. Permissions, and a read-only database, are neither's. */
export const isTableError = (error: unknown): boolean =>
  error instanceof pg.DatabaseError && /^42(?!501)/.test(error.code ?? '')

/**
 * Writes a prepared batch event by event, because the database refused it as a whole. What cannot be read, folded or
 * written goes to `refused`, in the order of the log; the rows of a stream of money end there.
 *
 * `write` makes the changes and the progress to `position` so, or neither of them.
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

/** Sets an event aside, in the caller's transaction; of money the rows of its stream end there. Once set aside it stays as it is. */
export const setAside = async (
  client: pg.ClientBase,
  { name, money }: { readonly name: string; readonly money: boolean },
  { position, stream, error }: Poison,
): Promise<void> => {
  await client.query(
    money
      ? 'insert into halted_streams (projection, position, stream, error) values ($1, $2, $3, $4) on conflict do nothing'
      : 'insert into parked_events (projection, position, stream, error) values ($1, $2, $3, $4) on conflict do nothing',
    // A parser quotes what it could not read, and the row that tells of a character PostgreSQL refuses must be taken.
    [name, position.toString(), readable(stream), readable(error).slice(0, errorCharsMax)],
  )
}

const readable = (text: string): string => text.replace(/\p{Cc}/gu, '\u{fffd}').toWellFormed()
