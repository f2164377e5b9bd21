/** The overview of the installation and that of one organization: today, problems to handle, and usage over a range. */
import { ulid } from 'ulid'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import type { Finding } from '../../src/administration/checks/check.ts'
import { setThreshold } from '../../src/administration/credits/corrections.ts'
import { openTestOrganization } from '../../src/administration/keys/api-keys.ts'
import { putUser } from '../../src/administration/users/users.ts'
import { parseCredits } from '../../src/billing/money.ts'
import { formOf } from '../../src/dashboard/form.ts'
import { figuresOfAll, lowOrganizations, todayFigures } from '../../src/dashboard/overview.ts'
import { rangeIn } from '../../src/dashboard/ranges.ts'
import { type Browser, type DashboardHost, openDashboardHost, signedIn } from './dashboard-host.ts'
import { openScene, type Scene } from './scene.ts'

const finding = (level: Finding['level'], about: string): Finding => ({
  level,
  about,
  says: `${about} says <b>${level}</b>\u202e`,
  remedy: level === 'ok' ? null : `mend ${about}`,
  figures: {},
})

let found: readonly Finding[] = []
let room: DashboardHost
let ada: Browser
let scene: Scene
let other: Scene
const user = { name: 'ada', password: 'correct horse battery staple' }
const nowMs = Date.now()

beforeAll(async () => {
  room = await openDashboardHost({ findings: async () => found })
  await putUser(room.foundation.pool, user)
  ada = await signedIn(room, user)
  scene = await openScene(room, { nowMs, days: 12 })
  other = await openScene(room, { nowMs: nowMs - 1, days: 3, name: 'Contoso' })
})
afterAll(() => room?.close())

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

  test.each(['24h', '7d', '30d'])(
    'for %s are the same by hour and by day as in the ledgers',
    async (name) => {
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
        (await sumsOf('effective_at >= $1 and organization_id = $2', [...from, scene.organizationId]))
          ?.charged,
      )
      expect(byErrors).toHaveLength(2)
    },
  )
})

test('calls with test keys do not count in the totals, which are about paying organizations', async () => {
  const { pool, secrets, ledger } = room.foundation
  const range = rangeIn(formOf({ range: '24h' }), { nowMs, newestMs: null })
  const figures = async () => [
    asSums((await todayFigures(pool, null, nowMs)).today),
    await figuresOfAll(pool, range),
    (await ada.get('/months.csv')).body,
  ]
  const before = await figures()
  const organizationId = await openTestOrganization(room.foundation, {
    organizationId: scene.organizationId,
    actor: 'cli',
  })
  const requestId = ulid(nowMs)
  await ledger.submit(organizationId, {
    ...{
      key: requestId,
      atMs: nowMs,
      requestId,
      actor: 'key:test',
      kind: 'record',
      book: room.prices.at(nowMs),
    },
    call: {
      ...{ keyId: 'abcdefghijklmnop', capability: 'ip_lookup', outcome: 'answered' },
      facts: {
        ...{ kind: 'ip_lookup', success: true, country_code: 'US' },
        address_hmac: secrets.addressHmac('8.8.8.8'),
      },
    },
  })
  await room.caughtUp()
  const own = await todayFigures(pool, organizationId, nowMs)
  expect(asSums(own.today)).toEqual({ calls: '1', errors: '0', charged: '1000000' })
  expect(await figures()).toEqual(before)
})

test('an organization below its threshold is in the list of low balances, and on the overview with a suggested action', async () => {
  expect((await ada.get('/')).body).toContain('Nothing needs attention.')
  const amount = parseCredits('1000000')
  await setThreshold(room.foundation, { organizationId: other.organizationId, amount, actor: 'cli' })
  await room.caughtUp()
  const low = await lowOrganizations(room.foundation.pool, nowMs)
  expect(low.map(({ name }) => name)).toEqual(['Contoso'])
  const { body } = await ada.get('/')
  expect(body).not.toContain('Nothing needs attention.')
  expect(body).toContain(`href="/organizations/${other.organizationId}/credits/grant"`)
})

test('the overview refreshes itself with its range, and has a table for its chart', async () => {
  const { body } = await ada.get('/?range=7d')
  expect(body).toContain('hx-get="/?range=7d&amp;refresh=yes" hx-trigger="every 10s" hx-select="#live"')
  expect(body).toContain('Calls by outcome per hour as a table')
  expect(body).toContain('href="/calls?range=1h&amp;outcome=errors"')
  expect(body).toContain(`href="/organizations/${other.organizationId}/calls?range=7d&amp;outcome=errors"`)
  expect(body).toContain('<a href="/calls?range=7d&amp;code=CREDIT_001">')
  const wrong = await ada.get('/?from=2026-02-30')
  expect(wrong.statusCode).toBe(422)
  expect(wrong.body).toContain('is not a time such as')
})

test('the usage of all organizations has the sums of the ledgers, with tables behind its charts', async () => {
  const { statusCode, body } = await ada.get('/usage?range=7d')
  expect(statusCode).toBe(200)
  const { fromMs } = rangeIn(formOf({ range: '7d' }), { nowMs, newestMs: null })
  const sums = await sumsOf('effective_at >= $1', [new Date(fromMs)])
  expect(body).toContain(`<dt>Calls</dt><dd><strong>${Number(sums?.calls).toLocaleString('en')}</strong>`)
  expect(body).toContain('Calls by outcome per hour as a table')
  expect(body).toContain('Credits by capability per hour as a table')
  expect(body).toContain(`href="/organizations/${scene.organizationId}/usage?range=7d"`)
  expect((await ada.get('/usage?from=2026-02-30')).statusCode).toBe(422)
})

test("an organization's page shows days left, usage by capability and errors by code", async () => {
  const { body } = await ada.get(`/organizations/${scene.organizationId}`)
  expect(body).toMatch(/Days left at the current rate<\/dt><dd>[\d,]+<\/dd>/)
  expect(body).toContain('Credits by capability per hour')
  expect(body).toContain(
    `<a href="/organizations/${scene.organizationId}/calls?range=24h&amp;code=CREDIT_001">`,
  )
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
