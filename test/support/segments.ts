/**
 * Changes to the event log in PostgreSQL that need the owner's rights: reading rows, changing an event, removing the end. A row
 * contains the events of one append, so these functions decode the row and write it again.
 */
import type pg from 'pg'
import type { NewEvent, RecordedEvent } from '../../src/event-log/port.ts'
import { openSegment, packSegment, type SegmentRow } from '../../src/event-log/postgres/segment.ts'

type Database = Pick<pg.Pool, 'query'> | Pick<pg.Client, 'query'>

const rowsWhere = async (database: Database, where: string, values: unknown[]): Promise<SegmentRow[]> => {
  const { rows } = await database.query<SegmentRow>(
    `select last_position, last_revision, count, bytes, ids, events, s.name as stream,
            round(extract(epoch from recorded_at) * 1000) as recorded
       from log_segments g left join log_streams s on s.id = g.stream_id where ${where} order by last_position`,
    values,
  )
  return rows
}

export const recordedEvents = async (database: Database): Promise<RecordedEvent[]> =>
  (await rowsWhere(database, 'true', [])).flatMap(openSegment)

/** Replaces the events of a row, and sets the row's last revision and position to those of the last event. */
const rewrite = async (
  database: Database,
  row: SegmentRow,
  events: readonly (NewEvent & Pick<RecordedEvent, 'position' | 'revision'>)[],
): Promise<void> => {
  const packed = packSegment(events)
  const last = events.at(-1)
  await database.query(
    `update log_segments set last_position = $2, last_revision = $3, count = $4, bytes = $5, ids = decode($6, 'hex'), events = $7
      where last_position = $1`,
    [
      row.last_position,
      last?.position.toString(),
      last?.revision,
      events.length,
      packed.bytes,
      packed.ids,
      packed.events,
    ],
  )
}

/** Changes one event in place. Throws if the event does not exist or its text does not change. */
export const changeEvent = async (
  database: Database,
  { stream, revision }: { readonly stream: string; readonly revision: number },
  change: (event: RecordedEvent) => Partial<NewEvent>,
): Promise<void> => {
  const [row] = await rowsWhere(
    database,
    's.name = $1 and last_revision >= $2 and last_revision - count < $2',
    [stream, revision],
  )
  const events = row === undefined ? [] : openSegment(row)
  const before = events.find((event) => event.revision === revision)
  if (row === undefined || before === undefined) throw new Error(`no revision ${revision} of ${stream}`)
  const after = { ...before, ...change(before) }
  if (asText(after) === asText(before)) throw new Error(`revision ${revision} of ${stream} did not change`)
  await rewrite(
    database,
    row,
    events.map((event) => (event === before ? after : event)),
  )
}

const asText = ({ id, type, data, metadata }: NewEvent): string => JSON.stringify([id, type, data, metadata])

/** Deletes everything after a position, so the log looks like a copy made at that time. Runs in the caller's transaction. */
export const cutLog = async (database: Database, position: bigint): Promise<void> => {
  const at = position.toString()
  for (const row of await rowsWhere(database, 'last_position > $1 and last_position - count < $1', [at]))
    await rewrite(
      database,
      row,
      openSegment(row).filter((event) => event.position <= position),
    )
  await database.query('delete from log_segments where last_position > $1', [at])
  await database.query(
    'delete from log_stream_marks s where not exists (select from log_segments g where g.stream_id = s.id)',
  )
  await database.query(
    `update log_stream_marks s set revision = least(revision, (select max(g.last_revision) from log_segments g where g.stream_id = s.id))`,
  )
  await database.query('update log_mark set position = least(position, $1)', [at])
}
