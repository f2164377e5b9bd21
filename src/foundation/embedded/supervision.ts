/**
 * Keeps the embedded PostgreSQL running for as long as a process uses it.
 *
 * A server that ends by itself is started again on its port, since every pool has its address. Its owner does that; where the
 * owner is gone too, a guest takes the lock and becomes the owner. Calls get 503 meanwhile and then go on.
 */
import { createHash } from 'node:crypto'
import { rmSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { setTimeout as delay } from 'node:timers/promises'
import { createOutage, type OutageLogger } from '../../event-log/outage.ts'
import { boundLog, type Cluster, logTail, type Place, prepareCluster, writeSecret } from './cluster.ts'
import { type Lock, takeLock } from './lock.ts'
import { databaseName, findServer, PortTaken, query, startServer, stopServer, urlOf } from './server.ts'
import { leaveUsers, leaveUsersAtExit } from './users.ts'

const serviceRole = 'enrichment_service'
/** Copying a database takes moments, and seconds on a slow disk. */
const setUpTimeoutMs = 30_000
const watchMs = 500
const retryMs = 250
const retryMaxMs = 5_000
/** Another program on the port may soon be gone. Against one that stays only a new start helps, which takes another port. */
const portTakenMaxMs = 60_000

export type ServerOptions = {
  readonly logger?: OutageLogger
  /**
   * Server settings that override ours, for tests that trade durability for speed; plain words. With `fsync: 'off'` the
   * cluster is also created without waiting for the disk.
   */
  readonly settings?: Readonly<Record<string, string>>
  /** By default the operating system names a free port. Asked again, five times at most, when a port turns out taken. */
  readonly pickPort?: () => Promise<number>
}

export type EmbeddedPostgres = {
  /** URL of the database `enrichment` for its owner, who may do everything. The password is in it: a secret. */
  readonly url: string
  /** The same for the role the service runs as, which is created when the owner migrates. */
  readonly serviceUrl: string
  /**
   * `owner`: this process started or adopted the server, and starts it again if it ends by itself. `guest`: another process
   * owns it; when that process ends, a guest becomes the owner.
   */
  readonly role: 'owner' | 'guest'
  /**
   * Where no other process uses the server: resolves once it is gone (fast shutdown, after 30 s immediate shutdown). Else it
   * is left to the others. May be called any number of times. Throws when the server outlives both shutdowns, naming its pid.
   */
  stop(): Promise<void>
}

/** Starts or adopts the server, creates the database, and says where it is. The caller holds the lock. */
export const bringUp = async (
  place: Place,
  options: ServerOptions & { readonly signal?: AbortSignal },
): Promise<{ url: string; port: number; cluster: Cluster }> => {
  const { logger, settings } = options
  const { dataDir } = place
  const cluster = await prepareCluster(place, { synced: settings?.fsync !== 'off' })
  const orphan = findServer(place)
  if (orphan === null) logger?.info({ dataDir }, 'starting the embedded PostgreSQL')
  else logger?.warn({ pid: orphan.pid, dataDir }, 'adopting the PostgreSQL that another process left')
  const { pid, port } = await startServer(cluster, options)
  const url = urlOf(cluster, port, databaseName)
  try {
    await createDatabase(urlOf(cluster, port, 'postgres'))
    const running = { url, port, pid, owner_pid: process.pid, started_at: new Date().toISOString() }
    await writeSecret(place.json, `${JSON.stringify(running, null, 2)}\n`)
  } catch (cause) {
    await stopServer(cluster)
    throw new Error(
      `PostgreSQL in ${place.cluster} started but could not be set up. ${await logTail(place)}`,
      { cause },
    )
  }
  logger?.info({ port, pid, dataDir }, 'embedded PostgreSQL is running')
  return { url, port, cluster }
}

const createDatabase = async (adminUrl: string): Promise<void> => {
  const find = `select from pg_database where datname = '${databaseName}'`
  const { rowCount } = await query(adminUrl, find, setUpTimeoutMs)
  if (rowCount === 0) await query(adminUrl, `create database ${databaseName}`, setUpTimeoutMs)
}

type Supervised = {
  readonly place: Place
  readonly options: ServerOptions
  readonly url: string
  /** Null: another process owns the server. */
  owned: { readonly lock: Lock; readonly cluster: Cluster } | null
  /** That this process uses it. Null: it never becomes its owner, and stops it never. */
  readonly use: Lock | null
}

/** Watches the server from here until `stop()`. */
export const supervise = (supervised: Supervised): EmbeddedPostgres => {
  const { place, url, use } = supervised
  const ending = new AbortController()
  // Runs at an ordinary exit only, not where a signal ends the process.
  const atExit = () => {
    if (use === null) return
    leaveUsersAtExit(place, use, () => {
      if (supervised.owned === null && takeLock(place) === null) return
      rmSync(place.json, { force: true })
      try {
        const server = findServer(place)
        if (server !== null) process.kill(server.pid, 'SIGINT')
      } catch {
        // It ended by itself in this moment.
      }
    })
  }
  process.once('exit', atExit)
  const watching = use === null ? Promise.resolve() : watch(supervised, ending.signal)

  let stopping: Promise<void> | undefined
  const stop = async () => {
    ending.abort()
    await watching
    try {
      if (use !== null) await leaveUsers(place, use, () => stopOwned(supervised))
    } finally {
      process.off('exit', atExit)
      supervised.owned?.lock.release()
    }
  }
  return {
    url,
    serviceUrl: serviceUrlOf(url),
    get role() {
      return supervised.owned === null ? 'guest' : 'owner'
    },
    stop: () => {
      stopping ??= stop()
      return stopping
    },
  }
}

/** Of the last process that uses the server: also where the owner left it to this one a moment ago. */
const stopOwned = async (supervised: Supervised): Promise<void> => {
  const { place, options } = supervised
  if (supervised.owned === null) {
    const lock = takeLock(place)
    if (lock === null) return
    if (findServer(place) === null) return lock.release()
    supervised.owned = { lock, cluster: await prepareCluster(place, { synced: true }) }
  }
  await rm(place.json, { force: true })
  await stopServer(supervised.owned.cluster)
  options.logger?.info({ dataDir: place.dataDir }, 'embedded PostgreSQL has stopped')
}

const watch = async (supervised: Supervised, signal: AbortSignal): Promise<void> => {
  const { place, url, options } = supervised
  const { logger = silent } = options
  const port = Number(new URL(url).port)
  const outage = createOutage({ logger, what: 'embedded PostgreSQL: starting it again', level: 'error' })
  let failures = 0
  let takenSinceMs: number | undefined
  for (;;) {
    const pauseMs = failures === 0 ? watchMs : Math.min(retryMaxMs, retryMs * 2 ** failures)
    await delay(pauseMs, undefined, { ref: false, signal }).catch(() => undefined)
    if (signal.aborted) return
    try {
      if (supervised.owned !== null) await boundLog(place)
      const runs = findServer(place) !== null
      if (!runs && failures === 0 && supervised.owned !== null)
        logger.warn({ log: place.log }, 'embedded PostgreSQL ended by itself')
      // The owner may be gone while its server runs.
      const revived = (!runs || supervised.owned === null) && (await revive(supervised, port, signal))
      if (revived) outage.works()
      failures = 0
      takenSinceMs = undefined
    } catch (error) {
      if (signal.aborted) return
      failures = Math.min(failures + 1, 10)
      outage.failed(error)
      takenSinceMs = error instanceof PortTaken ? (takenSinceMs ?? performance.now()) : undefined
      if (takenSinceMs !== undefined && performance.now() - takenSinceMs > portTakenMaxMs) {
        // No one can catch this: it ends the process with an exit code that its supervisor acts on.
        setImmediate(() => {
          throw error
        })
        return
      }
    }
  }
}

/** Becomes the owner if it is not, and starts the server again if it does not run. False while another process owns it. */
const revive = async (supervised: Supervised, port: number, signal: AbortSignal): Promise<boolean> => {
  const { place, options, owned } = supervised
  const lock = owned?.lock ?? takeLock(place)
  if (lock === null) return false
  try {
    const again = await bringUp(place, { ...options, pickPort: async () => port, signal })
    if (again.port !== port) {
      await stopServer(again.cluster)
      throw new PortTaken(`PostgreSQL in ${place.cluster} ran on another port than ${port}`)
    }
    supervised.owned = { lock, cluster: again.cluster }
  } catch (error) {
    if (owned === null) lock.release()
    throw error
  }
  options.logger?.warn(
    { port, dataDir: place.dataDir },
    owned === null
      ? 'the owner of the embedded PostgreSQL is gone, this process owns it now'
      : 'embedded PostgreSQL was started again',
  )
  return true
}

/** Its password follows from the owner's, and does not lead back to it: one secret less to keep. */
export const serviceUrlOf = (url: string): string => {
  const service = new URL(url)
  service.username = serviceRole
  service.password = createHash('sha256')
    .update(`${serviceRole} ${new URL(url).password}`)
    .digest('base64url')
  return service.href
}

const silent = { warn: () => undefined, info: () => undefined, error: () => undefined }
