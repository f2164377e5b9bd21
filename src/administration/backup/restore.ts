import { once } from 'node:events'
import { finished } from 'node:stream/promises'
import { promisify } from 'node:util'
import { zstdDecompress } from 'node:zlib'
import pg from 'pg'
import { type CopyStreamQuery, from as copyFrom } from 'pg-copy-streams'
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
import {
  type InstallationMark,
  markSentences,
  readMark,
  removeMark,
  writeMark,
} from '../../foundation/installation-mark.ts'
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
import { ArchiveFault, entryBytesMax } from './archive.ts'
import { type CheckedBackup, checkBackup } from './check.ts'
import type { Manifest } from './contents.ts'
import { formerLogTables, keptTables, logTables, tablesOfPositions } from './tables.ts'

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
 * restore can be interrupted at any point and repeated. Derived data must be rebuilt before `removeMark`; until then the service
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
    if (copiesLog) await copyLog(config, { backup, client, database, closing, logger, onProgress })
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
    backup,
    client,
    database,
    closing,
    logger,
    onProgress,
  }: { backup: CheckedBackup; client: pg.Client; database: Database; closing: Closing } & Pick<
    Asked,
    'logger' | 'onProgress'
  >,
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
    truncate log_segments, ${streamTableOf(backup)} restart identity;
    revoke truncate on log_segments from current_user;
    update ${headTableOf(backup)} set position = 0;
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

const decompress = promisify(zstdDecompress)

type ReadAgain = (
  onRows: (table: string, chunk: Buffer, manifest: Manifest) => Promise<void>,
  accept: (manifest: Manifest) => void,
) => Promise<void>

/** Whether the tables of the log are those of `formerLogTables`. The schema is that of the release that made the backup. */
const isFormer = ({ manifest }: CheckedBackup): boolean => manifest.migration < 14
/** The table whose row an append locks. */
const headTableOf = (backup: CheckedBackup): string => (isFormer(backup) ? 'log_head' : 'log_mark')
const streamTableOf = (backup: CheckedBackup): string =>
  isFormer(backup) ? 'log_streams' : 'log_stream_marks'

/**
 * The tables whose rows are loaded. If the log is copied to another store, the tables that contain positions are left out, because
 * the copy has different positions.
 */
const loadedTables = (copiesLog: boolean): readonly string[] =>
  [...formerLogTables, ...logTables, ...keptTables].filter(
    (table) => !copiesLog || !tablesOfPositions.includes(table),
  )

/**
 * Marks the database so that the service does not start until the restore is complete. `elsewhere` names the target event log.
 * Throws `ConfigError`, without marking the database, if the database cannot accept this backup.
 */
const beginRestore = (
  client: pg.Client,
  backup: CheckedBackup,
  elsewhere: string,
): Promise<InstallationMark> =>
  inTransaction(client, async () => {
    await client.query(`lock table ${headTableOf(backup)} in access exclusive mode`)
    await refuseTarget(client, backup, elsewhere)
    const before = await readMark(client)
    if (before?.loaded === true) return before
    await writeMark(client, { backupId: backup.manifest.backup_id, state: 'arriving', elsewhere })
    const mark = await readMark(client)
    if (mark === null) throw new Error('the database did not store the mark')
    return mark
  })

/** Loads a checked backup in one transaction, and checks it again while reading. `client` belongs to the schema's owner. */
const loadRows = async (
  client: pg.Client,
  backup: CheckedBackup,
  { copiesLog, readAgain }: { readonly copiesLog: boolean; readonly readAgain: ReadAgain },
): Promise<void> => {
  await inTransaction(client, async () => {
    await client.query(`lock table ${headTableOf(backup)} in access exclusive mode`)
    // A concurrent restore has already loaded the rows.
    if ((await readMark(client))?.loaded === true) return
    await refuseUsed(client)
    if (backup.manifest.holds_log && isFormer(backup)) await client.query('delete from log_head')
    await loadAll(client, backup, loadedTables(copiesLog), readAgain)
    await settle(client, backup)
    await client.query('update installation_mark set loaded = true')
  })
  await client.query('analyze')
}

const inTransaction = async <Value>(client: pg.Client, work: () => Promise<Value>): Promise<Value> => {
  await client.query('begin')
  try {
    const value = await work()
    await client.query('commit')
    return value
  } catch (error) {
    await client.query('rollback').catch(() => undefined)
    throw error instanceof pg.DatabaseError && error.code === insufficientPrivilege
      ? new ConfigError(
          `DATABASE_MIGRATION_URL: only the role that owns the tables can restore a backup, and "${client.user}" does not own them: ${error.message}`,
          { cause: error },
        )
      : error
  }
}

/** Throws `ConfigError` if the installation is not empty, because a working installation is never overwritten. */
const refuseUsed = async (client: pg.Client): Promise<void> => {
  const used: string[] = []
  for (const table of [...logTables, ...keptTables]) {
    // The schema is that of the release that made the backup, so tables of newer releases do not exist yet.
    if (!(await tableExists(client, table))) continue
    const { rowCount } = await client.query(`select from ${table} limit 1`)
    if (rowCount !== 0) used.push(table)
  }
  if (used.length > 0)
    throw new ConfigError(
      `this installation is not empty (${used.slice(0, 3).join(', ')} ${used.length > 3 ? `and ${used.length - 3} more tables contain rows` : 'contain rows'}), and a restore does not overwrite anything. ` +
        'Use an empty DATA_DIR, or set DATABASE_URL to an empty database.',
    )
}

