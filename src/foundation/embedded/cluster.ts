/**
 * The cluster on disk: its files in the data directory, and how it is created. The caller holds the lock.
 *
 * Files in the data directory:
 *   postgres/            the cluster
 *   postgres.tmp-*       a cluster that is being created; renamed when complete, so `postgres/` is never half a cluster
 *   postgres.password    the superuser's password, mode 0600
 *   postgres.lock        the owner's lock (empty)
 *   postgres.users, postgres.turn   the locks of those that use the server (empty)
 *   postgres.log         the server's log, at most `logBytesMax`, and the one before it, `postgres.log.1`
 *   postgres.json        where the server is while it runs, for people and programs; mode 0600
 */
import { execFile } from 'node:child_process'
import { randomBytes } from 'node:crypto'
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
} from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { codeOf, syncDirectory } from '../../event-log/directory.ts'
import { type Account, accountFor, findPrograms, runProgram } from './programs.ts'

export const superuser = 'postgres'
const logBytesMax = 16 * 1024 * 1024
/** What an error quotes: the end, where the reason is. */
const logTailBytes = 4_096

export type Place = ReturnType<typeof placeIn>

/** Every path of a data directory, absolute. */
export const placeIn = (directory: string) => {
  const dataDir = resolve(directory)
  return {
    dataDir,
    cluster: join(dataDir, 'postgres'),
    password: join(dataDir, 'postgres.password'),
    lock: join(dataDir, 'postgres.lock'),
    users: join(dataDir, 'postgres.users'),
    turn: join(dataDir, 'postgres.turn'),
    log: join(dataDir, 'postgres.log'),
    json: join(dataDir, 'postgres.json'),
  }
}

/** What the server writes to. An operator may have put any of these on a disk of its own. */
export const writtenDirs = (directory: string): readonly string[] => {
  const { dataDir, cluster } = placeIn(directory)
  return [dataDir, cluster, join(cluster, 'pg_wal')]
}

/** A cluster that exists, and what it takes to run its server. */
export type Cluster = {
  readonly place: Place
  readonly account: Account
  /** Where PostgreSQL's programs are. */
  readonly bin: string
  readonly password: string
}

/**
 * Finds the cluster of this place or creates it. Throws an Error with the directory and the remedy; a directory that is not
 * a cluster of ours is left as it was.
 */
export const prepareCluster = async (
  place: Place,
  /** Without, a power cut may damage a new cluster. */
  { synced }: { readonly synced: boolean },
): Promise<Cluster> => {
  const account = await accountFor(place.cluster)
  const bin = await findPrograms(account)
  await removeUnfinished(place)
  const exists = await clusterExists(place)
  const password = (await readPassword(place)) ?? (await createPassword(place, exists))
  const cluster = { place, account, bin, password }
  if (exists) await handOver(cluster)
  else await createCluster(cluster, synced)
  return cluster
}

/** A cluster that belongs to root is a copy that root made, such as a restored backup: no server ever wrote one. */
const handOver = async ({ place, account }: Cluster): Promise<void> => {
  if (account === null || (await stat(place.cluster)).uid !== 0) return
  await promisify(execFile)('chown', ['-R', `${account.uid}:${account.gid}`, place.cluster])
}

/**
 * Only the holder of the lock creates clusters, so an unfinished one was abandoned. An `initdb` that outlived its killed
 * parent may still write there; without its files it gives up soon, and the next start removes what it leaves.
 */
const removeUnfinished = async (place: Place): Promise<void> => {
  for (const name of await readdir(place.dataDir))
    if (name.startsWith('postgres.tmp-'))
      await rm(join(place.dataDir, name), { recursive: true, force: true, maxRetries: 10 }).catch(() => {})
}

/** An empty directory counts as none. Any other that is not a cluster may be someone's data: refused, never overwritten. */
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

const createPassword = async (place: Place, clusterExists: boolean): Promise<string> => {
  if (clusterExists)
    throw new Error(
      `${place.password} is missing but ${place.cluster} needs it. Restore that file, or move the cluster away to start empty.`,
    )
  const password = randomBytes(24).toString('hex')
  await writeSecret(place.password, `${password}\n`)
  return password
}

/**
 * Code-point order and Unicode case mapping come from PostgreSQL's built-in provider: rows sort the same on every machine,
 * and no upgrade of the system's locales can damage an index.
 */
const createCluster = async (cluster: Cluster, synced: boolean): Promise<void> => {
  const { place, account, bin, password } = cluster
  // Not our pid: in a container the next process has the same one, and may find a directory it could not remove.
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

// ---- the server's log ----

/** The server appends to an open file, so its log is copied and cut, not renamed. Lines written in between are lost. */
export const boundLog = async (place: Place): Promise<void> => {
  if ((await logBytes(place)) < logBytesMax) return
  // A full disk takes no copy, and needs the cut all the more.
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
