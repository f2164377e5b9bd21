import type pg from 'pg'
import type { Projection, Statement, TableName } from '../../projections/projection.ts'
import { textArray } from '../event-log/postgres/arrays.ts'

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

const separator = '\x1e'
const nothing = '\x1f'

/** No text of PostgreSQL holds U+0000. An event may, written under older rules; its row shows that something was there. */
const withoutNul = (text: string): string => (text.includes('\0') ? text.replaceAll('\0', '\u{fffd}') : text)

/** Runs set-based statements, one after the other. */
export const runStatements = async (
  client: pg.ClientBase,
  statements: readonly Statement[],
): Promise<void> => {
  for (const { text, columns } of statements) {
    const joined = joinColumns(columns)
    if (joined === null)
      await client.query(
        text,
        columns.map((column) => textArray(column.map((value) => value && withoutNul(value)))),
      )
    else await client.query(text.replaceAll(/\$(\d+)::text\[\]/g, splitParameter), joined)
  }
}

const splitParameter = (_cast: string, number: string): string =>
  `string_to_array($${number}, '${separator}', '${nothing}')`

/**
 * Each column as one text: putting an array together value by value costs several times more, here and there. Null
 * when the values do not allow it: one of the two separators in a text somebody wrote, or a single empty text.
 */
const joinColumns = (columns: Statement['columns']): string[] | null => {
  const texts: string[] = []
  for (const column of columns) {
    if (column.length === 1 && column[0] === '') return null
    const text = column.map((value) => value ?? nothing).join(separator)
    if (countOf(text, separator) !== column.length - 1) return null
    const nulls = text.includes(nothing) ? column.filter((value) => value === null).length : 0
    if (countOf(text, nothing) !== nulls) return null
    texts.push(withoutNul(text))
  }
  return texts
}

const countOf = (text: string, character: string): number => {
  let count = 0
  for (let at = text.indexOf(character); at !== -1; at = text.indexOf(character, at + 1)) count++
  return count
}

/**
 * Creates tables, views and a checkpoint at the log's beginning for every projection this database has not seen, and drops
 * what a rebuild that was killed left behind.
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

/** The lock a rebuild of the projection holds while it runs, as arguments of PostgreSQL's advisory locks. */
export const rebuildLock = ({ name }: Projection): string => `rebuild ${name}`

const dropLeftOver = async (client: pg.ClientBase, projection: Projection): Promise<void> => {
  const tables = projection.tables.map(({ name }) => nextTable(projection)(name))
  const { rows } = await client.query(
    'select from pg_tables where tablename = any ($1::text[]) and schemaname = any (current_schemas(false))',
    [tables],
  )
  if (rows.length === 0) return
  const lock = await client.query<{ idle: boolean }>(
    'select pg_try_advisory_xact_lock(hashtext($1)) as idle',
    [rebuildLock(projection)],
  )
  if (lock.rows[0]?.idle !== true) return
  for (const table of tables) await client.query(`drop table if exists ${table}`)
}
