import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { projections } from '../../projections/index.ts'
import { profileResult } from '../../src/capabilities/profile/contract.ts'
import { inventedPeople } from '../../src/capabilities/profile/dataset/invented-people.ts'
import { checkOf } from '../../src/guard/secrets/installation-key.ts'
import { derivingFrom } from '../../src/guard/secrets/secrets.ts'
import { recordedEvents } from '../support/segments.ts'
import { type CliResult, cli, eventually, type Service, startService } from '../support/service.ts'

/**
 * People in the embedded default are imported, retrieved and erased, by real processes and the command line. Then the data
 * directory is searched for their data. Each test continues from the previous one.
 */

const erased = {
  lid: 'zörvina-quillfeather-81',
  urn: 'urn:profnet:person:8172635445362718',
  firstname: 'Zörvina',
  lastname: 'Quillfeather',
  headline: 'Keeper of "small" lamps',
  about: `Tallowmere was where it began. ${'Long enough for a place of its own in a table. '.repeat(100)}`,
  skills: ['Lampblackery'],
  address: { street: '3 Wicksworth Lane', city: 'Leeds', country_code: 'GB' },
  employment_history: [
    { title: 'Keeper', company: { company_name: 'Glimmerhurst' }, startDate: '2019-03', is_current: true },
  ],
  emails: [{ value: 'zorvina@glimmerhurst.example', sub_type: 'PROFESSIONAL' }],
  phone_numbers: [{ value: '+441132496321', sub_type: 'MOBILE' }],
}
const kept = {
  lid: 'ottoline-grackle-82',
  urn: 'urn:profnet:person:9182736455463728',
  firstname: 'Ottoline',
  lastname: 'Grackleton',
  emails: [{ value: 'ottoline@grackleton.example', sub_type: 'PERSONAL' }],
}

/** Texts that must not be found: in UTF-8, encoded for URLs, and as JSON with escapes for characters outside ASCII. */
const marks = [
  'Zörvina',
  'zörvina',
  'Quillfeather',
  'quillfeather',
  'Keeper of "small" lamps',
  'Tallowmere',
  'Lampblackery',
  'Wicksworth',
  'Glimmerhurst',
  'zorvina@glimmerhurst.example',
  '441132496321',
  '8172635445362718',
  'Grackleton',
  'grackleton.example',
  'ottoline-grackle',
  '9182736455463728',
].flatMap((mark) => [
  mark,
  encodeURIComponent(mark),
  JSON.stringify(mark)
    .slice(1, -1)
    .replaceAll(/[^\x20-\x7e]/g, (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`),
])

const idsOf = ({ lid, urn }: { lid: string; urn: string }) => [
  lid,
  `https://www.profnet.com/in/${encodeURIComponent(lid)}`,
  urn,
]

/** The Idempotency-Key with which a test requests a person. */
const onceKey = (id: string) => ({
  'idempotency-key': `once-${encodeURIComponent(id).length}-${id.indexOf(':')}`,
})

let dataDir = ''
let outside = ''
let people = ''
let service: Service
let demo: { organization_id: string; api_key: string }
/** The output of all processes. */
const said: string[] = []

// The most detailed log level, so that the search covers as much output as possible.
const environment = () => ({ DATA_DIR: dataDir, LOG_LEVEL: 'trace' })

beforeAll(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'journey-'))
  outside = await mkdtemp(join(tmpdir(), 'journey-people-'))
  people = join(outside, 'people.jsonl')
  await writeFile(people, `${JSON.stringify(erased)}\n${JSON.stringify(kept)}\n`)
  service = await startService(environment())
  demo = JSON.parse(await readFile(join(dataDir, 'demo.json'), 'utf8'))
})

afterAll(async () => {
  await service?.end('SIGTERM')
  await rm(dataDir, { recursive: true, force: true })
  await rm(outside, { recursive: true, force: true })
})

const command = async (...args: string[]): Promise<CliResult> => {
  const result = await cli(args, environment())
  said.push(result.out, result.err)
  return result
}
const json = async (...args: string[]): Promise<unknown> => {
  const { code, out, err } = await command(...args, '--json')
  if (code !== 0) throw new Error(`cli ${args.join(' ')} ended with ${code}: ${err}`)
  return JSON.parse(out)
}

type Told = {
  readonly status: number
  readonly charged: string | null
  readonly body: Record<string, unknown>
}

