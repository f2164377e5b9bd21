/**
 * Keeps the embedded PostgreSQL running for as long as a process uses it.
 *
 * A server that dies, by a signal or a full disk, is started again where it was: on the same port, since every pool has its
 * address. Its owner does that; where the owner itself went, a guest takes the lock and becomes the owner. Calls fail with
 * 503 meanwhile and go on by themselves.
 */
import { createHash } from 'node:crypto'
import { rmSync } from 'node:fs'
import { readFile, rm } from 'node:fs/promises'
import { z } from 'zod'
import { createOutage } from '../event-log/outage.ts'
import { type Lock, takeLock } from './embedded-lock.ts'
import {
  boundLog,
  type Cluster,
  codeOf,
  type Place,
  type PostgresLogger,
  tagOf,
  writeSecret,
} from './postgres-cluster.ts'
import {
  PortTaken,
  runsCluster,
  type Server,
  signal,
  startServer,
  startTimeoutMs,
  stopServer,
} from './postgres-server.ts'

const logCheckMs = 60_000
/** How often it is looked for a server that is no child of ours; one that is tells by itself. */
const watchMs = 1_000
const retryMs = 250
const retryMaxMs = 5_000
/** Another program on the port may be gone in a moment. One that stays is for a new start, which takes another port. */
const portTakenMaxMs = 60_000

export type EmbeddedPostgres = {
  /** Connection url of the database `enrichment` by its owner, who may do everything, password included: a secret. */
  readonly url: string
  /** The same by the role the service runs as, which is made when the owner migrates. */
  readonly serviceUrl: string
  /**
   * `owner`: this process started or adopted the server and its `stop()` ends it. `guest`: another live process owns it; when
   * that ends, a guest becomes the owner.
   */
  readonly role: 'owner' | 'guest'
  /**
   * Owner: resolves once the server process is gone (fast shutdown, after 30 s immediate shutdown). Guest: leaves the server
   * alone. May be called any number of times. Throws when the server outlives both shutdowns, naming its pid.
   */
  stop(): Promise<void>
}

export type Owned = { readonly cluster: Cluster; server: Server; readonly lock: Lock }

type Supervised = {
  readonly place: Place
  readonly url: string
  /** Null: another process owns it. */
  readonly owned: Owned | null
  readonly settings?: Readonly<Record<string, string>>
  readonly logger?: PostgresLogger
  /** Starts or adopts the server under a lock, on this port. */
  readonly own: (lock: Lock, port: number) => Promise<Owned>
}

