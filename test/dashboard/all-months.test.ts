/**
 * The page of a month for all organizations: the usage compared with the previous month, the file, and the form that closes the
 * month for all organizations together.
 */
import { describe, expect, test } from 'vitest'
import { refund } from '../../src/administration/credits/refunds.ts'
import { closableAt } from '../../src/administration/months/statements.ts'
import { formatCredits } from '../../src/billing/money.ts'
import { openOrganization } from '../support/partners.ts'
import { browserOf, give, roomForFile, settled } from './dashboard-host.ts'
import { openScene } from './scene.ts'

const actor = 'cli:setup'
const nowMs = Date.now()
const monthOf = (ago: number): string => {
  const now = new Date(nowMs)
  return new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - ago)).toISOString().slice(0, 7)
}

const room = await roomForFile()
const scene = await openScene(room, { nowMs, days: 70, everyDays: 7 })
const evil = await openOrganization(room.foundation, '=cmd()<b>')
await room.caughtUp()
const finance = await browserOf(room, { name: 'fay', role: 'finance' })
const viewer = await browserOf(room, { name: 'vic', role: 'viewer' })

const used = async (month: string) => {
  const { rows } = await room.foundation.pool.query<{ calls: string; credits: string }>(
    `select coalesce(sum(calls), 0)::text as calls,
            coalesce(sum(-amount_micro) filter (where kind = 'call') / 1000000, 0)::float8::text as credits
       from ledger_lines where ledger = ledger_key($1) and calls is not null
        and to_char(effective_at at time zone 'utc', 'YYYY-MM') = $2`,
    [scene.organizationId, month],
  )
  return [rows[0]?.calls, rows[0]?.credits]
}

describe('the month of all organizations', () => {
  test('has the same figures as the statements, and so does its file', async () => {
    const { body, statusCode } = await viewer.get(`/commands/ledger/charges?month=${monthOf(1)}`)
    expect(statusCode).toBe(200)
    expect(body).toContain(`<h2>${monthOf(1)}, compared with ${monthOf(2)}</h2>`)
    expect(body).toContain(`href="/organizations/${scene.organizationId}/ledger/totals?month=${monthOf(1)}"`)
    expect(body).toContain('=cmd()&lt;b&gt;')
    expect(body).not.toContain('/ledger/close')
    const link = `/commands/ledger/charges.csv?month=${monthOf(1)}`
    expect(body).toContain(`href="${link}"`)
    const csv = await viewer.get(link)
    expect(csv.headers['content-disposition']).toContain(`ledger-charges-${monthOf(1)}.csv`)
    const [head, ...rows] = csv.body.trimEnd().split('\r\n')
    expect(head).toBe('organization_id,name,calls,calls_before,charged,charged_before,difference,adjusted')
    const [calls, credits] = await used(monthOf(1))
    const [callsBefore, creditsBefore] = await used(monthOf(2))
    expect(Number(calls)).toBeGreaterThan(0)
    const difference = Number(credits) - Number(creditsBefore)
    expect(rows).toEqual([
      `${evil},'=cmd()<b>,0,0,0,0,0,0`,
      `${scene.organizationId},Northwind Traders,${calls},${callsBefore},${credits},${creditsBefore},${difference},0`,
    ])
    const sums: [string, string | undefined][] = [
      ['Charged', credits],
      ['Charged before', creditsBefore],
      ['Difference', difference > 0 ? `+${difference}` : String(difference)],
      ['Calls', calls],
      ['Calls before', callsBefore],
    ]
    for (const [name, sum] of sums) expect(body).toContain(`<dt>${name}</dt><dd>${sum}</dd>`)
  })

  test("counts the same calls as the organization's months and totals: no rate-limited ones", async () => {
    const base = `/organizations/${scene.organizationId}/ledger`
    const { body: file } = await viewer.get(`/commands/ledger/charges.csv?month=${monthOf(0)}`)
    const calls = /,Northwind Traders,(\d+),/.exec(file)?.[1]
    const [recorded] = await used(monthOf(0))
    expect(Number(calls)).toBe(Number(recorded) - 17)
    const { body: totals } = await settled(viewer, `${base}/totals?month=${monthOf(0)}`)
    expect(totals).toContain(`<dt>Calls</dt><dd>${calls}</dd>`)
    expect(totals).toContain(`<li><a href="${base}/months">Months</a></li>`)
    expect(totals).toContain('calls refused by a rate limit do not count.')
    const months = (await settled(viewer, `${base}/months`)).body.replaceAll(/<[^>]*>/g, ' ')
    expect(months).toMatch(
      new RegExp(`${monthOf(0)}(?:\\s+-?[\\d.,]+(?:\\s+overdrawn)?){3}\\s+${calls}\\s+open`),
    )
  })

  test('lists organizations by name, regardless of case, on every page', async () => {
    const organizationId = await openOrganization(room.foundation, 'nabokov')
    await room.caughtUp()
    const names = async (query: string) =>
      [
        ...(await viewer.get(`/commands/ledger/charges?${query}`)).body.matchAll(
          /href="\/organizations\/(org_\w+)">/g,
        ),
      ].map(([, id]) => id)
    expect(await names('')).toEqual([evil, organizationId, scene.organizationId])
    expect(await names(`cursor=${organizationId}`)).toEqual([scene.organizationId])
    expect(await names(`cursor=${scene.organizationId}`)).toEqual([])
  })

  test('shows the current month by default', async () => {
    const { body } = await viewer.get('/commands/ledger/charges')
    expect(body).toContain(`<h2>${monthOf(0)}, compared with ${monthOf(1)}</h2>`)
    expect(body).toContain(`name="month" value="${monthOf(0)}"`)
  })

  test.each(['2026-13', '\u0000', '9999-12'])('of %j reports the error', async (month) => {
    for (const path of ['/commands/ledger/charges', '/commands/ledger/charges.csv'])
      expect((await viewer.get(`${path}?month=${encodeURIComponent(month)}`)).statusCode).toBe(422)
  })
})

