/**
 * A whole installation in one file: its tables, including those of projections, its keys and secret, the record of its use, and
 * its observed state. A release writes this file, and every later release must be able to run on it. The schema `pgboss` is not
 * included, because the queue's library creates and migrates its own tables.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import { pipeline } from 'node:stream/promises'
import { fileURLToPath } from 'node:url'
import { constants, zstdCompressSync, zstdDecompressSync } from 'node:zlib'
import pg from 'pg'
import { from as copyFrom, to as copyTo } from 'pg-copy-streams'
import { migrate } from '../../src/foundation/migrate.ts'
import type { Use } from '../support/used-installation.ts'

export const folder = fileURLToPath(new URL('.', import.meta.url))
const suffix = '.installation.zst'

type Rows = { readonly table: string; readonly columns: readonly string[]; readonly text: string }

export type KeptInstallation = {
  readonly release: string
  readonly migration: number
  /** The statements that create the schema `projections`: functions and tables, then constraints, indexes and views. */
  readonly before: readonly string[]
  readonly after: readonly string[]
  readonly rows: readonly Rows[]
  readonly secretKey: string
  readonly keys: Readonly<Record<string, string>>
  readonly use: Use
  readonly seen: object
}

export const releasesKept = (): string[] =>
  readdirSync(folder)
    .filter((name) => name.endsWith(suffix))
    .map((name) => name.slice(0, -suffix.length))
    .sort()

export const pathOf = (release: string): string => join(folder, `${release}${suffix}`)

export const backupPathOf = (release: string): string => join(folder, `${release}.backup.tar`)

export const readKept = (release: string): KeptInstallation =>
  JSON.parse(zstdDecompressSync(readFileSync(pathOf(release))).toString())

export const writeKept = (kept: KeptInstallation): Promise<void> =>
  writeFile(
    pathOf(kept.release),
    zstdCompressSync(JSON.stringify(kept), { params: { [constants.ZSTD_c_compressionLevel]: 19 } }),
  )

const connected = async <Value>(url: string, work: (client: pg.Client) => Promise<Value>): Promise<Value> => {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  try {
    // With this search path, names include their schema unless it is `public`.
    await client.query('set search_path = public')
    return await work(client)
  } finally {
    await client.end()
  }
}

const listOf = async (client: pg.Client, sql: string): Promise<string[]> =>
  (await client.query<{ one: string }>(sql)).rows.map(({ one }) => one)

const tablesSql = `select c.oid::regclass::text as one from pg_class c
  where c.relnamespace::regnamespace::text in ('public', 'projections') and c.relkind = 'r' order by 1`

const createSql = `
  select format('create table %s (%s)%s', c.oid::regclass,
           (select string_agg(format('%I %s%s%s%s', attname, format_type(atttypid, atttypmod),
                     case when attcollation <> 0 and attcollation <> (select typcollation from pg_type where oid = atttypid)
                          then ' collate ' || attcollation::regcollation else '' end,
                     coalesce(' default ' || (select pg_get_expr(adbin, adrelid) from pg_attrdef where adrelid = attrelid and adnum = attnum), ''),
                     case when attnotnull then ' not null' else '' end), ', ' order by attnum)
              from pg_attribute where attrelid = c.oid and attnum > 0 and not attisdropped),
           coalesce(' with (' || array_to_string(c.reloptions, ', ') || ')', '')) as one
    from pg_class c where c.relnamespace::regnamespace::text = 'projections' and c.relkind = 'r' order by c.oid`

const functionsSql = `
  select pg_get_functiondef(oid) as one from pg_proc where pronamespace::regnamespace::text = 'projections' order by oid`
const constraintsSql = `
  select format('alter table %s add constraint %I %s', conrelid::regclass, conname, pg_get_constraintdef(oid)) as one
    from pg_constraint where connamespace::regnamespace::text = 'projections' and contype <> 'n' order by contype = 'f', oid`
const indexesSql = `
  select pg_get_indexdef(indexrelid) as one from pg_index join pg_class c on c.oid = indexrelid
   where c.relnamespace::regnamespace::text = 'projections'
     and not exists (select from pg_constraint where conindid = indexrelid and contype in ('p', 'u', 'x')) order by indexrelid`
