import { createReadStream, createWriteStream } from 'node:fs'
import { stat } from 'node:fs/promises'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import pg from 'pg'
import { from as copyFrom, to as copyTo } from 'pg-copy-streams'
import { createCompanies } from '../../src/capabilities/email-validation/company/companies.ts'
import { importCompanies } from '../../src/capabilities/email-validation/company/import.ts'
import { randomOf } from './random.ts'
import { type BenchOptions, figureRow, median, type Row, ratioRow } from './row.ts'
import { withFoundation } from './store.ts'

/**
 * An import of companies, against COPY of the resulting rows into a table with the same key and
 * checks: the cost of reading, judging and merging. Then the lookup of a company that was not looked up before.
 */

const recordsOfFile = 100_000
const lookups = 5_000

export const companies = ({ rounds, begin, report }: BenchOptions): Promise<Row[]> =>
  withFoundation(async ({ foundation, store }) => {
    // Truncating, and the table that COPY fills, need the owner's rights.
    const pool = new pg.Pool({ connectionString: foundation.migrationUrl })
    const file = join(store.dataDir, 'companies.jsonl')
    await pipeline(Readable.from(records(recordsOfFile)), createWriteStream(file))
    const dump = join(store.dataDir, 'companies.copy')
    const figures = { first: [] as number[], again: [] as number[], copy: [] as number[] }
    begin()
    for (let round = 0; round < rounds; round++) {
      await pool.query('truncate companies')
      figures.first.push(await importsPerSecond(pool, file))
      figures.again.push(await importsPerSecond(pool, file))
      if (round === 0) await copyOut(pool, dump)
      figures.copy.push(await copiesPerSecond(pool, dump))
    }
    await pool.query('drop table if exists companies_copied')
    const { found, missing } = await lookupMs(foundation.pool)
    await pool.end()
    report(
      `companies: file of ${Math.round((await stat(file)).size / 1e6)} MB; imports ${figures.first.map(Math.round)}, ` +
        `again ${figures.again.map(Math.round)}, COPY ${figures.copy.map(Math.round)} rows/s`,
    )
    const ratio = median(figures.first.map((rate, i) => rate / (figures.copy[i] ?? Number.NaN)))
    return [
      ratioRow('import of companies, against COPY of the same rows', {
        measured: median(figures.first),
        against: median(figures.copy),
        ratio,
        unit: 'rows/s',
        bound: { least: 0.2 },
      }),
      figureRow('the same file again, nothing changes', median(figures.again), 'rows/s', null),
      figureRow('lookup of a company, p50, not remembered', found, 'ms', null),
      figureRow('lookup of a domain without one, p50', missing, 'ms', null),
    ]
  })

const records = function* (count: number): Generator<string> {
  const random = randomOf(11)
  const pick = <One>(list: readonly One[]): One | undefined => list[Math.floor(random() * list.length)]
  for (let i = 0; i < count; i++)
    yield `${JSON.stringify({
      id: `company-number-${i}`,
      name: `company number ${i}`,
      website: `www.company-number-${i}.${pick(['com', 'de', 'co.uk', 'at'])}`,
      founded: random() < 0.6 ? null : String(1950 + Math.floor(random() * 70)),
      size: pick(['1-10', '11-50', '51-200', '201-500', '10001+']),
      industry: pick(['information technology and services', 'construction', 'mining & metals']),
      locality: pick(['vienna', 'são paulo', 'new york', null]),
      region: pick(['vienna', 'são paulo', 'new york', null]),
      country: pick(['austria', 'brazil', 'united states', 'united kingdom', null]),
      linkedin_url: `linkedin.com/company/company-number-${i}`,
    })}\n`
}

const perSecond = (startedAt: number): number => (recordsOfFile * 1_000) / (performance.now() - startedAt)

const importsPerSecond = async (pool: pg.Pool, file: string): Promise<number> => {
  const startedAt = performance.now()
  const { imported } = await importCompanies({
    pool,
    file,
    source: 'bench',
    sourceUpdatedAt: '2026-10-01T00:00:00.000Z',
  })
  if (imported !== recordsOfFile) throw new Error(`${imported} records were imported`)
  return perSecond(startedAt)
}

const withClient = async (pool: pg.Pool, use: (client: pg.PoolClient) => Promise<void>): Promise<void> => {
  const client = await pool.connect()
  try {
    await use(client)
  } finally {
    client.release()
  }
}

const copyOut = (pool: pg.Pool, dump: string): Promise<void> =>
  withClient(pool, (client) =>
    pipeline(client.query(copyTo('copy companies to stdout')), createWriteStream(dump)),
  )

const copiesPerSecond = async (pool: pg.Pool, dump: string): Promise<number> => {
  await pool.query('drop table if exists companies_copied')
  await pool.query('create table companies_copied (like companies including all)')
  const startedAt = performance.now()
  await withClient(pool, (client) =>
    pipeline(createReadStream(dump), client.query(copyFrom('copy companies_copied from stdin'))),
  )
  return perSecond(startedAt)
}

/** One at a time, each domain once: nothing is cached. */
const lookupMs = async (pool: pg.Pool): Promise<{ found: number; missing: number }> => {
  const { rows } = await pool.query<{ domain: string }>(
    'select domain from companies order by md5(domain) limit $1',
    [lookups],
  )
  const { find } = createCompanies({ pool, homePages: null })
  const timed = async (domain: string): Promise<number> => {
    const startedAt = performance.now()
    await find(domain)
    return performance.now() - startedAt
  }
  const found: number[] = []
  const missing: number[] = []
  for (const [i, { domain }] of rows.entries()) {
    found.push(await timed(domain))
    missing.push(await timed(`nobody-${i}.com`))
  }
  return { found: median(found), missing: median(missing) }
}
