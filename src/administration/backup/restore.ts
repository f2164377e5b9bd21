import pg from 'pg'
import type { Logger } from 'pino'
import { type Config, ConfigError } from '../../config.ts'
import { type EventLog, logStart } from '../../event-log/port.ts'
import { pagesOf, readIfAny } from '../../event-log/read-stream.ts'
import { decodeEvent } from '../../event-log/stored-event.ts'
import type { DomainEvent } from '../../events/catalogue.ts'
import { operatorStream, priceBookStream } from '../../events/streams.ts'
import { type Closing, openingWith } from '../../foundation/closing.ts'
import { keyDirOf, makeDataDir } from '../../foundation/data-dir.ts'
import { beforeMigrations, type Database, openDatabase } from '../../foundation/database.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import { removeMark } from '../../foundation/installation-mark.ts'
import { newestMigration } from '../../foundation/migrate.ts'
import { openNamed, telling } from '../../foundation/open-event-log.ts'
import { nameOfEventLog } from '../../foundation/own-event-log.ts'
import { knownSecretKeysOf } from '../../foundation/secret-key.ts'
import { createEpochKeyFiles } from '../../guard/secrets/epoch-key-files.ts'
import { openSlots, type SecretKey } from '../../guard/secrets/installation-key.ts'
import { copyEventLog } from '../event-log/copy-event-log.ts'
import { refuseRunning } from '../event-log/event-logs.ts'
import { recordOperationOnce } from '../operator-events.ts'
import { removePasswords } from '../users/users.ts'
import { type CheckedBackup, checkBackup } from './check.ts'
import type { Manifest } from './contents.ts'
import { beginRestore, loadedTables, loadRows, refuseTarget } from './load.ts'

type Asked = {
  readonly path: string
  /** Whether to continue if keys of KEY_DIR are lost. Everything sealed with a lost key is lost, too. */
  readonly keysLost: boolean
  readonly logger: Logger
  readonly waitMs: number
  readonly onProgress: (progress: RestoreProgress) => void
}

export type RestoreProgress =
  | { readonly phase: 'checked' | 'loaded'; readonly readBytes: number }
  | { readonly phase: 'copied'; readonly events: number }

type Restorable = {
  readonly backup: CheckedBackup
  readonly checking: {
    readonly secretKeys: readonly SecretKey[]
    readonly accept: (manifest: Manifest) => void
  }
}

/**
 * Checks the whole backup and this host's keys, and writes nothing. Throws `ConfigError` if this installation cannot accept the
 * backup, and `ArchiveFault` if the file is damaged.
 */
export const checkRestorable = async (
  config: Config,
  { path, keysLost, onProgress }: Pick<Asked, 'path' | 'keysLost' | 'onProgress'>,
): Promise<Restorable> => {
  const secretKeys = await knownSecretKeysOf(config)
  if (secretKeys === null)
    throw new ConfigError(
      `SECRET_KEY: it is not set, and DATA_DIR does not contain a key. Backups do not contain SECRET_KEY: set it to the key of the installation that was backed up, or copy that installation's file "secret_key" into ${config.DATA_DIR}`,
    )
  const newest = await newestMigration()
  const accept = (manifest: Manifest): void => refuseUnfit(manifest, { config, secretKeys, newest, path })
  const backup = await checkBackup(path, {
    secretKeys,
    accept,
    onProgress: (readBytes: number) => onProgress({ phase: 'checked', readBytes }),
  })
  if (!keysLost) await refuseLostKeys(backup, config)
  return { backup, checking: { secretKeys, accept } }
}

/**
 * Throws `ConfigError` if the database cannot be reached or would not accept this backup. Changes nothing, and runs no migrations.
 */
export const checkTarget = (
  config: Config,
  { backup, ...options }: { readonly backup: CheckedBackup } & Pick<Asked, 'logger' | 'waitMs'>,
): Promise<void> =>
  beforeMigrations(config, options, async (client) => {
    if (client !== null) await refuseTarget(client, backup, nameOfEventLog(config))
  })

export type LoadedBackup = {
  readonly backup: CheckedBackup
  readonly rows: Readonly<Record<string, number>>
  readonly since: Date
}

/**
 * Restores a backup into an empty installation. The whole file is checked first; then all rows are written in one transaction. A
 * restore can be interrupted at any point and repeated. Derived data must be rebuilt before `endRestore`; until then the service
 * cannot start. Throws the errors of `checkRestorable`, and `CommandRefused` if the service is running.
 */
