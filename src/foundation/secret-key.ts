import { randomBytes } from 'node:crypto'
import { access, readFile, rename } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { type Config, ConfigError } from '../config.ts'
import { codeOf, createDurably, syncDirectory } from '../event-log/directory.ts'
import { type SecretKey, secretKeyOf } from '../guard/secrets/installation-key.ts'
import { makeDataDir } from './data-dir.ts'
import { placeIn } from './embedded/cluster.ts'

/** Returns the files in DATA_DIR for the SECRET_KEY and, during a rotation, for the next key. Returns null if SECRET_KEY is set. */
export const secretKeyFiles = ({
  SECRET_KEY,
  DATA_DIR,
}: Pick<Config, 'SECRET_KEY' | 'DATA_DIR'>): { readonly current: string; readonly next: string } | null =>
  SECRET_KEY === undefined
    ? { current: join(DATA_DIR, 'secret_key'), next: join(DATA_DIR, 'secret_key_new') }
    : null

/**
 * Returns SECRET_KEY and, if it is set, SECRET_KEY_NEW. If SECRET_KEY is not set, returns the keys in the files of DATA_DIR. With the embedded
 * PostgreSQL, the first start creates a key, unless DATA_DIR contains data that needs another key. Throws `ConfigError`.
 */
export const secretKeysOf = async (config: Config): Promise<readonly SecretKey[]> => {
  if (config.DATABASE_URL === undefined) await makeDataDir(config.DATA_DIR)
  const given = await knownSecretKeysOf(config)
  return given ?? [secretKeyOf(await firstKey(config))]
}

/** Like `secretKeysOf`, but never creates a key. Returns null if there is none. */
export const knownSecretKeysOf = async (config: Config): Promise<readonly SecretKey[] | null> => {
  const files = secretKeyFiles(config)
  const current = files === null ? config.SECRET_KEY : await keyInFile(files.current)
  const next = config.SECRET_KEY_NEW ?? (files === null ? null : await keyInFile(files.next))
  const texts = [current, next].filter((text) => text !== undefined && text !== null)
  // An empty file is treated as a wrong key, not as a missing one.
  return current === undefined || current === null ? null : [...new Set(texts)].map(secretKeyOf)
}

const firstKey = async (config: Config): Promise<string> => {
  const fault = await whyNoFirstKey(config)
  if (fault !== null) throw new ConfigError(fault)
  return keyMadeIn(join(config.DATA_DIR, 'secret_key'))
}

/** Returns why the service cannot start without a SECRET_KEY; null if it has one, or creates one. */
export const secretKeyFault = async (config: Config): Promise<string | null> =>
  (await knownSecretKeysOf(config)) === null ? whyNoFirstKey(config) : null

const whyNoFirstKey = async (config: Config): Promise<string | null> => {
  if (config.DATABASE_URL !== undefined)
    return 'SECRET_KEY: required with DATABASE_URL, at least 32 characters. All processes and the command line must use the same value; otherwise, issued API keys do not work'
  return (await holdsData(config.DATA_DIR))
    ? `SECRET_KEY: it is not set and ${join(config.DATA_DIR, 'secret_key')} is missing, but the data in ${config.DATA_DIR} needs the key. Restore that file, or set SECRET_KEY to the old key. Nothing was changed.`
    : null
}

/** Returns null if the file does not exist. */
const keyInFile = async (path: string): Promise<string | null> => {
  const text = await readFile(path, 'utf8').catch((cause: unknown) => {
    if (['ENOENT', 'ENOTDIR'].includes(codeOf(cause) ?? '')) return null
    throw new ConfigError(
      `DATA_DIR: ${path} cannot be read. Run the command as the user that runs the service`,
      {
        cause,
      },
    )
  })
  return text?.trim() ?? null
}

/** Creates a key and stores it durably in a file. If another process has already created one, returns that key. */
export const keyMadeIn = async (path: string): Promise<string> => {
  const fresh = randomBytes(32).toString('base64url')
  await createDurably(path, `${fresh}\n`)
  const made = await keyInFile(path)
  // A key that is not in a file must not be used, because it would be lost when the process exits.
  if (made === null) throw new ConfigError(`${path} was removed while it was being created`)
  return made
}

/** Replaces the current key with the next one, durably. */
export const useNextKeyFile = async ({ current, next }: { current: string; next: string }): Promise<void> => {
  await rename(next, current)
  await syncDirectory(dirname(current))
}

/** Whether DATA_DIR contains a database. The key is stored before the database is created, so if there is a database but no key, the key is lost. */
export const holdsData = (dataDir: string): Promise<boolean> =>
  access(join(placeIn(dataDir).cluster, 'PG_VERSION')).then(
    () => true,
    () => false,
  )
