import { hkdfSync, randomBytes } from 'node:crypto'
import { access, chmod, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type pg from 'pg'
import { type Config, ConfigError } from '../config.ts'
import { sameHmac } from '../guard/secrets.ts'
import { makeDataDir } from './data-dir.ts'
import { placeIn } from './embedded/cluster.ts'
import { codeOf } from './error-code.ts'

const fileName = 'secret_key'

/**
 * SECRET_KEY, or the one in DATA_DIR. The embedded default makes one on its first start, and never beside data that were
 * made with another. Throws `ConfigError`.
 */
export const secretKeyOf = async (config: Config): Promise<string> => {
  if (config.DATABASE_URL === undefined) await makeDataDir(config.DATA_DIR)
  const known = await knownSecretKeyOf(config)
  if (known !== null) return known
  const path = join(config.DATA_DIR, fileName)
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

/** The same, where there is one: none is made. */
export const knownSecretKeyOf = async (config: Config): Promise<string | null> => {
  if (config.SECRET_KEY !== undefined) return config.SECRET_KEY
  const path = join(config.DATA_DIR, fileName)
  const known = await readFile(path, 'utf8').catch((cause: unknown) => {
    if (['ENOENT', 'ENOTDIR'].includes(codeOf(cause) ?? '')) return null
    throw new ConfigError(`DATA_DIR: ${path} cannot be read: run as the user that runs the service`, {
      cause,
    })
  })
  return known?.trim() ?? null
}

const freshKeyIn = async (path: string): Promise<string> => {
  const fresh = randomBytes(32).toString('base64url')
  try {
    await writeFile(path, `${fresh}\n`, { mode: 0o600, flag: 'wx' })
    await chmod(path, 0o600)
    return fresh
  } catch {
    // Another process was first.
    return (await readFile(path, 'utf8')).trim()
  }
}

/** The key is written before the database is made, so a database without a key has lost it. */
const holdsData = (dataDir: string): Promise<boolean> =>
  access(join(placeIn(dataDir).cluster, 'PG_VERSION')).then(
    () => true,
    () => false,
  )

/** What the key gives under a purpose of its own: tells keys apart, and nothing leads back from it to the key. */
export const secretKeyHash = (secretKey: string): string =>
  Buffer.from(hkdfSync('sha256', secretKey, 'enrichment-ledger', 'check', 32)).toString('base64url')

/**
 * Refuses a SECRET_KEY other than the one this database was set up with: every issued key would be refused, profiles could
 * not be opened, and erased people would not be recognized. The database keeps a hash of the key, from the first start on.
 */
export const sameSecretKey = async (
  pool: Pick<pg.Pool, 'query'>,
  config: Config,
  secretKey: string,
): Promise<void> => {
  const hash = secretKeyHash(secretKey)
  await pool.query('insert into secret_key_check (hash) values ($1) on conflict do nothing', [hash])
  const { rows } = await pool.query<{ hash: string }>('select hash from secret_key_check')
  if (rows[0] === undefined || sameHmac(rows[0].hash, hash)) return
  const which = config.SECRET_KEY === undefined ? `that in ${join(config.DATA_DIR, fileName)}` : 'this'
  throw new ConfigError(
    `SECRET_KEY: this database was set up with another one than ${which}, ` +
      'and with this one every issued key would be refused. Start with the old key; nothing was changed.',
  )
}
