/**
 * Applies numbered SQL files, once and in order, to update a database to the schema of this version.
 *
 * There are no down migrations: a mistake is corrected by the next migration. Events are not migrated, but upcast when they are read.
 */
import { createHash } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import pg from 'pg'
import { connectedWithin, DatabaseUnfit, lockTimeoutMs, refuseUnfit } from './database-connection.ts'
import { arrangeRoles } from './database-roles.ts'

const MIGRATIONS_DIR = fileURLToPath(new URL('../../migrations', import.meta.url))

/** An arbitrary number, which must be the same in all versions. */
const ADVISORY_LOCK = 7_220_186_521n

export type MigrateOptions = {
  /** The connection URL. Its role must own the schema, unless there is nothing to apply. */
  url: string
  /** The URL of the service's role, which is granted the rights that it needs. Without it, roles are not checked. */
  serviceUrl?: string
  /** The directory of `0001_name.sql` files. The default is `migrations` in the repository. */
  dir?: string
  logger?: { info(fields: object, message: string): void }
  /** How long to wait for a server that is starting or recovering. */
  waitMs?: number
  /** Applies only the files up to this number, so that a backup of an earlier release can be loaded before the later files are applied. */
  upTo?: number
}

/**
 * Applies the missing files in order, each in a transaction, and returns their names. If several processes do this at the same time, one applies
 * the files while the others wait. A failed file changes nothing. Files must not contain `begin`, `commit`, or anything that cannot run in a
 * transaction.
 *
 * Throws an Error with the file and the remedy if a number is missing or occurs twice, if an applied file was edited, if a newer version migrated
 * the database, or if a file fails. Throws `DatabaseUnfit` if it cannot connect, or if a release before 1.0 migrated the database.
 */
export const migrate = async ({
  url,
  dir = MIGRATIONS_DIR,
  logger,
  waitMs = 0,
  serviceUrl,
  upTo,
}: MigrateOptions): Promise<{ applied: string[] }> => {
  const all = await readMigrations(dir)
  const client = await connectedWithin(url, waitMs, logger)
  try {
    await refuseUnfit(client)
    if (await isUpToDate(client, all, dir)) return { applied: [] }
    await lock(client)
    const schema = await schemaOf(client)
    await client.query(`set search_path = ${client.escapeIdentifier(schema)}`)
    await client.query(`
      create table if not exists schema_migrations (
        number int primary key,
        name text not null,
        sha256 text not null,
        applied_at timestamptz not null default now()
      )`)
    const missing = judge({ files: all, applied: await appliedTo(client), dir })
    const pending = missing.filter(({ number }) => number <= (upTo ?? number))
    for (const file of pending) await apply(client, file, schema)
    if (pending.length > 0)
      logger?.info({ migrations: pending.length, last: pending.at(-1)?.fileName }, 'migrations applied')
    if (serviceUrl !== undefined) await arrangeRoles(client, serviceUrl)
    return { applied: pending.map((file) => file.fileName) }
  } finally {
    await client.end()
  }
}

/** Returns the files that `migrate` would apply, without applying them. `client` is null if there is no database yet. Throws the same errors. */
export const pendingMigrations = async (client: Pick<pg.Pool, 'query'> | null): Promise<string[]> => {
  const files = await readMigrations(MIGRATIONS_DIR)
  if (client === null) return files.map(({ fileName }) => fileName)
  const { rows } = await client.query<{ made: boolean }>(
    `select to_regclass('schema_migrations') is not null as made`,
  )
  const applied = rows[0]?.made === true ? await appliedTo(client) : []
  return judge({ files, applied, dir: MIGRATIONS_DIR }).map(({ fileName }) => fileName)
}

export const newestMigration = async (): Promise<number> => (await readMigrations(MIGRATIONS_DIR)).length

const appliedTo = async (client: Pick<pg.Pool, 'query'>): Promise<Applied[]> => {
  const { rows } = await client.query<Applied>(
    'select number, name, sha256 from schema_migrations order by number',
  )
  return rows
}