/** The number of the last migration; 0 if no migration has run. */
const migratedTo = async (client: pg.Client): Promise<number> => {
  if (!(await tableExists(client, 'schema_migrations'))) return 0
  const { rows } = await client.query<{ number: number | null }>(
    'select max(number) as number from schema_migrations',
  )
  return rows[0]?.number ?? 0
}

const tableExists = async (client: pg.Client, table: string): Promise<boolean> => {
  const { rows } = await client.query<{ there: boolean }>('select to_regclass($1) is not null as there', [
    table,
  ])
  return rows[0]?.there === true
}

/**
 * Throws `ConfigError` if a database that has not been migrated yet cannot accept this backup. A database in which a restore of the
 * same backup has begun can accept it. Writes nothing.
 */
const refuseTarget = async (client: pg.Client, backup: CheckedBackup, elsewhere: string): Promise<void> => {
  const { path, manifest } = backup
  const mark = (await tableExists(client, 'installation_mark')) ? await readMark(client) : null
  if (mark?.state === 'left') throw new ConfigError(markSentences(mark).join('. '))
  if (mark?.loaded === true) {
    if (mark.backupId !== manifest.backup_id)
      throw new ConfigError(
        'another backup is being restored here: continue with that backup, or use an empty DATA_DIR or database',
      )
    if (mark.elsewhere !== elsewhere)
      throw new ConfigError(
        `EVENT_LOG_URL: this restore began with the event log ${mark.elsewhere}, but the event log is now ${elsewhere}: set EVENT_LOG_URL back`,
      )
    return
  }
  await refuseUsed(client)
  // Rows of an earlier release are loaded into that release's tables and migrated afterwards.
  const here = await migratedTo(client)
  if (here > manifest.migration)
    throw new ConfigError(
      `${path} has the tables of migration ${manifest.migration}, but this database has those of ${here}: use an empty database that no release has used yet`,
    )
}

const insufficientPrivilege = '42501'

const loadAll = async (
  client: pg.Client,
  backup: CheckedBackup,
  loaded: readonly string[],
  readAgain: ReadAgain,
): Promise<void> => {
  let loading: Loading | null = null
  const end = async (): Promise<void> => {
    if (loading === null) return
    const count = await loading.end()
    if (count !== backup.rows[loading.table])
      throw new ArchiveFault(
        `${backup.path} is damaged: it contains ${count} rows of ${loading.table}, but should contain ${backup.rows[loading.table]}`,
      )
    loading = null
  }
  await readAgain(
    async (table, chunk, manifest) => {
      if (loading?.table !== table) {
        await end()
        if (!loaded.includes(table)) return
        const columns = manifest.tables.find(({ name }) => name === table)?.columns ?? []
        loading = await beginLoading(client, table, columns)
      }
      await loading?.write(await decompress(chunk, { maxOutputLength: entryBytesMax }))
    },
    ({ backup_id }) => {
      if (backup_id !== backup.manifest.backup_id)
        throw new ArchiveFault(`${backup.path} was replaced while it was being read`)
    },
  )
  await end()
}

type Loading = {
  readonly table: string
  write(rows: Buffer): Promise<void>
  /** Resolves with the number of rows. */
  end(): Promise<number>
}

const beginLoading = async (
  client: pg.Client,
  table: string,
  columns: readonly string[],
): Promise<Loading> => {
  const listed = columns.map((column) => client.escapeIdentifier(column)).join(', ')
  const copying: CopyStreamQuery = client.query(
    copyFrom(`copy ${table} (${listed}) from stdin (format binary)`),
  )
  const done = finished(copying)
  done.catch(() => undefined)
  return {
    table,
    write: async (rows) => {
      if (!copying.write(rows)) await Promise.race([once(copying, 'drain'), done])
    },
    end: async () => {
      copying.end()
      await done
      return copying.rowCount
    },
  }
}

/** Checks that the loaded event log has no gaps and ends at the position stated in the backup. */
const settle = async (client: pg.Client, backup: CheckedBackup): Promise<void> => {
  const { path, manifest } = backup
  if (!manifest.holds_log) return
  await client.query(
    `select setval(pg_get_serial_sequence($1, 'id'), coalesce((select max(id) from log_streams), 0) + 1, false)`,
    [streamTableOf(backup)],
  )
  const { rows } = await client.query<{ events: string; position: string; last: string }>(
    `select (select coalesce(sum(count), 0) from log_segments)::text as events,
            (select coalesce(max(last_position), 0) from log_segments)::text as last,
            (select position from log_head)::text as position`,
  )
  const { position } = manifest.head
  if (rows[0]?.events !== position || rows[0].last !== position || rows[0].position !== position)
    throw new ArchiveFault(
      `${path} contains ${rows[0]?.events} events up to position ${rows[0]?.last}, but should contain ${position}`,
    )
}
