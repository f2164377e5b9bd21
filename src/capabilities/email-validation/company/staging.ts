import { pipeline } from 'node:stream/promises'
import type pg from 'pg'
import { from as copyFrom } from 'pg-copy-streams'
import type { RankedCompany } from './record.ts'

/** Batches of companies on their way into the database: copied into a table of the connection, then merged. */

const batchRowsMax = 5_000
const batchCharactersMax = 4 * 1024 * 1024

/** The columns in the order they are copied in. */
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
 * Empties itself at each commit, so that no batch sees another's rows. `like` copies no constraints except not null:
 * the merge checks them.
 */
export const createStaging =
  'create temp table if not exists companies_staged (like companies) on commit delete rows'
const copyIntoStaging = `copy pg_temp.companies_staged (${columnList}) from stdin`

/**
 * Keeps the highest of a batch's records for each domain, unless the stored record is as high. Rows are locked in the order
 * of their domains, so concurrent imports wait for each other and cannot deadlock.
 */
const mergeStaging = `
  with merged as (
    insert into companies as c (${columnList})
    select distinct on (domain) ${columnList}
      from pg_temp.companies_staged
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
export const createWriter = (client: pg.PoolClient, onWritten: (written: Written) => void) => {
  let rows: string[] = []
  let characters = 0
  let writing: Promise<void> = Promise.resolve()
  const flush = async (): Promise<void> => {
    await writing
    const batch = rows
    rows = []
    characters = 0
    if (batch.length === 0) return
    writing = writeBatch(client, batch).then(onWritten)
    // The next caller that awaits it sees the failure.
    writing.catch(() => undefined)
  }
  return {
    /** Returns a promise only if the caller has to wait. */
    add: (company: RankedCompany): void | Promise<void> => {
      const row = copyRowOf(company)
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

const writeBatch = async (client: pg.PoolClient, rows: readonly string[]): Promise<Written> => {
  await client.query('begin')
  const copy = client.query(copyFrom(copyIntoStaging))
  await pipeline([Buffer.from(rows.join(''))], copy)
  const merged = await client.query<{ added: number; changed: number }>(mergeStaging)
  await client.query('commit')
  const { added = 0, changed = 0 } = merged.rows[0] ?? {}
  return { rows: rows.length, added, changed }
}

/** A row of COPY's text format. */
const copyRowOf = ({ company, preference, tieBreak }: RankedCompany): string => {
  const { location } = company
  const values = [
    company.domain,
    company.name,
    company.legal_name,
    company.website,
    company.industry,
    company.size_range,
    company.employee_count,
    company.founded_year,
    location.locality,
    location.region,
    location.country,
    location.country_code,
    company.profnet_url,
    company.logo_url,
    company.source,
    company.source_updated_at,
    preference,
    tieBreak,
  ]
  return `${values.map(copyValue).join('\t')}\n`
}

const copyEscapes: Readonly<Record<string, string>> = { '\\': '\\\\', '\t': '\\t', '\n': '\\n', '\r': '\\r' }

const copyValue = (value: string | number | null): string | number => {
  if (value === null) return '\\N'
  if (typeof value === 'number' || !/[\\\t\n\r]/.test(value)) return value
  return value.replaceAll(/[\\\t\n\r]/g, (one) => copyEscapes[one] ?? one)
}
