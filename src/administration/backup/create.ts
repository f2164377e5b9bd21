import { createHash, randomUUID } from 'node:crypto'
import { access } from 'node:fs/promises'
import type { Readable } from 'node:stream'
import { promisify } from 'node:util'
import { constants, zstdCompress } from 'node:zlib'
import pg from 'pg'
import { to as copyTo } from 'pg-copy-streams'
import service from '../../../package.json' with { type: 'json' }
import { placeOf } from '../../event-log/port.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import { standingKeyIn } from '../../foundation/installation-key.ts'
import { InputFault } from '../input.ts'
import { recordOperation } from '../operator-events.ts'
import { type ArchiveWriter, createArchive } from './archive.ts'
import {
  chunkName,
  type Digests,
  digestsName,
  type Manifest,
  macOf,
  manifestFormat,
  manifestName,
} from './contents.ts'
import { keptTables, logTables } from './tables.ts'

const compress = promisify(zstdCompress)

/** The number of uncompressed bytes in one entry. */
const chunkBytes = 8 * 1024 * 1024
/** The fastest level, because most of a backup is the event log, which is already compressed. */
const level = 1

export type Asked = {
  /** The file must not exist yet. */
  readonly path: string
  readonly actor: string
  readonly onProgress: (progress: BackupProgress) => void
}

export type BackupProgress = {
  readonly table: string
  /** The number of bytes read from tables so far. The total is an estimate. */
  readonly readBytes: number
  readonly ofBytes: number
  readonly elapsedMs: number
}

export type MadeBackup = {
  readonly manifest: Manifest
  readonly bytes: number
  readonly sha256: string
  readonly rows: Readonly<Record<string, number>>
  readonly elapsedMs: number
}

type Snapshot = { readonly client: pg.Client; readonly manifest: Manifest; readonly ofBytes: number }

/**
 * Writes all data that cannot be derived from other data, as of one moment, to a backup file. The installation keeps running. The
 * file contains neither SECRET_KEY nor KEY_DIR. Throws `InputFault` if the path cannot be used.
 */
export const createBackup = async (
  foundation: Foundation,
  { path, actor, onProgress }: Asked,
): Promise<MadeBackup> => {
  await refuseTaken(path)
  const startedAt = performance.now()
  const snapshot = await openSnapshot(foundation)
  let archive: ArchiveWriter | undefined
  try {
    archive = await createArchive(path)
    const copied = await copyTables(archive, snapshot, (progress) =>
      onProgress({ ...progress, elapsedMs: performance.now() - startedAt }),
    )
    await archive.add(digestsName, jsonOf({ ...copied, mac: macOf(foundation.installationKey, copied) }))
    const { bytes, sha256 } = await archive.finish()
    const elapsedMs = performance.now() - startedAt
    const { manifest } = snapshot
    const data = { backup_id: manifest.backup_id, position: manifest.head.position, bytes, sha256 }
    await recordOperation(foundation.eventLog, { type: 'BackupCreated', data }, { actor })
    return { manifest, bytes, sha256, rows: copied.rows, elapsedMs }
  } catch (error) {
    await archive?.abandon()
    throw asInputFault(error, path)
  } finally {
    await snapshot.client.end()
  }
}

const jsonOf = (value: object): Buffer => Buffer.from(`${JSON.stringify(value, null, 1)}\n`)

export const refuseTaken = async (path: string): Promise<void> => {
  for (const taken of [path, `${path}.partial`])
    if (
      await access(taken).then(
        () => true,
        () => false,
      )
    )
      throw new InputFault(
        'file',
        taken === path
          ? `${path} already exists and is not overwritten: choose another file`
          : `${taken} exists: another backup is writing it, or was killed and did not remove it. If no backup is running, remove it`,
      )
}

/** Returns an `InputFault` if the disk or the directory cannot be written to, because the user can choose another path. */
const asInputFault = (error: unknown, path: string): unknown => {
  const code = error instanceof Error && 'code' in error ? String(error.code) : ''
  if (
    !['ENOSPC', 'EDQUOT', 'EACCES', 'EPERM', 'ENOENT', 'ENOTDIR', 'EROFS', 'EEXIST', 'EFBIG'].includes(code)
  )
    return error
  return new InputFault('file', `${path} cannot be written (${code}); nothing was left behind`)
}

