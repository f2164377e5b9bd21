/**
 * Imports a data set of companies into the database: a file of millions of lines in constant memory, in batches that are
 * stored completely or not at all, and with the same result however often it runs.
 *
 * The row that a domain ends up with does not depend on the order of lines, files or concurrent imports:
 * every record has a place in one order (edition, preference, tie break), and the highest record wins.
 */
import { createReadStream, type ReadStream } from 'node:fs'
import { stat } from 'node:fs/promises'
import { createGunzip } from 'node:zlib'
import type pg from 'pg'
import { jsonOf, linesOf } from '../../../call/data-lines.ts'
import { type CompanyRefusal, companyOf, type RankedCompany } from './record.ts'

export type CompanyImportOptions = {
  readonly pool: pg.Pool
  /** Path of a file of JSON lines; `.gz` is unpacked on the way. */
  readonly file: string
  /** The name that answers give as the source, if a record names none. */
  readonly source: string
  /** The edition, an ISO 8601 instant in UTC: the date of the source's data, if a record does not state it. */
  readonly sourceUpdatedAt: string
  /** Called once per batch. */
  readonly onProgress?: (progress: CompanyImportProgress) => void
  /** Milliseconds since the epoch. */
  readonly clock?: { now(): number }
}

type CompanyImportProgress = {
  readonly read: number
  readonly imported: number
  readonly bytes: number
  readonly bytesTotal: number
  readonly percent: number
  readonly rowsPerSecond: number
}

type CompanyImportReport = {
  /** Records, broken ones included. */
  readonly read: number
  /** Records that could answer for a domain. */
  readonly imported: number
  /** Domains that are new, and domains whose row changed. */
  readonly added: number
  readonly changed: number
  /** Records that changed nothing: another record of the domain, or the same one, has precedence. */
  readonly unchanged: number
  readonly skippedNoDomain: number
  readonly bad: number
  readonly badByReason: Readonly<Record<string, number>>
  /** The first ones, `badLinesMax` at most. */
  readonly badLines: readonly BadLine[]
  readonly elapsedMs: number
}

type BadLine = {
  readonly line: number
  readonly reason: 'line_too_long' | 'not_utf8' | 'not_json' | Exclude<CompanyRefusal, 'no_domain'>
}

export const badLinesMax = 100
const readChunkBytes = 256 * 1024
/** The longest record in circulation has about 1 KiB. */
const recordBytesMax = 64 * 1024

/**
 * Imports a file. Each batch is one statement: committed batches stay even if the import fails, and importing the
 * file again completes it. Broken records are skipped and reported.
 *
 * Throws an Error that says what to do if the file is CSV or cannot be read to its end, or the database cannot be reached.
 */
export const importCompanies = async (options: CompanyImportOptions): Promise<CompanyImportReport> => {
  const { pool, file, clock = Date } = options
  if (/\.csv(\.gz)?$/i.test(file))
    throw new Error(
      `${file} is CSV, and companies are imported from JSON lines: use that edition of the file.`,
    )
  const bytesTotal = (await stat(file)).size
  const yearMax = new Date(clock.now()).getUTCFullYear()
  const tally = createTally()
  const startedAt = performance.now()
  const input = createReadStream(file, { highWaterMark: readChunkBytes })
  try {
    const writer = createWriter(pool, ({ added, changed, rows }) => {
      tally.wrote({ added, changed, rows })
      const seconds = Math.max(0.001, (performance.now() - startedAt) / 1_000)
      options.onProgress?.({
        read: tally.report().read,
        imported: tally.report().imported,
        bytes: input.bytesRead,
        bytesTotal,
        percent: bytesTotal === 0 ? 100 : Math.floor((input.bytesRead * 100) / bytesTotal),
        rowsPerSecond: Math.round(tally.report().read / seconds),
      })
    })
    const defaults = { source: options.source, sourceUpdatedAt: options.sourceUpdatedAt, yearMax }
    for await (const lines of linesOf(unpacked(input, file), recordBytesMax)) {
      for (const { number: line, bytes } of lines) {
        const read = bytes === null ? ({ fault: 'line_too_long' } as const) : jsonOf(bytes)
        if (read === undefined) continue
        tally.read()
        const company = 'fault' in read ? { refused: read.fault } : companyOf(read.value, defaults)
        if ('refused' in company) {
          if (company.refused === 'no_domain') tally.noDomain()
          else tally.bad({ line, reason: company.refused })
          continue
        }
        const written = writer.add(company)
        // Awaiting an already finished step a million times would be most of the import's time.
        if (written !== undefined) await written
      }
    }
    await writer.end()
    return {
      ...tally.report(),
      elapsedMs: Math.round(performance.now() - startedAt),
    }
  } finally {
    input.destroy()
  }
}

/** The bytes of the file, unpacked if its name ends in `.gz`. */
async function* unpacked(input: ReadStream, file: string): AsyncGenerator<Buffer> {
  if (!/\.gz$/i.test(file)) return yield* input
  // Not `pipeline`: it reports a failure when the reader stops early.
  const gunzip = createGunzip({ chunkSize: readChunkBytes })
  input.on('error', (error) => gunzip.destroy(error))
  try {
    yield* input.pipe(gunzip)
  } catch (error) {
    if (!(error instanceof Error) || !('code' in error) || !String(error.code).startsWith('Z_')) throw error
    throw new Error(
      `${file} is damaged or cut off: ${error.message}. The lines before that are imported; get the file again and repeat the import.`,
      { cause: error },
    )
  }
}

const createTally = () => {
  let [read, imported, added, changed, skippedNoDomain, bad] = [0, 0, 0, 0, 0, 0]
  const badByReason: Record<string, number> = {}
  const badLines: BadLine[] = []
  return {
    read: (): void => {
      read++
    },
    noDomain: (): void => {
      skippedNoDomain++
    },
    bad: (line: BadLine): void => {
      bad++
      badByReason[line.reason] = (badByReason[line.reason] ?? 0) + 1
      if (badLines.length < badLinesMax) badLines.push(line)
    },
    wrote: (written: Written): void => {
      imported += written.rows
      added += written.added
      changed += written.changed
    },
    report: () => ({
      read,
      imported,
      added,
      changed,
      unchanged: imported - added - changed,
      skippedNoDomain,
      bad,
      badByReason,
      badLines,
    }),
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

type Written = { readonly rows: number; readonly added: number; readonly changed: number }

/** Collects a batch while the previous batch is being written. Holds two at most. */
const createWriter = (pool: Pick<pg.Pool, 'query'>, onWritten: (written: Written) => void) => {
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
