import pg from 'pg'
import { within } from '../../concurrency/deadline.ts'
import type { Config } from '../../config.ts'
import { runningPostgres, serviceUrlOf } from '../../foundation/embedded/server.ts'
import { markSentences, readMark } from '../../foundation/installation-mark.ts'
import { pendingMigrations } from '../../foundation/migrate.ts'
import { type Check, fault, ok, reasonOf, type Told, warning } from './finding.ts'

/** Whether the database is there, fit for this, and as this release needs it. Nothing is written. */

/** Of a connection and of each question: a server that hangs must not hang who asks what is wrong. */
const answerMaxMs = 4_000
const connectionsMax = 4
const closeMaxMs = 1_000

export type OpenDatabase = {
  readonly url: string
  readonly pool: pg.Pool
  /** Ends every connection, also those on which no answer comes. Never rejects. */
  close(): Promise<void>
}

/** Connects as the service does. What was found is a fault where it cannot. */
export const connect = async (
  config: Config,
): Promise<{ readonly told: Told; readonly database: OpenDatabase | null }> => {
  const located = await locate(config)
  if ('told' in located) return { told: located.told, database: null }
  const clients = new Set<pg.PoolClient>()
  const pool = new pg.Pool({
    connectionString: located.url,
    max: connectionsMax,
    connectionTimeoutMillis: answerMaxMs,
    query_timeout: answerMaxMs,
    application_name: 'doctor',
  })
  pool.on('error', () => undefined)
  pool.on('connect', (client) => void clients.add(client))
  const close = async (): Promise<void> => {
    await within(pool.end(), { waitMs: closeMaxMs }, () => undefined).catch(() => undefined)
    // A server that hangs takes no goodbye.
    for (const client of clients) Object(client).connection?.stream?.destroy()
  }
  try {
    const { rows } = await pool.query<{ version: string; number: number; name: string }>(
      `select current_setting('server_version') as version, current_setting('server_version_num')::int as number, current_database() as name`,
    )
    const [{ version, number, name } = { version: '', number: 0, name: '' }] = rows
    const where = `PostgreSQL ${version} ${located.where}, database ${name}`
    if (number >= versionMin) return { told: ok(where), database: { url: located.url, pool, close } }
    // What it lacks would be a fault of every other check.
    await close()
    return {
      told: fault(
        `${where}: it is too old, and nothing in it was looked at`,
        'Move to PostgreSQL 16 or newer: pg_dump there, restore here.',
      ),
      database: null,
    }
  } catch (error) {
    await close()
    return {
      told: fault(`${located.where} does not answer: ${reasonOf(error)}`, located.remedy),
      database: null,
    }
  }
}

const versionMin = 160_000

type Located =
  | { readonly url: string; readonly where: string; readonly remedy: string }
  | { readonly told: Told }

const locate = async ({ DATABASE_URL: url, DATA_DIR: dataDir }: Config): Promise<Located> => {
  const remedy =
    'Check that it runs, that this is its address, and that user and password are right (DATABASE_URL).'
  if (url !== undefined) return { url, where: `at ${placeOf(url)}`, remedy }
  const running = await runningPostgres(dataDir)
  if (running.state === 'none')
    return { told: ok(`there is none in ${dataDir} yet; the first start makes it`) }
  if (running.state === 'stopped')
    return {
      told: fault(
        `the embedded PostgreSQL in ${dataDir} does not run`,
        'Start the service, which starts it: npm start. If it does not come up, the end of postgres.log in that directory says why.',
      ),
    }
  return {
    url: serviceUrlOf(running.url),
    where: `embedded in ${dataDir}`,
    remedy: `Restart the service. The end of postgres.log in ${dataDir} says why it does not answer.`,
  }
}

/** Host and port, without the rest: the password may be in it. */
const placeOf = (url: string): string => {
  try {
    const { host, port } = new pg.Client({ connectionString: url })
    return `${host}:${port}`
  } catch {
    return 'the address in DATABASE_URL'
  }
}

/** An installation that was closed, or is not all restored, does not start. */
const place = async (pool: pg.Pool): Promise<Told | Told[]> => {
  const mark = await readMark(pool)
  return mark === null ? [] : fault(...markSentences(mark))
}

export const databaseChecks = ({ pool }: Pick<OpenDatabase, 'pool'>): readonly Check[] => [
  { about: 'database settings', look: () => settings(pool) },
  { about: 'database rights', look: () => rights(pool) },
  { about: 'migrations', look: () => migrations(pool) },
  { about: 'installation', look: () => place(pool) },
]

type Settings = Readonly<
  Record<
    'fsync' | 'full_page_writes' | 'synchronous_commit' | 'autovacuum' | 'encoding' | 'read_only',
    string
  >
> & {
  readonly recovering: boolean
  readonly connections_max: number
  readonly connections: number
  readonly age: number
}

/** PostgreSQL stops taking writes at two thousand million; long before, something keeps it from cleaning up. */
const transactionAgeMax = 1_000_000_000
const connectionShareMax = 0.9

