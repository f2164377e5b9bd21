/**
 * Imports a data set of companies from a file with millions of lines, in constant memory.
 *
 * The result does not depend on the order of lines, files or concurrent imports, because the records about a domain have a total order
 * (edition, preference, tie break), and the highest record wins.
 */
import { createReadStream, type ReadStream } from 'node:fs'
import { stat } from 'node:fs/promises'
import { createGunzip } from 'node:zlib'
import type pg from 'pg'
import { jsonOf, linesOf } from '../../../call/data-lines.ts'
import { type CompanyRefusal, companyOf, type RankedCompany } from './record.ts'

export type CompanyImportOptions = {
  readonly pool: pg.Pool
  readonly file: string
  /** The source named in answers, unless a record names its own. */
  readonly source: string
  /** The date of the data as an ISO 8601 instant in UTC, unless a record states its own. */
  readonly sourceUpdatedAt: string
  readonly onProgress?: (progress: {
    readonly read: number
    readonly imported: number
    readonly percent: number
    readonly rowsPerSecond: number
  }) => void
  readonly clock?: { now(): number }
}

type CompanyImportReport = {
  /** Records, including broken ones. */
  readonly read: number
  readonly imported: number
  readonly added: number
  readonly changed: number
  /** Records that changed nothing, because an equal or higher record of the domain exists. */
  readonly unchanged: number
  readonly skippedNoDomain: number
  readonly bad: number
  readonly badByReason: Readonly<Record<string, number>>
  readonly badLines: readonly BadLine[]
  readonly elapsedMs: number
}

type BadLine = {
  readonly line: number
  readonly reason: 'line_too_long' | 'not_utf8' | 'not_json' | Exclude<CompanyRefusal, 'no_domain'>
}

export const badLinesMax = 100
const readChunkBytes = 256 * 1024
/** The longest known record has about 1 KiB. */
const recordBytesMax = 64 * 1024

/**
 * Imports a file. Broken records are skipped and reported. If the import fails, finished batches remain, and a repeated import completes the
 * rest.
 *
 * @throws Error with advice if the file is CSV or cannot be read to its end, or the database cannot be reached.
 */
export const importCompanies = async ({
  pool,
  file,
  source,
  sourceUpdatedAt,
  onProgress,
  clock = Date,
}: CompanyImportOptions): Promise<CompanyImportReport> => {
  if (/\.csv(\.gz)?$/i.test(file))
    throw new Error(
      `${file} is a CSV file, but companies are imported from JSON Lines. Use the JSON edition of the file.`,
    )
  const bytesTotal = (await stat(file)).size
  const defaults = { source, sourceUpdatedAt, yearMax: new Date(clock.now()).getUTCFullYear() }
  const totals = { read: 0, imported: 0, added: 0, changed: 0, skippedNoDomain: 0, bad: 0 }
  const badByReason: Record<string, number> = {}
  const badLines: BadLine[] = []
  const startedAt = performance.now()
  const input = createReadStream(file, { highWaterMark: readChunkBytes })
  const write = async (batch: readonly string[]): Promise<void> => {
    const { added, changed } = await mergeRows(pool, batch)
    totals.imported += batch.length
    totals.added += added
    totals.changed += changed
    const seconds = Math.max(0.001, (performance.now() - startedAt) / 1_000)
    onProgress?.({
      read: totals.read,
      imported: totals.imported,
      percent: bytesTotal === 0 ? 100 : Math.floor((input.bytesRead * 100) / bytesTotal),
      rowsPerSecond: Math.round(totals.read / seconds),
    })
  }
  let rows: string[] = []
  let characters = 0
  let writing = Promise.resolve()
  /** Writes a batch while the next one is read, so at most two are in memory. */
  const flush = async (): Promise<void> => {
    await writing
    writing = write(rows)
    // A failure is reported when `writing` is awaited.
    writing.catch(() => undefined)
    rows = []
    characters = 0
  }
  try {
    for await (const lines of linesOf(unpacked(input, file), recordBytesMax)) {
      for (const { number: line, bytes } of lines) {
        const read = bytes === null ? ({ fault: 'line_too_long' } as const) : jsonOf(bytes)
        if (read === undefined) continue
        totals.read++
        const company = 'fault' in read ? { refused: read.fault } : companyOf(read.value, defaults)
        if ('refused' in company) {
          const { refused: reason } = company
          if (reason === 'no_domain') {
            totals.skippedNoDomain++
            continue
          }
          totals.bad++
          badByReason[reason] = (badByReason[reason] ?? 0) + 1
          if (badLines.length < badLinesMax) badLines.push({ line, reason })
          continue
        }
        const row = rowOf(company)
        rows.push(row)
        characters += row.length
        if (rows.length >= batchRowsMax || characters >= batchCharactersMax) await flush()
      }
    }
    if (rows.length > 0) await flush()
    await writing
  } finally {
    input.destroy()
  }
  return {
    ...totals,
    unchanged: totals.imported - totals.added - totals.changed,
    badByReason,
    badLines,
    elapsedMs: Math.round(performance.now() - startedAt),
  }
}

async function* unpacked(input: ReadStream, file: string): AsyncGenerator<Buffer> {
  if (!/\.gz$/i.test(file)) return yield* input
  // Not `pipeline`, which reports an error when the reader stops early.
  const gunzip = createGunzip({ chunkSize: readChunkBytes })
  input.on('error', (error) => gunzip.destroy(error))
  try {
    yield* input.pipe(gunzip)
  } catch (error) {
    if (!(error instanceof Error) || !('code' in error) || !String(error.code).startsWith('Z_')) throw error
    throw new Error(
      `${file} is damaged or incomplete: ${error.message}. The lines before the fault were imported. Download the file again and repeat the import.`,
      { cause: error },
    )
  }
}

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
 * Stores the highest record of a batch for each domain, unless the stored record is at least as high. Rows are locked in the order of their
 * domains, so that concurrent imports cannot deadlock.
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

const mergeRows = async (
  pool: Pick<pg.Pool, 'query'>,
  rows: readonly string[],
): Promise<{ readonly added: number; readonly changed: number }> => {
  const merged = await pool.query<{ added: number; changed: number }>(merge, [`[${rows.join(',')}]`])
  return merged.rows[0] ?? { added: 0, changed: 0 }
}

const rowOf = ({ company: { location, ...company }, preference, tieBreak }: RankedCompany): string =>
  JSON.stringify({ ...company, ...location, preference, tie_break: tieBreak })
