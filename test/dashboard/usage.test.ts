/** An organization's usage, on the page and as a file. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { createOrganization } from '../../src/administration/organizations/organizations.ts'
import { putUser } from '../../src/administration/users/users.ts'
import { csvOf } from '../../src/dashboard/csv.ts'
import { formOf } from '../../src/dashboard/form.ts'
import { linePlaces } from '../../src/dashboard/line-places.ts'
import { inDays, type Range, rangeIn, timesOf } from '../../src/dashboard/ranges.ts'
import { seriesOf } from '../../src/dashboard/usage-series.ts'
import { usedUpAtMs } from '../../src/dashboard/used-up.ts'
import {
  type Browser,
  type DashboardHost,
  openBrowser,
  openDashboardHost,
  signedIn,
} from './dashboard-host.ts'
import { openScene, type Scene } from './scene.ts'

let room: DashboardHost
let ada: Browser
let scene: Scene
const user = { name: 'ada', password: 'correct horse battery staple' }
const nowMs = Date.now()
const dayMs = 86_400_000
const day = (from: number): string => new Date(nowMs + from * dayMs).toISOString().slice(0, 10)

beforeAll(async () => {
  room = await openDashboardHost()
  await putUser(room.foundation.pool, user)
  ada = await signedIn(room, user)
  scene = await openScene(room, { nowMs, days: 12 })
})
afterAll(() => room?.close())

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

describe('the usage page', () => {
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

  test.each(['outcome', 'capability', 'key', 'rule'])(
    'by %s adds up to the same, in days, hours and groups',
    async (by) => {
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
    },
  )

  test('for one key counts only that key', async () => {
    const all = rowsIn((await ada.get(`${usage('.csv')}?table=groups&by=key`)).body)
    const own = rowsIn((await ada.get(`${usage('.csv')}?table=groups&by=key&key=${scene.keyId}`)).body)
    expect(all).toHaveLength(2)
    expect(own).toEqual(all.filter(([key]) => key === scene.keyId))
  })

  test.each([
    ['from=2026-02-30', 'is not a time'],
    ['from=2026-01-02&to=2026-01-01', 'is not after 2026-01-02'],
    ['from=2020-01-01', 'A range can have at most 366 days'],
    ['range=custom', 'is not a time'],
    ['from=%00', 'is not a time'],
    ['from=0000-00-00', 'is not a time'],
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

  test('for an organization without calls is shown as empty', async () => {
    const { organizationId } = await createOrganization(room.foundation, {
      ...{ name: 'Quiet Ltd', overdraftLimit: 0n, actor: 'cli' },
    })
    await room.caughtUp()
    for (const range of ['30d', '24h', '1h']) {
      const { body, statusCode } = await ada.get(`/organizations/${organizationId}/usage?range=${range}`)
      expect(statusCode).toBe(200)
      expect(body).toContain('No usage in this range.')
      expect(body).toContain('known after the first whole day')
    }
  })

  test('requires signing in, which leads back to it', async () => {
    const stranger = openBrowser(room.host)
    const page = usage(`?from=${day(-1)}&to=${day(0)}&by=key`)
    const { headers } = await stranger.get(page)
    expect(headers.location).toBe(`/login?next=${encodeURIComponent(page)}`)
    expect((await stranger.submit('/login', { ...user, next: page })).headers.location).toBe(page)
  })
})

describe('the positions of lines from a period', () => {
  test('include every line in the period, and exclude most others', async () => {
    const { pool } = room.foundation
    const range = { fromMs: nowMs - 3 * dayMs, untilMs: nowMs - 2 * dayMs }
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
  })

  test('do not exist for a ledger without lines', async () => {
    expect(await linePlaces(room.foundation.pool, 'org_none', { fromMs: 0, untilMs: 1 })).toBeNull()
  })
})

describe('when credits will run out', () => {
  const rate = { perDayMicro: 10n, overdrawnMicro: 0n, nowMs: 0 }
  const lot = (remainingMicro: bigint, expiresAtMs: number | null = null) => ({ remainingMicro, expiresAtMs })

  test.each([
    ['no use', [lot(5n)], { ...rate, perDayMicro: 0n }, null],
    ['nothing left', [], rate, 0],
    ['less than a day', [lot(9n)], rate, 0],
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
    ['1h', 'minute', 60, '2026-11-27T11:35:00Z', '2026-11-27T12:34:00Z'],
    ['today', 'hour', 13, '2026-11-27T00:00:00Z', '2026-11-27T12:00:00Z'],
    ['24h', 'hour', 24, '2026-11-26T13:00:00Z', '2026-11-27T12:00:00Z'],
    ['7d', 'hour', 168, '2026-11-20T13:00:00Z', '2026-11-27T12:00:00Z'],
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
    ['a call two weeks ago', now - 14 * dayMs, '30d'],
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