/** Returns the schema of the tables, even if they do not exist yet. The search path can begin with another schema (see `arrangeRoles`). */
const schemaOf = async (client: pg.Client): Promise<string> => {
  const { rows } = await client.query<{ schema: string | null }>(
    `select coalesce((select nspname from pg_namespace n join pg_class c on c.relnamespace = n.oid where c.oid = to_regclass('schema_migrations')),
                     current_schema()) as schema`,
  )
  return rows[0]?.schema ?? 'public'
}

/**
 * Whether there is nothing to do, because everything was applied and this is the service's role. Always false for the owner's role, because the
 * service's role may have lost its rights.
 */
const isUpToDate = async (client: pg.Client, files: Migration[], dir: string): Promise<boolean> => {
  const { rows } = await client.query<{ made: boolean; owns: boolean; creates: boolean }>(
    `select c.oid is not null as made, pg_has_role(current_user, c.relowner, 'usage') as owns,
            has_schema_privilege(coalesce(current_schema(), 'public'), 'create') as creates
       from (select to_regclass('schema_migrations') as found) t left join pg_class c on c.oid = t.found`,
  )
  const [{ made, owns, creates } = { made: false, owns: false, creates: true }] = rows
  if (made ? owns : creates) return false
  const pending = made ? judge({ files, applied: await appliedTo(client), dir }) : files
  if (pending.length === 0) return true
  throw new DatabaseUnfit(
    `the database lacks ${pending.length === 1 ? 'a migration' : `${pending.length} migrations`} and "${client.user}" is not allowed to apply them. Set DATABASE_MIGRATION_URL to the URL of the role that owns the schema, and run "migrate"`,
  )
}

/**
 * If this process is frozen while it holds the lock, the server ends the connection after 30 s. Otherwise no other process could start. The
 * server does not end a connection during a statement.
 */
const ENDS_IF_FROZEN = `
  set idle_session_timeout = '30s';
  set idle_in_transaction_session_timeout = '30s'`

/** The SQLSTATE of a statement that has waited for a lock longer than `lockTimeoutMs`. */
const lockNotAvailable = '55P03'

/** Takes a session lock, which is held during the transactions of all files and released when the connection ends. */
const lock = async (client: pg.Client): Promise<void> => {
  await client.query(ENDS_IF_FROZEN)
  try {
    await client.query('select pg_advisory_lock($1)', [ADVISORY_LOCK])
  } catch (cause) {
    if (!(cause instanceof pg.DatabaseError) || cause.code !== lockNotAvailable) throw cause
    throw new Error(
      `Another process has been migrating this database for ${lockTimeoutMs / 60_000} minutes. Find it in pg_stat_activity (application_name "migrate"), and wait for it or end it.`,
      { cause },
    )
  }
}

type Migration = { number: number; fileName: string; path: string; sql: string; sha256: string }
type Applied = { number: number; name: string; sha256: string }

const readMigrations = async (dir: string): Promise<Migration[]> => {
  const names = (await readdir(dir)).filter((name) => name.endsWith('.sql')).sort()
  const files: Migration[] = []
  for (const fileName of names) {
    const path = join(dir, fileName)
    const digits = /^(\d{4})_[a-z0-9_-]+\.sql$/.exec(fileName)?.[1]
    if (digits === undefined) {
      throw new Error(
        `${path} does not have the name of a migration. Rename it to four digits, an underscore and a lower-case name: 0001_name.sql`,
      )
    }
    // A checkout on Windows can change line breaks. Such a file counts as unchanged.
    const sql = (await readFile(path, 'utf8')).replaceAll('\r\n', '\n')
    const sha256 = createHash('sha256').update(sql).digest('hex')
    files.push({ number: Number(digits), fileName, path, sql, sha256 })
  }
  for (const [index, file] of files.entries()) {
    const previous = files[index - 1]
    if (previous !== undefined && previous.number === file.number) {
      throw new Error(
        `${previous.path} and ${file.path} have the same number. Renumber the one that was not released.`,
      )
    }
    if (file.number !== index + 1) {
      throw new Error(
        `${file.path}: number ${numbered(index + 1)} is missing before it. Restore the missing file, or renumber this one if it was not released.`,
      )
    }
  }
  return files
}

