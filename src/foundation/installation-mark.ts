import type pg from 'pg'
import { ConfigError } from '../config.ts'

/**
 * A mark that prevents every start on a database, because a final backup closed the installation, or because a restore is not complete.
 * Calls charged on this database would be missing in the installation that continues, and no one could decide later which ledger is right.
 */
export type InstallationMark = {
  /** The id of the final backup. Any id if it is not made yet. */
  readonly backupId: string
  readonly state: 'left' | 'arriving'
  /** For a final backup, its file. For a restore, the name of the target event log without secrets. */
  readonly elsewhere: string
  /** For a restore: whether the database already contains the rows. */
  readonly loaded: boolean
  readonly since: Date
}

/** Returns the mark. Null: there is none, so the installation can start. */
export const readMark = async (pool: Pick<pg.Pool, 'query'>): Promise<InstallationMark | null> => {
  const { rows } = await pool.query<InstallationMark>(
    'select backup_id as "backupId", state, elsewhere, loaded, since from installation_mark',
  )
  return rows[0] ?? null
}

export const writeMark = async (
  client: Pick<pg.Pool, 'query'>,
  { backupId, state, elsewhere }: Pick<InstallationMark, 'backupId' | 'state' | 'elsewhere'>,
): Promise<void> => {
  await client.query(
    `insert into installation_mark (backup_id, state, elsewhere) values ($1, $2, $3)
       on conflict (one) do update set backup_id = $1, state = $2, elsewhere = $3, loaded = false, since = now()`,
    [backupId, state, elsewhere],
  )
}

export const removeMark = async (client: Pick<pg.Pool, 'query'>): Promise<void> => {
  await client.query('delete from installation_mark')
}

/** Returns why nothing starts on this database, and the remedy. */
export const markSentences = ({ state, elsewhere, since }: InstallationMark): readonly [string, string] =>
  state === 'arriving'
    ? [
        'a backup is being restored here, and the restore is not complete',
        'Run the same "backup restore" again to continue where it stopped. To abandon it, use an empty DATA_DIR or database.',
      ]
    : [
        `this installation was closed on ${since.toISOString()} by the final backup ${elsewhere}`,
        'Continue with the installation into which that backup was restored. If the file does not exist, run the same "backup create --final" again. ' +
          'To cancel the move before the restored installation has answered a call, restore the file into an empty DATA_DIR or database; ' +
          'in a PostgreSQL of your own "delete from installation_mark", run by the owner of the tables, opens this one again.',
      ]

/** Throws `ConfigError` if the database is marked. */
export const refuseMarked = async (
  pool: Pick<pg.Pool, 'query'>,
  variable: 'DATA_DIR' | 'DATABASE_URL',
): Promise<void> => {
  const mark = await readMark(pool)
  if (mark !== null) throw new ConfigError(`${variable}: ${markSentences(mark).join('. ')}`)
}
