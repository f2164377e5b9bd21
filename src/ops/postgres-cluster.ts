/**
 * The cluster on disk: its files in the data directory, the account they belong to, and how it is created.
 *
 * Not the server: nothing here starts, stops or asks one. Taking the lock is the caller's business.
 *
 * Files in the data directory:
 *   postgres/            the cluster
 *   postgres.tmp-*       a cluster being created; renamed when complete, so `postgres/` is never half a cluster
 *   postgres.password    the superuser's password, mode 0600
 *   postgres.lock        the owner's lock (empty)
 *   postgres.log         the server's log, at most `logBytesMax`, plus one predecessor `postgres.log.1`
 *   postgres.json        where the server is, while it runs, mode 0600
 */
import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import {
  chown,
  copyFile,
  mkdir,
  open,
  readdir,
  readFile,
  rename,
  rm,
  rmdir,
  stat,
  truncate,
  writeFile,
} from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { type Account, type Binaries, findBinaries, lend, programEnvironment } from './postgres-binaries.ts'

const run = promisify(execFile)

export const superuser = 'postgres'
const logBytesMax = 16 * 1024 * 1024
/** What a failure quotes: the end, where the reason stands. */
const logTailBytes = 4_096
const initdbOutputCharsMax = 4_096

/** The part of a logger used here; pino's fits. */
export type PostgresLogger = {
  debug(fields: object, message: string): void
  info(fields: object, message: string): void
  warn(fields: object, message: string): void
  error(fields: object, message: string): void
}

export type Place = ReturnType<typeof placeIn>

/** Every path of a data directory, absolute. */
export const placeIn = (directory: string) => {
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

/** A cluster that exists, and what it takes to serve it. `tag` is the name its server carries on its command line. */
export type Cluster = { place: Place; account: Account; binaries: Binaries; password: string; tag: string }

/** The name a server carries on its command line: it tells ours from every other without saying the password. */
export const tagOf = (password: string): string =>
  `enrichment-${createHash('sha256').update(password).digest('hex').slice(0, 12)}`

/**
 * Finds the cluster of this place or creates it, owned by the account the server will run under. Throws an Error naming the
 * directory and the remedy; what is not a cluster of ours is left as it was.
 */
export const prepareCluster = async (wanted: {
  place: Place
  /** Of these only `fsync` matters here: with `off` the cluster is created unsynced. */
  settings?: Readonly<Record<string, string>>
  logger?: PostgresLogger
}): Promise<Cluster> => {
  const { place, settings, logger } = wanted
  const account = await accountFor(place)
  const binaries = await findBinaries(account)
  await removeUnfinished(place, logger)
  const exists = await clusterExists(place)
  const password = await readPassword(place, exists)
  const tag = tagOf(password)
  const cluster = { place, account, binaries, password, tag }
  if (exists) {
    await handOver(place, account)
  } else {
    logger?.info({ directory: place.cluster }, 'creating the embedded PostgreSQL cluster')
    await createCluster(cluster, { synced: settings?.fsync !== 'off' })
  }
  return cluster
}

/** Root must lend the server another account: the one that already owns the cluster, else `postgres`, created if need be. */
const accountFor = async (place: Place): Promise<Account> => {
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
const handOver = async (place: Place, account: Account): Promise<void> => {
  if (account === null || (await stat(place.cluster)).uid !== 0) return
  await run('chown', ['-R', `${account.uid}:${account.gid}`, place.cluster])
}

const lookUpAccount = async (name: string): Promise<{ uid: number; gid: number } | null> => {
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
const removeUnfinished = async (place: Place, logger: PostgresLogger | undefined): Promise<void> => {
  for (const name of await readdir(place.dataDir)) {
    if (!name.startsWith('postgres.tmp-')) continue
    const path = join(place.dataDir, name)
    await rm(path, { recursive: true, force: true, maxRetries: 10, retryDelay: 50 }).catch((error: unknown) =>
      logger?.warn({ err: error, path }, 'cannot remove an unfinished PostgreSQL cluster'),
    )
  }
}

/** An empty directory counts as none. Anything else that is not a cluster is somebody's data: refused, never overwritten. */
const clusterExists = async (place: Place): Promise<boolean> => {
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

const readPassword = async (place: Place, clusterIsThere: boolean): Promise<string> => {
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
const createCluster = async (cluster: Cluster, { synced }: { synced: boolean }): Promise<void> => {
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
        `--username=${superuser}`,
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
          env: programEnvironment(),
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

/** How a child ended (exit code or signal) and the end of what it wrote. */
const ran = async (child: ChildProcess): Promise<{ outcome: number | string; output: string }> => {
  let output = ''
  for (const stream of [child.stdout, child.stderr]) {
    stream?.on('data', (chunk: Buffer) => {
      output = (output + chunk.toString()).slice(-initdbOutputCharsMax)
    })
  }
  const outcome = await new Promise<number | string>((ended, failed) => {
    child.once('error', failed)
    child.once('close', (code, signalName) => ended(code ?? signalName ?? 'unknown'))
  })
  return { outcome, output }
}

// ---- files ----

/** Complete or absent, and never readable by others, not even for a moment. */
export const writeSecret = async (path: string, text: string): Promise<void> => {
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
const syncDirectory = async (path: string): Promise<void> => {
  if (process.platform === 'win32') return
  const directory = await open(path, 'r')
  try {
    await directory.sync()
  } finally {
    await directory.close()
  }
}

/** The server appends to an open file, so the log is copied and cut, not renamed. Lines written in between are lost. */
export const boundLog = async (place: Place): Promise<void> => {
  if ((await sizeOf(place.log)) < logBytesMax) return
  await copyFile(place.log, `${place.log}.1`)
  await truncate(place.log, 0)
}

/** Zero when there is no such file. */
export const sizeOf = async (path: string): Promise<number> => {
  const found = await stat(path).catch(() => null)
  return found?.size ?? 0
}

/** The end of the server's log, ready to be quoted in an error; `since` leaves out what earlier attempts wrote. */
export const logTail = async (place: Place, since = 0): Promise<string> => {
  const text = await readFile(place.log).catch(() => Buffer.alloc(0))
  const tail = text
    .subarray(Math.max(since, text.length - logTailBytes))
    .toString('utf8')
    .trim()
  return tail === '' ? `(Its log ${place.log} is empty.)` : `End of ${place.log}:\n${tail}`
}

/** The operating system's name for a failure, `ENOENT` say. */
export const codeOf = (error: unknown): string | undefined =>
  error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : undefined
