/** Every page of the dashboard in a real Chromium: nothing it complains about, nothing axe finds, nothing beyond its width. */
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { setPriceOverride } from '../../src/administration/price-overrides.ts'
import { proposePriceBook } from '../../src/administration/prices.ts'
import { planRerate, pricesNamed } from '../../src/administration/rerates.ts'
import { putUser } from '../../src/administration/users.ts'
import { firstCalls } from '../../src/dashboard/first-call.ts'
import { type DashboardHost, openDashboardHost } from '../dashboard/dashboard-host.ts'
import { openScene, type Scene } from '../dashboard/scene.ts'
import {
  axeFindings,
  type Chromium,
  openChromium,
  overhang,
  picture,
  screens,
  type Window,
} from './chromium/browser.ts'

let room: DashboardHost
let chromium: Chromium
let scene: Scene
let baseUrl = ''
let lotHref = ''
let run = ''
const ada = { name: 'ada', password: 'correct horse battery staple' }

beforeAll(async () => {
  room = await openDashboardHost()
  await putUser(room.foundation.pool, ada)
  scene = await openScene(room, { nowMs: Date.now() })
  await proposePriceBook(room.foundation, {
    rulesOver: (base) => base.map((rule) => (rule.sku === 'ip_lookup' ? { ...rule, amount: '0.75' } : rule)),
    effectiveFrom: new Date(Date.now() + 86_400_000).toISOString(),
    ...{ reason: 'the contract of next year', actor: 'user:bob' },
  })
  const [from, to] = [-20, -1].map((days) => new Date(Date.now() + days * 86_400_000).toISOString())
  if (from === undefined || to === undefined) throw new Error('no range')
  const book = await pricesNamed(room.foundation, 'p1', { from, readJson: () => Promise.reject(new Error()) })
  const asked = { book, from, to, organizationId: null, organizations: [scene.organizationId] }
  const planned = await planRerate(
    room.foundation,
    { ...asked, reason: 'charged too much', actor: 'user:bob' },
    () => undefined,
  )
  run = planned.proposed.run
  await setPriceOverride(room.foundation, {
    ...{ organizationId: scene.organizationId, sku: 'ip_lookup', amount: 500_000n, reason: 'contract' },
    ...{ effectiveFrom: new Date(Date.now() + 60_000).toISOString(), actor: 'user:bob' },
  })
  const { rows } = await room.foundation.pool.query<{ grant_id: string }>(
    'select grant_id from account_lots where organization_id = $1 and remaining_micro > 0 limit 1',
    [scene.organizationId],
  )
  lotHref = `/organizations/${scene.organizationId}/lots/${rows[0]?.grant_id}/void`
  baseUrl = await room.host.listen({ host: '127.0.0.1', port: 0 })
  chromium = await openChromium(baseUrl)
})
afterAll(async () => {
  await chromium?.close()
  await room?.close()
})

const signIn = async ({ page }: Window): Promise<void> => {
  await page.goto('/login')
  await page.fill('#name', ada.name)
  await page.fill('#password', ada.password)
  await page.click('button[type=submit]')
  await page.waitForURL('**/')
}

/** By the name of their pictures. */
const paths = (): Readonly<Record<string, string>> => {
  const organization = `/organizations/${scene.organizationId}`
  return {
    overview: '/',
    account: organization,
    usage: `${organization}/usage`,
    'usage-hours': `${organization}/usage?unit=hour&by=key&from=${day(-2)}&to=${day(0)}`,
    call: `${organization}/calls/${scene.requestId}`,
    key: `${organization}/keys/${scene.keyId}`,
    'key-new': `${organization}/keys/new`,
    'key-rotate': `${organization}/keys/${scene.keyId}/rotate`,
    'key-revoke': `${organization}/keys/${scene.keyId}/revoke`,
    statement: `${organization}/statement`,
    months: `${organization}/months`,
    month: `${organization}/months/${day(0).slice(0, 7)}`,
    'month-before': `${organization}/months/${day(-31).slice(0, 7)}`,
    lots: `${organization}/lots`,
    'own-prices': `${organization}/prices`,
    refund: `${organization}/calls/${scene.requestId}/refund`,
    'lot-void': lotHref,
    'organization-new': '/organizations/new',
    'credits-grant': `${organization}/credits/grant`,
    'credits-adjust': `${organization}/credits/adjust`,
    'credits-threshold': `${organization}/credits/threshold`,
    pixel: `${organization}/pixel`,
    webhooks: `${organization}/webhooks`,
    prices: '/prices',
    'prices-new': '/prices/new',
    proposal: '/prices/p1',
    'proposal-cost': `/prices/p1/cost?month=${day(0).slice(0, 7)}`,
    'proposal-withdraw': '/prices/p1/withdraw',
    rerates: '/rerates',
    'rerate-new': '/rerates/new',
    rerate: `/rerates/${run}`,
    reconcile: '/reconcile',
    operations: '/operations',
    projection: '/operations/projections/key_usage',
    audit: '/audit',
    own: '/me',
    missing: '/nothing',
  }
}