const viewsSql = `
  select format('create view %s as %s', c.oid::regclass, pg_get_viewdef(c.oid)) as one
    from pg_class c where c.relnamespace::regnamespace::text = 'projections' and c.relkind = 'v' order by c.oid`
/** Structures that this file cannot create again. */
const unknownSql = `
  select c.oid::regclass::text as one from pg_class c
   where c.relnamespace::regnamespace::text = 'projections' and c.relkind not in ('r', 'v', 'i', 't')
  union all select oid::text from pg_trigger where not tgisinternal and tgrelid in (select oid from pg_class where relnamespace::regnamespace::text = 'projections')`

/** Copies a database without connections. Throws if it contains something that `restoreKept` cannot create again. */
export const keep = (
  url: string,
  { keyDir, ...rest }: Pick<KeptInstallation, 'release' | 'secretKey' | 'use' | 'seen'> & { keyDir: string },
): Promise<KeptInstallation> =>
  connected(url, async (client) => {
    const unknown = await listOf(client, unknownSql)
    if (unknown.length > 0) throw new Error(`not known how to keep: ${unknown.join(', ')}`)
    const rows: Rows[] = []
    for (const table of await listOf(client, tablesSql)) {
      const columns = await listOf(
        client,
        `select quote_ident(attname) as one from pg_attribute where attrelid = '${table}'::regclass and attnum > 0 and not attisdropped order by attnum`,
      )
      const stream = client.query(copyTo(`copy ${table} (${columns.join(', ')}) to stdout`))
      rows.push({ table, columns, text: (await buffer(stream)).toString() })
    }
    const names = await readdir(keyDir)
    const keys = await Promise.all(
      names.map(async (name) => [name, await readFile(join(keyDir, name), 'base64')] as const),
    )
    const { rows: last } = await client.query<{ number: number }>(
      'select max(number) as number from schema_migrations',
    )
    return {
      ...rest,
      migration: last[0]?.number ?? 0,
      before: [...(await listOf(client, functionsSql)), ...(await listOf(client, createSql))],
      after: [
        ...(await listOf(client, constraintsSql)),
        ...(await listOf(client, indexesSql)),
        ...(await listOf(client, viewsSql)),
      ],
      rows,
      keys: Object.fromEntries(keys),
    }
  })

/**
 * Restores the file into an empty database and an empty directory, as the release left them. The migrations, which must not
 * have changed, create the tables, and the file provides the rest.
 */
export const restoreKept = async (
  kept: KeptInstallation,
  { url, keyDir }: { readonly url: string; readonly keyDir: string },
): Promise<void> => {
  await migrate({ url, upTo: kept.migration })
  await connected(url, async (client) => {
    await client.query('begin')
    for (const statement of kept.before) await client.query(statement)
    // The kept rows include those that migrations create.
    const ofPublic = kept.rows.filter(({ table }) => !table.startsWith('projections.'))
    await client.query(`truncate ${ofPublic.map(({ table }) => table).join(', ')}`)
    await client.query(`set session_replication_role = 'replica'`)
    for (const { table, columns, text } of kept.rows)
      await pipeline(
        Readable.from([Buffer.from(text)]),
        client.query(copyFrom(`copy ${table} (${columns.join(', ')}) from stdin`)),
      )
    await client.query(`set session_replication_role = 'origin'`)
    await client.query(`select setval(pg_get_serial_sequence($1, 'id'), (select max(id) from log_streams))`, [
      kept.migration < 14 ? 'log_streams' : 'log_stream_marks',
    ])
    for (const statement of kept.after) await client.query(statement)
    await client.query('commit')
  })
  await restoreKeys(kept, keyDir)
}

export const restoreKeys = async (kept: KeptInstallation, keyDir: string): Promise<void> => {
  await mkdir(keyDir, { recursive: true, mode: 0o700 })
  for (const [name, content] of Object.entries(kept.keys))
    await writeFile(join(keyDir, name), Buffer.from(content, 'base64'), { mode: 0o600 })
}
