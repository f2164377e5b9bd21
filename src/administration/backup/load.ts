import { once } from 'node:events'
import { finished } from 'node:stream/promises'
import { promisify } from 'node:util'
import { zstdDecompress } from 'node:zlib'
import pg from 'pg'
import { type CopyStreamQuery, from as copyFrom } from 'pg-copy-streams'
import { ConfigError } from '../../config.ts'
import {
  type InstallationMark,
  markSentences,
  readMark,
  writeMark,
} from '../../foundation/installation-mark.ts'
import { ArchiveFault, entryBytesMax } from './archive.ts'
import type { CheckedBackup } from './check.ts'
import type { Manifest } from './contents.ts'
import { keptTables, logTables, tablesOfPositions } from './tables.ts'

const decompress = promisify(zstdDecompress)

type ReadAgain = (
  onRows: (table: string, chunk: Buffer, manifest: Manifest) => Promise<void>,
  accept: (manifest: Manifest) => void,
) => Promise<void>

/**
 * The tables whose rows are loaded. If the log is copied to another store, the tables that contain positions are left out, because
 * the copy has different positions.
 */
export const loadedTables = (copiesLog: boolean): readonly string[] =>
  [...logTables, ...keptTables].filter((table) => !copiesLog || !tablesOfPositions.includes(table))

/**
 * Marks the database so that the service does not start until the restore is complete. `elsewhere` names the target event log.
 * Throws `ConfigError`, without marking the database, if the database cannot accept this backup.
 */
export const beginRestore = (
  client: pg.Client,
  backup: CheckedBackup,
  elsewhere: string,
): Promise<InstallationMark> =>
  inTransaction(client, async () => {
    await client.query('lock table log_head in access exclusive mode')
    await refuseTarget(client, backup, elsewhere)
    const before = await readMark(client)
    if (before?.loaded === true) return before
    await writeMark(client, { backupId: backup.manifest.backup_id, state: 'arriving', elsewhere })
    const mark = await readMark(client)
    if (mark === null) throw new Error('the database did not store the mark')
    return mark
  })

/** Loads a checked backup in one transaction, and checks it again while reading. `client` belongs to the schema's owner. */
export const loadRows = async (
  client: pg.Client,
  backup: CheckedBackup,
  { copiesLog, readAgain }: { readonly copiesLog: boolean; readonly readAgain: ReadAgain },
): Promise<void> => {
  await inTransaction(client, async () => {
    await client.query('lock table log_head in access exclusive mode')
    // A concurrent restore has already loaded the rows.
    if ((await readMark(client))?.loaded === true) return
    await refuseUsed(client)
    if (backup.manifest.holds_log) await client.query('delete from log_head')
    await loadAll(client, backup, loadedTables(copiesLog), readAgain)
    await settle(client, backup)
    await client.query('update installation_mark set loaded = true')
  })
  await client.query('analyze')
}

const inTransaction = async <Value>(client: pg.Client, work: () => Promise<Value>): Promise<Value> => {
  await client.query('begin')
  try {
    const value = await work()
    await client.query('commit')
    return value
  } catch (error) {
    await client.query('rollback').catch(() => undefined)
    throw error instanceof pg.DatabaseError && error.code === insufficientPrivilege
      ? new ConfigError(
          `DATABASE_MIGRATION_URL: only the role that owns the tables can restore a backup, and "${client.user}" does not own them: ${error.message}`,
          { cause: error },
        )
      : error
  }
}

/** Throws `ConfigError` if the installation is not empty, because a working installation is never overwritten. */
const refuseUsed = async (client: pg.Client): Promise<void> => {
  const used: string[] = []
  for (const table of [...logTables, ...keptTables]) {
    // The schema is that of the release that made the backup, so tables of newer releases do not exist yet.
    if (!(await tableExists(client, table))) continue
    const condition = table === 'log_head' ? 'where position > 0' : ''
    const { rowCount } = await client.query(`select from ${table} ${condition} limit 1`)
    if (rowCount !== 0) used.push(table)
  }
  if (used.length > 0)
    throw new ConfigError(
      `this installation is not empty (${used.slice(0, 3).join(', ')} ${used.length > 3 ? `and ${used.length - 3} more tables contain rows` : 'contain rows'}), and a restore does not overwrite anything. ` +
        'Use an empty DATA_DIR, or set DATABASE_URL to an empty database.',
    )
}

/** The number of the last migration; 0 if no migration has run. */
const migratedTo = async (client: pg.Client): Promise<number> => {
  if (!(await tableExists(client, 'schema_migrations'))) return 0
  const { rows } = await client.query<{ number: number | null }>(
    'select max(number) as number from schema_migrations',
  )
  return rows[0]?.number ?? 0
}

