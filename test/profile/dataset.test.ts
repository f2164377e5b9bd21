import pg from 'pg'
import { beforeEach, describe, expect, test } from 'vitest'
import {
  type AreSuppressed,
  badLinesReportedMax,
  batchSizeMax,
  importProfiles,
  lineBytesMax,
  seedDatasetIfEmpty,
} from '../../src/capabilities/profile/dataset/import.ts'
import {
  inventedPeople,
  inventedPeopleCount,
} from '../../src/capabilities/profile/dataset/invented-people.ts'
import {
  createDatasetProvider,
  type DatasetPerson,
  eraseFromDataset,
} from '../../src/capabilities/profile/dataset/provider.ts'
import { createIdentifiers } from '../../src/capabilities/profile/identifier.ts'
import type { ProviderAnswer } from '../../src/capabilities/profile/sources/provider.ts'
import { createSecrets } from '../../src/guard/secrets/secrets.ts'
import { processKeys } from '../support/epoch-keys.ts'
import { databaseForFile } from '../support/postgres.ts'

const identifiers = createIdentifiers({ domain: null, urnPrefix: null })
const nowMs = Date.UTC(2026, 10, 21, 12)
const keys = createSecrets('k'.repeat(40))
const hmacOf = keys.identifierHmac
const nobody: AreSuppressed = async (people) => people.map(() => false)

const database = await databaseForFile()
const { pool } = database
const sealer = processKeys({ pool, dir: database.keyDir }).sealer('profile-dataset')
const secrets = { identifierHmac: keys.identifierHmac, sealer }
beforeEach(async () => {
  await pool.query('truncate profile_dataset')
})

const logger = { error: () => undefined, warn: () => undefined }
const find = (
  kind: 'lid' | 'urn',
  value: string,
  from: Pick<pg.Pool, 'query'> = pool,
): Promise<ProviderAnswer> =>
  createDatasetProvider({ pool: from, secrets, clock: { epochMs: () => nowMs }, logger }).fetch(
    { kind, value },
    { deadlineMs: performance.now() + 5_000, ageMaxMs: 60_000, signal: new AbortController().signal },
  )

async function* chunked(bytes: Buffer, size: number): AsyncGenerator<Buffer> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size)
}
const load = (
  text: string | Buffer,
  {
    areSuppressed = nobody,
    size = 50_000,
    atMs = nowMs,
    ...more
  }: {
    areSuppressed?: AreSuppressed
    size?: number
    atMs?: number
    onProgress?: Parameters<typeof importProfiles>[0]['onProgress'] & object
  } = {},
) =>
  importProfiles({
    secrets,
    pool,
    stream: chunked(Buffer.from(text), size),
    identifiers,
    areSuppressed,
    epochMs: () => atMs,
    ...more,
  })
const lines = (...records: object[]) => records.map((record) => JSON.stringify(record)).join('\n')
const person = (lid: string, urn: string | null = null, firstname = 'Talvora') => ({ lid, urn, firstname })
const rows = async () => {
  const stored = await pool.query<{ lid_hmac: string; sealed: string }>(
    'select lid_hmac, sealed from profile_dataset',
  )
  return stored.rows
    .map(({ lid_hmac, sealed }) => {
      const { lid, urn, data } = JSON.parse(secrets.sealer.open(sealed, lid_hmac) ?? '') as DatasetPerson
      return { lid, urn, name: data?.firstname ?? null, gone: data === null }
    })
    .sort((a, b) => (a.lid < b.lid ? -1 : 1))
}

