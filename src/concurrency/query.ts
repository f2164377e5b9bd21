import type pg from 'pg'

/**
 * A query, as in `projections/projection.ts`. With a `name`, it is prepared, so that a connection parses and plans it only once. The plan is as
 * old as the connection, which lasts a minute, so only a query that always needs an index gets a name.
 */
type Query<Row> = {
  readonly name?: string
  readonly text: string
  readonly values: readonly unknown[]
  readonly row?: Row
}

export const rowsOf = async <Row extends pg.QueryResultRow>(
  database: Pick<pg.ClientBase, 'query'>,
  { name, text, values }: Query<Row>,
): Promise<Row[]> => (await database.query<Row>({ name, text, values: [...values] })).rows
