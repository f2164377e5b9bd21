/**
 * The embedded default: one PostgreSQL server per data directory, owned by one process and shared by any number of guests.
 *
 * Not a pool and not a client: it answers with a url, whoever needs connections opens them. A server
 * that dies by itself is reported, not restarted.
 *
 * Who owns: the process that holds the exclusive lock on `postgres.lock`. The kernel drops that lock when its holder
 * dies, however it dies, so a stale lock cannot exist; a file holding a pid could outlive its process and be mistaken for
 * another program that got the same number. If the owner goes while guests remain, the guests lose the database.
 *
 * The rest stands beside: the files of a data directory in `postgres-cluster.ts`, the server process in `postgres-server.ts`,
 * the programs in `postgres-binaries.ts`.
 */
import { closeSync, openSync, rmSync } from 'node:fs'
import { readFile, rm } from 'node:fs/promises'
import { DatabaseSync } from 'node:sqlite'
import { setTimeout as delay } from 'node:timers/promises'
import pg from 'pg'
import { z } from 'zod'
import { makeDataDir } from './data-dir.ts'
import {
  boundLog,
  type Cluster,
  codeOf,
  logTail,
  type Place,
  type PostgresLogger,
  placeIn,
  prepareCluster,
  writeSecret,
} from './postgres-cluster.ts'
import {
  answers,
  connectTimeoutMs,
  findOrphan,
  runsCluster,
  type Server,
  signal,
  startServer,
  startTimeoutMs,
  stopServer,
  urlOf,
} from './postgres-server.ts'

export type { PostgresLogger } from './postgres-cluster.ts'

const databaseName = 'enrichment'
const lockPollMs = 50
const logCheckMs = 60_000

export type EmbeddedPostgresOptions = {
  /** Directory that holds the cluster and its files; created (mode 0700) when missing. */
  dataDir: string
  logger?: PostgresLogger
  /** Server settings that override ours, for tests that trade durability for speed. With `fsync: 'off'` the cluster is also created unsynced. */
  settings?: Readonly<Record<string, string>>
  /** Where the port comes from; by default the operating system names a free one. A port that turns out taken is asked for again, five times at most. */
  pickPort?: () => Promise<number>
}

export type EmbeddedPostgres = {
  /** Connection url of the database `enrichment`, password included: a secret. */
  url: string
  /** `owner`: this process started or adopted the server and its `stop()` ends it. `guest`: another live process owns it. */
  role: 'owner' | 'guest'
  /**
   * Owner: resolves once the server process is gone (fast shutdown, after 30 s immediate shutdown). Guest: leaves the server
   * alone. May be called any number of times. Throws when the server outlives both shutdowns, naming its pid.
   */
  stop(): Promise<void>
}

/**
 * Gives a running PostgreSQL 18 for this data directory: a new one, the one a killed predecessor left behind (adopted), or
 * the one another live process owns (joined as guest). When it resolves the database `enrichment` accepts connections.
 *
 * Of several processes starting at once on one directory exactly one becomes owner; the others wait for it, 60 s at most.
 * Only 127.0.0.1 is listened on. The server survives signals sent to our process group; it is stopped by `stop()`, or at
 * an ordinary exit of the owner that forgot to.
 *
 * Throws an Error naming the directory and the remedy, with the tail of the server's log when the server is the reason.
 */
