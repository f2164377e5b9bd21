import pg from 'pg'
import type { Logger } from 'pino'
import { type Config, ConfigError } from '../../config.ts'
import { openingWith } from '../../foundation/closing.ts'
import { keyDirOf, makeDataDir } from '../../foundation/data-dir.ts'
import { beforeMigrations, openDatabase } from '../../foundation/database.ts'
import { newestMigration } from '../../foundation/migrate.ts'
import { knownSecretKeysOf, secretKeyFile } from '../../foundation/secret-key.ts'
import { createEpochKeyFiles } from '../../guard/epoch-key-files.ts'
import { ringOf, type SecretRing } from '../../guard/secret-ring.ts'
import { type CheckedBackup, checkBackup, checkChain } from './check.ts'
import type { Manifest } from './contents.ts'
import { type LoadedRows, loadRows, refuseTarget } from './load.ts'

type Asked = {
  readonly path: string
  /** Goes on although keys of KEY_DIR are lost, and with them what was sealed under them. */
  readonly keysLost: boolean
  readonly logger: Logger
  readonly waitMs: number
  readonly onProgress: (progress: RestoreProgress) => void
}

type RestoreProgress = { readonly phase: 'checked' | 'loaded'; readonly readBytes: number }

type Restorable = {
  readonly chain: readonly CheckedBackup[]
  readonly last: CheckedBackup
  readonly checking: { readonly secretKey: SecretRing; readonly accept: (manifest: Manifest) => void }
}

/**
 * Reads a backup, and those it continues, whole, and what this host has of keys: everything that can be known before the
 * database is looked at. Nothing is written. Throws `ConfigError` where this installation cannot take it, `ArchiveFault` for a
 * file that is damaged.
 */
export const checkRestorable = async (
  config: Config,
  { path, keysLost, onProgress }: Pick<Asked, 'path' | 'keysLost' | 'onProgress'>,
): Promise<Restorable> => {
  const secretKeys = await knownSecretKeysOf(config)
  if (secretKeys === null)
    throw new ConfigError(
      `SECRET_KEY: it is not set, and there is none in DATA_DIR. A backup holds none: set it to the one of the installation that was backed up, or put its file "secret_key" into ${config.DATA_DIR}`,
    )
  const secretKey = ringOf(secretKeys)
  const newest = await newestMigration()
  const accept = (manifest: Manifest): void => refuseUnfit(manifest, { config, secretKey, newest, path })
  const chain = await checkChain(path, {
    ...{ secretKey, accept },
    onProgress: (readBytes: number) => onProgress({ phase: 'checked', readBytes }),
  })
  const last = chain.at(-1)
  if (last === undefined) throw new Error('a chain holds the file itself')
  refuseLostSecrets(last.manifest, config, secretKey)
  if (!keysLost) await refuseLostKeys(last.manifest, config, secretKey)
  return { chain, last, checking: { secretKey, accept } }
}

/**
 * Looks whether the database here takes these backups, as `restoreBackup` would; migrates and writes nothing. Throws `ConfigError` where
 * it does not, or cannot be reached.
 */
export const checkTarget = (
  config: Config,
  { chain, ...options }: { readonly chain: readonly CheckedBackup[] } & Pick<Asked, 'logger' | 'waitMs'>,
): Promise<void> =>
  beforeMigrations(config, options, async (client) => {
    if (client !== null) await refuseTarget(client, chain)
  })

/**
 * Puts a backup, and those it continues, into an empty installation: every file is checked whole before anything is written, and
 * written in one transaction. What is derived is still missing then: `openFoundation`, verify and rebuild. Throws as
 * `checkRestorable`.
 */
