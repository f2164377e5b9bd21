import { pipeline } from 'node:stream/promises'
import type pg from 'pg'
import { from as copyFrom, to as copyTo } from 'pg-copy-streams'
import { keptTables } from '../backup/tables.ts'

/**
 * They tell of positions, which are others in another event log. The log is read from its beginning for webhooks, and a message
 * that was told is known by its id; events that cannot be folded are set aside again.
 */
const ofOneLog: readonly string[] = ['webhook_progress', 'webhook_balances', 'parked_events']

/** Rows copied of each table. */
export type CopiedRows = Readonly<Record<string, number>>

/**
 * Copies every row of the tables that the event log does not hold, in one transaction of each database: what is read is of one instant,
 * and what is written is all of it or nothing. `alsoDone` runs in the transaction that writes.
 */
export const copyRows = async (
  { from, to }: { readonly from: pg.PoolClient; readonly to: pg.PoolClient },
  {
    sameLog,
    onTable,
    alsoDone,
  }: {
    /** The event log stays what it is, so that positions in it do. */
    readonly sameLog: boolean
    readonly onTable: (table: string) => void
    readonly alsoDone: (to: pg.PoolClient) => Promise<void>
  },
): Promise<CopiedRows> => {
  const copied: Record<string, number> = {}
  await from.query('begin isolation level repeatable read read only')
  await to.query('begin')
  try {
    for (const table of keptTables.filter((one) => sameLog || !ofOneLog.includes(one))) {
      onTable(table)
      copied[table] = await copyTable({ from, to }, table)
    }
    await alsoDone(to)
    await to.query('commit')
    return copied
  } catch (error) {
    await to.query('rollback').catch(() => undefined)
    throw error
  } finally {
    await from.query('rollback').catch(() => undefined)
  }
}

/** By name, for the same columns may stand in another order. Throws where the counts differ. */
const copyTable = async (
  { from, to }: { readonly from: pg.PoolClient; readonly to: pg.PoolClient },
  table: string,
): Promise<number> => {
  const { rows } = await from.query<{ name: string }>(
    `select attname as name from pg_attribute
      where attrelid = $1::regclass and attnum > 0 and not attisdropped and attgenerated = '' order by attnum`,
    [table],
  )
  const columns = rows.map(({ name }) => from.escapeIdentifier(name)).join(', ')
  const read = from.query(copyTo(`copy ${table} (${columns}) to stdout (format binary)`))
  const written = to.query(copyFrom(`copy ${table} (${columns}) from stdin (format binary)`))
  await pipeline(read, written)
  const { rowCount } = written
  if (read.rowCount !== rowCount)
    throw new Error(`${table}: ${read.rowCount} rows were read and ${rowCount} written; nothing was kept`)
  return rowCount
}

/** The first of the copied tables that is not empty; null: all are. */
export const firstFilled = async (pool: Pick<pg.Pool, 'query'>): Promise<string | null> => {
  for (const table of keptTables)
    if ((await pool.query(`select from ${table} limit 1`)).rowCount !== 0) return table
  return null
}
