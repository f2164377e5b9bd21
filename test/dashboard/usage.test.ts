/** The overview, lists of calls, and usage: their figures equal those in the ledgers, on the pages and in the files. */
import { afterEach, describe, expect, test } from 'vitest'
import type { Finding } from '../../src/administration/checks/check.ts'
import { setThreshold } from '../../src/administration/credits/corrections.ts'
import { openTestOrganization } from '../../src/administration/keys/api-keys.ts'
import { linePlaces } from '../../src/administration/ledgers/line-places.ts'
import { parseCredits } from '../../src/billing/money.ts'
import {
  type CallFilters,
  type CallPlace,
  type CallRow,
  callsThatMatch,
  placeIn,
  placeText,
  readCalls,
} from '../../src/dashboard/calls.ts'
import { csvOf } from '../../src/dashboard/csv.ts'
import { formOf } from '../../src/dashboard/form.ts'
import {
  figuresOfAll,
  lowOrganizations,
  todayFigures,
  unpaidOrganizations,
} from '../../src/dashboard/overview.ts'
import { inDays, type Range, rangeIn, timesOf } from '../../src/dashboard/ranges.ts'
import { seriesOf } from '../../src/dashboard/usage-series.ts'
import { usedUpAtMs } from '../../src/dashboard/used-up.ts'
import { browserOf, browserOfAda, roomForFile } from './dashboard-host.ts'
import { lookedUp, openScene, recordCall } from './scene.ts'

const finding = (level: Finding['level'], about: string): Finding => ({
  level,
  about,
  says: `${about} says <b>${level}</b>\u202e`,
  remedy: level === 'ok' ? null : `mend ${about}`,
  figures: {},
})

let found: readonly Finding[] = []
const nowMs = Date.now()

const room = await roomForFile({ findings: async () => found })
const ada = await browserOfAda(room)
const beforeAnyCall = (await ada.get('/')).body
const scene = await openScene(room, { nowMs, days: 12 })
const other = await openScene(room, { nowMs: nowMs - 1, days: 3, name: 'Contoso' })

const sumsOf = async (where: string, values: unknown[]) => {
  const { rows } = await room.foundation.pool.query<{ calls: string; errors: string; charged: string }>(
    `select coalesce(sum(calls), 0)::text as calls, coalesce(sum(calls) filter (where outcome <> 'answered'), 0)::text as errors,
            coalesce(sum(-amount_micro), 0)::text as charged from ledger_lines where calls is not null and organization_id not like 'org\\_test\\_%' and ${where}`,
    values,
  )
  return rows[0]
}

const asSums = ({
  calls,
  errors,
  chargedMicro,
}: {
  calls: bigint
  errors: bigint
  chargedMicro: bigint
}) => ({
  calls: String(calls),
  errors: String(errors),
  charged: String(chargedMicro),
})

const any: CallFilters = {
  fromMs: 0,
  untilMs: nowMs + 60_000,
  organizationId: null,
  keyId: null,
  capability: null,
  outcome: null,
  code: null,
  costMicro: null,
}

const everyPage = async (filters: CallFilters, max: number): Promise<CallRow[]> => {
  const calls: CallRow[] = []
  let before: CallPlace | null = null
  for (;;) {
    const page = await readCalls(room.foundation.pool, filters, { before, max })
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
    const few = await expected('organization_id = $1', [other.organizationId])
    for (const [max, filters, found] of [
      [1, { ...any, organizationId: other.organizationId }, few],
      [7, any, all],
      [1_000, any, all],
    ] as const) {
      const calls = await everyPage(filters, max)
      expect(ids(calls)).toEqual(found)
      const times = calls.map(({ effective_at }) => effective_at.getTime())
      expect(times).toEqual(times.toSorted((a, b) => b - a))
    }
  })

  test.each([
    ['an outcome', { outcome: 'refused' }, `outcome = 'refused'`],
    ['errors as the outcome', { outcome: 'errors' }, `outcome in ('refused', 'failed')`],
    ['an outcome of most calls', { outcome: 'answered' }, `outcome = 'answered'`],
    ['a code', { code: 'CREDIT_001' }, `code = 'CREDIT_001'`],
    ['a capability', { capability: 'ip_lookup' }, `capability = 'ip_lookup'`],
    ['a cost', { costMicro: 1n }, 'amount_micro < 0'],
    ['a key', { keyId: scene.keyId }, `key_id = '${scene.keyId}'`],
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
})

