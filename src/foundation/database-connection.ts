import { setTimeout as delay } from 'node:timers/promises'
import pg from 'pg'
import { within } from '../concurrency/deadline.ts'
import { settingsLost } from './session-settings.ts'

/** The time limit for connecting. Someone at the command line has to wait this long if the server does not answer. */
const connectTimeoutMs = 10_000
/** Longer than any migration by another process takes, and longer than any other lock that delays a migration. */
export const lockTimeoutMs = 600_000

/** The database server cannot be reached or used. `message` contains the server and the reason, but never the password. */
export class DatabaseUnfit extends Error {
  override name = 'DatabaseUnfit'
}

const oldestVersion = 160_000

/**
 * Throws `DatabaseUnfit` if the server is too old, or if the database cannot store all text. Otherwise, some statements would fail in the
 * middle of calls, and a name could stop a projection.
 */
export const refuseUnfit = async (client: pg.Client): Promise<void> => {
  const { rows } = await client.query<{ number: number; version: string; encoding: string }>(
    `select current_setting('server_version_num')::int as number, current_setting('server_version') as version,
            current_setting('server_encoding') as encoding`,
  )
  const [{ number, version, encoding } = { number: 0, version: 'of an unknown version', encoding: '' }] = rows
  if (number < oldestVersion)
    throw new DatabaseUnfit(
      `PostgreSQL ${version} at ${client.host}:${client.port} is too old; use version 16 or newer`,
    )
  if (encoding !== 'UTF8')
    throw new DatabaseUnfit(
      `the database ${client.database} has the encoding ${encoding}, which cannot store all text. Create it with UTF8: create database ${client.database} encoding 'UTF8' template template0`,
    )
}

/** In each round, two connections ask in the order A, B, B, A, so that a pooler that takes turns is noticed too. */
const poolerRoundsMax = 2

/**
 * Throws `DatabaseUnfit` like `refuseUnfit`, if the server accepts no writes, or if a pooler between this process and the server ignores the
 * settings of connections or does not keep one server connection for each client. Locks and settings would then be those of other clients.
 */
export const refuseUnsuited = async (
  url: string,
  waitMs: number,
  logger: Parameters<typeof connectedWithin>[2],
): Promise<void> => {
  const one = await connectedWithin(url, waitMs, logger)
  try {
    await refuseUnfit(one)
    const { rows } = await one.query<{ value: string }>(
      "select current_setting('transaction_read_only') as value",
    )
    if (rows[0]?.value !== 'off')
      throw new DatabaseUnfit(
        `the server at ${one.host}:${one.port} does not accept writes: it is a standby or read-only. Use the address of the primary server`,
      )
    const lost = await settingsLost(one)
    if (lost.length > 0)
      throw new DatabaseUnfit(
        `connections to ${one.host}:${one.port} do not have the settings that they request, probably because a pooler ignores them. Run: ${lost.map(({ name, value }) => `alter role ${one.escapeIdentifier(one.user ?? '')} set ${name} = '${value}';`).join(' ')} Then reload the pooler's server connections (PgBouncer: reconnect)`,
      )
    if (await isShared(one, await connectedWithin(url, waitMs, logger)))
      throw new DatabaseUnfit(
        `a pooler at ${one.host}:${one.port} gives transactions of one connection different connections to PostgreSQL, so locks and settings would be lost. Use its session mode (PgBouncer: pool_mode = session), or connect to PostgreSQL directly`,
      )
  } finally {
    await one.end()
  }
}

/** Whether two open connections have the same server process, or one of them has several. Closes `other`. */
const isShared = async (one: pg.Client, other: pg.Client): Promise<boolean> => {
  try {
    const first = await serverProcess(one)
    const second = await within(serverProcess(other), { waitMs: connectTimeoutMs }, () => {
      throw new Error(`no answer within ${connectTimeoutMs / 1_000} s`)
    })
    if (first === second) return true
    for (let round = 1; round <= poolerRoundsMax; round++) {
      if ((await serverProcess(other)) !== second || (await serverProcess(one)) !== first) return true
      if ((await serverProcess(one)) !== first || (await serverProcess(other)) !== second) return true
    }
    return false
  } catch (cause) {
    const reason = reasonOf(cause)
    throw new DatabaseUnfit(
      `a second connection to ${one.host}:${one.port} does not work: ${reason}. Each process needs up to 20 connections at the same time; allow more (PgBouncer: default_pool_size)`,
      { cause },
    )
  } finally {
    await other.end().catch(() => {})
  }
}

const serverProcess = async (client: pg.Client): Promise<string> => {
  const { rows } = await client.query<{ id: string }>(
    `select pg_backend_pid() || ' ' || pg_postmaster_start_time() as id`,
  )
  return rows[0]?.id ?? ''
}

/** The SQLSTATE of a server that is starting, recovering or stopping. */
const cannotConnectNow = '57P03'
/** The SQLSTATE of a server whose connections are all in use, or those that the role or database may use. */
const tooManyConnections = '53300'
/** The failures to connect that are temporary. */
const temporary = [cannotConnectNow, tooManyConnections]

export const moreConnections =
  'Raise max_connections and restart PostgreSQL, raise the connection limit of the role or database, or end connections of other programs. Each process of the service can use 20.'

/** Whether all connections are in use. Existing connections continue to work. */
export const areConnectionsUsedUp = (error: unknown): boolean =>
  error instanceof pg.DatabaseError && error.code === tooManyConnections

const waitPauseMs = 250

export const connectedWithin = async (
  url: string,
  waitMs: number,
  logger: { info(fields: object, message: string): void } | undefined,
): Promise<pg.Client> => {
  const deadline = performance.now() + waitMs
  for (let waiting = false; ; waiting = true) {
    try {
      return await connected(url)
    } catch (error) {
      const cause = error instanceof DatabaseUnfit ? error.cause : undefined
      if (!(cause instanceof pg.DatabaseError) || !temporary.includes(cause.code ?? '')) throw error
      if (performance.now() > deadline) throw error
      if (!waiting) logger?.info({ reason: cause.message }, 'waiting for the database')
      await delay(waitPauseMs)
    }
  }
}

const connected = async (url: string): Promise<pg.Client> => {
  let client: pg.Client | undefined
  try {
    client = new pg.Client({
      connectionString: url,
      connectionTimeoutMillis: connectTimeoutMs,
      lock_timeout: lockTimeoutMs,
      application_name: 'migrate',
    })
    // Without a listener, a lost connection would crash the process. The pending query rejects anyway.
    client.on('error', () => {})
    await client.connect()
    return client
  } catch (cause) {
    await client?.end().catch(() => {})
    // The invalid URL is not quoted, because it can contain the password.
    if (client === undefined) throw new DatabaseUnfit('it is not a valid database URL', { cause })
    const remedy = areConnectionsUsedUp(cause)
      ? moreConnections
      : 'Check that the server is running, and that the address is correct.'
    throw new DatabaseUnfit(
      `Cannot connect to the database at ${client.host}:${client.port}: ${reasonOf(cause)}. ${remedy}`,
      { cause },
    )
  }
}

/** If a host has several addresses, the error has no message of its own, but contains one error for each address. */
const reasonOf = (error: unknown): string => {
  const first = error instanceof AggregateError ? error.errors[0] : error
  return first instanceof Error ? first.message : String(first)
}