const retrieve = async (id: string, wants: { cached?: boolean } = {}, headers = {}): Promise<Told> => {
  const response = await fetch(`${service.apiUrl}/v1/profnet/profile`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-api-key': demo.api_key, ...headers },
    body: JSON.stringify({ id, ...wants }),
  })
  return {
    status: response.status,
    charged: response.headers.get('credits-charged'),
    body: (await response.json()) as Record<string, unknown>,
  }
}

/** Repeats the call until the answer comes from the cache, because the projection is slightly behind. */
const cachedAnswer = (id: string): Promise<Told> =>
  eventually(async () => {
    const told = await retrieve(id)
    return told.body.cached === true ? told : undefined
  })

const expectNobody = async (id: string): Promise<void> => {
  for (const wants of [{ cached: false }, {}])
    expect(await retrieve(id, wants)).toMatchObject({
      status: 404,
      charged: '0',
      body: { error: 'not_found', code: 'PROFNET_002', details: { id } },
    })
}

/** The files in the data directory that contain one of the texts. Files that disappear during the search are ignored. */
const inFiles = async (texts: readonly string[]): Promise<string[]> => {
  const found: string[] = []
  for (const entry of await readdir(dataDir, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue
    const path = join(entry.parentPath, entry.name)
    const bytes = await readFile(path).catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return Buffer.alloc(0)
      throw error
    })
    for (const text of texts) if (bytes.includes(text)) found.push(`${text} in ${path}`)
  }
  return found
}

/** The tables that contain one of the texts. */
const inTables = async (texts: readonly string[]): Promise<string[]> => {
  const { url } = JSON.parse(await readFile(join(dataDir, 'postgres.json'), 'utf8')) as { url: string }
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  try {
    const { rows: tables } = await client.query<{ name: string }>(
      `select format('%I.%I', schemaname, tablename) as name from pg_tables
        where schemaname not in ('pg_catalog', 'information_schema')`,
    )
    const found: string[] = []
    for (const { name } of tables) {
      const { rows } = await client.query<{ row: string }>(
        `select row_to_json(t)::text as row from ${name} t`,
      )
      // The event log's rows contain events as bytes, and long events are compressed.
      const opened = name === 'public.log_segments' ? await recordedEvents(client) : []
      const all = [
        ...rows.map(({ row }) => row),
        ...opened.map(({ stream, type, data, metadata }) => [stream, type, data, metadata].join(' ')),
      ].join('\n')
      for (const text of texts) if (all.includes(text)) found.push(`${text} in ${name}`)
    }
    return found
  } finally {
    await client.end()
  }
}