test('a place from the address after the end of the range shows only calls in the range', async () => {
  const range = { fromMs: nowMs - 86_400_000, untilMs: nowMs - 3_600_000 }
  const before = { atMs: nowMs + 60_000, ledger: '0', revision: '1' }
  const { calls } = await readCalls(room.foundation.pool, { ...any, ...range }, { before, max: 1_000 })
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

  test.each([
    ['key=%00', 'U+0000'],
    ['outcome=x', 'is not one of'],
    ['cost=-1', 'is not a decimal number of credits'],
    ['organization=nobody', '<strong>Organization:</strong> No organization has '],
    ['organization=a%00b', '<strong>Organization:</strong>'],
    ['organization=o', 'is not the whole name of one organization; choose one of these: '],
  ])('shows the error in %s', async (query, why) => {
    const { statusCode, body } = await ada.get(`/calls?${query}`)
    expect(statusCode).toBe(422)
    expect(body).toContain(why)
    expect((await ada.get(`/calls.csv?${query}`)).statusCode).toBe(422)
  })

  test('finds the organization by a part of its name', async () => {
    const { statusCode, body } = await ada.get('/calls?range=30d&organization=contoso')
    expect(statusCode).toBe(200)
    expect(body).toContain(`/organizations/${other.organizationId}/calls/`)
    expect(body).not.toContain(`/organizations/${scene.organizationId}/calls/`)
  })

  test("shows a partner's users only the calls by their organization", async () => {
    const partner = await browserOf(room, {
      name: 'pat',
      role: 'partner',
      organizationId: scene.organizationId,
    })
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

describe('the figures', () => {
  test('for today and for the same hours yesterday equal those in the ledgers', async () => {
    for (const organizationId of [null, scene.organizationId]) {
      const found = await todayFigures(room.foundation.pool, organizationId, nowMs)
      const midnight = new Date(Math.floor(nowMs / 86_400_000) * 86_400_000)
      const own = '($1::text is null or organization_id = $1)'
      expect(asSums(found.today)).toEqual(
        await sumsOf(`${own} and effective_at >= $2`, [organizationId, midnight]),
      )
      const sameMinute = new Date(Math.floor(nowMs / 60_000) * 60_000 + 60_000 - 86_400_000)
      expect(asSums(found.yesterday)).toEqual(
        await sumsOf(`${own} and effective_at >= $2::timestamptz - interval '1 day' and effective_at < $3`, [
          organizationId,
          midnight,
          sameMinute,
        ]),
      )
      const calls = found.hours.reduce((sum, hour) => sum + hour.calls, 0n)
      expect(calls).toBe(found.today.calls)
    }
  })

  test.each(['24h', '30d'])('for %s are the same by hour and by day as in the ledgers', async (name) => {
    const range = rangeIn(formOf({ range: name }), { nowMs, newestMs: null })
    const { series, codes, leaders } = await figuresOfAll(room.foundation.pool, range)
    const calls = series.points.flatMap((point) => point.calls).reduce((sum, one) => sum + one, 0n)
    const from = [new Date(range.fromMs)]
    expect(String(calls)).toBe((await sumsOf('effective_at >= $1', from))?.calls)
    const failed = codes.reduce((sum, one) => sum + BigInt(one.calls), 0n)
    expect(String(failed)).toBe((await sumsOf('effective_at >= $1 and code is not null', from))?.calls)
    const { byCredits, byErrors } = leaders
    expect(byCredits.map(({ organization_id }) => organization_id)).toEqual([
      scene.organizationId,
      other.organizationId,
    ])
    expect(byCredits[0]?.charged_micro).toBe(
      (await sumsOf('effective_at >= $1 and organization_id = $2', [...from, scene.organizationId]))?.charged,
    )
    expect(byErrors).toHaveLength(2)
  })
})

test('calls with test keys do not count in the totals, which are about paying organizations', async () => {
  const { pool } = room.foundation
  const range = rangeIn(formOf({ range: '24h' }), { nowMs, newestMs: null })
  const figures = async () => [
    asSums((await todayFigures(pool, null, nowMs)).today),
    await figuresOfAll(pool, range),
    (await ada.get('/commands/ledger/charges.csv')).body,
  ]
  const before = await figures()
  const organizationId = await openTestOrganization(room.foundation, {
    organizationId: scene.organizationId,
    actor: 'cli',
  })
  await recordCall(room, organizationId, lookedUp(room, 'abcdefghijklmnop'), { atMs: nowMs })
  await room.caughtUp()
  const own = await todayFigures(pool, organizationId, nowMs)
  expect(asSums(own.today)).toEqual({ calls: '1', errors: '0', charged: '1000000' })
  expect(await figures()).toEqual(before)
})

test('before any call, the overview shows that nothing needs attention', () => {
  expect(beforeAnyCall).toContain('Nothing needs attention.')
})

test('an organization below its threshold is in the list of low balances, and on the overview with a suggested action', async () => {
  const amount = parseCredits('1000000')
  await setThreshold(room.foundation, { organizationId: other.organizationId, amount, actor: 'cli' })
  await room.caughtUp()
  const low = await lowOrganizations(room.foundation.pool, nowMs)
  expect(low.map(({ name }) => name)).toEqual(['Contoso'])
  expect((await ada.get('/')).body).toMatch(
    new RegExp(
      `low balance</span> <a href="/organizations/${other.organizationId}">Contoso</a>.*less than its threshold of 1,000,000.*/${other.organizationId}/credits/grant"`,
    ),
  )
})

test('an organization whose credits do not pay for its calls is on the overview for one to two hours', async () => {
  const line = new RegExp(
    `not enough credits</span> <a href="/organizations/${scene.organizationId}">Northwind Traders</a>.*calls\\?code=CREDIT_001">1</a>.*/${scene.organizationId}/credits/grant"`,
  )
  expect((await ada.get('/')).body).toMatch(line)
  const named = async (atMs: number) =>
    (await unpaidOrganizations(room.foundation.pool, atMs)).organizations.map(({ name }) => name).sort()
  const hourMs = 3_600_000
  expect(await named(nowMs + hourMs)).toEqual(['Contoso', 'Northwind Traders'])
  expect(await named(nowMs + 2 * hourMs)).toEqual([])
})

describe('findings of checks', () => {
  afterEach(() => {
    found = []
  })

  test('are all on the operations page, problems first, with remedies', async () => {
    found = [finding('ok', 'disk'), finding('warning', 'clocks'), finding('fault', 'jobs')]
    const { body } = await ada.get('/operations')
    const places = ['jobs says', 'clocks says', 'disk says'].map((text) => body.indexOf(text))
    expect(places).toEqual(places.toSorted((a, b) => a - b))
    expect(places[0]).toBeGreaterThan(0)
    expect(body).toContain('mend jobs')
    expect(body).toContain('&lt;b&gt;fault&lt;/b&gt;')
    expect(body).not.toContain('\u202e')
  })

  test('are on the overview if they are problems', async () => {
    found = [finding('ok', 'disk'), finding('warning', 'clocks')]
    const { body } = await ada.get('/')
    expect(body).toContain('mend clocks')
    expect(body).not.toContain('disk says')
    found = [finding('ok', 'disk')]
    expect((await ada.get('/')).body).toContain('checks of this process are ok.')
  })
})

const dayMs = 86_400_000
const day = (from: number): string => new Date(nowMs + from * dayMs).toISOString().slice(0, 10)

const usage = (query = ''): string => `/organizations/${scene.organizationId}/usage${query}`
const rowsIn = (csv: string): string[][] =>
  csv
    .trimEnd()
    .split('\r\n')
    .slice(1)
    .map((line) => line.split(','))
const sumOf = (rows: string[][], column: number): number =>
  rows.reduce((sum, row) => sum + Number(row[column]), 0)

/** The totals of the ledger's own lines. */
const ledgerSums = async () => {
  const { rows } = await room.foundation.pool.query<{ calls: string; credits: string }>(
    `select sum(calls)::text as calls, (sum(-amount_micro) filter (where kind = 'call') / 1000000)::float8::text as credits
       from ledger_lines where ledger = ledger_key($1) and calls is not null`,
    [scene.organizationId],
  )
  return rows[0]
}

test('the overview shows the meaning of every error code', async () => {
  const { body } = await ada.get('/')
  for (const meaning of ['not enough credits', 'a rate limit of the key is exceeded'])
    expect(body).toContain(`data-head="Meaning"><div>${meaning}</div>`)
})

describe('the usage page', () => {
  test('groups by capability, with the calls that a rate limit refused in a group of their own', async () => {
    const { body } = await ada.get(usage('?range=30d'))
    expect(body).toContain('Calls and credits by capability')
    expect(body).toMatch(/data-head="Capability">rate limited</)
    expect(body).not.toMatch(/data-head="Capability">any</)
  })

  test('shows a row for every hour in the last day, with links to the same data as CSV', async () => {
    const { body, statusCode } = await ada.get(usage())
    expect(body).toContain('<option value="24h" selected>')
    expect(statusCode).toBe(200)
    expect(body.match(/<th scope="row" class="name" data-head="Time \(UTC\)">/g)).toHaveLength(48)
    expect((await ada.get(usage('?range=30d'))).body).toContain(`<time datetime="${day(0)}">${day(0)}</time>`)
    expect(body).toMatch(/<data value="17">17<\/data>/)
    expect(body).toMatch(/402, no credits<\/dt><dd>\d\.\d\d %/)
    const month = (await ada.get(usage('?range=30d'))).body
    const csv = /href="([^"]+table=steps)"/.exec(month)?.[1]?.replaceAll('&amp;', '&') ?? ''
    const { headers, body: text } = await ada.get(csv)
    expect(headers['content-type']).toBe('text/csv; charset=utf-8')
    const sums = await ledgerSums()
    expect(sumOf(rowsIn(text), 2)).toBe(Number(sums?.calls))
    expect(sumOf(rowsIn(text), 3)).toBe(Number(sums?.credits))
  })

  test.each(['outcome', 'rule'])('by %s adds up to the same, in days, hours and groups', async (by) => {
    const range = `from=${day(-4)}&to=${day(0)}`
    const [days, hours, groups] = await Promise.all(
      [`range=30d&table=steps`, `${range}&table=steps`, `${range}&table=groups`].map(async (rest) =>
        rowsIn((await ada.get(`/organizations/${scene.organizationId}/usage.csv?by=${by}&${rest}`)).body),
      ),
    )
    if (days === undefined || hours === undefined || groups === undefined) throw new Error('no rows')
    const within = days.filter(([at = '']) => at >= day(-4))
    expect(new Set(within.map(([at]) => at)).size).toBe(5)
    // Usage by rule is counted only by day.
    expect(new Set(hours.map(([at]) => at)).size).toBe(by === 'rule' ? 5 : 120)
    const calls = sumOf(groups, 1)
    expect(calls).toBeGreaterThan(17)
    expect([sumOf(within, 2), sumOf(hours, 2)]).toEqual([calls, calls])
    const credits = sumOf(groups, 6)
    expect(credits).toBeGreaterThan(0)
    expect([sumOf(within, 3), sumOf(hours, 3)]).toEqual([credits, credits])
  })

  test('for one key counts only that key', async () => {
    const all = rowsIn((await ada.get(`${usage('.csv')}?table=groups&by=key`)).body)
    const own = rowsIn((await ada.get(`${usage('.csv')}?table=groups&by=key&key=${scene.keyId}`)).body)
    expect(all).toHaveLength(2)
    expect(own).toEqual(all.filter(([key]) => key === scene.keyId))
  })

  test.each([
    ['from=2026-02-30', 'is not a time'],
    ['from=2020-01-01', 'A range can have at most 366 days'],
  ])('shows the error in %s', async (query, why) => {
    const { statusCode, body } = await ada.get(usage(`?${query}`))
    expect(statusCode).toBe(422)
    expect(body).toContain(why)
    expect((await ada.get(usage(`.csv?${query}`))).statusCode).toBe(422)
  })

  test('accepts any text for a key, a group or a step, and then shows everything', async () => {
    for (const query of ['key=%00', 'key=x', 'by=%27', 'range=week'])
      expect((await ada.get(usage(`?${query}`))).statusCode).toBe(200)
  })
})

describe('the positions of lines from a period', () => {
  // Revisions with one, two and three digits, because as texts they have another order.
  test.each([2, 4, 6, 8, 10])(
    'include every line of a day %i days ago, and exclude most others',
    async (days) => {
      const { pool } = room.foundation
      const range = { fromMs: nowMs - (days + 1) * dayMs, untilMs: nowMs - days * dayMs }
      const places = await linePlaces(pool, scene.organizationId, range)
      const { rows } = await pool.query<{ least: string; most: string; last: string }>(
        `select min(revision) filter (where effective_at >= $2 and effective_at < $3) as least,
              max(revision) filter (where effective_at >= $2 and effective_at < $3) as most, max(revision) as last
         from ledger_lines where ledger = ledger_key($1)`,
        [scene.organizationId, new Date(range.fromMs), new Date(range.untilMs)],
      )
      const [found] = rows
      expect(Number(places?.first)).toBeLessThanOrEqual(Number(found?.least))
      expect(Number(places?.last)).toBeGreaterThanOrEqual(Number(found?.most))
      expect(Number(places?.last)).toBeLessThan(Number(found?.last))
    },
  )
})

describe('when credits will run out', () => {
  const rate = { perDayMicro: 10n, overdrawnMicro: 0n, nowMs: 0 }
  const lot = (remainingMicro: bigint, expiresAtMs: number | null = null) => ({ remainingMicro, expiresAtMs })

  test.each([
    ['no use', [lot(5n)], { ...rate, perDayMicro: 0n }, null],
    ['nothing left', [], rate, 0],
    ['exactly two days', [lot(20n)], rate, 2 * dayMs],
    ['a lot that expires before it is drawn', [lot(10n), lot(100n, dayMs)], rate, dayMs],
    ['a lot that expires later', [lot(10n), lot(100n, 5 * dayMs)], rate, 5 * dayMs],
    ['an overdraft that is used', [lot(20n)], { ...rate, overdrawnMicro: 10n }, dayMs],
    ['more than ten years', [lot(36_500n)], rate, null],
  ] as const)('%s', (_what, lots, asked, expected) => {
    expect(usedUpAtMs(lots, asked)).toBe(expected)
  })
})

describe('ranges', () => {
  const now = Date.parse('2026-11-27T12:34:56.789Z')
  const of = (query: Record<string, string>, newestMs: number | null = null): Range =>
    rangeIn(formOf(query), { nowMs: now, newestMs })
  const shown = ({ name, step, ...range }: Range) => {
    const times = timesOf({ name, step, ...range })
    return [name, step, times.length, times.at(0), times.at(-1)]
  }

  test.each([
    ['15m', 'minute', 15, '2026-11-27T12:20:00Z', '2026-11-27T12:34:00Z'],
    ['today', 'hour', 13, '2026-11-27T00:00:00Z', '2026-11-27T12:00:00Z'],
    ['24h', 'hour', 24, '2026-11-26T13:00:00Z', '2026-11-27T12:00:00Z'],
    ['30d', 'day', 30, '2026-10-29', '2026-11-27'],
    ['month', 'day', 27, '2026-11-01', '2026-11-27'],
  ])('%s is in steps of a %s and ends with the current one', (range, ...expected) => {
    expect(shown(of({ range }))).toEqual([range, ...expected])
  })

  test.each([
    ['a day of the last weeks', { from: '2026-11-02', to: '2026-11-02' }, ['hour', 24]],
    ['two hours of today', { from: '2026-11-27T09:00', to: '2026-11-27T11:00' }, ['minute', 120]],
    [
      'two hours before the minutes that are kept',
      { from: '2026-11-25T09:10', to: '2026-11-25T11:10' },
      ['hour', 3],
    ],
    ['a day before the hours that are kept', { from: '2026-06-02', to: '2026-06-02' }, ['day', 1]],
    ['a quarter', { from: '2026-07-01', to: '2026-09-30' }, ['day', 92]],
  ])('%s is shown in the finest steps that are stored', (_what, query, expected) => {
    const range = of(query)
    expect([range.step, timesOf(range).length]).toEqual(expected)
  })

  test.each([
    ['no call', null, '24h'],
    ['a call an hour ago', now - 3_600_000, '24h'],
    ['a call two days ago', now - 2 * dayMs, '7d'],
    ['a call half a year ago', now - 180 * dayMs, 'custom'],
  ])('the default range, with %s, includes that call', (_what, newestMs, expected) => {
    const range = of({}, newestMs)
    expect(range.name).toBe(expected)
    if (newestMs === null) return
    expect(range.fromMs).toBeLessThanOrEqual(newestMs)
    expect(range.untilMs).toBeGreaterThan(newestMs)
  })

  test('in days are the days that contain them', () => {
    expect(timesOf(inDays(of({ range: '24h' })))).toEqual(['2026-11-26', '2026-11-27'])
  })
})

describe("a plot's series", () => {
  test('end with the remaining groups combined', () => {
    const { groups, points } = seriesOf(
      ['2026-01-01'],
      [
        { at: new Date('2026-01-01'), name: null, calls: '3', charged_micro: '0' },
        { at: new Date('2026-01-01'), name: 'b', calls: '2', charged_micro: '1' },
        { at: new Date('2025-01-01'), name: 'a', calls: '9', charged_micro: '9' },
      ],
      'day',
    )
    expect(groups).toEqual(['a', 'b', null])
    expect(points).toEqual([{ at: '2026-01-01', calls: [0n, 2n, 3n], chargedMicro: [0n, 1n, 0n] }])
  })
})

test('a CSV file contains no formula, and quotes what it must', () => {
  expect(
    csvOf(
      ['a', 'b'],
      [
        ['=1+1', { number: '-5' }],
        ['x,"y"', 'line\nbreak'],
      ],
    ),
  ).toBe(`a,b\r\n'=1+1,-5\r\n"x,""y""","line\nbreak"\r\n`)
})
