/** The service's role can only append to the event log, even if the service is compromised. */
import pg from 'pg'
import { expect } from 'vitest'

const append = 'append_events(text[], bigint[], integer[], integer[], integer[], bytea, bytea, bigint, bytea)'

export const asking = async <T>(url: string, ask: (client: pg.Client) => Promise<T>): Promise<T> => {
  const client = new pg.Client({ connectionString: url })
  client.on('error', () => undefined)
  await client.connect()
  try {
    return await ask(client)
  } finally {
    await client.end()
  }
}

/** Statements that PostgreSQL must refuse to execute for the service's role, each with the expected error. */
const refused: readonly (readonly [string, RegExp])[] = [
  ['update log_segments set events = events', /permission denied for table log_segments/],
  ['delete from log_segments', /permission denied for table log_segments/],
  ['truncate log_segments', /permission denied for table log_segments/],
  [`insert into log_segments select * from log_segments`, /permission denied for table log_segments/],
  ['update log_stream_marks set revision = revision - 1', /permission denied for table log_stream_marks/],
  ['delete from log_stream_marks', /permission denied for table log_stream_marks/],
  ['update log_mark set position = 0', /permission denied for table log_mark/],
  ['select from log_mark for update', /permission denied for table log_mark/],
  [`update log_streams set name = 'x'`, /permission denied for view log_streams/],
  ['delete from log_streams', /permission denied for view log_streams/],
  ['delete from schema_migrations', /permission denied for table schema_migrations/],
  ['alter table log_segments disable trigger all', /must be owner of table log_segments/],
  ['drop table log_segments', /must be owner of table log_segments/],
  ['set role pg_write_all_data', /permission denied to set role/],
  [`alter function ${append} security invoker`, /must be owner of function append_events/],
  ['drop table users', /must be owner of table users/],
  ['create table public.mine (a int)', /permission denied for schema public/],
  ['create schema mine', /permission denied for database/],
]

export const expectAppendOnly = async (service: string): Promise<void> => {
  await asking(service, async (client) => {
    for (const [statement, reason] of refused)
      await expect(client.query(statement), statement).rejects.toThrow(reason)
    // A function that runs with the log owner's rights must not write to a temporary table that hides `log_mark`.
    await client.query('create temp table log_mark (one boolean, position bigint, noted_at timestamptz)')
    await client.query('create table projections.log_stream_marks (id integer, name text, revision bigint)')
    const { rows } = await client.query(
      `select (append_events(array['operator-x'], array[-1]::bigint[], array[1], array[12], array[12], $1, $2, null, null))[:1] as results`,
      [Buffer.from('00000000000040008000000000000001', 'hex'), Buffer.from('Tested\x1e{}\x1e{}')],
    )
    expect(rows).toEqual([{ results: ['0'] }])
    expect(
      (await client.query(`select from public.log_stream_marks where name = 'operator-x'`)).rowCount,
    ).toBe(1)
    await client.query('drop table projections.log_stream_marks')
  })
}
