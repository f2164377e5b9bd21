import type pg from 'pg'
import type { RankedCompany } from './record.ts'

/** Batches of companies on their way into the database. */

const batchRowsMax = 5_000
const batchCharactersMax = 4 * 1024 * 1024

const columns = [
  'domain',
  'name',
  'legal_name',
  'website',
  'industry',
  'size_range',
  'employee_count',
  'founded_year',
  'locality',
  'region',
  'country',
  'country_code',
  'profnet_url',
  'logo_url',
  'source',
  'source_updated_at',
  'preference',
  'tie_break',
] as const

const columnList = columns.join(', ')

/**
 * Keeps the highest of a batch's records for each domain, unless the stored record is as high. Rows are locked in the order
 * of their domains, so concurrent imports wait for each other and cannot deadlock.
 */
const merge = `
  with merged as (
    insert into companies as c (${columnList})
    select distinct on (domain) ${columnList}
      from json_populate_recordset(null::companies, $1)
     order by domain, source_updated_at desc, preference desc, tie_break
    on conflict (domain) do update
       set (${columnList}) = row (${columns.map((name) => `excluded.${name}`).join(', ')})
     where (excluded.source_updated_at, excluded.preference) > (c.source_updated_at, c.preference)
        or ((excluded.source_updated_at, excluded.preference) = (c.source_updated_at, c.preference)
            and excluded.tie_break < c.tie_break)
    returning xmax = 0 as added
  )
  select count(*) filter (where added)::int as added, count(*) filter (where not added)::int as changed from merged`

export type Written = { readonly rows: number; readonly added: number; readonly changed: number }

/** Collects a batch while the previous batch is being written. Holds two at most. */
export const createWriter = (pool: Pick<pg.Pool, 'query'>, onWritten: (written: Written) => void) => {
  let rows: string[] = []
  let characters = 0
  let writing: Promise<void> = Promise.resolve()
  const flush = async (): Promise<void> => {
    await writing
    const batch = rows
    rows = []
    characters = 0
    if (batch.length === 0) return
    writing = writeBatch(pool, batch).then(onWritten)
    // The next caller that awaits it sees the failure.
    writing.catch(() => undefined)
  }
  return {
    /** Returns a promise only if the caller has to wait. */
    add: (company: RankedCompany): void | Promise<void> => {
      const row = rowOf(company)
      rows.push(row)
      characters += row.length
      if (rows.length >= batchRowsMax || characters >= batchCharactersMax) return flush()
    },
    end: async (): Promise<void> => {
      await flush()
      await writing
    },
  }
}

/** One statement, so a batch is stored completely or not at all. `rows`: as JSON texts. */
const writeBatch = async (pool: Pick<pg.Pool, 'query'>, rows: readonly string[]): Promise<Written> => {
  const merged = await pool.query<{ added: number; changed: number }>(merge, [`[${rows.join(',')}]`])
  const { added = 0, changed = 0 } = merged.rows[0] ?? {}
  return { rows: rows.length, added, changed }
}

const rowOf = ({ company: { location, ...company }, preference, tieBreak }: RankedCompany): string =>
  JSON.stringify({ ...company, ...location, preference, tie_break: tieBreak })
