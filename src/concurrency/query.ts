import type pg from 'pg'

/** A read query, as in `projections/projection.ts`. */
type Query<Row> = { readonly text: string; readonly values: readonly unknown[]; readonly row?: Row }

export const rowsOf = async <Row extends pg.QueryResultRow>(
  database: Pick<pg.ClientBase, 'query'>,
  { text, values }: Query<Row>,
): Promise<Row[]> => (await database.query<Row>(text, [...values])).rows
