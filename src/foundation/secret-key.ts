import { randomBytes } from 'node:crypto'
import { access, chmod, open, readFile, rename, unlink, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { type Config, ConfigError } from '../config.ts'
import { codeOf } from '../event-log/directory.ts'
import { ringKeysMax } from '../guard/secret-ring.ts'
import { makeDataDir } from './data-dir.ts'
import { placeIn } from './embedded/cluster.ts'

const fileName = 'secret_key'

/** The file that has the keys, newest first, one a line; null where SECRET_KEY is set. */
export const secretKeyFile = ({
  SECRET_KEY,
  DATA_DIR,
}: Pick<Config, 'SECRET_KEY' | 'DATA_DIR'>): string | null =>
  SECRET_KEY === undefined ? join(DATA_DIR, fileName) : null

/**
 * SECRET_KEY, or those in DATA_DIR, then SECRET_KEYS_OLD: each once, 1 to `ringKeysMax`. The embedded default makes one on its
 * first start, and never beside data that were made with another. Throws `ConfigError`.
 */
export const secretKeysOf = async (config: Config): Promise<readonly string[]> => {
  if (config.DATABASE_URL === undefined) await makeDataDir(config.DATA_DIR)
  return ringKeys(config)
}

const ringKeys = async (config: Config): Promise<readonly string[]> => {
  const newest = config.SECRET_KEY === undefined ? await keysInDataDir(config) : [config.SECRET_KEY]
  const keys = [...new Set([...newest, ...config.SECRET_KEYS_OLD])]
  if (keys.length > ringKeysMax)
    throw new ConfigError(
      `SECRET_KEYS_OLD: ${keys.length} keys are given with SECRET_KEY; ${ringKeysMax} is the most. "secrets status" names those that can leave.`,
    )
  return keys
}

/** The same, where there is one: none is made. */
export const knownSecretKeysOf = async (config: Config): Promise<readonly string[] | null> =>
  config.SECRET_KEY === undefined && (await keysInFile(join(config.DATA_DIR, fileName))) === null
    ? null
    : ringKeys(config)

const keysInDataDir = async (config: Config): Promise<readonly string[]> => {
  const path = join(config.DATA_DIR, fileName)
  const known = await keysInFile(path)
  if (known !== null) return known
  if (config.DATABASE_URL !== undefined)
    throw new ConfigError(
      'SECRET_KEY: required with DATABASE_URL, at least 32 characters. Every process and the CLI need the same one: without it issued keys do not work',
    )
  if (await holdsData(config.DATA_DIR))
    throw new ConfigError(
      `SECRET_KEY: it is not set and ${path} is missing, but ${config.DATA_DIR} holds data made with a key. Restore that file or set SECRET_KEY to the old key; nothing was changed.`,
    )
  return freshKeyIn(path)
}

/** Null: there is no file. */
const keysInFile = async (path: string): Promise<readonly string[] | null> => {
  const text = await readFile(path, 'utf8').catch((cause: unknown) => {
    if (['ENOENT', 'ENOTDIR'].includes(codeOf(cause) ?? '')) return null
    throw new ConfigError(`DATA_DIR: ${path} cannot be read: run as the user that runs the service`, {
      cause,
    })
  })
  if (text === null) return null
  const keys = text.split(/\r?\n/).map((line) => line.trim())
  // What was never a key stays the one it was: an empty file is refused by the database's check, not taken for none.
  return keys.length === 1 ? keys : keys.filter((key, n) => key !== '' || n === 0)
}

export const freshSecretKey = (): string => randomBytes(32).toString('base64url')

const freshKeyIn = async (path: string): Promise<readonly string[]> => {
  const fresh = freshSecretKey()
  try {
    await writeFile(path, `${fresh}\n`, { mode: 0o600, flag: 'wx' })
    await chmod(path, 0o600)
    return [fresh]
  } catch {
    // Another process was first.
    return (await keysInFile(path)) ?? [fresh]
  }
}

/**
 * Replaces the keys in a file as a whole, durably: after a loss of power it holds the former ones or these. `keys` come newest
 * first.
 */
export const writeSecretKeys = async (path: string, keys: readonly string[]): Promise<void> => {
  const draft = `${path}.${process.pid}.draft`
  await unlink(draft).catch(() => undefined)
  const file = await open(draft, 'wx', 0o600)
  try {
    await file.writeFile(keys.map((key) => `${key}\n`).join(''))
    await file.sync()
  } finally {
    await file.close()
  }
  await rename(draft, path)
  const directory = await open(dirname(path), 'r')
  try {
    await directory.sync()
  } finally {
    await directory.close()
  }
}

/** The key is written before the database is made, so a database without a key has lost it. */
const holdsData = (dataDir: string): Promise<boolean> =>
  access(join(placeIn(dataDir).cluster, 'PG_VERSION')).then(
    () => true,
    () => false,
  )
