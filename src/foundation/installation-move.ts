import type pg from 'pg'
import { ConfigError } from '../config.ts'

/**
 * An installation that was moved is marked in the database it left, and until all of it has arrived in the one it comes to.
 * No process starts on either: calls charged in one would be missing in the other, and nothing could say afterwards which ledger is right.
 */
export type InstallationMove = {
  readonly moveId: string
  readonly state: 'leaving' | 'left' | 'arriving'
  /** For people: where the other one is, without secrets. */
  readonly elsewhere: string
  readonly rowsCopied: boolean
  readonly since: Date
}

/** Null: it is where it belongs. */
export const readMove = async (pool: Pick<pg.Pool, 'query'>): Promise<InstallationMove | null> => {
  const { rows } = await pool.query<InstallationMove>(
    'select move_id as "moveId", state, elsewhere, rows_copied as "rowsCopied", since from installation_moves',
  )
  return rows[0] ?? null
}

/** Why nothing starts here, and what to do; null where nothing is in the way. */
const movedSentence = (move: InstallationMove | null): string | null => {
  if (move === null) return null
  const { state, elsewhere, since } = move
  if (state === 'arriving')
    return (
      `DATABASE_URL: an installation is being moved here from ${elsewhere}, and not all of it has arrived. ` +
      'Run the same "installation move" again: it goes on where it stopped. To give that up, name an empty database.'
    )
  const went =
    state === 'left'
      ? `was moved to ${elsewhere} on ${since.toISOString()}`
      : `is being moved to ${elsewhere} since ${since.toISOString()}`
  return (
    `DATA_DIR: this installation ${went}. Start it there: set DATABASE_URL (and EVENT_LOG_URL) as for the move. ` +
    'What is called here from now on would be missing there. To go on here all the same: "installation reopen".'
  )
}

/** Throws `ConfigError` where this installation is not the one to go on with. */
export const refuseMoved = async (pool: Pick<pg.Pool, 'query'>): Promise<void> => {
  const sentence = movedSentence(await readMove(pool))
  if (sentence !== null) throw new ConfigError(sentence)
}