/** Tries every text in the files that could be the key. */
const unwrappedKeyIn = async (key_check: string): Promise<string[]> => {
  const seen = new Set<string>()
  const found: string[] = []
  for (const entry of await readdir(dataDir, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue
    const text = (await readFile(join(entry.parentPath, entry.name))).toString('latin1')
    // In a database page, one or two bytes before the key can look like part of the key.
    for (const [run] of text.matchAll(/(?<![\w-])[\w-]{43,46}(?![\w-])/g))
      for (let at = 0; at + 43 <= run.length; at++) {
        const candidate = run.slice(at, at + 43)
        if (seen.has(candidate)) continue
        seen.add(candidate)
        if (checkOf(derivingFrom(candidate)) === key_check) found.push(entry.name)
      }
  }
  expect(seen.size).toBeGreaterThan(10)
  return found
}

test('an invented person can be requested from the first start on', async () => {
  const [somebody] = [...inventedPeople(1)]
  const { status, charged, body } = await retrieve(somebody?.lid ?? '')
  expect({ status, charged }).toEqual({ status: 200, charged: '5' })
  expect(profileResult.parse(body.result)).toMatchObject({ lid: somebody?.lid, deleted: false })
})

test('imported people are found by id, URL and URN, first fresh and then cached', async () => {
  expect(await json('profiles', 'import', people)).toMatchObject({
    lines: 2,
    imported: 2,
    suppressed: 0,
    bad: 0,
  })
  const fresh = await retrieve(erased.lid)
  expect(fresh).toMatchObject({ status: 200, charged: '5' })
  expect(fresh.body).not.toHaveProperty('cached')
  expect(profileResult.parse(fresh.body.result)).toMatchObject({
    lid: erased.lid,
    url: `https://www.profnet.com/in/${encodeURIComponent(erased.lid)}`,
    lastname: 'Quillfeather',
    emails: erased.emails,
    phone_numbers: erased.phone_numbers,
    employment_history: [{ startDate: '2019-03', endDate: null, is_current: true }],
  })
  for (const id of idsOf(erased)) {
    expect((await cachedAnswer(id)).body.result).toEqual(fresh.body.result)
    const again = await retrieve(id, { cached: false }, onceKey(id))
    expect({ ...again, body: again.body.result }).toEqual({ ...fresh, body: fresh.body.result })
    const replayed = await retrieve(id, { cached: false }, onceKey(id))
    expect(replayed).toMatchObject({ status: 200, charged: '0', body: { result: { lid: erased.lid } } })
  }
  expect(await retrieve(kept.urn)).toMatchObject({
    status: 200,
    body: { result: { lastname: 'Grackleton' } },
  })
})

test('even before any erasure, no personal data can be read in any file or table', async () => {
  expect(await inFiles(marks)).toEqual([])
  expect(await inTables(marks)).toEqual([])
  // This shows that the search works. Events in files are packed; events in tables are decoded for the search.
  expect(await inFiles(['profile-sub_'])).not.toEqual([])
  expect(await inTables(['ProfileFetched'])).toEqual(['ProfileFetched in public.log_segments'])
})

test('an erased person is not found by any identifier, and is never imported again', async () => {
  expect(await json('profiles', 'erase', erased.urn, '--note', 'request 17', '--yes')).toEqual({
    erased: true,
    subjects: 1,
    identifiers_suppressed: 2,
    last_copy_gone_by: expect.stringMatching(/^\d{4}-\d\d-\d\dT00:00:00\.000Z$/),
    vacuumed: true,
  })
  for (const id of idsOf(erased)) await expectNobody(id)
  // An erased person is not found, even with the Idempotency-Key of a call that was answered before.
  for (const id of idsOf(erased))
    expect(await retrieve(id, { cached: false }, onceKey(id))).toMatchObject({ status: 404, charged: '0' })
  expect(await json('profiles', 'import', people)).toMatchObject({ lines: 2, imported: 1, suppressed: 1 })
  for (const id of idsOf(erased)) await expectNobody(id)
  expect(await cachedAnswer(kept.lid)).toMatchObject({ status: 200, charged: '2' })
})

test('the rebuilt profile cache returns the same answers', async () => {
  const before = (await cachedAnswer(kept.lid)).body
  await json('projection', 'rebuild', 'profile_cache')
  const after = (await cachedAnswer(kept.lid)).body
  expect(after.result).toEqual(before.result)
  for (const id of idsOf(erased)) await expectNobody(id)
  const verified = (await json('projection', 'verify', '--all')) as { name: string; ok: boolean }[]
  expect(verified.map(({ ok }) => ok)).toEqual(projections.map(() => true))
})

test('after an erasure no personal data is left in any file, table, ledger or log line', async () => {
  expect(await inFiles(marks)).toEqual([])
  expect(await inTables(marks)).toEqual([])
  const { code, out } = await command('ledger', 'export', demo.organization_id)
  expect(code).toBe(0)
  expect(out).toContain('"kind":"profile"')
  expect(await service.end('SIGTERM')).toBe(0)
  expect(await inFiles(marks)).toEqual([])
  expect(await inFiles(['ProfileErased'])).not.toEqual([])
  const everything = [service.output(), ...said].join('\n')
  for (const mark of marks) expect({ mark, said: everything.includes(mark) }).toEqual({ mark, said: false })
})

test('the key that seals all of these data is not in any file, not even during a rotation of SECRET_KEY', async () => {
  await json('secrets', 'rotate', '--yes')
  const shown = (await json('event-log', 'show', 'installation')) as { data: { key_check: string } }[]
  expect(await unwrappedKeyIn(shown[0]?.data.key_check ?? '')).toEqual([])
})

test('after a restart with the new SECRET_KEY an erased person is still not found', async () => {
  service = await startService(environment())
  await json('secrets', 'rotate', '--finish', '--yes')
  await expectNobody(erased.lid)
  expect(await cachedAnswer(kept.lid)).toMatchObject({ status: 200 })
})
