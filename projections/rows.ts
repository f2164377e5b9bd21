/**
 * The row changes that result from a fold, as plain objects. SQL is generated from them, with one statement for all rows of a change.
 */

/** The TypeScript type of a column's value, by its SQL type. Times and dates are ISO 8601 in UTC. */
type Held = {
  text: string
  uuid: string
  timestamptz: string
  date: string
  integer: number
  bigint: bigint | number
  numeric: bigint
  boolean: boolean
  json: object
  'text[]': readonly string[]
}
type SqlType = keyof Held

export type Table = {
  /** The name that readers use, which is a view of the live version. */
  readonly name: string
  /** The SQL type of each column, followed by `not null` and other constraints. */
  readonly columns: Readonly<Record<string, SqlType | `${SqlType} ${string}`>>
  readonly key: readonly string[]
  /** Statements that create indexes. In a rebuild, they run after the table is filled. `$table` is replaced by the table's name. */
  readonly indexes?: readonly string[]
}

type Value<Definition> = Definition extends SqlType
  ? Held[Definition] | null
  : Definition extends `${infer Type extends SqlType} not null${string}`
    ? Held[Type]
    : never

export type RowOf<T extends Table> = { readonly [Column in keyof T['columns']]: Value<T['columns'][Column]> }

/** New column values as SQL expressions: `t` is the existing row, and `excluded` is the row of the change. */
type NewValues<T extends Table> = { readonly [Column in keyof T['columns']]?: string }

/**
 * A change of many rows of a table. All rows have the same columns.
 *
 * `insert` adds rows with new keys. `upsert` adds rows, and sets the columns in `set` of existing rows. `update` sets the columns in
 * `set` of existing rows. `delete` deletes the rows that are equal in all given columns. `keep_newest` deletes rows whose column is more
 * than the interval in `set` below its greatest value.
 */
export type Change = {
  readonly kind: 'insert' | 'upsert' | 'update' | 'delete' | 'keep_newest'
  readonly table: Table
  readonly rows: readonly Readonly<Record<string, unknown>>[]
  readonly set: Readonly<Record<string, string>>
}

/** Adds rows. An existing row is an error. */
export const insert = <T extends Table>(table: T, rows: readonly RowOf<T>[]): Change => ({
  kind: 'insert',
  table,
  rows,
  set: {},
})

/** Adds rows. An existing row gets all values of the new row, except that the columns in `set` get those expressions. */
export const upsert = <T extends Table>(
  table: T,
  rows: readonly RowOf<T>[],
  set: NewValues<T> = {},
): Change => ({ kind: 'upsert', table, rows, set: { ...taken(table, Object.keys(rows[0] ?? {})), ...set } })

/** Adds rows. An existing row gets only the values in these columns. */
export const upsertOnly = <T extends Table>(
  table: T,
  rows: readonly RowOf<T>[],
  columns: readonly (keyof T['columns'] & string)[],
): Change => ({ kind: 'upsert', table, rows, set: taken(table, columns) })

/** Changes existing rows. They get all given values, except that the columns in `set` get those expressions. */
export const update = <T extends Table>(
  table: T,
  rows: readonly Partial<RowOf<T>>[],
  set: NewValues<T> = {},
): Change => ({ kind: 'update', table, rows, set: { ...taken(table, Object.keys(rows[0] ?? {})), ...set } })

/** Deletes the rows that have the given values in the given columns. */
export const remove = <T extends Table>(table: T, rows: readonly Partial<RowOf<T>>[]): Change => ({
  kind: 'delete',
  table,
  rows,
  set: {},
})

/** Deletes the rows whose `column` is more than `interval` below its greatest value. It must be the first column of the key. */
export const keepNewest = <T extends Table>(
  table: T,
  column: keyof T['columns'] & string,
  interval: string,
): Change => ({ kind: 'keep_newest', table, rows: [{}], set: { [column]: `interval '${interval}'` } })

const taken = ({ key }: Table, columns: readonly string[]): Record<string, string> =>
  Object.fromEntries(
    columns.filter((column) => !key.includes(column)).map((column) => [column, `excluded.${column}`]),
  )

/** The columns and the primary key of a table, for `create table`. */
export const definitionOf = ({ columns, key }: Table): string =>
  [
    ...Object.entries(columns).map(([column, definition]) => `${column} ${definition}`),
    `primary key (${key.join(', ')})`,
  ].join(', ')