describe('an import', () => {
  test('makes people available by id and by number, as if just fetched; the import date stays the same', async () => {
    const report = await load(lines(person('Talvora', '12')), { atMs: nowMs - 90 * 86_400_000 })
    expect(report).toEqual({ lines: 1, imported: 1, gone: 0, suppressed: 0, bad: 0, badLines: [] })
    for (const answer of [await find('lid', 'talvora'), await find('urn', '12')])
      expect(answer).toMatchObject({
        kind: 'found',
        ids: { lid: 'talvora', urn: '12' },
        data: { firstname: 'Talvora', skills: [] },
        observedAtMs: nowMs,
        redirected: false,
      })
    const { rows: dated } = await pool.query('select imported_at from profile_dataset')
    expect(dated).toEqual([{ imported_at: new Date(nowMs - 90 * 86_400_000) }])
    expect(await find('lid', 'brax-hatch')).toEqual({ kind: 'not_found' })
  })

  test('accepts blank lines, a byte order mark and other line endings', async () => {
    const report = await load(
      `\ufeff${JSON.stringify(person('abc'))}\r\n\r\n  \n${lines({
        firstname: 'Osk',
        url: 'https://www.profnet.com/in/ghi',
      })}\r\n`,
    )
    expect(report).toMatchObject({ lines: 2, imported: 2, bad: 0 })
    expect((await rows()).map(({ lid, name }) => `${lid} ${name}`)).toEqual(['abc Talvora', 'ghi Osk'])
  })

  test('accepts a stream that is split at any byte', async () => {
    const text = lines(person('jürgen-müller', '7', 'Jürgen'), person('山田太郎', '8', '太郎'))
    for (const size of [1, 2, 3, 7]) {
      await pool.query('truncate profile_dataset')
      expect(await load(text, { size })).toMatchObject({ imported: 2, bad: 0 })
      expect(await rows()).toMatchObject([{ name: 'Jürgen' }, { name: '太郎' }])
    }
  })

  test('reports bad lines with the reason but without their content, and continues', async () => {
    const text = Buffer.concat([
      Buffer.from(
        `${lines(person('abc'))}\nnot json\n[1]\n{"firstname":"Nobody"}\n{"lid":"x"}\n{"lid":"def"}\n`,
      ),
      Buffer.from('{"lid":"ghi","firstname":"\xff"}\n', 'latin1'),
      Buffer.from(`${' '.repeat(lineBytesMax + 1)}\n`),
      Buffer.from(`${'['.repeat(200_000)}\n`),
      Buffer.from(lines(person('jkl'))),
    ])
    expect(await load(text)).toEqual({
      lines: 10,
      imported: 2,
      gone: 0,
      suppressed: 0,
      bad: 8,
      badLines: [
        { line: 2, reason: 'not JSON' },
        { line: 3, reason: 'not a JSON object' },
        { line: 4, reason: 'no profile id: neither a valid lid nor a profile url' },
        { line: 5, reason: 'no profile id: neither a valid lid nor a profile url' },
        { line: 6, reason: 'nothing about the person' },
        { line: 7, reason: 'not UTF-8' },
        { line: 8, reason: `longer than ${lineBytesMax} bytes` },
        { line: 9, reason: 'not JSON' },
      ],
    })
  })

  test('reports a limited number of bad lines', async () => {
    const report = await load('x\n'.repeat(badLinesReportedMax * 3))
    expect(report.bad).toBe(badLinesReportedMax * 3)
    expect(report.badLines).toHaveLength(badLinesReportedMax)
  })

  test('replaces earlier data under the same id and number: the last line wins', async () => {
    await load(lines(person('abc', '1', 'Old'), person('def', '2', 'Other'), person('ghi', null, 'Third')))
    await load(
      lines(person('abc-new', '1', 'New'), person('def', '3', 'Stranger'), person('ghi', '9', 'Third')),
    )
    expect(await rows()).toMatchObject([
      { lid: 'abc-new', urn: '1', name: 'New' },
      { lid: 'def', urn: '3', name: 'Stranger' },
      { lid: 'ghi', urn: '9', name: 'Third' },
    ])
  })

  test('with contradicting lines keeps the later ones', async () => {
    await load(lines(person('abc', '1', 'First'), person('def', '1', 'Second'), person('def', '2', 'Third')))
    expect(await rows()).toMatchObject([{ lid: 'def', urn: '2', name: 'Third' }])
  })

  test('of a deleted person leaves a mark and no data', async () => {
    await load(lines(person('abc', '1')))
    await load(lines({ ...person('abc', '1'), deleted: true }))
    expect(await rows()).toEqual([{ lid: 'abc', urn: '1', name: null, gone: true }])
    expect(await find('urn', '1')).toEqual({ kind: 'gone' })
  })

  test('that fails keeps what was committed before, and can be repeated', async () => {
    const text = lines(...Array.from({ length: batchSizeMax + 1 }, (_, index) => person(`person-${index}`)))
    let asked = 0
    const failing: AreSuppressed = async (people) => {
      if (asked++ === 1) throw new Error('away')
      return people.map(() => false)
    }
    await expect(load(text, { areSuppressed: failing })).rejects.toThrow('away')
    expect(await rows()).toHaveLength(batchSizeMax)
    expect(await load(text)).toMatchObject({ imported: batchSizeMax + 1 })
  })
})

