/**
 * The embedded PostgreSQL: one server for each data directory, owned by one process at a time.
 *
 * A running service owns the server, and a second service is refused. Commands use the server of a running service as guests. If no service is
 * running, a command owns the server until the command ends, and a service that starts in the meantime waits. `pg_ctl` gives the server its
 * own session, so the server does not receive the signals of this process, and can outlive it.
 */
import { execFileSync } from 'node:child_process'
import { createHash, randomInt } from 'node:crypto'
import { readFileSync, rmSync, statSync } from 'node:fs'
import { open, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import pg from 'pg'
import { z } from 'zod'
import { ConfigError } from '../../config.ts'
import { codeOf } from '../../event-log/directory.ts'
import { makeDataDir } from '../data-dir.ts'
import {
  boundLog,
  type Cluster,
  ClusterUnfit,
  type Lock,
  logBytes,
  logTail,
  type Place,
  placeIn,
  prepareCluster,
  readPassword,
  runProgram,
  superuser,
  takeLock,
  writeSecret,
} from './cluster.ts'

/** The time limit for a start. Recovery after a crash takes seconds, because it replays at most `max_wal_size` of log. */
export const startTimeoutMs = 60_000
/** A fast shutdown writes up to 128 MB of buffers. An immediate one writes nothing, but gives the child processes five seconds to exit. */
const stopSeconds = { fast: 30, immediate: 10 } as const
const databaseName = 'enrichment'
const serviceRole = 'enrichment_service'
const answerTimeoutMs = 2_000
/** The time limit for creating a database, which takes seconds on a slow disk. */
const setUpTimeoutMs = 30_000
const watchMs = 500
const pollMs = 50
/** The pause between attempts to start while child processes of the previous server remain. */
const predecessorPollMs = 200
/** If five random ports out of 16,384 are all taken, that is not by chance, so another attempt would not help. */
const portAttemptsMax = 5
/** IANA does not assign ports in this range to services. */
const dynamicPort = () => randomInt(49_152, 65_536)

/**
 * The settings that differ from PostgreSQL's defaults. `log_error_verbosity` is terse because the DETAIL line of a failed statement quotes
 * values, which can be personal data.
 */
const serverSettings: Readonly<Record<string, string>> = {
  listen_addresses: '127.0.0.1',
  unix_socket_directories: '',
  max_wal_size: '2GB',
  min_wal_size: '256MB',
  checkpoint_timeout: '15min',
  random_page_cost: '1.1',
  jit: 'off',
  log_error_verbosity: 'terse',
  log_checkpoints: 'off',
}

type Server = { readonly pid: number; readonly port: number }

/**
 * Returns the server process of this cluster, ready or not, or null if there is none. `pg_ctl status` would accept any process with the
 * recorded pid, such as a zombie, or another program that got the pid after a crash.
 */
const findServer = (place: Place): Server | null => {
  const [pid, , , port] = postmasterLines(place).map(Number)
  if (pid === undefined || port === undefined || !Number.isSafeInteger(pid) || pid <= 0) return null
  return commandLine(pid).includes(`cluster_name=${nameOf(place)}`) ? { pid, port } : null
}

const postmasterFile = (place: Place): string => join(place.cluster, 'postmaster.pid')

const postmasterLines = (place: Place): string[] => {
  try {
    return readFileSync(postmasterFile(place), 'utf8').split('\n')
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return []
    throw error
  }
}

/** Identifies the server in its command line. The name depends on the directory, so a copy of the data directory has a different one. */
const nameOf = (place: Place): string => {
  const { dev, ino } = statSync(place.cluster, { bigint: true })
  return `enrichment-${dev}-${ino}`
}

/** Returns the words of a process's command line, or none if the process has exited. Throws if the command line cannot be read. */
const commandLine = (pid: number): string[] => {
  try {
    const text =
      process.platform === 'linux'
        ? readFileSync(`/proc/${pid}/cmdline`, 'utf8')
        : execFileSync('ps', ['-ww', '-o', 'command=', '-p', String(pid)], { encoding: 'utf8' })
    return text.split(/[\0\s]/)
  } catch (error) {
    if (![undefined, 'ENOENT', 'ESRCH'].includes(codeOf(error))) throw error
    return []
  }
}

type ServerOptions = {
  readonly logger?: {
    info(fields: object, message: string): void
    warn(fields: object, message: string): void
  }
  /**
   * Overrides server settings, for tests that trade durability for speed. Must be plain words, because `pg_ctl` passes them through a shell.
   * With `fsync: 'off'`, the cluster is also created without waiting for the disk.
   */
  readonly settings?: Readonly<Record<string, string>>
  /** Picks a port, by default any in the dynamic range. Called again, at most five times in total, if the port is taken. */
  readonly pickPort?: () => number
}

/**
 * Resolves when the cluster's server accepts connections, whether the server is new or was left by a killed owner. Throws `ClusterUnfit` with the
 * remedy and the end of the log after `startTimeoutMs`. A server that is still recovering then continues, and the next start finds it.
 */
const startServer = async (cluster: Cluster, options: ServerOptions): Promise<Server> => {
  const { place } = cluster
  const deadline = performance.now() + startTimeoutMs
  for (let portsTaken = 0; ; ) {
    const found = findServer(place)
    if (found !== null && (await answers(urlOf(cluster, found.port, 'postgres')))) return found
    if (performance.now() > deadline)
      throw new ClusterUnfit(
        `PostgreSQL in ${place.cluster} (pid ${found?.pid ?? 'gone'}) has not answered for ${startTimeoutMs / 1_000} s. ` +
          `If it is recovering, start the service again later. Otherwise, stop it: kill -QUIT ${found?.pid ?? 'PID'}. ${await logTail(place)}`,
      )
    if (found !== null) {
      await delay(pollMs)
      continue
    }
    const failure = await launch(cluster, options, deadline)
    if (failure === null || findServer(place) !== null) continue
    if (/could not bind|could not create any TCP\/IP sockets/.test(failure) && ++portsTaken < portAttemptsMax)
      continue
    // The children of a killed server soon exit. Until then, they use its shared memory.
    if (!/pre-existing shared memory block/.test(failure) || performance.now() > deadline)
      throw new ClusterUnfit(
        `PostgreSQL could not be started in ${place.cluster}. The reason is in its log. Restore the cluster from a backup, move it away to start with an empty one, or set DATABASE_URL to a server of your own. ${failure}`,
      )
    await delay(predecessorPollMs)
  }
}

/** Returns null if the server is ready. Otherwise, returns the output of `pg_ctl` and the end of the server's log. */
const launch = async (
  cluster: Cluster,
  { settings, pickPort = dynamicPort }: ServerOptions,
  deadline: number,
): Promise<string | null> => {
  const { place } = cluster
  await disarmPidFile(place)
  await boundLog(place)
  const since = await logBytes(place)
  const all = { ...serverSettings, ...settings, port: pickPort(), cluster_name: nameOf(place) }
  const flags = Object.entries(all).map(([name, value]) => `-c ${name}=${value}`)
  const seconds = Math.max(1, Math.ceil((deadline - performance.now()) / 1_000))
  await using log = await open(place.log, 'a', 0o600)
  const { code, output } = await runProgram(
    'pg_ctl',
    ['start', '--silent', '--wait', `--timeout=${seconds}`, `--options=${flags.join(' ')}`],
    // The output goes to a file instead of a pipe, because the server can outlive this process.
    { ...cluster, directory: place.cluster, stdout: log.fd },
  )
  return code === 0 ? null : `${output.trim()} ${await logTail(place, since)}`
}

/**
 * If another program has the pid of a killed server, PostgreSQL would mistake that program for a running server. Therefore, the pid in the
 * file is replaced by one that cannot exist. The file is kept, because PostgreSQL detects the killed server's children by its other lines.
 */
const disarmPidFile = async (place: Place): Promise<void> => {
  const [pid, ...lines] = postmasterLines(place)
  if (pid !== undefined) await writeFile(postmasterFile(place), ['2147483647', ...lines].join('\n'))
}

/** Tries a fast and then an immediate shutdown. Throws `ClusterUnfit` with the pid if the server survives both. */
const stopServer = async (cluster: Cluster): Promise<void> => {
  const { place } = cluster
  for (const [mode, seconds] of Object.entries(stopSeconds)) {
    if (findServer(place) === null) return
    const args = ['stop', '--silent', '--wait', `--mode=${mode}`, `--timeout=${seconds}`]
    await runProgram('pg_ctl', args, { ...cluster, directory: place.cluster })
  }
  const survivor = findServer(place)
  if (survivor !== null)
    throw new ClusterUnfit(
      `PostgreSQL (pid ${survivor.pid}) in ${place.cluster} did not stop after two attempts to shut it down. Stop it with kill -KILL ${survivor.pid}. The next start recovers the data.`,
    )
}

// ---- connections ----

/** Without these parameters, PGSSLMODE and PGOPTIONS would apply, which the environment can have for other servers. */
const connection = 'sslmode=disable&options='

/** The URL contains the password, so it is a secret. */
const urlOf = ({ password }: Pick<Cluster, 'password'>, port: number, database: string): string =>
  `postgresql://${superuser}:${password}@127.0.0.1:${port}/${database}?${connection}`

const query = async (url: string, statement: string, timeoutMs: number) => {
  const client = new pg.Client({
    connectionString: url,
    connectionTimeoutMillis: timeoutMs,
    query_timeout: timeoutMs,
  })
  client.on('error', () => {})
  try {
    await client.connect()
    return await client.query(statement)
  } finally {
    await client.end().catch(() => {})
  }
}

/** Whether the server accepts the password in the URL. Returns false for any other server on this port. */
const answers = (url: string): Promise<boolean> =>
  query(url, 'select 1', answerTimeoutMs).then(
    () => true,
    () => false,
  )

/** The URL for the service's role. Its password is derived from the owner's password, without revealing it, so no other secret has to be stored. */
export const serviceUrlOf = (url: string): string => {
  const service = new URL(url)
  service.username = serviceRole
  service.password = createHash('sha256')
    .update(`${serviceRole} ${new URL(url).password}`)
    .digest('base64url')
  return service.href
}

/**
 * Whether there is a cluster and its server process is running, even if the server is not ready. Starts nothing and connects to nothing. The
 * URL contains the password. Throws if this user cannot read the password.
 */
export const runningPostgres = async (
  dataDir: string,
): Promise<{ state: 'none' } | { state: 'stopped' } | { state: 'running'; url: string }> => {
  const place = placeIn(dataDir)
  const password = await readPassword(place)
  if (password === null) return { state: 'none' }
  const server = findServer(place)
  if (server === null) return { state: 'stopped' }
  return { state: 'running', url: urlOf({ password }, server.port, databaseName) }
}

// ---- who owns it ----

type EmbeddedPostgresOptions = ServerOptions & {
  /** The directory of the cluster and its files, created (mode 0700) if it is missing. */
  readonly dataDir: string
  /** How long to wait until the process that owns the server is ready or exits. */
  readonly waitMs?: number
  /** Set only by the service. Called once if the server stops unexpectedly. */
  readonly onLost?: ((error: Error) => void) | undefined
}

export type EmbeddedPostgres = {
  /** The URL of the database `enrichment` for its owner, who has all rights. It contains the password, so it is a secret. */
  readonly url: string
  /** Like `url`, but for the service's role, which is created when the owner migrates. */
  readonly serviceUrl: string
  /** Only the owner stops the server. */
  readonly role: 'owner' | 'guest'
  /**
   * For the owner, resolves when the server has stopped, and throws `ClusterUnfit` with its pid if it does not stop. Can be called repeatedly.
   */
  stop(): Promise<void>
}

/** The content of `postgres.json`, valid only while the lock is held. */
const Running = z.object({ owner: z.enum(['service', 'command']), owner_pid: z.number() })

/**
 * Provides a running PostgreSQL 18 for this data directory: a new server, a server left by a killed owner, or, for a guest, the server of a
 * running service. When this resolves, the database `enrichment` accepts connections on 127.0.0.1 only.
 *
 * Throws `ConfigError` for a second service. For any other failure, throws `ClusterUnfit` with the directory and the remedy. If the server failed,
 * the error also contains the end of its log.
 */
export const startEmbeddedPostgres = async (options: EmbeddedPostgresOptions): Promise<EmbeddedPostgres> => {
  const { waitMs = startTimeoutMs, onLost } = options
  const place = placeIn(options.dataDir)
  await makeDataDir(place.dataDir)
  for (const deadline = performance.now() + waitMs; ; await delay(pollMs)) {
    const lock = takeLock(place)
    if (lock !== null) return own(place, lock, options)
    const holder = await holderOf(place)
    if (onLost !== undefined && holder?.owner === 'service')
      throw new ConfigError(
        `DATA_DIR: another service (pid ${holder.owner_pid}) uses ${place.dataDir}. Stop it, or use a different DATA_DIR for this one. To run several processes, set DATABASE_URL.`,
      )
    const joins = onLost === undefined && (holder?.owner === 'service' || holder?.owner_pid === process.pid)
    const running = joins ? await runningPostgres(place.dataDir) : null
    if (running?.state === 'running' && (await answers(running.url)))
      return {
        url: running.url,
        serviceUrl: serviceUrlOf(running.url),
        role: 'guest',
        stop: async () => undefined,
      }
    if (performance.now() > deadline)
      throw new ClusterUnfit(
        `Another process has held ${place.lock} for ${Math.round(waitMs / 1_000)} s. Wait for it to exit, stop it ` +
          `(find it with "lsof ${place.lock}"), or use a DATA_DIR other than ${place.dataDir}. The server's log is ${place.log}.`,
      )
  }
}

const holderOf = async (place: Place): Promise<z.infer<typeof Running> | null> => {
  try {
    return Running.parse(JSON.parse(await readFile(place.json, 'utf8')))
  } catch {
    return null
  }
}

/** Starts the server or takes over a running one, and keeps the lock until the server has stopped. */
const own = async (place: Place, lock: Lock, options: EmbeddedPostgresOptions): Promise<EmbeddedPostgres> => {
  const { logger, settings, onLost } = options
  const { dataDir } = place
  try {
    await rm(place.json, { force: true })
    const cluster = await prepareCluster(place, { synced: settings?.fsync !== 'off' })
    const left = findServer(place)
    if (left === null) logger?.info({ dataDir }, 'starting the embedded PostgreSQL')
    else
      logger?.warn(
        { serverPid: left.pid, dataDir },
        'taking over the embedded PostgreSQL that another process left running',
      )
    const { pid, port } = await startServer(cluster, options)
    const url = urlOf(cluster, port, databaseName)
    try {
      await createDatabase(urlOf(cluster, port, 'postgres'))
      const owner: z.infer<typeof Running> = {
        owner: onLost === undefined ? 'command' : 'service',
        owner_pid: process.pid,
      }
      const running = { url, port, pid, ...owner, started_at: new Date().toISOString() }
      await writeSecret(place.json, `${JSON.stringify(running, null, 2)}\n`)
    } catch (cause) {
      await stopServer(cluster)
      throw new ClusterUnfit(
        `PostgreSQL in ${place.cluster} started, but its database could not be created. ${await logTail(place)}`,
        { cause },
      )
    }
    logger?.info({ port, serverPid: pid, dataDir }, 'embedded PostgreSQL is running')
    return owned(cluster, { lock, url, ...options })
  } catch (error) {
    lock.release()
    if (codeOf(error) !== 'ENOSPC' && codeOf(error) !== 'EDQUOT') throw error
    throw new ClusterUnfit(
      `The disk of DATA_DIR ${dataDir} is full. Free space, or set DATA_DIR to a directory on another disk.`,
      { cause: error },
    )
  }
}

const createDatabase = async (adminUrl: string): Promise<void> => {
  const find = `select from pg_database where datname = '${databaseName}'`
  const { rowCount } = await query(adminUrl, find, setUpTimeoutMs)
  if (rowCount === 0) await query(adminUrl, `create database ${databaseName}`, setUpTimeoutMs)
}

const owned = (
  cluster: Cluster,
  { lock, url, logger, onLost }: EmbeddedPostgresOptions & { readonly lock: Lock; readonly url: string },
): EmbeddedPostgres => {
  const { place } = cluster
  const unwatch = onLost === undefined ? () => undefined : watch(place, onLost)
  // Runs if the process exits without calling `stop`, unless a signal kills the process.
  const atExit = () => {
    rmSync(place.json, { force: true })
    try {
      const server = findServer(place)
      if (server !== null) process.kill(server.pid, 'SIGINT')
    } catch {
      // The server has already stopped.
    }
  }
  process.once('exit', atExit)
  const stop = async () => {
    unwatch()
    try {
      await rm(place.json, { force: true })
      await stopServer(cluster)
      logger?.info({ dataDir: place.dataDir }, 'embedded PostgreSQL has stopped')
    } finally {
      process.off('exit', atExit)
      lock.release()
    }
  }
  let stopping: Promise<void> | undefined
  return {
    url,
    serviceUrl: serviceUrlOf(url),
    role: 'owner',
    stop: () => {
      stopping ??= stop()
      return stopping
    },
  }
}

/** Repeatedly checks that the server is running, and limits the size of its log. Returns a function that stops the checks. */
const watch = (place: Place, onLost: (error: Error) => void): (() => void) => {
  const look = async () => {
    await boundLog(place).catch(() => undefined)
    let runs = true
    try {
      runs = findServer(place) !== null
    } catch {
      // The next check tries again.
    }
    if (runs || !watching) return
    unwatch()
    onLost(
      new Error(`The embedded PostgreSQL in ${place.cluster} stopped unexpectedly. ${await logTail(place)}`),
    )
  }
  let watching = true
  const timer = setInterval(look, watchMs).unref()
  const unwatch = () => {
    watching = false
    clearInterval(timer)
  }
  return unwatch
}
