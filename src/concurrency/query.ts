import type pg from 'pg'

/** A read query, as in `projections/projection.ts`. */
type Query<Row> = { readonly text: string; readonly values: readonly unknown[]; readonly row?: Row }

export const rowsOf = async <Row extends pg.QueryResultRow>(
  database: Pick<pg.ClientBase, 'query'>,
  { text, values }: Query<Row>,
): Promise<Row[]> => (await database.query<Row>(text, [...values])).rows

/**
 * Like `rowsOf`, but each connection parses and plans the query only once. The plan is as old as the connection, which lasts a minute, so this is only
 * for queries that need an index for any number of rows.
 */
export const preparedRowsOf = async <Row extends pg.QueryResultRow>(
  database: Pick<pg.ClientBase, 'query'>,
  name: string,
  { text, values }: Query<Row>,
): Promise<Row[]> => (await database.query<Row>({ name, text, values: [...values] })).rows