const untilSomebodyWaits = async () => {
  const waiting =
    "select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
  while ((await pool.query(waiting)).rows.length === 0) await new Promise((resolve) => setImmediate(resolve))
}

describe('erasure', () => {
  test('the table is unreadable without the secret', async () => {
    await load(lines(person('abc-quill', '1', 'Talvora')))
    const { rows: stored } = await pool.query('select row_to_json(t)::text as row from profile_dataset t')
    expect(JSON.stringify(stored)).not.toMatch(/abc-quill|Talvora/)
  })

  test('removes a person known by any of the aliases, and returns all of their aliases', async () => {
    await load(lines(person('abc', '1'), person('def', '2'), person('ghi')))
    const erased = await eraseFromDataset(pool, ['lid:abc', 'urn:2', 'lid:nobody'].map(hmacOf))
    expect(erased.removed).toBe(2)
    expect([...erased.hmacs].sort()).toEqual(['lid:abc', 'lid:def', 'urn:1', 'urn:2'].map(hmacOf).sort())
    expect(await rows()).toMatchObject([{ lid: 'ghi' }])
    expect(await find('lid', 'abc')).toEqual({ kind: 'not_found' })
    expect(await eraseFromDataset(pool, [hmacOf('lid:abc')])).toEqual({ removed: 0, hmacs: [] })
  })

  test('keeps a suppressed person from being imported again, by id or by number', async () => {
    const suppressed = new Set(['lid:abc', 'urn:2'])
    const areSuppressed: AreSuppressed = async (people) =>
      people.map((aliases) => aliases.some((alias) => suppressed.has(alias)))
    const report = await load(lines(person('abc', '1'), person('def', '2'), person('ghi', '3')), {
      areSuppressed,
    })
    expect(report).toMatchObject({ imported: 1, suppressed: 2, bad: 0 })
    expect(await rows()).toMatchObject([{ lid: 'ghi' }])
  })

  test('during an import leaves no data about the person', async () => {
    const suppressed = new Set<string>()
    let erasing: Promise<unknown> = Promise.resolve()
    const areSuppressed: AreSuppressed = async (people) => {
      const answer = people.map((aliases) => aliases.some((alias) => suppressed.has(alias)))
      // The suppression comes just after the import has checked and found no suppressed identifiers.
      suppressed.add('lid:abc')
      erasing = eraseFromDataset(pool, [hmacOf('lid:abc')])
      await Promise.race([erasing, untilSomebodyWaits()])
      return answer
    }
    expect(await load(lines(person('abc', '1')), { areSuppressed })).toMatchObject({ imported: 1 })
    expect(await erasing).toMatchObject({ removed: 1 })
    expect(await rows()).toEqual([])
  })
})

describe('the sample people', () => {
  test('are loaded into an empty dataset, once', async () => {
    const seed = () =>
      seedDatasetIfEmpty({ pool, secrets, identifiers, areSuppressed: nobody, epochMs: () => nowMs })
    expect(await seed()).toBe(inventedPeopleCount)
    expect(await rows()).toHaveLength(inventedPeopleCount)
    const [first] = inventedPeople()
    expect(await find('lid', first?.lid ?? '')).toMatchObject({
      kind: 'found',
      data: { firstname: first?.firstname },
    })
    expect(await seed()).toBe(0)
  })
})

test('a dataset that cannot be read is transient, not empty', async () => {
  const away = new pg.Pool({ connectionString: 'postgres://nobody@127.0.0.1:1/none' })
  expect(await find('lid', 'abc', away)).toMatchObject({ kind: 'transient' })
  await away.end()
})