/** Opens a snapshot of the whole database, as the role that owns the schema. */
const openSnapshot = async ({
  migrationUrl,
  eventLog,
  eventLogName,
}: Pick<Foundation, 'migrationUrl' | 'eventLog' | 'eventLogName'>): Promise<Snapshot> => {
  const client = new pg.Client({ connectionString: migrationUrl, application_name: 'backup' })
  client.on('error', () => undefined)
  await client.connect()
  try {
    await client.query('begin isolation level repeatable read read only')
    const holdsLog = eventLogName === 'PostgreSQL'
    // The end of a log in EventStoreDB is read before the rows. Every change that the rows may lack then comes after this position.
    const head = holdsLog ? await headIn(client) : await eventLog.head()
    const last = head === 0n ? null : await eventLog.at(head)
    const { rows } = await client.query<{ number: number; size: string }>(
      `select (select max(number) from schema_migrations) as number, sum(pg_table_size(to_regclass(t)))::text as size from unnest($1::text[]) t`,
      [tablesOf(holdsLog)],
    )
    const keys = await client.query<{ key_id: string }>(
      'select key_id from epoch_keys where destroyed_at is null order by key_id',
    )
    const manifest: Manifest = {
      format: manifestFormat,
      backup_id: randomUUID(),
      made_at: new Date().toISOString(),
      release: service.version,
      migration: rows[0]?.number ?? 0,
      event_log: eventLogName,
      holds_log: holdsLog,
      head: { position: head.toString(), digest: last === null ? null : placeOf(last).digest },
      installation_key: (await standingKeyIn(eventLog)).slots,
      epoch_keys: keys.rows.map(({ key_id }) => key_id),
      tables: await columnsOf(client, tablesOf(holdsLog)),
    }
    return { client, manifest, ofBytes: Number(rows[0]?.size ?? 0) }
  } catch (error) {
    await client.end()
    throw error
  }
}

const tablesOf = (holdsLog: boolean): string[] => [...(holdsLog ? logTables : []), ...keptTables]

const headIn = async (client: pg.Client): Promise<bigint> => {
  const { rows } = await client.query<{ position: string }>('select position from log_head')
  return BigInt(rows[0]?.position ?? 0)
}

const columnsOf = async (client: pg.Client, names: readonly string[]): Promise<Manifest['tables']> => {
  const { rows } = await client.query<{ name: string; columns: string[] }>(
    `select t as name, array_agg(attname::text order by attnum) as columns
       from unnest($1::text[]) with ordinality u (t, n), pg_attribute
      where attrelid = to_regclass(t) and attnum > 0 and not attisdropped and attgenerated = ''
      group by t, n order by n`,
    [names],
  )
  return rows
}

const copyTables = async (
  archive: ArchiveWriter,
  { client, manifest, ofBytes }: Snapshot,
  onProgress: (progress: Omit<BackupProgress, 'elapsedMs'>) => void,
): Promise<Omit<Digests, 'mac'>> => {
  const entries: { name: string; sha256: string }[] = []
  const rows: Record<string, number> = {}
  let readBytes = 0
  const add = async (name: string, bytes: Buffer): Promise<void> => {
    entries.push({ name, sha256: digestOf(bytes) })
    await archive.add(name, bytes)
  }
  await add(manifestName, jsonOf(manifest))
  for (const { name: table, columns } of manifest.tables) {
    const listed = columns.map((column) => client.escapeIdentifier(column)).join(', ')
    const copying = client.query(copyTo(`copy ${table} (${listed}) to stdout (format binary)`))
    let chunks = 0
    for await (const chunk of inChunks(copying)) {
      readBytes += chunk.length
      await add(
        chunkName(table, ++chunks),
        await compress(chunk, { params: { [constants.ZSTD_c_compressionLevel]: level } }),
      )
      onProgress({ table, readBytes, ofBytes })
    }
    rows[table] = copying.rowCount
  }
  return { entries, rows }
}

async function* inChunks(source: Readable): AsyncGenerator<Buffer> {
  let held: Buffer[] = []
  let bytes = 0
  for await (const piece of source as AsyncIterable<Buffer>) {
    held.push(piece)
    bytes += piece.length
    if (bytes < chunkBytes) continue
    yield Buffer.concat(held)
    held = []
    bytes = 0
  }
  if (bytes > 0) yield Buffer.concat(held)
}

const digestOf = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex')