const settings = async (pool: pg.Pool): Promise<Told | Told[]> => {
  const { rows } = await pool.query<Settings>(
    `select current_setting('fsync') as fsync, current_setting('full_page_writes') as full_page_writes,
            current_setting('synchronous_commit') as synchronous_commit, current_setting('autovacuum') as autovacuum,
            current_setting('server_encoding') as encoding, current_setting('default_transaction_read_only') as read_only,
            pg_is_in_recovery() as recovering, current_setting('max_connections')::int as connections_max,
            (select count(*)::int from pg_stat_activity where backend_type = 'client backend') as connections,
            (select max(age(datfrozenxid))::int from pg_database) as age`,
  )
  const [now] = rows
  if (now === undefined) throw new Error('it tells no settings')
  const wrong: Told[] = []
  for (const name of ['fsync', 'full_page_writes', 'synchronous_commit'] as const)
    if (now[name] === 'off')
      wrong.push(
        fault(
          `${name} is off: calls that were answered may be lost`,
          `alter system set ${name} = on; select pg_reload_conf();`,
        ),
      )
  if (now.recovering || now.read_only === 'on')
    wrong.push(
      fault(
        'it takes no writes: it is a standby, or read-only',
        'Name the primary in DATABASE_URL, or promote this one.',
      ),
    )
  if (now.encoding !== 'UTF8')
    wrong.push(
      fault(`its encoding is ${now.encoding}`, 'Create the database with encoding UTF8 and move into it.'),
    )
  if (now.autovacuum === 'off')
    wrong.push(
      warning(
        'autovacuum is off: tables only grow',
        'alter system set autovacuum = on; select pg_reload_conf();',
      ),
    )
  if (now.connections > now.connections_max * connectionShareMax)
    wrong.push(
      warning(
        `${now.connections} of ${now.connections_max} connections are in use`,
        'Raise max_connections and restart PostgreSQL; each process of the service may hold 20.',
      ),
    )
  if (now.age > transactionAgeMax)
    wrong.push(
      warning(
        `its oldest transaction id is ${now.age} transactions old`,
        'Look for what holds it: sessions idle in transaction, replication slots, prepared transactions; then vacuum.',
      ),
    )
  const said = `safe against a crash; ${now.connections} of ${now.connections_max} connections in use`
  return wrong.length > 0
    ? wrong
    : ok(said, { connections: now.connections, connections_max: now.connections_max })
}

type Rights = Readonly<Record<'made' | 'reads' | 'appends' | 'changes' | 'rows' | 'jobs', boolean>> & {
  readonly role: string
}

const rights = async (pool: pg.Pool): Promise<Told | Told[]> => {
  const { rows } = await pool.query<Rights>(
    `with log as (select c.oid, c.relowner from pg_class c where c.oid = to_regclass('log_segments'))
     select current_user as role, exists (select from log) as made,
            coalesce((select has_table_privilege(oid, 'select') from log), false) as reads,
            coalesce((select bool_or(has_function_privilege(oid, 'execute')) from pg_proc where proname = 'append_batch'), false) as appends,
            coalesce((select has_table_privilege(oid, 'update, delete, truncate') or pg_has_role(current_user, relowner, 'member') from log), false) as changes,
            coalesce((select has_schema_privilege(oid, 'create, usage') from pg_namespace where nspname = 'projections'), false) as rows,
            coalesce((select has_schema_privilege(oid, 'usage') from pg_namespace where nspname = 'pgboss'), false) as jobs`,
  )
  const [now] = rows
  if (now === undefined || !now.made) return []
  const lacking = [
    ...(now.reads ? [] : ['read the event log']),
    ...(now.appends ? [] : ['append to the event log']),
    ...(now.rows ? [] : ['make tables in the schema projections']),
    ...(now.jobs ? [] : ['use the schema pgboss']),
  ]
  if (lacking.length > 0)
    return fault(
      `the role ${now.role} may not ${lacking.join(', nor ')}`,
      'Run "migrate" with DATABASE_MIGRATION_URL naming the owner: it grants the service\'s role what it needs.',
    )
  if (now.changes)
    return warning(
      `the service works as ${now.role}, which could change the event log`,
      'Give it a role of its own: guide for operators, "Two roles in the database".',
    )
  return ok(`the role ${now.role} reads the event log and appends to it, and cannot change it`)
}

const migrations = async (pool: pg.Pool): Promise<Told> => {
  try {
    const pending = await pendingMigrations(pool)
    return pending.length === 0
      ? ok('all are applied')
      : fault(
          `${pending.length === 1 ? 'one is' : `${pending.length} are`} missing: ${pending.join(', ').slice(0, 200)}`,
          'Run "migrate" with this release; every start does it too, as the owner of the schema.',
        )
  } catch (error) {
    return fault(reasonOf(error), 'Start the release that this database belongs to.')
  }
}