describe('a day of all organizations', () => {
  const dayOf = (ms: number) => new Date(ms).toISOString().slice(0, 10)

  test('shows its charges, and the refunds that were made on it', async () => {
    const { body: before } = await viewer.get('/commands/ledger/day.csv')
    const asked = { ...scene, reason: 'wrong country', actor, dryRun: false }
    const { charged: amount } = await refund(room.foundation, asked)
    await room.caughtUp()
    const day = dayOf(nowMs)
    const { rows } = await room.foundation.pool.query<{ calls: string; credits: string }>(
      `select sum(calls)::text as calls, (sum(-amount_micro) filter (where kind = 'call') / 1000000)::float8::text as credits
         from ledger_lines where ledger = ledger_key($1) and kind <> 'rate_limited' and effective_at >= $2::date and effective_at < $2::date + 1`,
      [scene.organizationId, day],
    )
    const { body, headers } = await viewer.get(`/commands/ledger/day.csv?day=${day}`)
    expect(headers['content-disposition']).toContain(`ledger-day-${day}.csv`)
    const line = body.split('\r\n').find((one) => one.includes(',Northwind Traders,')) ?? ''
    expect(line.split(',').filter((_, i) => [2, 4, 7].includes(i))).toEqual([
      rows[0]?.calls,
      rows[0]?.credits,
      formatCredits(amount),
    ])
    expect(amount).toBeGreaterThan(0n)
    expect(before).toContain(line.replace(/[^,]*$/, '0'))
    const page = (await viewer.get('/commands/ledger/day')).body
    expect(page).toContain(`<h2>${day}, compared with ${dayOf(nowMs - 86_400_000)}</h2>`)
    expect(page).toContain(`<dt>Adjusted</dt><dd>+${formatCredits(amount)}</dd>`)
    expect(page).toContain(`/organizations/${scene.organizationId}/ledger/lines?from=${day}`)
    const earlier = await viewer.get(`/commands/ledger/day?day=${dayOf(nowMs - 86_400_000)}`)
    expect(earlier.body).toContain('<dt>Adjusted</dt><dd>0</dd>')
  })

  test.each(['2026-02-30', '2026-11', '9999-12-01', '2026-11-01T00:00Z'])('is not %j', async (day) => {
    const { statusCode } = await viewer.get(`/commands/ledger/day?day=${encodeURIComponent(day)}`)
    expect(statusCode).toBe(422)
  })
})

const closed = (month: string) => give(finance, '/commands/ledger/close', { month, all: 'on' })

describe('closing the month for all organizations', () => {
  test('is refused while calls can still be added to it', async () => {
    const page = (await finance.get(`/commands/ledger/charges?month=${monthOf(0)}`)).body
    expect(page).toContain('This month can be closed from')
    expect(page).toContain(`href="/commands/ledger/charges?month=${monthOf(1)}"`)
    expect(page).toContain(`href="/commands/ledger/reconcile?month=${monthOf(0)}"`)
    const { body } = await closed(monthOf(0))
    expect(body.match(/can be closed from/g)?.length).toBeGreaterThan(0)
  })

  test('names organizations with an earlier open month, closes the month for them once that is closed, and reports those closed before', async () => {
    // In the first hour of a month, the previous month cannot be closed yet.
    const last = nowMs < closableAt(monthOf(1)) ? 2 : 1
    const close = async (month: string): Promise<string> => (await closed(month)).body
    const early = await close(monthOf(last))
    expect(early).toContain('<h1>Done, with failures</h1>')
    expect(early).toContain(`of ${scene.organizationId} is open: close it first`)
    for (const ago of [last + 2, last + 1]) await close(monthOf(ago))
    expect((await finance.get(`/commands/ledger/charges?month=${monthOf(last)}`)).body).toContain(
      '/ledger/close?',
    )
    const now = await close(monthOf(last))
    await room.caughtUp()
    // A restored installation has no stored files, but its months are closed.
    await room.foundation.pool.query('delete from closed_month_files')
    for (const ago of [last, last + 1]) {
      const { body } = await finance.get(`/commands/ledger/charges?month=${monthOf(ago)}`)
      expect([body.includes('/ledger/close?'), body.includes('for every organization')]).toEqual([
        false,
        true,
      ])
    }
    expect(now).toContain('<h1>Done</h1>')
    expect(now).toMatch(/>closed</)
    expect(now).toMatch(/>nothing to close</)
    expect(await close(monthOf(last))).toMatch(/>closed already</)
    const events = await room.foundation.eventLog.read(`ledger-${scene.organizationId}`, {
      direction: 'backwards',
      max: 1,
    })
    expect(events[0]?.type).toBe('MonthClosed')
    expect(events[0]?.metadata).toContain('"actor":"user:fay"')
  })
})
