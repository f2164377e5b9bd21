/**
 * Imports a data set of companies into the database: a file of millions of lines in constant memory, in batches that are
 * stored completely or not at all, and with the same result however often it runs.
 *
 * The row that a domain ends up with does not depend on the order of lines, files or concurrent imports:
 * every record has a place in one order (edition, preference, tie break), and the highest record wins.
 */
import { createReadStream } from 'node:fs'
import { stat } from 'node:fs/promises'
import type { Readable } from 'node:stream'
import { createGunzip } from 'node:zlib'
import type pg from 'pg'
import {
  type CompanyFormat,
  createCsvReader,
  createJsonLinesReader,
  createLineSplitter,
  type RecordFault,
  type RecordReader,
} from './import-lines.ts'
import { type CompanyRefusal, companyOf, fieldNameOf, isDomainField } from './record.ts'
import { createStaging, createWriter, type Written } from './staging.ts'

export type CompanyImportOptions = {
  readonly pool: pg.Pool
  /** Path of a file; `.gz` is unpacked on the way. */
  readonly file: string
  /** Default: by the file's name, `.jsonl`, `.ndjson`, `.json` or `.csv`. */
  readonly format?: CompanyFormat
  /** The name that answers give as the source, if a record names none. */
  readonly source: string
  /** The edition, an ISO 8601 instant in UTC: the date of the source's data, if a record does not state it. */
  readonly sourceUpdatedAt: string
  /** Called once per batch. */
  readonly onProgress?: (progress: CompanyImportProgress) => void
  /** Ends the import after the current batch. */
  readonly signal?: AbortSignal
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
  readonly interrupted: boolean
  readonly elapsedMs: number
}

type BadLine = {
  readonly line: number
  readonly reason: RecordFault | Exclude<CompanyRefusal, 'no_domain'>
}

export const badLinesMax = 100
const readChunkBytes = 256 * 1024

/**
 * Imports a file. Each batch is one transaction: committed batches stay even if the import fails, and importing the
 * file again completes it. Broken records are skipped and reported.
 *
 * Throws an Error that says what to do if the file cannot be read to its end, its name shows no known format, or the
 * database cannot be reached.
 */
export const importCompanies = async (options: CompanyImportOptions): Promise<CompanyImportReport> => {
  const { pool, file, signal, clock = Date } = options
  const format = options.format ?? formatOf(file)
  const bytesTotal = (await stat(file)).size
  const yearMax = new Date(clock.now()).getUTCFullYear()
  const tally = createTally()
  const startedAt = performance.now()
  const input = createReadStream(file, { highWaterMark: readChunkBytes })
  const client = await pool.connect()
  // The query under way fails too; without a listener a lost connection would end the process.
  const ignore = (): void => undefined
  client.on('error', ignore)
  let failed: unknown = null
  try {
    await client.query(createStaging)
    const writer = createWriter(client, ({ added, changed, rows }) => {
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
    await readRecords({ input, file, format, signal }, async (record) => {
      tally.read()
      if ('fault' in record) return tally.bad({ line: record.line, reason: record.fault })
      const company = companyOf(record.raw, defaults)
      if (!('refused' in company)) return writer.add(company)
      if (company.refused === 'no_domain') tally.noDomain()
      else tally.bad({ line: record.line, reason: company.refused })
    })
    await writer.end()
    return {
      ...tally.report(),
      interrupted: signal?.aborted === true,
      elapsedMs: Math.round(performance.now() - startedAt),
    }
  } catch (error) {
    failed = error
    throw error
  } finally {
    input.destroy()
    // A connection in the middle of a copy cannot be reused; closing it rolls the batch back.
    if (failed === null)
      await client.query('drop table if exists pg_temp.companies_staged').catch(() => undefined)
    client.off('error', ignore)
    client.release(failed !== null)
  }
}

const formatOf = (file: string): CompanyFormat => {
  const extension = /\.(jsonl|ndjson|json|csv)(?:\.gz)?$/i.exec(file)?.[1]?.toLowerCase()
  if (extension === undefined)
    throw new Error(`The name of ${file} tells no format. Say which it is: jsonl or csv.`)
  return extension === 'csv' ? 'csv' : 'jsonl'
}

type Source = {
  readonly input: Readable
  readonly file: string
  readonly format: CompanyFormat
  readonly signal: AbortSignal | undefined
}

type ReadRecord = ReturnType<RecordReader['push']>[number]

/** Hands over one record after the other; the next chunk is read when all records of the last chunk were taken. */
const readRecords = async (
  { input, file, format, signal }: Source,
  take: (record: ReadRecord) => void | Promise<void>,
): Promise<void> => {
  const splitter = createLineSplitter()
  const reader =
    format === 'csv'
      ? createCsvReader((fields) => fields.some((name) => isDomainField(fieldNameOf(name))))
      : createJsonLinesReader()
  const consume = async (chunks: AsyncIterable<Buffer>): Promise<void> => {
    for await (const chunk of chunks) {
      for (const line of splitter.push(chunk))
        for (const record of reader.push(line)) {
          const taken = take(record)
          // Awaiting an already finished step a million times would be most of the import's time.
          if (taken !== undefined) await taken
        }
      if (signal?.aborted) return
    }
    for (const line of splitter.end()) for (const record of reader.push(line)) await take(record)
    for (const record of reader.end()) await take(record)
  }
  if (!/\.gz$/i.test(file)) return consume(input as AsyncIterable<Buffer>)
  // Not `pipeline`: it reports a failure when the reader stops early.
  const unpacked = createGunzip({ chunkSize: readChunkBytes })
  input.on('error', (error) => unpacked.destroy(error))
  await consume(input.pipe(unpacked)).catch((error: unknown) => {
    if (!(error instanceof Error) || !('code' in error) || !String(error.code).startsWith('Z_')) throw error
    throw new Error(
      `${file} is damaged or cut off: ${error.message}. What came before is imported; get the file again and import it again.`,
      { cause: error },
    )
  })
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
