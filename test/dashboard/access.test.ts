/** Every page and every form for every role, from the one table of permissions. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { grant } from '../../src/administration/credits/credits.ts'
import { setPriceOverride } from '../../src/administration/prices/price-overrides.ts'
import { approvePriceBook, proposePriceBook } from '../../src/administration/prices/prices.ts'
import { mayDo } from '../../src/administration/roles.ts'
import { actionOfRoute, mayOpen, type Route } from '../../src/dashboard/access.ts'
import { menu, organizationMenu } from '../../src/dashboard/menu.ts'
import type { UserRole } from '../../src/events/users.ts'
import { writeCityFile } from '../support/house.ts'
import {
  type Browser,
  type DashboardHost,
  encoded,
  openBrowser,
  openDashboardHost,
  signedIn,
  userWhoChose,
} from './dashboard-host.ts'
import { requestOf, routeExamples } from './route-examples.ts'
import { openScene, type Scene } from './scene.ts'

let directory = ''
let room: DashboardHost
let scene: Scene
let other: Scene

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'access-'))
  room = await openDashboardHost({ environment: { GEOIP_CITY_DB: await writeCityFile(directory) } })
  scene = await openScene(room, { nowMs: Date.now(), days: 2 })
  other = await openScene(room, { nowMs: Date.now(), days: 2, name: 'Contoso' })
})
afterAll(async () => {
  await room?.close()
  await rm(directory, { recursive: true })
})

const routes = Object.keys(actionOfRoute) as Route[]
const month = new Date().toISOString().slice(0, 7)

/** A request whose answer, for a role with permission, does not depend on the role: the page, or the errors of the form. */
const askedOf = (route: Route, of: Scene) => requestOf(route, routeExamples(of))

const statusOf = async (browser: Browser, route: Route, of: Scene, csrf: string): Promise<number> => {
  const { method, path } = askedOf(route, of)
  const answer =
    method === 'GET' ? await browser.get(path) : await browser.post(path, encoded({ _csrf: csrf }))
  return answer.statusCode
}

const tokenOf = async (browser: Browser): Promise<string> =>
  /name="_csrf" value="([^"]+)"/.exec(
    (await browser.get(`/organizations/${scene.organizationId}`)).body,
  )?.[1] ?? ''

const signedInAs = async (role: UserRole): Promise<Browser> => {
  const name = `the-${role}`
  const organizationId = role === 'partner' ? scene.organizationId : null
  return signedIn(room, await userWhoChose(room, { name, role, organizationId, actor: 'cli:setup' }))
}

// The first user of an installation is an admin.
describe.each(['admin', 'finance', 'operations', 'viewer', 'partner'] as const)('%s', (role) => {
  let browser: Browser
  beforeAll(async () => {
    browser = await signedInAs(role)
  })

  test('opens the pages and sends the forms of the table, and no other', async () => {
    const csrf = await tokenOf(browser)
    const before = await room.foundation.eventLog.head()
    const wrong: Record<string, number> = {}
    for (const route of routes) {
      // A form has the rights of its page, so one role of the operator shows that it is accepted.
      if (route.startsWith('POST ') && !['admin', 'partner'].includes(role) && mayOpen(role, route)) continue
      const status = await statusOf(browser, route, scene, csrf)
      const isRefused = status === 403 || (status === 404 && route.includes(' /commands/'))
      const leads = role === 'partner' && route === 'GET /'
      if (leads ? status !== 303 : isRefused === mayOpen(role, route) || status >= 500) wrong[route] = status
    }
    expect(wrong).toEqual({})
    expect(await room.foundation.eventLog.head()).toBe(before)
  })

  test('has only the pages in its menu that it may open', async () => {
    const { body } = await browser.get(`/organizations/${scene.organizationId}`)
    for (const { href, route } of menu)
      expect([href, body.includes(`<a href="${href}"`)]).toEqual([
        href,
        mayOpen(role, route) && !(role === 'partner' && href === '/'),
      ])
    for (const { path } of organizationMenu)
      expect(body).toContain(`href="/organizations/${scene.organizationId}${path}"`)
  })

  test('sees no button that would be refused', async () => {
    const base = `/organizations/${scene.organizationId}`
    const pages = [
      '',
      '/usage',
      '/statement',
      '/months',
      `/months/${month}`,
      '/credits/lots',
      '/price/show',
      '/webhook/list',
      '/pixel/rules',
      `/keys/${scene.keyId}`,
      `/calls/${scene.requestId}`,
    ]
    for (const path of [
      ...pages.map((page) => `${base}${page}`),
      '/',
      '/months',
      '/commands/price/show',
      '/commands/rerate/list',
      '/reconcile',
    ]) {
      const { body, statusCode } = await browser.get(path)
      if (statusCode !== 200) continue
      const shown = [...body.matchAll(/(?:href|action)="([^"#?]+)/g)].map(([, href = '']) => href)
      for (const [action, target] of [
        ['keys.change', /\/key\/(issue|rotate|revoke|limits)$/],
        ['keys.replace', /\/key\/replace-leaked$/],
        ['credits.change', /\/credits\/(grant|void|adjust|refund|refund-calls|threshold)$/],
        ['organizations.change', /^\/organizations\/new$/],
        ['prices.change', /\/price\/(propose|approve|withdraw|override)$/],
        ['webhooks.change', /\/webhook\/(create|test|pause|resume|resend|rotate-secret|delete)$/],
        ['pixel.change', /\/pixel\/(limit|unlimit|block|unblock)$/],
        ['rerates.change', /\/rerate\/(plan|approve|apply|abandon)$/],
        ['ledgers.export', /\/statement\.(csv|jsonl)$|receipt\.json$/],
      ] as const)
        if (!mayDo(role, action))
          expect([path, shown.filter((href) => target.test(href))]).toEqual([path, []])
      if (!mayDo(role, 'ledgers.change'))
        expect(body).not.toMatch(/method="post" action="\/(reconcile|months\/close)"/)
    }
  })
})

test('a partner reaches no data of another organization by any id', async () => {
  const contoso = await userWhoChose(room, {
    ...{ name: 'contoso', role: 'partner', organizationId: other.organizationId, actor: 'cli:setup' },
  })
  const browser = await signedIn(room, contoso)
  const page = await browser.get(`/organizations/${other.organizationId}`)
  const csrf = /name="_csrf" value="([^"]+)"/.exec(page.body)?.[1] ?? ''
  const own = routes.filter((route) => route.includes('/:organization'))
  for (const route of own) expect([route, await statusOf(browser, route, scene, csrf)]).toEqual([route, 404])
  for (const id of ['org_01J8ZQ5V7N3K2M4P6R8T0W1X2Y', 'org_x'])
    expect((await browser.get(`/organizations/${id}`)).statusCode).toBe(404)
  // Ids of another organization under the partner's own.
  for (const route of own.filter((one) => /:(key|request)/.test(one))) {
    const mixed = { ...scene, organizationId: other.organizationId }
    const status = await statusOf(browser, route, mixed, csrf)
    expect([route, [403, 404].includes(status)]).toEqual([route, true])
  }
})

