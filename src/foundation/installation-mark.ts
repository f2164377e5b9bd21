import type pg from 'pg'
import { ConfigError } from '../config.ts'

/**
 * A mark in the database that prevents every start, because a final backup closed the installation, or because a restore is not complete. Calls
 * charged here would be missing in the installation that continues, and no one could decide later which ledger is right.
 */
export type InstallationMark = {
  /** The id of the final backup, or any id if that backup does not exist yet. */
  readonly backupId: string
  readonly state: 'left' | 'arriving'
  /** For a final backup, its file. For a restore, the name of the target event log without secrets. */
  readonly elsewhere: string
  /** For a restore: whether the rows were already loaded into the database. */
  readonly loaded: boolean
  readonly since: Date
}

/** Returns the mark, or null if the installation can start. */
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

/** Returns the reason why the service cannot start on this database, and the remedy. */
export const markSentences = ({ state, elsewhere, since }: InstallationMark): readonly [string, string] =>
  state === 'arriving'
    ? [
        'a backup is being restored here, and the restore is not complete',
        'Run the same "backup restore" again to continue where it stopped. To abandon it, use an empty DATA_DIR or database.',
      ]
    : [
        `this installation was closed on ${since.toISOString()} by the final backup ${elsewhere}`,
        'Use the installation into which that backup was restored. If the file does not exist, run the same "backup create --final" again. ' +
          'You can cancel the move before the restored installation has answered a call: restore the file into an empty DATA_DIR or database. ' +
          'With your own PostgreSQL, you can instead open this installation again: run "delete from installation_mark" as the owner of the tables.',
      ]

/** Throws `ConfigError` if the database is marked. */
export const refuseMarked = async (
  pool: Pick<pg.Pool, 'query'>,
  variable: 'DATA_DIR' | 'DATABASE_URL',
): Promise<void> => {
  const mark = await readMark(pool)
  if (mark !== null) throw new ConfigError(`${variable}: ${markSentences(mark).join('. ')}`)
}
