import { setTimeout as delay } from 'node:timers/promises'
import pg from 'pg'

/** How long a connection attempt may take. An operator at the command line waits this long for a server that does not answer. */
const connectTimeoutMs = 10_000
/** Longer than any migration of another process takes, and than any lock that a migration waits for is held. */
export const lockTimeoutMs = 600_000

/** A server that cannot be reached or used. `message` names the server and the reason, never the password. */
export class DatabaseUnfit extends Error {
  override name = 'DatabaseUnfit'
}

const oldestVersion = 160_000

/** Throws `DatabaseUnfit` for an old server, because statements would otherwise fail one by one, in the middle of calls. */
export const refuseOld = async (client: pg.Client): Promise<void> => {
  const { rows } = await client.query<{ number: number; version: string }>(
    `select current_setting('server_version_num')::int as number, current_setting('server_version') as version`,
  )
  const [{ number, version } = { number: 0, version: 'of an unknown version' }] = rows
  if (number < oldestVersion)
    throw new DatabaseUnfit(
      `PostgreSQL ${version} at ${client.host}:${client.port} is too old; 16 or newer is needed`,
    )
}

/** SQLSTATE of a server that is starting, recovering or stopping. No other connection failure is temporary. */
const cannotConnectNow = '57P03'
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
      if (!(cause instanceof pg.DatabaseError) || cause.code !== cannotConnectNow) throw error
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
    // Without a listener, a lost connection would end the process; the pending query rejects anyway.
    client.on('error', () => {})
    await client.connect()
    return client
  } catch (cause) {
    await client?.end().catch(() => {})
    // The unparsable text is not quoted, because it may contain the password.
    if (client === undefined) throw new DatabaseUnfit('it is not the URL of a database', { cause })
    throw new DatabaseUnfit(
      `Cannot connect to the database at ${client.host}:${client.port}: ${reasonOf(cause)}. Check that it runs and that this is its address.`,
      { cause },
    )
  }
}

/** If a host has several addresses, the error contains one error for each address and no message of its own. */
const reasonOf = (error: unknown): string => {
  const first = error instanceof AggregateError ? error.errors[0] : error
  return first instanceof Error ? first.message : String(first)
}