export const restoreBackup = async (config: Config, asked: Asked): Promise<LoadedBackup> => {
  const { logger, waitMs, onProgress } = asked
  const { backup, checking } = await checkRestorable(config, asked)
  const copiesLog = backup.manifest.holds_log && config.EVENT_LOG_URL !== undefined
  const mark = await openingWith(async (closing) => {
    const upTo = backup.manifest.migration
    const database = await openDatabase(config, { logger, waitMs, closing, upTo })
    const client = new pg.Client({
      connectionString: database.migrationUrl,
      application_name: 'backup-restore',
    })
    client.on('error', () => undefined)
    await client.connect()
    closing.add(() => client.end())
    const begun = await beginRestore(client, backup, nameOfEventLog(config))
    if (!begun.loaded) {
      await refuseServed(client, database.url)
      await loadRows(client, backup, {
        copiesLog,
        readAgain: async (onRows, accept) => {
          await checkBackup(backup.path, {
            secretKeys: checking.secretKeys,
            onRows,
            accept,
            onProgress: (readBytes) => onProgress({ phase: 'loaded', readBytes }),
          })
        },
      })
    }
    if (copiesLog) await copyLog(config, { client, database, closing, logger, onProgress })
    await closing.close()
    return begun
  })
  const loaded = loadedTables(copiesLog)
  const rows = Object.fromEntries(Object.entries(backup.rows).filter(([table]) => loaded.includes(table)))
  return { backup, rows, since: mark.since }
}

/**
 * Yields the operators' acts of some types that came after the backup. The event log can be newer than the tables only if the backup does not contain
 * the log.
 */
async function* laterActs(
  eventLog: EventLog,
  { head, holds_log, made_at }: Manifest,
  types: readonly DomainEvent['type'][],
): AsyncGenerator<DomainEvent> {
  if (holds_log) return
  for await (const page of pagesOf(eventLog, operatorStream, { from: 0 }))
    for (const recorded of page) {
      if (!types.some((type) => type === recorded.type)) continue
      const event = decodeEvent(recorded)
      // A copy of the log has other positions, but keeps the recording times, so both are compared.
      if (recorded.position > BigInt(head.position) || event.metadata.recorded_at > made_at) yield event
    }
}

/**
 * Removes the passwords of users who changed their password after the backup, because the restored table contains the old
 * passwords. Returns the users' names.
 */
export const removeOldPasswords = async (
  { pool, eventLog }: Pick<Foundation, 'pool' | 'eventLog'>,
  { manifest }: Pick<CheckedBackup, 'manifest'>,
): Promise<string[]> => {
  const changed: { name: string; createdAt: string }[] = []
  for await (const { type, data } of laterActs(eventLog, manifest, ['UserPasswordChanged']))
    if (type === 'UserPasswordChanged') changed.push({ name: data.user, createdAt: data.user_created_at })
  return removePasswords(pool, changed)
}

/**
 * The webhooks whose secret was rotated after the backup. Their receivers refuse the old secret in the restored table. The new secret is not in the
 * event log, so it must be rotated again.
 */
export const webhooksWithOldSecret = async (
  { pool, eventLog }: Pick<Foundation, 'pool' | 'eventLog'>,
  { manifest }: Pick<CheckedBackup, 'manifest'>,
): Promise<string[]> => {
  const rotated = new Set<string>()
  const types = ['WebhookSecretRotated', 'WebhookDeleted'] as const
  for await (const { type, data } of laterActs(eventLog, manifest, types))
    if (type === 'WebhookSecretRotated') rotated.add(data.webhook_id)
    else if (type === 'WebhookDeleted') rotated.delete(data.webhook_id)
  const { rows } = await pool.query<{ webhook_id: string }>(
    'select webhook_id from webhook_endpoints where webhook_id = any ($1) order by 1',
    [[...rotated]],
  )
  return rows.map(({ webhook_id }) => webhook_id)
}

/** Records a restore once, even if the command is repeated. `since` is the time the restore began. */
export const recordRestored = (
  { eventLog }: Pick<Foundation, 'eventLog'>,
  { manifest, sha256 }: CheckedBackup,
  { actor, since }: { readonly actor: string; readonly since: Date },
): Promise<void> => {
  const { backup_id, made_at, head } = manifest
  const data = { backup_id, made_at, position: head.position, files: [sha256] }
  const once = `restored/${backup_id}/${since.toISOString()}`
  return recordOperationOnce(eventLog, { type: 'BackupRestored', data }, { actor, once })
}

/** Ends the restore, so that the service can start. */
export const endRestore = removeMark

