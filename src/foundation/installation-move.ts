import { readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type pg from 'pg'
import { z } from 'zod'
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

const fileIn = (dataDir: string): string => join(dataDir, 'moved.json')
const fileSchema = z.object({
  state: z.enum(['leaving', 'left']),
  elsewhere: z.string(),
  since: z.iso.datetime(),
})

/**
 * The mark of a database that was left, beside it: for who looks while it does not run. It decides nothing. Null: there is none,
 * or none that can be read.
 */
export const readMoveFile = async (
  dataDir: string,
): Promise<Pick<InstallationMove, 'state' | 'elsewhere' | 'since'> | null> => {
  const text = await readFile(fileIn(dataDir), 'utf8').catch(() => '')
  try {
    const { since, ...mark } = fileSchema.parse(JSON.parse(text))
    return { ...mark, since: new Date(since) }
  } catch {
    return null
  }
}

/** Writes the mark of the database anew; null: removes it. */
export const writeMoveFile = async (
  dataDir: string,
  move: Pick<InstallationMove, 'state' | 'elsewhere' | 'since'> | null,
): Promise<void> => {
  if (move === null) return rm(fileIn(dataDir), { force: true })
  const { state, elsewhere, since } = move
  await writeFile(fileIn(dataDir), `${JSON.stringify({ state, elsewhere, since }, null, 2)}\n`, {
    mode: 0o600,
  })
}

/** Why nothing starts here, and what to do; null where nothing is in the way. */
export const movedSentence = (
  move: Pick<InstallationMove, 'state' | 'elsewhere' | 'since'> | null,
): string | null => {
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
