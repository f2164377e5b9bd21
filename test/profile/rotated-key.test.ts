/** People who are known under a SECRET_KEY that is no longer in use: found, erased and suppressed all the same. */
import pg from 'pg'
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { profileCache } from '../../projections/profile-cache.ts'
import { importProfiles } from '../../src/capabilities/profile/dataset/import.ts'
import { inventedPeople } from '../../src/capabilities/profile/dataset/invented-people.ts'
import { createDatasetProvider, eraseFromDataset } from '../../src/capabilities/profile/dataset/provider.ts'
import { renewPortion, rowsUnder } from '../../src/capabilities/profile/dataset/renew.ts'
import { createIdentifiers } from '../../src/capabilities/profile/identifier.ts'
import { createLookUps } from '../../src/capabilities/profile/record/look-ups.ts'
import { ringKeyOf, ringOf } from '../../src/guard/secret-ring.ts'
import { createSecrets, type EpochSealer } from '../../src/guard/secrets.ts'
import { prepareProjections } from '../../src/projector/tables.ts'
import { processKeys } from '../support/epoch-keys.ts'
import { type TestDatabase, testDatabase } from '../support/postgres.ts'

const [oldKey, newKey] = ['o'.repeat(40), 'n'.repeat(40)]
const [oldId, newId] = [ringKeyOf(oldKey).id, ringKeyOf(newKey).id]
const [before, now, after] = [
  createSecrets(oldKey),
  createSecrets(ringOf([newKey, oldKey])),
  createSecrets(newKey),
]
const identifiers = createIdentifiers({ domain: null, urnPrefix: null })
const people = [...inventedPeople(1_200)]
const [first = { lid: '', urn: '' }, second = { lid: '', urn: '' }] = people

let database: TestDatabase
let pool: pg.Pool
let sealer: EpochSealer
beforeAll(async () => {
  database = await testDatabase()
  pool = new pg.Pool({ connectionString: database.url, max: 4 })
  pool.on('error', () => undefined)
  const client = await pool.connect()
  await prepareProjections(client, [profileCache])
  client.release()
  sealer = processKeys({ pool, dir: database.keyDir }).sealer('profile-dataset')
})
afterAll(async () => {
  await pool.end()
  await database.drop()
})

const importAs = (secrets: typeof now, some: readonly object[] = people) =>
  importProfiles({
    pool,
    secrets: { identifierHmacs: secrets.identifierHmacs, sealer },
    identifiers,
    areSuppressed: async (all) => all.map(() => false),
    epochMs: Date.now,
    stream: (async function* () {
      for (const person of some) yield Buffer.from(`${JSON.stringify(person)}\n`)
    })(),
  })

beforeEach(async () => {
  await pool.query('truncate profile_dataset, profile_suppressions')
  await importAs(before)
})

const renewing = () => ({
  pool,
  secrets: { identifierHmacs: now.identifierHmacs, identifierUnder: now.identifierUnder, sealer },
})
const counts = async (): Promise<Record<string, number>> =>
  Object.fromEntries([...(await rowsUnder(renewing()))].map(([id, { count }]) => [id, count]))

const renewAll = async (portionsMax = Number.POSITIVE_INFINITY): Promise<number> => {
  let renewed = 0
  let from: string | null = ''
  for (let n = 0; from !== null && n < portionsMax; n++) {
    const done: { renewed: number; next: string | null } = await renewPortion(renewing(), from)
    renewed += done.renewed
    from = done.next
  }
  return renewed
}

const find = async (secrets: typeof now, kind: 'lid' | 'urn', value: string): Promise<string> =>
  (
    await createDatasetProvider({
      pool,
      secrets: { identifierHmacs: secrets.identifierHmacs, sealer },
      clock: { epochMs: Date.now },
      logger: { error: () => undefined, warn: () => undefined },
    }).fetch(
      { kind, value },
      { deadlineMs: performance.now() + 5_000, ageMaxMs: 60_000, signal: new AbortController().signal },
    )
  ).kind

test('rows are made anew in portions, each once, whenever it was interrupted, and are found all the time', async () => {
  expect(await counts()).toEqual({ [oldId]: people.length })
  expect(await find(now, 'lid', first.lid)).toBe('found')
  const some = await renewAll(1)
  expect(some).toBe(500)
  expect(await counts()).toEqual({ [oldId]: people.length - some, [newId]: some })
  for (const { lid, urn } of people.slice(0, 40)) {
    expect(await find(now, 'lid', lid)).not.toBe('not_found')
    expect(await find(now, 'urn', urn)).not.toBe('not_found')
  }
  expect(await renewAll()).toBe(people.length - some)
  expect(await counts()).toEqual({ [newId]: people.length })
  expect(await renewAll()).toBe(0)
  expect(await find(after, 'urn', first.urn)).toBe('found')
  expect(await find(before, 'lid', first.lid)).toBe('not_found')
})

test('an import replaces what the former key names, and making it anew afterwards takes nothing back', async () => {
  await importAs(now, [{ ...first, headline: 'newer' }])
  expect(await counts()).toEqual({ [oldId]: people.length - 1, [newId]: 1 })
  expect(await renewAll()).toBe(people.length - 1)
  expect((await pool.query('select 1 from profile_dataset')).rowCount).toBe(people.length)
})

test('who was erased is found under whichever key, and a row that an erasure has still to reach is not written again', async () => {
  await renewAll(1)
  for (const { lid } of people.slice(0, 20))
    expect((await eraseFromDataset(pool, now.identifierHmacs(`lid:${lid}`))).removed).toBe(1)
  const late = people[30]?.urn ?? ''
  await pool.query(
    'insert into profile_suppressions (hmac, suppressed_at) select h, now() from unnest($1::text[]) as u (h)',
    [now.identifierHmacs(`urn:${late}`)],
  )
  await renewAll()
  expect(await find(after, 'lid', people[3]?.lid ?? '')).toBe('not_found')
  const left = (await pool.query('select 1 from profile_dataset')).rowCount ?? 0
  expect(people.length - 20 - left).toBeLessThanOrEqual(1)
})

test('an identifier that was suppressed under the former key stays so, alone among those asked for together', async () => {
  await pool.query('insert into profile_suppressions (hmac, suppressed_at) values ($1, now())', [
    before.identifierHmac(`lid:${second.lid}`),
  ])
  const lookUps = createLookUps(pool)
  const told = await Promise.all(
    [first, second].map(({ lid }) => lookUps.of(now.identifierHmacs(`lid:${lid}`))),
  )
  expect(told.map(({ suppressed }) => suppressed)).toEqual([false, true])
  expect((await lookUps.of(after.identifierHmacs(`lid:${second.lid}`))).suppressed).toBe(false)
})
