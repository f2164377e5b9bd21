import { finished } from 'node:stream/promises'
import type pg from 'pg'
import { from as copyFrom } from 'pg-copy-streams'
import type { Projection, TableName } from '../../projections/projection.ts'
import { type Change, copyOf, definitionOf, statementOf } from '../../projections/rows.ts'
import { begin } from '../concurrency/transaction.ts'

/**
 * The tables of a projection: `<name>_v<version>` is live, `<name>_v<version>_next` is being rebuilt, and `…_verify` is
 * used for a comparison. Readers use the view `<name>`.
 */

export const liveTable =
  ({ version }: Pick<Projection, 'version'>): TableName =>
  (name) =>
    `${name}_v${version}`

export const nextTable =
  (projection: Projection): TableName =>
  (name) =>
    `${liveTable(projection)(name)}_next`

export const verifyTable =
  (projection: Projection): TableName =>
  (name) =>
    `${liveTable(projection)(name)}_verify`

export const createTables = async (
  client: pg.ClientBase,
  projection: Projection,
  table: TableName,
): Promise<void> => {
  for (const described of projection.tables) {
    const name = table(described.name)
    await client.query(`drop table if exists ${name}`)
    await client.query(`create table ${name} (${definitionOf(described)})`)
  }
}

export const createIndexes = async (
  client: pg.ClientBase,
  projection: Projection,
  table: TableName,
): Promise<void> => {
  for (const { name, indexes = [] } of projection.tables)
    for (const index of indexes) await client.query(index.replaceAll('$table', table(name)))
}

export const dropTables = async (
  client: pg.ClientBase,
  { tables }: Pick<Projection, 'tables'>,
  table: TableName,
): Promise<void> => {
  for (const { name } of tables) await client.query(`drop table if exists ${table(name)}`)
}

export const renameTables = async (
  client: pg.ClientBase,
  { tables }: Pick<Projection, 'tables'>,
  { from, to }: { readonly from: TableName; readonly to: TableName },
): Promise<void> => {
  for (const { name } of tables)
    await client.query(`alter table if exists ${from(name)} rename to ${to(name)}`)
}

/** Creates the views of the live tables, in the caller's transaction. */
export const createViews = async (client: pg.ClientBase, projection: Projection): Promise<void> => {
  for (const { name } of projection.tables) {
    await client.query(`drop view if exists ${name}`)
    await client.query(`create view ${name} as select * from ${liveTable(projection)(name)}`)
  }
  for (const statement of projection.readers?.(liveTable(projection)) ?? []) await client.query(statement)
}

/** Writes changes in order, in the caller's transaction. New rows are written with COPY, which takes half as long as INSERT. */
export const writeChanges = async (
  client: pg.ClientBase,
  changes: readonly Change[],
  table: TableName,
): Promise<void> => {
  for (const change of changes) {
    if (change.rows.length === 0) continue
    const name = table(change.table.name)
    if (change.kind === 'insert') {
      const { sql, text } = copyOf(change, name)
      await finished(client.query(copyFrom(sql)).end(text))
    } else {
      const { text, values } = statementOf(change, name)
      await client.query(text, [...values])
    }
  }
}

/**
 * Creates the tables, views and checkpoint of every projection that is new in this database, and drops tables that old rebuilds have left. Several
 * processes can do this at the same time. New versions of existing projections are built by the projector.
 */
export const prepareProjections = async (
  client: pg.ClientBase,
  projections: readonly Projection[],
): Promise<void> => {
  await client.query(begin)
  try {
    await client.query(`select pg_advisory_xact_lock(hashtext('prepare_projections'))`)
    const { rows } = await client.query<{ name: string }>('select name from projection_checkpoints')
    const known = new Set(rows.map(({ name }) => name))
    for (const projection of projections) {
      await dropLeftOver(client, projection)
      if (known.has(projection.name)) continue
      await createTables(client, projection, liveTable(projection))
      await createIndexes(client, projection, liveTable(projection))
      await createViews(client, projection)
      await client.query('insert into projection_checkpoints (name, version, position) values ($1, $2, 0)', [
        projection.name,
        projection.version,
      ])
    }
    await client.query('commit')
  } catch (error) {
    await client.query('rollback')
    throw error
  }
}

/** The name of the advisory lock that a rebuild holds. */
export const rebuildLock = ({ name }: Pick<Projection, 'name'>): string => `rebuild ${name}`

/** How long the tables of a killed rebuild are kept, so that the next rebuild can continue. */
const leftOverDays = 7

const dropLeftOver = async (client: pg.ClientBase, projection: Projection): Promise<void> => {
  const tables = projection.tables.flatMap(({ name }) => [
    nextTable(projection)(name),
    verifyTable(projection)(name),
  ])
  const { rows } = await client.query<{ tablename: string; wanted: boolean }>(
    `select tablename, tablename like '%\\_next' and exists (select from projection_builds
             where name = $2 and version = $3 and updated_at > now() - $4 * interval '1 d') as wanted
       from unnest($1::text[]) as tablename where to_regclass(tablename) is not null`,
    [tables, projection.name, projection.version, leftOverDays],
  )
  const unwanted = rows.filter(({ wanted }) => !wanted)
  if (unwanted.length === 0) return
  const lock = await client.query<{ idle: boolean }>(
    'select pg_try_advisory_xact_lock(hashtext($1)) as idle',
    [rebuildLock(projection)],
  )
  if (lock.rows[0]?.idle !== true) return
  for (const { tablename } of unwanted) await client.query(`drop table if exists ${tablename}`)
}