const day = (from: number): string => new Date(Date.now() + from * 86_400_000).toISOString().slice(0, 10)

const perWindowMs = 180_000

describe.each(screens)('in a $scheme window of $width pixels', ({ scheme, width }) => {
  let window: Window
  beforeAll(async () => {
    window = await chromium.open({ scheme, width })
    await window.page.goto('/login')
    await picture(window.page, `login-${scheme}-${width}`)
    expect(await axeFindings(window.page)).toEqual([])
    await signIn(window)
  })
  afterAll(() => window?.close())

  test(
    'every page is whole',
    async () => {
      const wrong: Record<string, unknown> = {}
      for (const [name, path] of Object.entries(paths())) {
        window.complaints()
        await window.page.goto(path, { waitUntil: 'networkidle' })
        await picture(window.page, `${name}-${scheme}-${width}`)
        const found = {
          complaints: window.complaints().filter((said) => name !== 'missing' || !said.includes('404')),
          beyond: await overhang(window.page),
          axe: await axeFindings(window.page),
        }
        if (found.complaints.length > 0 || found.beyond > 0 || found.axe.length > 0) wrong[name] = found
      }
      expect(wrong).toEqual({})
    },
    perWindowMs,
  )
})

test('a key is issued by clicks and copied, and the lines beside it make calls', async () => {
  const window = await chromium.open({ scheme: 'light', width: 390 })
  const { page } = window
  await signIn(window)
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write'])
  await page.goto(`/organizations/${scene.organizationId}/keys/new`)
  await page.fill('#name', 'browser')
  await page.click('text=Issue key')
  const apiKey = (await page.locator('#api-key').textContent()) ?? ''
  await page.click('button[data-copy=api-key]')
  await expect.poll(() => page.evaluate('navigator.clipboard.readText()')).toBe(apiKey)
  await picture(page, 'key-shown-light-390')
  expect([await axeFindings(page), await overhang(page), window.complaints()]).toEqual([[], 0, []])
  const lines = firstCalls({
    ...{ apiUrl: baseUrl, dashboardUrl: baseUrl, apiKey, permissions: [] },
  })
  const run = promisify(execFile)
  const commands: Readonly<Record<string, [string, string[]]>> = {
    curl: ['sh', ['-c']],
    TypeScript: [process.execPath, ['--input-type=module-typescript', '-e']],
    Python: ['python3', ['-c']],
  }
  for (const { name, text } of lines) {
    const [program, options] = commands[name] ?? ['false', []]
    expect((await run(program, [...options, text])).stdout).toContain('Northwind Traders')
  }
  await window.close()
})

test('a plot is drawn from its table, which closes, and can be opened again', async () => {
  const window = await chromium.open({ scheme: 'light', width: 1280 })
  await signIn(window)
  await window.page.goto(`/organizations/${scene.organizationId}/usage`)
  await window.page.waitForSelector('.chart canvas')
  expect(await window.page.locator('.chart canvas').count()).toBe(2)
  expect(await window.page.locator('figure details[open]').count()).toBe(0)
  await window.page.click('figure:first-of-type summary')
  expect(await window.page.locator('figure details[open] tbody tr').count()).toBe(30)
  await window.close()
})

test('a statement grows where it is, to its end', async () => {
  const window = await chromium.open({ scheme: 'light', width: 1280 })
  await signIn(window)
  const { page } = window
  await page.goto(`/organizations/${scene.organizationId}/statement`)
  const rows = page.locator('#lines tbody tr')
  expect(await rows.count()).toBe(50)
  for (let shown = 50; (await page.locator('#pager a').count()) > 0; ) {
    await page.click('#pager a')
    await expect.poll(() => rows.count()).toBeGreaterThan(shown)
    shown = await rows.count()
  }
  const { rows: counted } = await room.foundation.pool.query<{ n: number }>(
    'select count(*)::integer as n from ledger_lines where ledger = ledger_key($1)',
    [scene.organizationId],
  )
  expect(await rows.count()).toBe(counted[0]?.n)
  expect([await axeFindings(page), window.complaints()]).toEqual([[], []])
  await window.close()
})

test('a time in UTC says what it is here', async () => {
  const window = await chromium.open({ scheme: 'light', width: 1280 })
  await signIn(window)
  const time = window.page.locator('time[datetime*=T]').first()
  await time.hover()
  expect(await time.getAttribute('title')).toMatch(/ here$/)
  await window.close()
})
