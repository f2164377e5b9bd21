import { createWriteStream } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import type { Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { gzipSync } from 'node:zlib'
import pg from 'pg'
import { afterAll, beforeEach, describe, expect, test } from 'vitest'
import { readCompany } from '../../src/capabilities/email-validation/company/companies.ts'
import {
  badLinesMax,
  type CompanyImportOptions,
  importCompanies,
} from '../../src/capabilities/email-validation/company/import.ts'
import { exhaustive } from '../support/exhaustive.ts'
import { databaseForFile } from '../support/postgres.ts'

/** Imports of data sets: broken files are refused, and the order of the lines does not matter. */

const database = await databaseForFile()
const { pool } = database
const folder = await mkdtemp(join(tmpdir(), 'companies-'))
afterAll(async () => {
  await rm(folder, { recursive: true, force: true })
})
beforeEach(() => pool.query('truncate companies'))

const edition = '2026-10-01T00:00:00.000Z'
let files = 0
const fileOf = async (content: string | Buffer, extension = '.jsonl'): Promise<string> => {
  const path = join(folder, `${files++}${extension}`)
  await writeFile(path, content)
  return path
}
const load = async (
  content: string | Buffer,
  { extension = '.jsonl', ...options }: { extension?: string } & Partial<CompanyImportOptions> = {},
) =>
  importCompanies({
    pool,
    file: await fileOf(content, extension),
    source: 'pdl',
    sourceUpdatedAt: edition,
    ...options,
  })
const lines = (...records: object[]): string =>
  records.map((record) => `${JSON.stringify(record)}\n`).join('')
const company = (n: number, more: object = {}): object => ({
  id: `id-${n}`,
  name: `company ${n}`,
  website: `company-${n}.com`,
  ...more,
})
const everything = async (): Promise<object[]> =>
  (await pool.query('select * from companies order by domain')).rows
const nameOf = async (domain: string): Promise<string | null | undefined> =>
  (await readCompany(pool, domain))?.name

describe('JSON lines', () => {
  test('records become companies; those without a website are counted, and are not errors', async () => {
    const report = await load(
      lines(company(1), company(2, { website: null }), company(3), company(4, { website: '' })),
    )
    expect(report).toMatchObject({
      read: 4,
      imported: 2,
      added: 2,
      changed: 0,
      unchanged: 0,
      skippedNoDomain: 2,
      bad: 0,
    })
    expect(await readCompany(pool, 'company-3.com')).toEqual({
      name: 'company 3',
      legal_name: null,
      domain: 'company-3.com',
      website: 'https://company-3.com',
      industry: null,
      size_range: null,
      employee_count: null,
      founded_year: null,
      location: { locality: null, region: null, country: null, country_code: null },
      profnet_url: null,
      logo_url: null,
      source: 'pdl',
      source_updated_at: edition,
    })
  })

  test('every column is imported correctly, for any text', async () => {
    const full = {
      name: 'back\\slash \\N "quoted", тест 株式会社 🏢',
      legal_name: 'Legal',
      website: 'https://example.com/a\\b',
      industry: 'i',
      employee_count: 120,
      founded: 1999,
      location: { locality: 'l', region: 'r', country: 'austria' },
      profnet_url: 'https://example.org/company/x',
      logo_url: 'https://example.com/logo.png?v=1',
    }
    await load(lines(full))
    expect(await readCompany(pool, 'example.com')).toEqual({
      name: full.name,
      legal_name: 'Legal',
      domain: 'example.com',
      website: 'https://example.com/a/b',
      industry: 'i',
      size_range: '51-200',
      employee_count: 120,
      founded_year: 1999,
      location: { locality: 'l', region: 'r', country: 'Austria', country_code: 'AT' },
      profnet_url: full.profnet_url,
      logo_url: full.logo_url,
      source: 'pdl',
      source_updated_at: edition,
    })
  })

  test('broken lines are skipped and reported with line numbers and reasons', async () => {
    const content = Buffer.concat([
      Buffer.from('\ufeff'),
      Buffer.from(lines(company(1))),
      Buffer.from('{"name": "cut o\n'),
      Buffer.from('\r\n   \n'),
      Buffer.from('{"name":"M\xfcller","website":"latin1.com"}\n', 'latin1'),
      Buffer.from(`{"name":"${'x'.repeat(70_000)}"}\n`),
      Buffer.from('[1]\n"text"\n'),
      Buffer.from(lines({ website: 'nameless.com' }, { name: 'a', website: 'http://192.0.2.1' })),
      Buffer.from(lines(company(2)).replace('\n', '\r\n')),
      Buffer.from(JSON.stringify(company(3))),
    ])
    const report = await load(content)
    expect(report).toMatchObject({ read: 10, imported: 3, added: 3, bad: 7 })
    expect(report.badLines).toEqual([
      { line: 2, reason: 'not_json' },
      { line: 5, reason: 'not_utf8' },
      { line: 6, reason: 'line_too_long' },
      { line: 7, reason: 'not_an_object' },
      { line: 8, reason: 'not_an_object' },
      { line: 9, reason: 'name_missing' },
      { line: 10, reason: 'website_unusable' },
    ])
    expect(report.badByReason).toMatchObject({ not_an_object: 2, not_json: 1 })
    expect(await nameOf('company-3.com')).toBe('company 3')
  })

  test('of very many broken lines only the first hundred are reported, but all are counted', async () => {
    const report = await load('{\n'.repeat(1_234))
    expect(report).toMatchObject({ read: 1_234, bad: 1_234, badByReason: { not_json: 1_234 } })
    expect(report.badLines).toHaveLength(badLinesMax)
    expect(report.badLines.at(-1)).toEqual({ line: badLinesMax, reason: 'not_json' })
  })

  test('an endless line uses no memory and does not hide other lines', async () => {
    const report = await load(
      Buffer.concat([Buffer.alloc(5_000_000, 'x'), Buffer.from(`\n${lines(company(1))}`)]),
    )
    expect(report).toMatchObject({
      read: 2,
      imported: 1,
      bad: 1,
      badLines: [{ line: 1, reason: 'line_too_long' }],
    })
  })
})

describe('files', () => {
  test('compressed files are decompressed while reading, including those with several members', async () => {
    const packed = Buffer.concat([gzipSync(lines(company(1))), gzipSync(lines(company(2)))])
    expect(await load(packed, { extension: '.ndjson.gz' })).toMatchObject({ imported: 2 })
  })

  test.each(['.csv', '.CSV.gz'])(
    'a file that ends in %s is refused, with the format to use',
    async (extension) => {
      await expect(load('name,website\n', { extension })).rejects.toThrow(/is a CSV file, .* from JSON Lines/)
    },
  )

  test('a truncated or damaged compressed file is reported; the part before is imported', async () => {
    const packed = gzipSync(Array.from({ length: 20_000 }, (_, i) => lines(company(i))).join(''))
    await expect(load(packed.subarray(0, packed.length - 100), { extension: '.jsonl.gz' })).rejects.toThrow(
      /damaged or incomplete/,
    )
    const { rows } = await pool.query<{ count: number }>('select count(*)::int as count from companies')
    expect(rows[0]?.count).toBeGreaterThanOrEqual(5_000)
    await expect(load('no gzip at all', { extension: '.jsonl.gz' })).rejects.toThrow(/damaged or incomplete/)
    expect(await load(lines(company(1)))).toMatchObject({ imported: 1 })
  })
})

describe('repetition and order', () => {
  test('importing the same file again changes nothing', async () => {
    const file = lines(
      ...Array.from({ length: 6_000 }, (_, i) => company(i % 4_500, { founded: 1900 + (i % 100) })),
    )
    const first = await load(file)
    expect(first).toMatchObject({ imported: 6_000, added: 4_500 })
    const before = await everything()
    expect(await load(file)).toMatchObject({ imported: 6_000, added: 0, changed: 0, unchanged: 6_000 })
    expect(await everything()).toEqual(before)
  })

  test('records of one domain leave the same row in any order, within a batch and across files', async () => {
    const records = [
      company(1, { website: 'same.com', size: '11-50' }),
      company(2, { website: 'same.com', size: '51-200' }),
      company(3, { website: 'same.com', size: '51-200', founded: 1990 }),
      company(4, { website: 'same.com/branch', size: '10001+' }),
      { ...company(3, { website: 'same.com', size: '51-200', founded: 1991 }) },
    ]
    const outcomes = new Set<string>()
    for (let turn = 0; turn < records.length; turn++) {
      const order = [...records.slice(turn), ...records.slice(0, turn)]
      for (const one of [order, order.toReversed()]) {
        await pool.query('truncate companies')
        await load(lines(...one))
        outcomes.add(JSON.stringify(await everything()))
        await pool.query('truncate companies')
        for (const record of one) await load(lines(record))
        outcomes.add(JSON.stringify(await everything()))
      }
    }
    expect(outcomes.size).toBe(1)
    expect(await nameOf('same.com')).toBe('company 3')
  })

  test('a later edition replaces an earlier one, even with less data; an earlier one changes nothing', async () => {
    await load(lines(company(1, { size: '1001-5000', industry: 'mining' })))
    const later = lines({ ...company(1), name: 'renamed', size: '11-50' })
    expect(await load(later, { sourceUpdatedAt: '2026-11-01T00:00:00.000Z' })).toMatchObject({
      added: 0,
      changed: 1,
    })
    expect(await load(lines(company(1, { size: '10001+' })))).toMatchObject({
      added: 0,
      changed: 0,
      unchanged: 1,
    })
    expect(await readCompany(pool, 'company-1.com')).toMatchObject({
      name: 'renamed',
      size_range: '11-50',
      industry: null,
    })
  })

  test('concurrent imports neither deadlock nor leave anything incomplete', {
    skip: !exhaustive,
  }, async () => {
    const records = Array.from({ length: 6_000 }, (_, i) => company(i, { size: '1-10' }))
    const better = records.map((record) => ({ ...record, size: '51-200' }))
    const reports = await Promise.all([
      load(lines(...records)),
      load(lines(...better.toReversed())),
      load(lines(...better)),
    ])
    expect(reports.reduce((sum, { added }) => sum + added, 0)).toBe(6_000)
    const { rows } = await pool.query('select size_range, count(*)::int as count from companies group by 1')
    expect(rows).toEqual([{ size_range: '51-200', count: 6_000 }])
  })
})

describe('long imports', () => {
  /** Writes the file as a stream, so that the test itself does not need much memory. */
  const longFile = async (count: number): Promise<string> => {
    const path = join(folder, `long-${files++}.jsonl`)
    const texts = function* () {
      for (let i = 0; i < count; i++)
        yield i % 50 === 0
          ? '{"broken\n'
          : lines(company(i, { industry: 'information technology and services', country: 'austria' }))
    }
    await pipeline(Readable.from(texts()), createWriteStream(path))
    return path
  }

  test('50,000 lines are imported in constant memory', { skip: !exhaustive }, async () => {
    setFlagsFromString('--expose-gc')
    const collect: () => void = runInNewContext('gc')
    const file = await longFile(50_000)
    let heapMax = 0
    let seen = 0
    collect()
    const before = process.memoryUsage()
    const used = ({ heapUsed, external }: NodeJS.MemoryUsage): number => heapUsed + external
    const report = await importCompanies({
      pool,
      file,
      source: 'pdl',
      sourceUpdatedAt: edition,
      onProgress: () => {
        if (++seen % 5 !== 0) return
        collect()
        heapMax = Math.max(heapMax, used(process.memoryUsage()))
      },
    })
    expect(report).toMatchObject({ read: 50_000, imported: 49_000, added: 49_000, bad: 1_000 })
    expect(seen).toBeGreaterThanOrEqual(9)
    expect((heapMax - used(before)) / 1024 / 1024).toBeLessThan(16)
  })

  test('a connection lost during the import fails the import, not the process, and leaves complete batches', {
    skip: !exhaustive,
  }, async () => {
    const file = await longFile(12_000)
    const own = new pg.Pool({ connectionString: database.url })
    own.on('error', () => undefined)
    const sockets: Socket[] = []
    own.on('connect', (client) =>
      sockets.push((client as unknown as { connection: { stream: Socket } }).connection.stream),
    )
    const failing = importCompanies({
      pool: own,
      file,
      source: 'pdl',
      sourceUpdatedAt: edition,
      onProgress: () => {
        for (const socket of sockets) socket.destroy()
      },
    })
    await expect(failing).rejects.toThrow()
    await own.end()
    const { rows } = await pool.query<{ count: number }>('select count(*)::int as count from companies')
    // Each batch has 5,000 rows.
    expect((rows[0]?.count ?? 1) % 5_000).toBe(0)
    expect(await importCompanies({ pool, file, source: 'pdl', sourceUpdatedAt: edition })).toMatchObject({
      read: 12_000,
    })
  })
})