export const startEmbeddedPostgres = async (options: EmbeddedPostgresOptions): Promise<EmbeddedPostgres> => {
  const place = placeIn(options.dataDir)
  await makeDataDir(place.dataDir)
  const deadline = performance.now() + startTimeoutMs
  for (;;) {
    const lock = takeLock(place)
    if (lock !== null) {
      try {
        return await own({ ...options, place, lock, deadline })
      } catch (error) {
        lock.release()
        throw error
      }
    }
    const running = await readRunningPostgres(place.dataDir)
    if (running !== null) {
      options.logger?.info({ dataDir: place.dataDir }, 'using the embedded PostgreSQL of another process')
      return { url: running.url, role: 'guest', stop: async () => {} }
    }
    if (performance.now() > deadline) {
      throw new Error(
        `Another process has held ${place.lock} for ${startTimeoutMs / 1000} s without its PostgreSQL answering. ` +
          `Stop that process (lsof ${place.lock} names it) or use another DATA_DIR than ${place.dataDir}.`,
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
  const place = placeIn(dataDir)
  let text: string
  try {
    text = await readFile(place.json, 'utf8')
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return null
    throw new Error(`Cannot read ${place.json}. Run as the user that runs the service.`, { cause: error })
  }
  const found = Running.safeParse(parseJson(text))
  if (!found.success) return null
  const { url } = found.data
  return (await answers(url)) ? { url } : null
}

const Running = z.object({
  url: z.string(),
  port: z.int(),
  pid: z.int(),
  owner_pid: z.int(),
  started_at: z.string(),
})

const parseJson = (text: string): unknown => {
  try {
    return JSON.parse(text)
  } catch {
    return null
  }
}

type Ownership = EmbeddedPostgresOptions & { place: Place; lock: Lock; deadline: number }

const own = async (ownership: Ownership): Promise<EmbeddedPostgres> => {
  const { place, logger, lock } = ownership
  // A predecessor's file; from here on its url would mislead guests.
  await rm(place.json, { force: true })
  const cluster = await prepareCluster(ownership)
  const orphan = await findOrphan(cluster, ownership.deadline)
  if (orphan !== null)
    logger?.warn({ pid: orphan.pid, dataDir: place.dataDir }, 'adopting the PostgreSQL a killed process left')
  const server = orphan ?? (await startServer(cluster, ownership))
  const url = urlOf({ cluster, port: server.port, database: databaseName })
  try {
    await createDatabase(urlOf({ cluster, port: server.port, database: 'postgres' }))
    const running = {
      url,
      port: server.port,
      pid: server.pid,
      owner_pid: process.pid,
      started_at: new Date().toISOString(),
    }
    await writeSecret(place.json, `${JSON.stringify(running satisfies z.infer<typeof Running>, null, 2)}\n`)
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
  return supervise({ cluster, server, url, lock, ...(logger && { logger }) })
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

/** From here until `stop()`: bounds the log, reports a server that dies by itself, and cleans up after an owner that exits without stopping. */
const supervise = (owned: {
  cluster: Cluster
  server: Server
  url: string
  lock: Lock
  logger?: PostgresLogger
}): EmbeddedPostgres => {
  const { cluster, server, url, lock, logger } = owned
  const { place } = cluster
  const bounding = setInterval(() => {
    boundLog(place).catch((error: unknown) => logger?.warn({ err: error }, 'cannot bound the PostgreSQL log'))
  }, logCheckMs).unref()
  // Runs at an ordinary exit only, never on a signal that the application handles or dies of.
  const atExit = () => {
    rmSync(place.json, { force: true })
    if (runsCluster(cluster, server.pid)) signal(server.pid, 'SIGINT')
  }
  process.once('exit', atExit)
  const died = (code: number | null, signalName: string | null) =>
    logger?.warn(
      { pid: server.pid, code, signal: signalName, log: place.log },
      'embedded PostgreSQL ended by itself',
    )
  server.child?.once('exit', died)

  let stopping: Promise<void> | null = null
  const stop = async () => {
    clearInterval(bounding)
    server.child?.off('exit', died)
    try {
      await rm(place.json, { force: true })
      await stopServer(cluster, server.pid)
      logger?.info({ pid: server.pid }, 'embedded PostgreSQL has stopped')
    } finally {
      process.off('exit', atExit)
      lock.release()
    }
  }
  return {
    url,
    role: 'owner',
    stop: () => {
      stopping ??= stop()
      return stopping
    },
  }
}

type Lock = { release(): void }

/**
 * SQLite is here for its file locks only: they are the kernel's, work on every platform and end with their process. Node has
 * no flock of its own. `journal_mode=memory` keeps SQLite from leaving a journal beside the lock.
 *
 * These locks belong to the process, and closing any descriptor of the file drops them: nothing else here may open it.
 */
const takeLock = (place: Place): Lock | null => {
  let database: DatabaseSync | null = null
  try {
    createLockFile(place)
    const opened = new DatabaseSync(place.lock, { timeout: 0 })
    database = opened
    opened.exec('pragma journal_mode=memory')
    opened.exec('begin exclusive')
    return { release: () => (opened.isOpen ? opened.close() : undefined) }
  } catch (error) {
    database?.close()
    if (error instanceof Error && /database is locked/.test(error.message)) return null
    throw new Error(
      `Cannot lock ${place.lock}. DATA_DIR ${place.dataDir} must be writable by this user (uid ${process.getuid?.() ?? '?'}) ` +
        'and on a file system with locks.',
      { cause: error },
    )
  }
}

/** SQLite would create it readable by all, and any reader could keep us out. An existing file is not opened, see `takeLock`. */
const createLockFile = (place: Place): void => {
  try {
    closeSync(openSync(place.lock, 'wx', 0o600))
  } catch (error) {
    if (codeOf(error) !== 'EEXIST') throw error
  }
}