test('a partner sees published prices only, and no page names an operator', async () => {
  const { foundation } = room
  const { organizationId } = scene
  const operator = 'olga.of.finance'
  const olga = await signedIn(
    room,
    await userWhoChose(room, { name: operator, role: 'admin', organizationId: null, actor: 'cli:setup' }),
  )
  const by = { actor: `user:${operator}` }
  const tomorrow = new Date(Date.now() + 86_400_000).toISOString()
  const propose = (amount: string, reason: string) =>
    proposePriceBook(foundation, {
      rulesOver: (rules) => rules.map((rule) => (rule.sku === 'ip_lookup' ? { ...rule, amount } : rule)),
      ...{ effectiveFrom: tomorrow, reason, ...by },
    })
  const { proposal } = await propose('1.5', 'the reason of a published book')
  await approvePriceBook(foundation, { proposal, twoPerson: false, consents: true, ...by })
  const open = await propose('7.25', 'the reason of an open proposal')
  await setPriceOverride(foundation, {
    ...{ organizationId, sku: 'ip_lookup', amount: 500_000n, effectiveFrom: tomorrow },
    ...{ reason: 'as in contract 17', ...by },
  })
  await grant(foundation, {
    ...{ organizationId, priority: 1, expiresAt: null, reason: 'goodwill', amount: 1_000_000n, ...by },
  })
  const base = `/organizations/${organizationId}`
  await olga.submit(`${base}/pixel/limit`, {
    ...{ domain: 'shop.example.com', number: '5', period: 'day', confirmed: 'yes' },
  })
  await room.caughtUp()
  expect((await olga.get('/commands/price/show')).body).toContain('the reason of an open proposal')
  expect((await olga.get(`${base}/pixel/rules`)).body).toContain(`user:${operator}`)

  const partner = await userWhoChose(room, {
    ...{ name: 'pia', role: 'partner', organizationId, actor: 'cli:setup' },
  })
  const browser = await signedIn(room, partner)
  const seen: string[] = []
  const leaks: string[] = []
  for (const route of routes.filter((one) => one.startsWith('GET ') && mayOpen('partner', one))) {
    // Files contain the events as recorded, because the digests cover every byte of them.
    if (/\.(csv|jsonl|json)$/.test(route)) continue
    const { body, statusCode } = await browser.get(askedOf(route, scene).path)
    if (statusCode === 200) seen.push(route)
    if (body.includes(operator) || /the reason of an? /.test(body)) leaks.push(route)
  }
  expect(leaks).toEqual([])
  expect(seen).toContain('GET /organizations/:organization/price/show')
  expect(seen).toContain('GET /organizations/:organization/pixel/rules')
  for (const name of [`p${proposal}`, `p${open.proposal}`, '1', '99']) {
    const answer = await browser.get(`${base}/price/show?name=${name}`)
    expect([answer.statusCode, answer.body.includes('There is nothing of the name')]).toEqual([422, true])
  }
})

test('nothing opens without signing in', async () => {
  const stranger = openBrowser(room.host)
  for (const route of routes) {
    const { method, path } = askedOf(route, scene)
    const answer = method === 'GET' ? await stranger.get(path) : await stranger.post(path, '')
    expect([route, answer.statusCode, String(answer.headers.location).startsWith('/login')]).toEqual([
      route,
      303,
      true,
    ])
  }
})