const tableExists = async (client: pg.Client, table: string): Promise<boolean> => {
  const { rows } = await client.query<{ there: boolean }>('select to_regclass($1) is not null as there', [
    table,
  ])
  return rows[0]?.there === true
}

/**
 * Throws `ConfigError` if a database that has not been migrated yet cannot accept this backup. A database in which a restore of the
 * same backup has begun can accept it. Writes nothing.
 */
export const refuseTarget = async (
  client: pg.Client,
  backup: CheckedBackup,
  elsewhere: string,
): Promise<void> => {
  const { path, manifest } = backup
  const mark = (await tableExists(client, 'installation_mark')) ? await readMark(client) : null
  if (mark?.state === 'left') throw new ConfigError(markSentences(mark).join('. '))
  if (mark?.loaded === true) {
    if (mark.backupId !== manifest.backup_id)
      throw new ConfigError(
        'another backup is being restored here: continue with that backup, or use an empty DATA_DIR or database',
      )
    if (mark.elsewhere !== elsewhere)
      throw new ConfigError(
        `EVENT_LOG_URL: this restore began with the event log ${mark.elsewhere}, but the event log is now ${elsewhere}: set EVENT_LOG_URL back`,
      )
    return
  }
  await refuseUsed(client)
  // Rows of an earlier release are loaded into that release's tables and migrated afterwards.
  const here = await migratedTo(client)
  if (here > manifest.migration)
    throw new ConfigError(
      `${path} has the tables of migration ${manifest.migration}, but this database has those of ${here}: use an empty database that no release has used yet`,
    )
}

const insufficientPrivilege = '42501'

const loadAll = async (
  client: pg.Client,
  backup: CheckedBackup,
  loaded: readonly string[],
  readAgain: ReadAgain,
): Promise<void> => {
  let loading: Loading | null = null
  const end = async (): Promise<void> => {
    if (loading === null) return
    const count = await loading.end()
    if (count !== backup.rows[loading.table])
      throw new ArchiveFault(
        `${backup.path} is damaged: it contains ${count} rows of ${loading.table}, but should contain ${backup.rows[loading.table]}`,
      )
    loading = null
  }
  await readAgain(
    async (table, chunk, manifest) => {
      if (loading?.table !== table) {
        await end()
        if (!loaded.includes(table)) return
        const columns = manifest.tables.find(({ name }) => name === table)?.columns ?? []
        loading = await beginLoading(client, table, columns)
      }
      await loading?.write(await decompress(chunk, { maxOutputLength: entryBytesMax }))
    },
    ({ backup_id }) => {
      if (backup_id !== backup.manifest.backup_id)
        throw new ArchiveFault(`${backup.path} was replaced while it was being read`)
    },
  )
  await end()
}

type Loading = {
  readonly table: string
  write(rows: Buffer): Promise<void>
  /** Resolves with the number of rows. */
  end(): Promise<number>
}

const beginLoading = async (
  client: pg.Client,
  table: string,
  columns: readonly string[],
): Promise<Loading> => {
  const listed = columns.map((column) => client.escapeIdentifier(column)).join(', ')
  const copying: CopyStreamQuery = client.query(
    copyFrom(`copy ${table} (${listed}) from stdin (format binary)`),
  )
  const done = finished(copying)
  done.catch(() => undefined)
  return {
    table,
    write: async (rows) => {
      if (!copying.write(rows)) await Promise.race([once(copying, 'drain'), done])
    },
    end: async () => {
      copying.end()
      await done
      return copying.rowCount
    },
  }
}

/** Checks that the loaded event log has no gaps and ends at the position stated in the backup. */
const settle = async (client: pg.Client, { path, manifest }: CheckedBackup): Promise<void> => {
  if (!manifest.holds_log) return
  await client.query(
    `select setval(pg_get_serial_sequence('log_streams', 'id'), coalesce((select max(id) from log_streams), 0) + 1, false)`,
  )
  const { rows } = await client.query<{ events: string; position: string; last: string }>(
    `select (select coalesce(sum(count), 0) from log_segments)::text as events,
            (select coalesce(max(last_position), 0) from log_segments)::text as last,
            (select position from log_head)::text as position`,
  )
  const { position } = manifest.head
  if (rows[0]?.events !== position || rows[0].last !== position || rows[0].position !== position)
    throw new ArchiveFault(
      `${path} contains ${rows[0]?.events} events up to position ${rows[0]?.last}, but should contain ${position}`,
    )
}
