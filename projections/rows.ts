/**
 * The changes of a fold, as data: plain objects for the rows of a table whose columns are declared once. From both, the
 * SQL that writes a whole batch is generated, one statement for all rows of a change.
 */

/** The value of a plain object for a column, by the column's SQL type. Instants and dates are ISO 8601 in UTC. */
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
  /** The name readers use: a view of the version that is live. */
  readonly name: string
  /** Each column's SQL type, and `not null` and other constraints after it. */
  readonly columns: Readonly<Record<string, SqlType | `${SqlType} ${string}`>>
  /** The columns of the primary key. */
  readonly key: readonly string[]
  /** Created after a rebuild has filled the table. `$table` is its name. */
  readonly indexes?: readonly string[]
}

type Value<Definition> = Definition extends SqlType
  ? Held[Definition] | null
  : Definition extends `${infer Type extends SqlType} not null${string}`
    ? Held[Type]
    : never

/** A whole row of a table. */
export type RowOf<T extends Table> = { readonly [Column in keyof T['columns']]: Value<T['columns'][Column]> }

/** New values of columns as SQL: `t` is the existing row, `excluded` the row of the change. */
type NewValues<T extends Table> = { readonly [Column in keyof T['columns']]?: string }

/**
 * One set-based change of a table. All rows have the same columns.
 *
 * `insert`: no row has the key of an existing one. `upsert`: an existing row takes the values of `set`.
 * `update`: the rows with these keys take the values of `set`. `delete`: the rows that are equal in all given columns are deleted.
 * `keep_newest`: the rows whose column is further before its greatest value than the interval in `set` are deleted.
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

/** Adds rows; an existing row takes every value of the new one, except those in `set`. */
export const upsert = <T extends Table>(
  table: T,
  rows: readonly RowOf<T>[],
  set: NewValues<T> = {},
): Change => ({ kind: 'upsert', table, rows, set: { ...taken(table, Object.keys(rows[0] ?? {})), ...set } })

/** Adds rows; an existing row takes the values of these columns only. */
export const upsertOnly = <T extends Table>(
  table: T,
  rows: readonly RowOf<T>[],
  columns: readonly (keyof T['columns'] & string)[],
): Change => ({ kind: 'upsert', table, rows, set: taken(table, columns) })

/** Changes existing rows: they take every given value except the key and those in `set`. */
export const update = <T extends Table>(
  table: T,
  rows: readonly Partial<RowOf<T>>[],
  set: NewValues<T> = {},
): Change => ({ kind: 'update', table, rows, set: { ...taken(table, Object.keys(rows[0] ?? {})), ...set } })

/** Removes the rows that are equal in the given columns. */
export const remove = <T extends Table>(table: T, rows: readonly Partial<RowOf<T>>[]): Change => ({
  kind: 'delete',
  table,
  rows,
  set: {},
})

/** Removes the rows whose `column`, the first of the key, is further before its greatest value than `interval`. */
export const keepNewest = <T extends Table>(
  table: T,
  column: keyof T['columns'] & string,
  interval: string,
): Change => ({ kind: 'keep_newest', table, rows: [{}], set: { [column]: `interval '${interval}'` } })

const taken = ({ key }: Table, columns: readonly string[]): Record<string, string> =>
  Object.fromEntries(
    columns.filter((column) => !key.includes(column)).map((column) => [column, `excluded.${column}`]),
  )

/** The table's columns and primary key, as `create table` has them. */
export const definitionOf = ({ columns, key }: Table): string =>
  [
    ...Object.entries(columns).map(([column, definition]) => `${column} ${definition}`),
    `primary key (${key.join(', ')})`,
  ].join(', ')

/** The `copy` statement that fills `name` with new rows, and its input in PostgreSQL's text format. */
export const copyOf = (change: Change, name: string): { readonly sql: string; readonly text: string } => {
  const columns = columnsOf(change)
  let text = ''
  for (const row of change.rows) {
    let separator = ''
    for (const { column, write } of columns) {
      const value = row[column]
      // An event with fewer members than its schema leaves members undefined.
      text += value === null || value === undefined ? `${separator}\\N` : separator + escaped(write(value))
      separator = '\t'
    }
    text += '\n'
  }
  return { sql: `copy ${name} (${namesOf(columns)}) from stdin`, text }
}

/** Any change of `name` as a statement with its parameters: a list of texts for each column of its rows. */
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
      // PostgreSQL expects one bound that it does not know to hold for a third of the rows, and reads the whole table. With two
      // bounds it uses the key.
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

/** How values are written as PostgreSQL text where `String` is not enough. */
const writers: Readonly<Record<string, (value: unknown) => string>> = {
  json: (value) => JSON.stringify(value),
  'text[]': (value) => (Array.isArray(value) ? arrayOf(value.map(String)) : String(value)),
}

/** The text form of a PostgreSQL array. node-postgres takes half as long again to write it. */
const arrayOf = (texts: readonly (string | null)[]): string => {
  const quoted = texts.map((text) =>
    text === null ? 'NULL' : /["\\]/.test(text) ? `"${text.replace(/["\\]/g, '\\$&')}"` : `"${text}"`,
  )
  return `{${quoted.join(',')}}`
}

const escapes: Readonly<Record<string, string>> = { '\\': '\\\\', '\t': '\\t', '\n': '\\n', '\r': '\\r' }

/** A value of COPY's text format, in which these four characters mean something. */
const escaped = (text: string): string =>
  /[\\\t\n\r]/.test(text) ? text.replace(/[\\\t\n\r]/g, (character) => escapes[character] ?? '') : text