/**
 * Throws `CommandRefused`, and removes the mark, if a process that started before the mark was set is still running. No rows have
 * been loaded at this point.
 */
const refuseServed = async (client: pg.Client, url: string): Promise<void> => {
  try {
    await refuseRunning({ variable: 'DATABASE_URL', url }, 'restore')
  } catch (error) {
    await removeMark(client)
    throw error
  }
}

/** Copies the log into the event store, then deletes it from the database in one transaction, so that only one log exists. */
const copyLog = async (
  config: Config,
  {
    client,
    database,
    closing,
    logger,
    onProgress,
  }: { client: pg.Client; database: Database; closing: Closing } & Pick<Asked, 'logger' | 'onProgress'>,
): Promise<void> => {
  const { EVENT_LOG_URL: url = '', EVENT_LOG_PREFIX: prefix } = config
  const from = await openNamed({ variable: 'DATABASE_URL', url: database.url }, logger)
  closing.add(() => from.close())
  // An earlier attempt has already copied the log.
  if ((await from.head()) === logStart) return
  const named = { variable: 'EVENT_LOG_URL', url, prefix }
  const to = await openNamed(named, logger)
  closing.add(() => to.close())
  await telling(named, async () => {
    await to.head()
    await refuseForeign(from, to)
  })
  await copyEventLog({ from, to, onProgress: ({ events }) => onProgress({ phase: 'copied', events }) })
  await client.query(`begin;
    grant truncate on log_segments to current_user;
    truncate log_segments, log_streams restart identity;
    revoke truncate on log_segments from current_user;
    update log_head set position = 0;
    commit`)
}

/**
 * Throws unless the target is empty or begins with the same price book as the source, because the event log of another installation
 * must not be changed.
 */
const refuseForeign = async (from: EventLog, to: EventLog): Promise<void> => {
  const [ours, theirs] = await Promise.all([from, to].map(firstPriceBook))
  if (theirs === undefined || (ours?.id === theirs.id && ours.metadata === theirs.metadata)) return
  throw new ConfigError(
    'EVENT_LOG_URL: the event log there belongs to another installation. Use an empty event log, or separate the two with EVENT_LOG_PREFIX',
  )
}

const firstPriceBook = async (log: EventLog) => {
  const [first] = await readIfAny(log, priceBookStream, { max: 1 })
  return first
}

const refuseUnfit = (
  manifest: Manifest,
  {
    config,
    secretKeys,
    newest,
    path,
  }: { config: Config; secretKeys: readonly SecretKey[]; newest: number; path: string },
): void => {
  if (openSlots(manifest.installation_key, secretKeys) === null)
    throw new ConfigError(
      `SECRET_KEY: ${path} needs ${manifest.installation_key.map(({ secret_key }) => secret_key).join(' or ')}, but a different key was given. If SECRET_KEY was rotated later, set SECRET_KEY to the old key and SECRET_KEY_NEW to the current key. Nothing was changed.`,
    )
  if (manifest.release.startsWith('0.'))
    throw new ConfigError(
      `${path} was made by release ${manifest.release}, before 1.0, and cannot be restored with this one. Nothing was changed.`,
    )
  if (manifest.migration > newest)
    throw new ConfigError(
      `${path} was made by release ${manifest.release}, which is newer: restore it with that release or a later one. Nothing was changed.`,
    )
  if (!manifest.holds_log && config.EVENT_LOG_URL === undefined)
    throw new ConfigError(
      `EVENT_LOG_URL: ${path} does not contain its event log, which was ${manifest.event_log}. Restore that event log first, then set EVENT_LOG_URL to it.`,
    )
}

const refuseLostKeys = async (
  { manifest: { epoch_keys }, key: secretKey }: CheckedBackup,
  config: Config,
): Promise<void> => {
  const dir = keyDirOf(config)
  const files = createEpochKeyFiles({ dir, makeDir: () => makeDataDir(dir, 'KEY_DIR'), secretKey })
  const { keys, destroyed } = await files.list()
  const here = new Set([...keys.map(({ id }) => id), ...destroyed])
  const lost = epoch_keys.filter((id) => !here.has(id))
  if (lost.length > 0)
    throw new ConfigError(
      `KEY_DIR: ${dir} lacks ${lost.length === 1 ? 'the key' : 'the keys'} ${lost.join(', ')}, under which profiles in this backup are sealed. ` +
        'Copy the KEY_DIR of the backed-up installation there; if it is lost, --keys-lost continues without the sealed data. Nothing was changed.',
    )
}
