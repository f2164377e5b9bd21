/**
 * The embedded default: one PostgreSQL server per data directory, owned by one process and shared by any number of guests.
 *
 * Not a pool and not a client: it answers with a url, whoever needs connections opens them.
 *
 * The rest stands beside: who owns it in `embedded-lock.ts`, what happens when it dies in `embedded-supervision.ts`, the
 * files of a data directory in `postgres-cluster.ts`, the server process in `postgres-server.ts`, the programs in
 * `postgres-binaries.ts`.
 */
import { rm } from 'node:fs/promises'
import { setTimeout as delay } from 'node:timers/promises'
import pg from 'pg'
import { makeDataDir } from './data-dir.ts'
import { type Lock, takeLock } from './embedded-lock.ts'
import {
  type EmbeddedPostgres,
  type Owned,
  readRunning,
  supervise,
  writeRunning,
} from './embedded-supervision.ts'
import { logTail, type Place, type PostgresLogger, placeIn, prepareCluster } from './postgres-cluster.ts'
import {
  answers,
  connectTimeoutMs,
  findOrphan,
  PortTaken,
  startServer,
  startTimeoutMs,
  stopServer,
  urlOf,
} from './postgres-server.ts'

export type { EmbeddedPostgres } from './embedded-supervision.ts'
export type { PostgresLogger } from './postgres-cluster.ts'

const databaseName = 'enrichment'
const lockPollMs = 50

export type EmbeddedPostgresOptions = {
  /** Directory that holds the cluster and its files; created (mode 0700) when missing. */
  dataDir: string
  logger?: PostgresLogger
  /** Server settings that override ours, for tests that trade durability for speed. With `fsync: 'off'` the cluster is also created unsynced. */
  settings?: Readonly<Record<string, string>>
  /** Where the port comes from; by default the operating system names a free one. A port that turns out taken is asked for again, five times at most. */
  pickPort?: () => Promise<number>
  /** How long to wait for a server that another process starts or brings back. */
  waitMs?: number
}

/**
 * Gives a running PostgreSQL 18 for this data directory: a new one, the one a killed predecessor left behind (adopted), or
 * the one another live process owns (joined as guest). When it resolves the database `enrichment` accepts connections.
 *
 * Of several processes starting at once on one directory exactly one becomes owner; the others wait for it, `waitMs` at most.
 * Only 127.0.0.1 is listened on. The server survives signals sent to our process group; it is stopped by `stop()`, or at
 * an ordinary exit of the owner that forgot to.
 *
 * Throws an Error naming the directory and the remedy, with the tail of the server's log when the server is the reason.
 */
export const startEmbeddedPostgres = async (options: EmbeddedPostgresOptions): Promise<EmbeddedPostgres> => {
  const { settings, logger, waitMs = startTimeoutMs } = options
  const place = placeIn(options.dataDir)
  await makeDataDir(place.dataDir)
  const supervised = (url: string, owned: Owned | null): EmbeddedPostgres =>
    supervise({
      place,
      url,
      owned,
      ...(settings && { settings }),
      ...(logger && { logger }),
      own: async (lock, port) => {
        const again = await own({ ...options, pickPort: async () => port, place, lock })
        if (again.owned.server.port === port) return again.owned
        await stopServer(again.owned.cluster, again.owned.server.pid)
        throw new PortTaken(`PostgreSQL in ${place.cluster} runs on another port than ${port}`)
      },
    })
  const deadline = performance.now() + waitMs
  for (;;) {
    const lock = takeLock(place)
    if (lock !== null) {
      try {
        const { url, owned } = await own({ ...options, place, lock })
        return supervised(url, owned)
      } catch (error) {
        lock.release()
        throw error
      }
    }
    const running = await readRunningPostgres(place.dataDir)
    if (running !== null) {
      logger?.info({ dataDir: place.dataDir }, 'using the embedded PostgreSQL of another process')
      return supervised(running.url, null)
    }
    if (performance.now() > deadline) {
      throw new Error(
        `Another process has held ${place.lock} for ${Math.round(waitMs / 1000)} s without its PostgreSQL answering. ` +
          `See what it says in ${place.log}; or stop it (lsof ${place.lock} names it), or use another DATA_DIR than ${place.dataDir}.`,
      )
    }
    await delay(lockPollMs)
  }
}

/**
 * The url of the server of this data directory, if one is alive: it was just connected to. `null` when none runs.
 * Throws when `postgres.json` exists but may not be read, which means the service runs as another user.
 */
export const readRunningPostgres = async (dataDir: string): Promise<{ url: string } | null> => {
  const running = await readRunning(placeIn(dataDir))
  if (running === null || !(await answers(running.url))) return null
  return { url: running.url }
}

type Ownership = EmbeddedPostgresOptions & { place: Place; lock: Lock }

const own = async (ownership: Ownership): Promise<{ url: string; owned: Owned }> => {
  const { place, logger, lock } = ownership
  const deadline = performance.now() + startTimeoutMs
  // A predecessor's file; from here on its url would mislead guests.
  await rm(place.json, { force: true })
  const cluster = await prepareCluster(ownership)
  const orphan = await findOrphan(cluster, deadline)
  if (orphan !== null)
    logger?.warn({ pid: orphan.pid, dataDir: place.dataDir }, 'adopting the PostgreSQL a killed process left')
  const server = orphan ?? (await startServer(cluster, { ...ownership, deadline }))
  const url = urlOf({ cluster, port: server.port, database: databaseName })
  try {
    await createDatabase(urlOf({ cluster, port: server.port, database: 'postgres' }))
    await writeRunning(place, url, server)
  } catch (error) {
    await stopServer(cluster, server.pid)
    throw new Error(
      `PostgreSQL in ${place.cluster} started but could not be set up. ${await logTail(place)}`,
      { cause: error },
    )
  }
  logger?.info(
    { port: server.port, pid: server.pid, dataDir: place.dataDir },
    'embedded PostgreSQL is running',
  )
  return { url, owned: { cluster, server, lock } }
}

const createDatabase = async (adminUrl: string): Promise<void> => {
  const client = new pg.Client({ connectionString: adminUrl, connectionTimeoutMillis: connectTimeoutMs })
  client.on('error', () => {})
  await client.connect()
  try {
    const { rowCount } = await client.query('select from pg_database where datname = $1', [databaseName])
    if (rowCount === 0) await client.query(`create database ${client.escapeIdentifier(databaseName)}`)
  } finally {
    await client.end()
  }
}