/** From here until `stop()`. */
export const supervise = (supervised: Supervised): EmbeddedPostgres => {
  const { place, url, settings, logger } = supervised
  const port = Number(new URL(url).port)
  const tag = tagOf(decodeURIComponent(new URL(url).password))
  const outage = createOutage({
    logger: logger ?? silent,
    what: 'embedded PostgreSQL: starting it again',
    level: 'error',
  })
  let { owned } = supervised
  let stopped = false
  let wake: () => void = () => undefined

  const bounding = setInterval(() => {
    if (owned === null) return
    boundLog(place).catch((error: unknown) => logger?.warn({ err: error }, 'cannot bound the PostgreSQL log'))
  }, logCheckMs).unref()
  // Runs at an ordinary exit only, never on a signal that the application handles or dies of.
  const atExit = () => {
    if (owned === null) return
    rmSync(place.json, { force: true })
    if (runsCluster(owned.cluster, owned.server.pid)) signal(owned.server.pid, 'SIGINT')
  }
  process.once('exit', atExit)

  const pause = (ms: number): Promise<void> =>
    new Promise((resolve) => {
      const timer = setTimeout(resolve, ms).unref()
      wake = () => {
        clearTimeout(timer)
        resolve()
      }
    })
  const listenTo = ({ child }: Server): void => void child?.once('exit', () => wake())

  const runs = async (): Promise<boolean> =>
    owned === null
      ? runsCluster({ tag }, (await readRunning(place))?.pid ?? 0)
      : runsCluster(owned.cluster, owned.server.pid)

  /** True once a server runs that this process owns; false while another process sees to it. */
  const revive = async (): Promise<boolean> => {
    if (owned === null) {
      const lock = takeLock(place)
      if (lock === null) return false
      try {
        owned = await supervised.own(lock, port)
      } catch (error) {
        lock.release()
        throw error
      }
      logger?.warn(
        { dataDir: place.dataDir },
        'the owner of the embedded PostgreSQL is gone, this process owns it now',
      )
    } else {
      const until = performance.now() + startTimeoutMs
      owned.server = await startServer(owned.cluster, {
        ...(settings && { settings }),
        pickPort: async () => port,
        // Who stops meanwhile does not wait for a recovery.
        get deadline() {
          return stopped ? 0 : until
        },
      })
      logger?.warn({ port, pid: owned.server.pid }, 'embedded PostgreSQL was started again')
      await writeRunning(place, url, owned.server)
    }
    listenTo(owned.server)
    return true
  }

  const watch = async (): Promise<void> => {
    let failures = 0
    let takenSinceMs: number | undefined
    while (!stopped) {
      await pause(failures === 0 ? watchMs : Math.min(retryMaxMs, retryMs * 2 ** failures))
      if (stopped) return
      try {
        if (await runs()) {
          failures = 0
          continue
        }
        if (failures === 0 && owned !== null)
          logger?.warn({ pid: owned.server.pid, log: place.log }, 'embedded PostgreSQL ended by itself')
        if (stopped || !(await revive())) continue
        outage.works()
        failures = 0
        takenSinceMs = undefined
      } catch (error) {
        if (stopped) return
        failures = Math.min(failures + 1, 10)
        outage.failed(error)
        takenSinceMs = error instanceof PortTaken ? (takenSinceMs ?? performance.now()) : undefined
        if (takenSinceMs !== undefined && performance.now() - takenSinceMs > portTakenMaxMs) {
          // Nobody can catch this: it ends the process with an exit code its supervisor acts on.
          setImmediate(() => {
            throw error
          })
          return
        }
      }
    }
  }
  if (owned !== null) listenTo(owned.server)
  const watching = watch()

  let stopping: Promise<void> | null = null
  const stop = async () => {
    stopped = true
    clearInterval(bounding)
    wake()
    await watching
    try {
      if (owned === null) return
      await rm(place.json, { force: true })
      await stopServer(owned.cluster, owned.server.pid)
      logger?.info({ pid: owned.server.pid }, 'embedded PostgreSQL has stopped')
    } finally {
      process.off('exit', atExit)
      owned?.lock.release()
    }
  }
  return {
    url,
    serviceUrl: serviceUrlOf(url),
    get role() {
      return owned === null ? 'guest' : 'owner'
    },
    stop: () => {
      stopping ??= stop()
      return stopping
    },
  }
}

const serviceRole = 'enrichment_service'

/** Its password follows from the owner's, and leads nowhere: one secret less to keep. */
const serviceUrlOf = (url: string): string => {
  const service = new URL(url)
  service.username = serviceRole
  service.password = createHash('sha256')
    .update(`${serviceRole} ${new URL(url).password}`)
    .digest('base64url')
  return service.href
}

const silent = { warn: () => undefined, info: () => undefined, error: () => undefined }

// ---- postgres.json: where the server is, for guests ----

const Running = z.object({
  url: z.string(),
  port: z.int(),
  pid: z.int(),
  owner_pid: z.int(),
  started_at: z.string(),
})
export type Running = z.infer<typeof Running>

export const writeRunning = (place: Place, url: string, { pid, port }: Server): Promise<void> => {
  const running: Running = { url, port, pid, owner_pid: process.pid, started_at: new Date().toISOString() }
  return writeSecret(place.json, `${JSON.stringify(running, null, 2)}\n`)
}

/** What the file says, whether or not that server still runs. Null: there is none, or it is not ours. */
export const readRunning = async (place: Place): Promise<Running | null> => {
  let text: string
  try {
    text = await readFile(place.json, 'utf8')
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return null
    throw new Error(`Cannot read ${place.json}. Run as the user that runs the service.`, { cause: error })
  }
  try {
    return Running.safeParse(JSON.parse(text)).data ?? null
  } catch {
    return null
  }
}
