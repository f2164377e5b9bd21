/**
 * The server of a cluster, through `pg_ctl` and `postmaster.pid`: found, started, asked whether it answers, stopped.
 *
 * Only the owner starts and stops it. `pg_ctl` gives it a session of its own, so that it outlives signals meant for us.
 */
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, statSync } from 'node:fs'
import { open, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import pg from 'pg'
import { codeOf } from '../../event-log/directory.ts'
import {
  boundLog,
  type Cluster,
  logBytes,
  logTail,
  type Place,
  placeIn,
  readPassword,
  superuser,
} from './cluster.ts'
import { runProgram } from './programs.ts'

/** Recovery after a kill replays at most `max_wal_size` of log, which takes seconds. */
export const startTimeoutMs = 60_000
/** A fast shutdown writes the changed part of 128 MB of buffers. */
const fastStopSeconds = 30
/** An immediate shutdown writes nothing; PostgreSQL itself kills children that remain for five seconds. */
const immediateStopSeconds = 10
export const databaseName = 'enrichment'
const answerTimeoutMs = 2_000
const pollMs = 50
/** Each look at a predecessor's remaining processes is a start that fails, so it looks less often. */
const predecessorPollMs = 200
/** Another program may take a port between our look and the server's. Five times in a row is no accident. */
const portAttemptsMax = 5

/**
 * Where they differ from PostgreSQL's own, which are durable and small enough to share a machine with the service.
 * `log_error_verbosity` is terse because the DETAIL line of a failed statement quotes values, and those may be someone's address.
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
 * The server process of this cluster, ready or not, by PostgreSQL's own record; null where none runs.
 *
 * `pg_ctl status` is not asked: it takes every process with the recorded pid for the server. After a kill another program
 * may have that pid, and a zombie has it too.
 */
export const findServer = (place: Place): Server | null => {
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

/** On the server's command line. By the directory itself, so that a copy of a data directory does not find our server. */
const nameOf = (place: Place): string => {
  const { dev, ino } = statSync(place.cluster, { bigint: true })
  return `enrichment-${dev}-${ino}`
}

/** In words; none for a process that is gone. */
const commandLine = (pid: number): string[] => {
  try {
    const text =
      process.platform === 'linux'
        ? readFileSync(`/proc/${pid}/cmdline`, 'utf8')
        : execFileSync('ps', ['-ww', '-o', 'command=', '-p', String(pid)], { encoding: 'utf8' })
    return text.split(/[\0\s]/)
  } catch {
    return []
  }
}

/** Every port that was tried was taken. */
export class PortTaken extends Error {
  override name = 'PortTaken'
}

type Wanted = {
  /** Override `serverSettings`. Plain words: `pg_ctl` passes them through a shell. */
  readonly settings?: Readonly<Record<string, string>> | undefined
  /** By default the operating system names a free port. */
  readonly pickPort?: (() => Promise<number>) | undefined
  /** Gives up, and interrupts a server that is starting. */
  readonly signal?: AbortSignal | undefined
}

/**
 * The cluster's server once it lets us in: the one that a killed owner left, or a new one. `startTimeoutMs` at most; a server
 * that still recovers then goes on with that, and the next start finds it. Throws an Error with the remedy and the log's end.
 */
export const startServer = async (cluster: Cluster, wanted: Wanted): Promise<Server> => {
  const { place } = cluster
  const deadline = performance.now() + startTimeoutMs
  for (let portsTaken = 0; ; ) {
    wanted.signal?.throwIfAborted()
    const found = findServer(place)
    if (found !== null && (await answers(urlOf(cluster, found.port, 'postgres')))) return found
    if (performance.now() > deadline)
      throw new Error(
        `PostgreSQL in ${place.cluster} (pid ${found?.pid ?? 'gone'}) has not answered for ${startTimeoutMs / 1_000} s. ` +
          `If it is recovering, start again later. Else stop it: kill -QUIT ${found?.pid ?? 'PID'}. ${await logTail(place)}`,
      )
    if (found !== null) {
      await delay(pollMs)
      continue
    }
    const failure = await launch(cluster, wanted, deadline)
    if (failure === null || findServer(place) !== null) continue
    wanted.signal?.throwIfAborted()
    const portTaken = /could not bind|could not create any TCP\/IP sockets/.test(failure)
    if (portTaken && ++portsTaken < portAttemptsMax) continue
    // Children of a killed server notice soon; until then they use the shared memory.
    const predecessorRemains = /pre-existing shared memory block/.test(failure)
    if (predecessorRemains && performance.now() < deadline) {
      await delay(predecessorPollMs)
      continue
    }
    const remedy = portTaken
      ? `No port of 127.0.0.1 could be bound in ${portAttemptsMax} attempts; free one, or set DATABASE_URL to a server of your own.`
      : predecessorRemains
        ? `Processes of an earlier PostgreSQL still use ${place.cluster}; end them (ps ax | grep postgres) and start again.`
        : `Its log says why; restore ${place.cluster} from a backup, or move it away to start empty, or set DATABASE_URL to a server of your own.`
    const message = `PostgreSQL could not be started in ${place.cluster}. ${remedy} ${failure}`
    throw portTaken ? new PortTaken(message) : new Error(message)
  }
}

/** Null when the server is ready; else why it is not: what `pg_ctl` says and the end of the server's log. */
const launch = async (
  cluster: Cluster,
  { settings, pickPort = freePort, signal }: Wanted,
  deadline: number,
): Promise<string | null> => {
  const { place } = cluster
  await disarmPidFile(place)
  await boundLog(place)
  const since = await logBytes(place)
  const all = { ...serverSettings, ...settings, port: await pickPort(), cluster_name: nameOf(place) }
  const flags = Object.entries(all).map(([name, value]) => `-c ${name}=${value}`)
  const seconds = Math.max(1, Math.ceil((deadline - performance.now()) / 1_000))
  await using log = await open(place.log, 'a', 0o600)
  const { code, output } = await runProgram(
    'pg_ctl',
    ['start', '--silent', '--wait', `--timeout=${seconds}`, `--options=${flags.join(' ')}`],
    // A file, not a pipe: the server outlives us.
    { ...cluster, directory: place.cluster, stdout: log.fd, signal },
  )
  return code === 0 ? null : `${output.trim()} ${await logTail(place, since)}`
}

/**
 * Another program may have got the pid of a killed server, and PostgreSQL would take it for a living one. So the record gets
 * a pid that cannot exist. It is not deleted: by its line on shared memory PostgreSQL notices a killed server's children.
 */
const disarmPidFile = async (place: Place): Promise<void> => {
  const [pid, ...lines] = postmasterLines(place)
  if (pid !== undefined) await writeFile(postmasterFile(place), ['2147483647', ...lines].join('\n'))
}

/** Fast shutdown, then immediate shutdown. Throws when the server outlives both, naming its pid. */
export const stopServer = async (cluster: Cluster): Promise<void> => {
  const { place } = cluster
  const steps = [
    ['fast', fastStopSeconds],
    ['immediate', immediateStopSeconds],
  ] as const
  for (const [mode, seconds] of steps) {
    if (findServer(place) === null) return
    const args = ['stop', '--silent', '--wait', `--mode=${mode}`, `--timeout=${seconds}`]
    await runProgram('pg_ctl', args, { ...cluster, directory: place.cluster })
  }
  const survivor = findServer(place)
  if (survivor !== null)
    throw new Error(
      `PostgreSQL (pid ${survivor.pid}) of ${place.cluster} survived both shutdowns. End it: kill -KILL ${survivor.pid}; the next start recovers.`,
    )
}

// ---- connections ----

/** Password included: a secret. */
export const urlOf = ({ password }: Pick<Cluster, 'password'>, port: number, database: string): string =>
  `postgresql://${superuser}:${password}@127.0.0.1:${port}/${database}`

/** Runs one statement on a connection of its own. */
export const query = async (url: string, statement: string, timeoutMs: number) => {
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

/** True only for a server that lets this password in: another server on the same port does not. */
const answers = (url: string): Promise<boolean> =>
  query(url, 'select 1', answerTimeoutMs).then(
    () => true,
    () => false,
  )

/**
 * The URL of the server of this data directory, if it answers: it was just connected to. Null when none does. Throws when
 * this user may not read the password, which means that the service runs as another user.
 */
export const readRunningPostgres = async (dataDir: string): Promise<{ url: string } | null> => {
  const place = placeIn(dataDir)
  const password = await readPassword(place)
  const server = password === null ? null : findServer(place)
  if (password === null || server === null) return null
  const url = urlOf({ password }, server.port, databaseName)
  return (await answers(url)) ? { url } : null
}

/**
 * Whether there is a cluster and its server process runs, which may not answer for all that. Starts nothing, and connects to nothing. The URL
 * holds the password. Throws as `readRunningPostgres`.
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

const freePort = async (): Promise<number> => {
  const probe = createServer().listen(0, '127.0.0.1')
  await once(probe, 'listening')
  const address = probe.address()
  probe.close()
  await once(probe, 'close')
  if (address === null || typeof address === 'string')
    throw new Error('The operating system named no free port on 127.0.0.1.')
  return address.port
}