/** The `copy` statement that adds new rows to the table `name`, and its input in PostgreSQL's text format. */
export const copyOf = (change: Change, name: string): { readonly sql: string; readonly text: string } => {
  const columns = columnsOf(change)
  let text = ''
  for (const row of change.rows) {
    let separator = ''
    for (const { column, write } of columns) {
      const value = row[column]
      // A value is undefined if an event has fewer members than its schema.
      text += value === null || value === undefined ? `${separator}\\N` : separator + escaped(write(value))
      separator = '\t'
    }
    text += '\n'
  }
  return { sql: `copy ${name} (${namesOf(columns)}) from stdin`, text }
}

/** The statement that makes a change in the table `name`, and its parameters: one list of strings for each column. */
export const statementOf = (
  change: Change,
  name: string,
): { readonly text: string; readonly values: readonly string[] } => {
  const columns = columnsOf(change)
  return {
    text: sqlOf(change, name, columns),
    values: columns.map(({ column, write }) =>
      arrayOf(
        change.rows.map(({ [column]: value }) =>
          value === null || value === undefined ? null : write(value),
        ),
      ),
    ),
  }
}

const sqlOf = ({ kind, table: { key }, set }: Change, name: string, columns: readonly Column[]): string => {
  const given = `select ${columns.map(({ column, type }) => `${column}::${type}`).join(', ')}
    from unnest(${columns.map((_, i) => `$${i + 1}::text[]`).join(', ')}) as u (${namesOf(columns)})`
  const sets = Object.entries(set).map(([column, value]) => `${column} = ${value}`)
  const same = (on: readonly string[]): string =>
    on.map((column) => `t.${column} = excluded.${column}`).join(' and ')
  switch (kind) {
    case 'insert':
      return `insert into ${name} (${namesOf(columns)}) ${given}`
    case 'upsert':
      return `insert into ${name} as t (${namesOf(columns)}) ${given} on conflict (${key.join(', ')}) do ${
        sets.length === 0 ? 'nothing' : `update set ${sets.join(', ')}`
      }`
    case 'update':
      return `update ${name} t set ${sets.join(', ')} from (${given}) excluded where ${same(key)}`
    case 'delete':
      return `delete from ${name} t using (${given}) excluded where ${same(columns.map(({ column }) => column))}`
    case 'keep_newest':
      // With only one bound of unknown value, PostgreSQL would expect to find a third of the rows, and read the whole table. With a
      // second bound, PostgreSQL uses the primary key.
      return Object.entries(set)
        .map(
          ([column, kept]) =>
            `delete from ${name} where ${column} >= (select min(${column}) from ${name})
                and ${column} < (select max(${column}) from ${name}) - ${kept}`,
        )
        .join(';')
  }
}

type Column = { readonly column: string; readonly type: string; readonly write: (value: unknown) => string }

const columnsOf = ({ table, rows: [first = {}] }: Change): Column[] =>
  Object.keys(first).map((column) => {
    const type = table.columns[column]?.split(' ')[0] ?? 'text'
    return { column, type, write: writers[type] ?? String }
  })

const namesOf = (columns: readonly Column[]): string => columns.map(({ column }) => column).join(', ')

/** Convert values to text, for the SQL types for which `String` is not enough. */
const writers: Readonly<Record<string, (value: unknown) => string>> = {
  json: (value) => JSON.stringify(value),
  'text[]': (value) => (Array.isArray(value) ? arrayOf(value.map(String)) : String(value)),
}

/** Converts an array to PostgreSQL's text format. node-postgres takes 50 % longer. */
const arrayOf = (texts: readonly (string | null)[]): string => {
  const quoted = texts.map((text) =>
    text === null ? 'NULL' : /["\\]/.test(text) ? `"${text.replace(/["\\]/g, '\\$&')}"` : `"${text}"`,
  )
  return `{${quoted.join(',')}}`
}

const escapes: Readonly<Record<string, string>> = { '\\': '\\\\', '\t': '\\t', '\n': '\\n', '\r': '\\r' }

/** Escapes the four characters that have a special meaning in COPY's text format. */
const escaped = (text: string): string =>
  /[\\\t\n\r]/.test(text) ? text.replace(/[\\\t\n\r]/g, (character) => escapes[character] ?? '') : text
