import type pg from 'pg'
import type { Projection, Statement, TableName } from '../../projections/projection.ts'
import { textArray } from '../event-log/postgres-arrays.ts'

/**
 * Physical tables of projections: `<name>_v<version>` is live, `<name>_v<version>_next` is being rebuilt, and the
 * view `<name>` is what readers use.
 */

export const liveTable =
  ({ version }: Projection): TableName =>
  (name) =>
    `${name}_v${version}`

export const nextTable =
  (projection: Projection): TableName =>
  (name) =>
    `${liveTable(projection)(name)}_next`

export const createTables = async (
  client: pg.ClientBase,
  projection: Projection,
  table: TableName,
): Promise<void> => {
  for (const { name, columns } of projection.tables) {
    await client.query(`drop table if exists ${table(name)}`)
    await client.query(`create table ${table(name)} (${columns})`)
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

/** Points the reading names at the live tables. */
export const createViews = async (client: pg.ClientBase, projection: Projection): Promise<void> => {
  for (const { name } of projection.tables) {
    await client.query(`drop view if exists ${name}`)
    await client.query(`create view ${name} as select * from ${liveTable(projection)(name)}`)
  }
}

export const runStatements = async (
  client: pg.ClientBase,
  statements: readonly Statement[],
): Promise<void> => {
  for (const { text, columns } of statements) await client.query(text, columns.map(textArray))
}

/**
 * Creates tables, views and a checkpoint at the log's beginning for every projection this database has not seen.
 * Safe to run from several processes at once. Raised versions are the projector's business: they are built beside.
 */
export const prepareProjections = async (
  client: pg.ClientBase,
  projections: readonly Projection[],
): Promise<void> => {
  await client.query('begin')
  try {
    await client.query(`select pg_advisory_xact_lock(hashtext('prepare_projections'))`)
    const { rows } = await client.query<{ name: string }>('select name from projection_checkpoints')
    const known = new Set(rows.map(({ name }) => name))
    for (const projection of projections) {
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