/** The first release is 1.0, and its migrations start at 0001 again. */
const beforeFirstRelease =
  'it was migrated by a release before 1.0 and cannot be used with this release. Use an empty database or DATA_DIR. Nothing was changed.'

/** Returns the files that are not applied yet. Throws if the applied migrations are not the first ones of this release. */
const judge = (found: { files: Migration[]; applied: Applied[]; dir: string }): Migration[] => {
  const known = new Map(found.files.map((file) => [file.number, file]))
  const done = new Map(found.applied.map((row) => [row.number, row]))
  if (found.applied.some(({ number, name }) => name !== (known.get(number)?.fileName ?? name)))
    throw new DatabaseUnfit(beforeFirstRelease)
  for (const row of found.applied) {
    const file = known.get(row.number)
    if (file === undefined) {
      throw new Error(
        `The database has the migration ${row.name}, which is not in ${found.dir}, so it was migrated by a newer version. ` +
          'Start that version or a later one, or restore a backup from before the upgrade.',
      )
    }
    if (file.sha256 !== row.sha256) {
      throw new Error(
        `${file.path} differs from the ${row.name} that was applied to this database. Restore the original file, and put the change into a new migration.`,
      )
    }
  }
  const pending = found.files.filter((file) => !done.has(file.number))
  const first = pending[0]
  if (first !== undefined && first.number <= found.applied.length) {
    throw new Error(
      `${first.path} was never applied to this database, but later migrations were, so its table schema_migrations was edited. Restore the missing row, or a backup.`,
    )
  }
  return pending
}

/**
 * A deferred foreign key, which is violated until `KEEP` runs, and checked at commit. A file that contains a commit therefore fails as a whole,
 * instead of leaving a part of its changes in the database.
 */
const PROMISE = `
  create temp table migration_end (number int primary key) on commit drop;
  create temp table migration_start (number int constraint migration_is_whole references migration_end deferrable initially deferred) on commit drop;
  insert into pg_temp.migration_start values (1)`
const KEEP = 'insert into pg_temp.migration_end values (1)'

/** Applies a file and inserts its row in one transaction. Settings that the file changes do not affect the next file. */
const apply = async (client: pg.Client, file: Migration, schema: string): Promise<void> => {
  try {
    await client.query(`reset all; ${ENDS_IF_FROZEN}`)
    await client.query(`set search_path = ${client.escapeIdentifier(schema)}`)
    await client.query('begin')
    await client.query(PROMISE)
    await client.query('insert into schema_migrations (number, name, sha256) values ($1, $2, $3)', [
      file.number,
      file.fileName,
      file.sha256,
    ])
    // Without parameters, pg uses the simple protocol, which is the only one that accepts several statements.
    await client.query(file.sql)
    await client.query(KEEP)
    await client.query('commit')
  } catch (cause) {
    await client.query('rollback').catch(() => {})
    if (cause instanceof pg.DatabaseError && cause.constraint === 'migration_is_whole') {
      throw new Error(
        `${file.path} was rolled back. It must not contain begin, commit or rollback, because it already runs in a transaction.`,
        {
          cause,
        },
      )
    }
    const reason = cause instanceof Error ? cause.message : String(cause)
    throw new Error(
      `${file.path} failed${lineOf(cause, file.sql)}: ${reason}. It was rolled back. Correct it and start again.`,
      {
        cause,
      },
    )
  }
}

const lineOf = (error: unknown, sql: string): string => {
  if (!(error instanceof pg.DatabaseError) || error.position === undefined) return ''
  return ` at line ${sql.slice(0, Number(error.position)).split('\n').length}`
}

const numbered = (number: number): string => {
  return String(number).padStart(4, '0')
}