export const restoreBackup = async (
  config: Config,
  asked: Asked,
): Promise<{ readonly chain: readonly CheckedBackup[]; readonly rows: LoadedRows }> => {
  const { logger, waitMs, onProgress } = asked
  const { chain, last, checking } = await checkRestorable(config, asked)
  const rows = await openingWith(async (closing) => {
    const upTo = last.manifest.migration
    const { migrationUrl } = await openDatabase(config, { logger, waitMs, guest: false, closing, upTo })
    const loaded = await loadInto(migrationUrl, chain, { ...checking, onProgress })
    await closing.close()
    return loaded
  })
  return { chain, rows }
}

const refuseUnfit = (
  manifest: Manifest,
  {
    config,
    secretKey,
    newest,
    path,
  }: { config: Config; secretKey: SecretRing; newest: number; path: string },
): void => {
  if (!secretKey.keys().some(({ check }) => check === manifest.secret_key_hash))
    throw new ConfigError(
      `SECRET_KEY: ${path} was made of an installation with another one, and nothing in it could be used with this one. Nothing was changed.`,
    )
  if (manifest.migration > newest)
    throw new ConfigError(
      `${path} was made by release ${manifest.release}, which is newer: restore it with that release or a later one. Nothing was changed.`,
    )
  const ownLog = config.EVENT_LOG_URL === undefined
  if (manifest.holds_log !== ownLog)
    throw new ConfigError(
      manifest.holds_log
        ? `EVENT_LOG_URL: ${path} holds the event log of an installation that kept it in PostgreSQL. Restore it without EVENT_LOG_URL; "event-log copy" moves it afterwards.`
        : `EVENT_LOG_URL: the event log of ${path} was ${manifest.event_log} and is not in it. Restore that one first, and name it in EVENT_LOG_URL.`,
    )
}

/** What no process would start without afterwards. A backup of an earlier release does not tell: the first start does. */
const refuseLostSecrets = (
  { former_keys: former = [] }: Manifest,
  config: Config,
  secretKey: SecretRing,
): void => {
  const lost = former.find(({ hash }) => !secretKey.keys().some(({ check }) => check === hash))
  if (lost === undefined) return
  const file = secretKeyFile(config)
  throw new ConfigError(
    `SECRET_KEYS_OLD: the key ${lost.id} is not there, and this backup needs it${lost.under.length === 0 ? '' : ` for ${lost.under.join(', ')}`}. ` +
      `${file === null ? 'Add it to SECRET_KEYS_OLD' : `Put it into ${file}, on a line of its own after the first, or into SECRET_KEYS_OLD`}. Nothing was changed.`,
  )
}

const refuseLostKeys = async (
  { epoch_keys }: Manifest,
  config: Config,
  secretKey: SecretRing,
): Promise<void> => {
  const dir = keyDirOf(config)
  const files = createEpochKeyFiles({ dir, makeDir: () => makeDataDir(dir, 'KEY_DIR'), secretKey })
  const { keys, destroyed } = await files.list()
  const here = new Set([...keys.map(({ id }) => id), ...destroyed])
  const lost = epoch_keys.filter((id) => !here.has(id))
  if (lost.length > 0)
    throw new ConfigError(
      `KEY_DIR: ${dir} lacks ${lost.length === 1 ? 'the key' : 'the keys'} ${lost.join(', ')}, under which profiles in this backup are sealed. ` +
        'Put the KEY_DIR of the installation that was backed up there; if it is lost, --keys-lost goes on without what was sealed. Nothing was changed.',
    )
}

const loadInto = async (
  url: string,
  chain: readonly CheckedBackup[],
  { secretKey, onProgress }: { secretKey: SecretRing; onProgress: Asked['onProgress'] },
): Promise<LoadedRows> => {
  const client = new pg.Client({ connectionString: url, application_name: 'backup-restore' })
  client.on('error', () => undefined)
  await client.connect()
  try {
    return await loadRows(client, chain, async ({ path }, onRows, accept) => {
      await checkBackup(path, {
        ...{ secretKey, onRows, accept },
        onProgress: (readBytes) => onProgress({ phase: 'loaded', readBytes }),
      })
    })
  } finally {
    await client.end()
  }
}
