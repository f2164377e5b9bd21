/** Lists of calls: newest first, filtered, paged, as CSV, and by role. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { putUser } from '../../src/administration/users/users.ts'
import { callsPage, placeIn, placeText } from '../../src/dashboard/calls.ts'
import {
  type CallFilters,
  type CallPlace,
  type CallRow,
  callsThatMatch,
} from '../../src/dashboard/calls-queries.ts'
import {
  type Browser,
  type DashboardHost,
  openDashboardHost,
  signedIn,
  userWhoChose,
} from './dashboard-host.ts'
import { openScene, type Scene } from './scene.ts'

let room: DashboardHost
let ada: Browser
let scene: Scene
let other: Scene
const user = { name: 'ada', password: 'correct horse battery staple' }
const nowMs = Date.now()

beforeAll(async () => {
  room = await openDashboardHost()
  await putUser(room.foundation.pool, user)
  ada = await signedIn(room, user)
  scene = await openScene(room, { nowMs, days: 6 })
  other = await openScene(room, { nowMs: nowMs - 1, days: 3, name: 'Contoso' })
})
afterAll(() => room?.close())

const any: CallFilters = {
  ...{ fromMs: 0, untilMs: nowMs + 60_000, organizationId: null, keyId: null, capability: null },
  ...{ outcome: null, code: null, costMicro: null },
}

const everyPage = async (filters: CallFilters, max: number): Promise<CallRow[]> => {
  const calls: CallRow[] = []
  let before: CallPlace | null = null
  for (;;) {
    const page = await callsPage(room.foundation.pool, filters, { before, max })
    calls.push(...page.calls)
    if (page.older === null) return calls
    before = placeIn(placeText(page.older))
  }
}

const expected = async (where: string, values: unknown[] = []) =>
  (
    await room.foundation.pool.query<{ id: string }>(
      `select ledger || ' ' || revision as id from ledger_lines where calls is not null and ${where} order by 1`,
      values,
    )
  ).rows.map(({ id }) => id)

const ids = (calls: readonly CallRow[]): string[] =>
  calls.map(({ ledger, revision }) => `${ledger} ${revision}`).toSorted()

describe('pages of calls', () => {
  test('list each call once, newest first, for any page size', async () => {
    const all = await expected('true')
    expect(all.length).toBeGreaterThan(40)
    for (const max of [1, 7, 1_000]) {
      const calls = await everyPage(any, max)
      expect(ids(calls)).toEqual(all)
      const times = calls.map(({ effective_at }) => effective_at.getTime())
      expect(times).toEqual(times.toSorted((a, b) => b - a))
    }
  })

  test('of one organization list only its calls', async () => {
    const filters = { ...any, organizationId: scene.organizationId }
    const own = await expected('organization_id = $1', [scene.organizationId])
    for (const max of [3, 1_000]) expect(ids(await everyPage(filters, max))).toEqual(own)
  })

  test.each([
    ['an outcome', { outcome: 'refused' }, `outcome = 'refused'`],
    ['errors as the outcome', { outcome: 'errors' }, `outcome in ('refused', 'failed')`],
    ['an outcome of most calls', { outcome: 'answered' }, `outcome = 'answered'`],
    ['a code', { code: 'CREDIT_001' }, `code = 'CREDIT_001'`],
    ['a capability', { capability: 'ip_lookup' }, `capability = 'ip_lookup'`],
    ['a cost', { costMicro: 1n }, 'amount_micro < 0'],
    [
      'a time',
      { fromMs: nowMs - 86_400_000, untilMs: nowMs - 3_600_000 },
      `effective_at >= '${new Date(nowMs - 86_400_000).toISOString()}' and effective_at < '${new Date(nowMs - 3_600_000).toISOString()}'`,
    ],
  ])('with %s list the matching calls, for all organizations and for one', async (_what, filter, where) => {
    const found = ids(await everyPage({ ...any, ...filter }, 4))
    expect(found).toEqual(await expected(where))
    expect(found.length).toBeGreaterThan(0)
    const own = await everyPage({ ...any, ...filter, organizationId: other.organizationId }, 4)
    expect(ids(own)).toEqual(await expected(`${where} and organization_id = $1`, [other.organizationId]))
  })

  test('of a key list only its calls', async () => {
    expect(ids(await everyPage({ ...any, keyId: scene.keyId }, 4))).toEqual(
      await expected('key_id = $1', [scene.keyId]),
    )
  })
})

test('a place from the address after the end of the range shows only calls in the range', async () => {
  const range = { fromMs: nowMs - 86_400_000, untilMs: nowMs - 3_600_000 }
  const before = { atMs: nowMs + 60_000, ledger: '0', revision: '1' }
  const { calls } = await callsPage(room.foundation.pool, { ...any, ...range }, { before, max: 1_000 })
  expect(ids(calls)).toEqual(ids(await everyPage({ ...any, ...range }, 1_000)))
})

test('a page has one bound on the time in each direction, because with two PostgreSQL reads all lines up to the wider one', () => {
  const place = { atMs: nowMs - 1_000, ledger: '-1', revision: '7' }
  const { text } = callsThatMatch(any, { before: place, downTo: { ...place, atMs: 5 }, max: 50 })
  expect(text.match(/effective_at[^<>=]* [<>]=? /g)).toEqual([
    'effective_at, ledger, revision) < ',
    'effective_at, ledger, revision) >= ',
  ])
})

test('only a valid position is parsed', () => {
  for (const text of ['', '1', '1_2', 'a_1_2', '1_2_3_4', '1_2_\u0000', `1_${2n ** 63n}_1`])
    expect(placeIn(text)).toBeNull()
  expect(placeIn('5_-3_9')).toEqual({ atMs: 5, ledger: '-3', revision: '9' })
})

describe('the page', () => {
  test('lists calls by all organizations, each with a link to its details', async () => {
    const { statusCode, body } = await ada.get('/calls')
    expect(statusCode).toBe(200)
    expect(body).toContain(`href="/organizations/${scene.organizationId}/calls/${scene.requestId}"`)
    expect(body).toContain('Contoso')
    expect(body).toContain('17 calls')
  })

  test('has the same filters on the next page and in the file', async () => {
    const path = `/organizations/${scene.organizationId}/calls`
    const { body } = await ada.get(`${path}?range=30d&capability=ip_lookup&cost=0.000001`)
    const csv = /href="([^"]+calls\.csv[^"]+)"/.exec(body)?.[1]?.replaceAll('&amp;', '&') ?? ''
    const file = await ada.get(csv)
    expect(file.headers['content-type']).toBe('text/csv; charset=utf-8')
    const [head, ...rows] = file.body.trimEnd().split('\r\n')
    expect(head).toMatch(/^time_utc,organization_id,/)
    const { rows: counted } = await room.foundation.pool.query<{ n: number }>(
      'select count(*)::integer as n from ledger_lines where organization_id = $1 and amount_micro < 0 and calls is not null',
      [scene.organizationId],
    )
    expect(rows).toHaveLength(counted[0]?.n ?? -1)
    const older = /href="([^"]+before=[^"]+)"/.exec(body)?.[1]?.replaceAll('&amp;', '&') ?? ''
    expect(older === '' || older.includes('cost=0.000001')).toBe(true)
  })

  test('refreshes itself every two seconds while it is live, and pauses after ten minutes', async () => {
    expect((await ada.get('/calls')).body).not.toContain('hx-trigger="every')
    const { body } = await ada.get('/calls?live=0')
    expect(body).toContain('hx-trigger="every 2s"')
    expect(body).toContain('live=1&amp;refresh=yes"')
    expect((await ada.get('/calls?live=300')).body).toContain('Paused after ten minutes.')
    expect((await ada.get('/calls?live=300')).body).not.toContain('hx-trigger="every')
  })

  test.each([
    ['key=%00', 'is not a value such as'],
    ['organization=x', 'is not a value such as'],
    ['capability=x', 'is not one of'],
    ['outcome=x', 'is not one of'],
    ['code=credit', 'is not a value such as'],
    ['cost=-1', 'is not a number of credits'],
    ['range=custom', 'is not a time'],
  ])('shows the error in %s', async (query, why) => {
    const { statusCode, body } = await ada.get(`/calls?${query}`)
    expect(statusCode).toBe(422)
    expect(body).toContain(why)
    expect((await ada.get(`/calls.csv?${query}`)).statusCode).toBe(422)
  })

  test("shows a partner's users only the calls by their organization", async () => {
    const partner = await signedIn(
      room,
      await userWhoChose(room, {
        ...{ name: 'pat', role: 'partner', organizationId: scene.organizationId, actor: 'cli:setup' },
      }),
    )
    const own = `/organizations/${scene.organizationId}/calls`
    const { statusCode, body } = await partner.get(`${own}?organization=${other.organizationId}`)
    expect(statusCode).toBe(200)
    expect(body).not.toContain('Contoso')
    expect((await partner.get(`${own}.csv?organization=${other.organizationId}`)).body).not.toContain(
      'Contoso',
    )
    expect((await partner.get(`${own}?key=${other.keyId}&range=30d`)).body).toContain('No calls match')
  })
})
