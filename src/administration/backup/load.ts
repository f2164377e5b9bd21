import { once } from 'node:events'
import { finished } from 'node:stream/promises'
import { promisify } from 'node:util'
import { zstdDecompress } from 'node:zlib'
import pg from 'pg'
import { type CopyStreamQuery, from as copyFrom } from 'pg-copy-streams'
import { ConfigError } from '../../config.ts'
import { ArchiveFault, entryBytesMax } from './archive.ts'
import type { CheckedBackup } from './check.ts'
import type { Manifest } from './contents.ts'
import { keptTables, logTables } from './tables.ts'

const decompress = promisify(zstdDecompress)

export type LoadedRows = Readonly<Record<string, number>>

type ReadAgain = (
  backup: CheckedBackup,
  onRows: (table: string, chunk: Buffer, manifest: Manifest) => Promise<void>,
  accept: (manifest: Manifest) => void,
) => Promise<void>

/** Loads checked backups, which are checked again while they are read, in one transaction. `client` is of the schema's owner. */
export const loadRows = async (
  client: pg.Client,
  chain: readonly CheckedBackup[],
  readAgain: ReadAgain,
): Promise<LoadedRows> => {
  const rows: Record<string, number> = {}
  await client.query('begin')
  try {
    await client.query('lock table log_head in access exclusive mode')
    await refuseTarget(client, chain)
    if (chain.at(-1)?.manifest.holds_log === true) await client.query('delete from log_head')
    for (const [i, backup] of chain.entries())
      await loadOne(client, backup, { isLast: i === chain.length - 1, rows, readAgain })
    await settle(client, chain)
    await client.query('commit')
  } catch (error) {
    await client.query('rollback').catch(() => undefined)
    throw error instanceof pg.DatabaseError && error.code === insufficientPrivilege
      ? new ConfigError(
          `DATABASE_MIGRATION_URL: a restore is written by the role that owns the tables, and "${client.user}" is not: ${error.message}`,
          { cause: error },
        )
      : error
  }
  await client.query('analyze')
  return rows
}

/** Only what a first start makes may be there: an installation that works is never overwritten. */
const refuseUsed = async (client: pg.Client): Promise<void> => {
  const used: string[] = []
  for (const table of [...logTables, ...keptTables]) {
    // The schema is that of the release which made the backup: a table that came later is not there yet.
    const { rows } = await client.query<{ there: boolean }>('select to_regclass($1) is not null as there', [
      table,
    ])
    if (rows[0]?.there !== true) continue
    const condition = table === 'log_head' ? 'where position > 0' : ''
    const { rowCount } = await client.query(`select from ${table} ${condition} limit 1`)
    if (rowCount !== 0) used.push(table)
  }
  if (used.length > 0)
    throw new ConfigError(
      `this installation is not empty (${used.slice(0, 3).join(', ')} ${used.length > 3 ? `and ${used.length - 3} more tables hold rows` : 'hold rows'}), and a restore overwrites nothing. ` +
        'Name an empty DATA_DIR, or an empty database in DATABASE_URL. Where an earlier restore was ended after it had loaded, go on with "event-log verify" and "projection rebuild --all".',
    )
}

/** The number of the last migration; 0 where there was none. */
const migratedTo = async (client: pg.Client): Promise<number> => {
  const { rows } = await client.query<{ there: boolean }>(
    `select to_regclass('schema_migrations') is not null as there`,
  )
  if (rows[0]?.there !== true) return 0
  const { rows: last } = await client.query<{ number: number | null }>(
    'select max(number) as number from schema_migrations',
  )
  return last[0]?.number ?? 0
}

/** Rows of an earlier release are loaded into tables of that release, and migrated after that. */
const refuseOtherShape = (here: number, chain: readonly CheckedBackup[]): void => {
  for (const { path, manifest } of chain)
    if (manifest.migration !== here)
      throw new ConfigError(
        `${path} has the tables of migration ${manifest.migration}, and this database those of ${here}: name an empty database that no release was started on${manifest === chain.at(-1)?.manifest ? '' : ', and continue no backup of an earlier release with a later one'}`,
      )
}

/** Throws `ConfigError` where a database does not take these backups, as it is before anything is migrated. Writes nothing. */
export const refuseTarget = async (client: pg.Client, chain: readonly CheckedBackup[]): Promise<void> => {
  await refuseUsed(client)
  refuseOtherShape(Math.max(await migratedTo(client), chain.at(-1)?.manifest.migration ?? 0), chain)
}

const insufficientPrivilege = '42501'

const loadOne = async (
  client: pg.Client,
  backup: CheckedBackup,
  { isLast, rows, readAgain }: { isLast: boolean; rows: Record<string, number>; readAgain: ReadAgain },
): Promise<void> => {
  const loaded: readonly string[] = isLast ? [...logTables, ...keptTables] : ['log_streams', 'log_segments']
  let loading: Loading | null = null
  const end = async (): Promise<void> => {
    if (loading === null) return
    const count = await loading.end()
    if (count !== backup.rows[loading.table])
      throw new ArchiveFault(
        `${backup.path} is damaged: it holds ${count} rows of ${loading.table}, and says ${backup.rows[loading.table]}`,
      )
    rows[loading.table] = (rows[loading.table] ?? 0) + count
    loading = null
  }
  await readAgain(
    backup,
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
        throw new ArchiveFault(`${backup.path} was replaced while it was read`)
    },
  )
  await end()
}

type Loading = {
  readonly table: string
  write(rows: Buffer): Promise<void>
  /** Resolves with how many rows there were. */
  end(): Promise<number>
}

const beginLoading = async (
  client: pg.Client,
  table: string,
  columns: readonly string[],
): Promise<Loading> => {
  // A stream that an earlier backup holds as well has gone on since: its newer row counts.
  const again = table === 'log_streams'
  const target = again ? 'restored_streams' : table
  const listed = columns.map((column) => client.escapeIdentifier(column)).join(', ')
  if (again) await client.query('create temp table restored_streams (like log_streams) on commit drop')
  const copying: CopyStreamQuery = client.query(
    copyFrom(`copy ${target} (${listed}) from stdin (format binary)`),
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
      if (again) {
        await client.query(
          `insert into log_streams (${listed}) overriding system value select ${listed} from restored_streams
             on conflict (id) do update set revision = excluded.revision`,
        )
        await client.query('drop table restored_streams')
      }
      return copying.rowCount
    },
  }
}

/** The event log must be whole: positions without a gap, up to where the newest backup says that it reached. */
const settle = async (client: pg.Client, chain: readonly CheckedBackup[]): Promise<void> => {
  const last = chain.at(-1)
  if (last?.manifest.holds_log !== true) return
  await client.query(
    `select setval(pg_get_serial_sequence('log_streams', 'id'), coalesce((select max(id) from log_streams), 0) + 1, false)`,
  )
  const { rows } = await client.query<{ events: string; position: string; last: string }>(
    `select (select coalesce(sum(count), 0) from log_segments)::text as events,
            (select coalesce(max(last_position), 0) from log_segments)::text as last,
            (select position from log_head)::text as position`,
  )
  const { position } = last.manifest.head
  if (rows[0]?.events !== position || rows[0].last !== position || rows[0].position !== position)
    throw new ArchiveFault(
      `${last.path} and those before it hold ${rows[0]?.events} events up to position ${rows[0]?.last}, and should hold ${position}: one of them is missing or was replaced`,
    )
}
