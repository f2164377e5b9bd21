/**
 * The server process of a cluster: found when a killed owner left it running, started, asked whether it answers, stopped.
 *
 * Not who may do so: whoever calls here owns the cluster. The server has a session of its own, so that it outlives signals meant
 * for us, and ends when `stopServer` says so.
 */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { closeSync, openSync, readFileSync } from 'node:fs'
import { readFile, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import pg from 'pg'
import { lend, programEnvironment } from './postgres-binaries.ts'
import { boundLog, type Cluster, codeOf, logTail, type Place, sizeOf, superuser } from './postgres-cluster.ts'

/** Crash recovery after a kill replays at most `max_wal_size` of log, which takes seconds; a minute is beyond doubt. */
export const startTimeoutMs = 60_000
/** A fast shutdown writes the dirty part of 128 MB of buffers. */
const fastStopTimeoutMs = 30_000
/** An immediate shutdown writes nothing; PostgreSQL itself kills children that linger for five seconds. */
const immediateStopTimeoutMs = 10_000
export const connectTimeoutMs = 2_000
const pollMs = 10
/** Each look at a lingering predecessor is a start that fails, so it looks less often. */
const lingerPollMs = 200
/** Between probing a port and binding it another program may take it; five times in a row is not an accident. */
const portAttemptsMax = 5

/**
 * Durable, and small enough to share a machine with the service. `wal_compression` stays off: these binaries offer only
 * pglz, which costs more processor time than the bytes it saves. `log_error_verbosity` is terse because the DETAIL line of a
 * failed statement quotes row values, and those may be somebody's address.
 */
const serverSettings: Readonly<Record<string, string>> = {
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

/** `child` is null for an adopted server: another process started it. */
export type Server = { pid: number; port: number; child: ChildProcess | null }

/**
 * The server that a killed owner left running, once it accepts connections; waits for one that is still starting or stopping.
 * A record whose pid now belongs to another program is disarmed by giving it a pid that cannot exist. It is not deleted, because
 * its shared-memory line is how PostgreSQL notices children of a crashed server that are still writing.
 */
export const findOrphan = async (cluster: Cluster, deadline: number): Promise<Server | null> => {
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
    if (performance.now() > deadline) {
      throw new Error(
        `A PostgreSQL (pid ${found.pid}) left by an earlier run holds ${place.cluster} but does not answer. ` +
          `Stop it: kill -QUIT ${found.pid}. ${await logTail(place)}`,
      )
    }
    await delay(pollMs)
  }
}

/** No port that was asked for could be bound. */
export class PortTaken extends Error {
  override name = 'PortTaken'
}

type ServerWanted = {
  /** Override `serverSettings`. */
  settings?: Readonly<Record<string, string>>
  /** By default the operating system names a free port. */
  pickPort?: () => Promise<number>
  /** When to give up, in milliseconds since the epoch. */
  deadline: number
}

/**
 * Starts the server on a port of its own and waits until it accepts connections. A port that turns out taken is replaced, five
 * attempts at most. Throws an Error with the remedy and the end of the server's log.
 */
export const startServer = async (cluster: Cluster, wanted: ServerWanted): Promise<Server> => {
  const { place } = cluster
  const pickPort = wanted.pickPort ?? freePort
  for (let attempt = 1; ; ) {
    await boundLog(place)
    const offset = await sizeOf(place.log)
    const port = await pickPort()
    const child = await launch(cluster, {
      ...serverSettings,
      ...wanted.settings,
      port: String(port),
      cluster_name: cluster.tag,
    })
    if (await becomesReady(cluster, child, wanted.deadline)) return { pid: pidOf(child), port, child }
    const log = await logTail(place, offset)
    const portTaken = /could not bind|could not create any TCP\/IP sockets/.test(log)
    if (portTaken && attempt < portAttemptsMax) {
      attempt += 1
      continue
    }
    // Children of a server that was killed notice within moments; until then they still own the shared memory.
    const predecessorLingers = /pre-existing shared memory block/.test(log)
    if (predecessorLingers && performance.now() < wanted.deadline) {
      await delay(lingerPollMs)
      continue
    }
    const failure = startFailure({ place, portTaken, predecessorLingers, log })
    throw portTaken ? new PortTaken(failure) : new Error(failure)
  }
}

const startFailure = (failure: {
  place: Place
  portTaken: boolean
  predecessorLingers: boolean
  log: string
}): string => {
  const { place, portTaken, predecessorLingers, log } = failure
  const remedy = portTaken
    ? `No port of 127.0.0.1 could be bound in ${portAttemptsMax} attempts; free one, or set DATABASE_URL to a server of your own.`
    : predecessorLingers
      ? `Processes of an earlier PostgreSQL still use ${place.cluster}; end them (ps ax | grep postgres) and start again.`
      : `Its log says why; restore ${place.cluster} from a backup, or move it away to start empty, or set DATABASE_URL to a server of your own.`
  return `PostgreSQL could not be started in ${place.cluster}. ${remedy} ${log}`
}

/** Detached, so that a Ctrl-C meant for us does not reach it; its log goes to a file, so that it outlives our pipes. */
const launch = async (cluster: Cluster, settings: Record<string, string>): Promise<ChildProcess> => {
  const { place, account, binaries } = cluster
  const log = openSync(place.log, 'a', 0o600)
  try {
    return await lend([place.cluster], account, async (lent, stdio) => {
      const flags = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])
      const child = spawn(binaries.postgres, ['-D', lent(place.cluster), ...flags], {
        ...(account ?? {}),
        cwd: '/',
        env: programEnvironment(),
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
const becomesReady = async (cluster: Cluster, child: ChildProcess, deadline: number): Promise<boolean> => {
  while (child.exitCode === null && child.signalCode === null) {
    const found = await readPostmaster(cluster.place)
    if (found !== null && found.pid === child.pid && found.status === 'ready') return true
    if (performance.now() > deadline) {
      await stopServer(cluster, pidOf(child))
      throw new Error(
        `PostgreSQL in ${cluster.place.cluster} was not ready within ${startTimeoutMs / 1000} s. ` +
          `If it is recovering, start again: it continues where it was. ${await logTail(cluster.place)}`,
      )
    }
    await delay(pollMs)
  }
  return false
}

/** Fast shutdown, then immediate shutdown; resolves once the process is gone. Throws when it outlives both, naming its pid. */
export const stopServer = async (cluster: Cluster, pid: number): Promise<void> => {
  const steps = [
    { name: 'SIGINT', timeoutMs: fastStopTimeoutMs },
    { name: 'SIGQUIT', timeoutMs: immediateStopTimeoutMs },
  ] as const
  for (const { name, timeoutMs } of steps) {
    if (!runsCluster(cluster, pid)) return
    signal(pid, name)
    const deadline = performance.now() + timeoutMs
    while (performance.now() < deadline) {
      if (!runsCluster(cluster, pid)) return
      await delay(pollMs)
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
export const runsCluster = (cluster: Pick<Cluster, 'tag'>, pid: number): boolean =>
  commandLine(pid).includes(`cluster_name=${cluster.tag}`)

const commandLine = (pid: number): string => {
  try {
    if (process.platform === 'linux')
      return readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ')
    return execFileSync('ps', ['-ww', '-o', 'command=', '-p', String(pid)], { encoding: 'utf8' })
  } catch {
    return ''
  }
}

/** A process that is gone already is no error. */
export const signal = (pid: number, name: NodeJS.Signals): void => {
  try {
    process.kill(pid, name)
  } catch (error) {
    if (codeOf(error) !== 'ESRCH') throw error
  }
}

const pidOf = (child: ChildProcess): number => {
  if (child.pid === undefined) throw new Error('The PostgreSQL process has no pid although it was spawned.')
  return child.pid
}

/** The first lines of `postmaster.pid`, PostgreSQL's own record of who serves the cluster. */
const readPostmaster = async (
  place: Place,
): Promise<{ pid: number; port: number; status: string; text: string } | null> => {
  const text = await readFile(join(place.cluster, 'postmaster.pid'), 'utf8').catch((error: unknown) => {
    if (codeOf(error) === 'ENOENT') return ''
    throw error
  })
  const lines = text.split('\n')
  const pid = Number(lines[0])
  if (!Number.isSafeInteger(pid) || pid <= 0) return null
  return { pid, port: Number(lines[3]), status: (lines[7] ?? '').trim(), text }
}

// ---- connections ----

/** Password included: a secret. */
export const urlOf = (server: { cluster: Cluster; port: number; database: string }): string =>
  `postgresql://${superuser}:${server.cluster.password}@127.0.0.1:${server.port}/${server.database}`

/** True only for a server that lets this password in: a foreign server on the same port does not. */
export const answers = async (url: string): Promise<boolean> => {
  const client = new pg.Client({
    connectionString: url,
    connectionTimeoutMillis: connectTimeoutMs,
    query_timeout: connectTimeoutMs,
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

const freePort = async (): Promise<number> => {
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
