/** Every page and every form is tested with every role, by the table of permissions. Every page that a role can open must be linked. */
import { afterAll, describe, expect, test } from 'vitest'
import { grant } from '../../src/administration/credits/credits.ts'
import { declarations } from '../../src/administration/declarations.ts'
import { setPriceOverride } from '../../src/administration/prices/price-overrides.ts'
import { approvePriceBook, proposePriceBook } from '../../src/administration/prices/prices.ts'
import { type Action, mayDo, roles, rolesThatMay } from '../../src/administration/roles.ts'
import { actionOfRoute, mayOpen, type Route } from '../../src/dashboard/access.ts'
import { menu, organizationMenu } from '../../src/dashboard/menu.ts'
import { moved } from '../../src/dashboard/moved.ts'
import { directoryForFile } from '../support/directory.ts'
import { writeCityFile } from '../support/house.ts'
import {
  type Browser,
  browserForEachRole,
  browserOf,
  encoded,
  openBrowser,
  tokenIn,
  unescaped,
} from './dashboard-host.ts'
import { openFurnished } from './furnished.ts'
import { type RouteExamples, requestOf, routeExamples } from './route-examples.ts'
import { formRoutes, pageRoutes, routeAt, routes } from './route-table.ts'
import { openScene } from './scene.ts'

const furnished = await openFurnished({
  days: 2,
  environment: { GEOIP_CITY_DB: await writeCityFile(await directoryForFile()) },
})
const { room, scene } = furnished
const other = await openScene(room, { nowMs: Date.now(), days: 2, name: 'Contoso' })
const as = await browserForEachRole(room, scene.organizationId)
afterAll(() => furnished.close())

type Answer = Awaited<ReturnType<Browser['get']>>

const ask = (browser: Browser, { method, path }: ReturnType<typeof requestOf>, csrf: string) =>
  method === 'GET' ? browser.get(path) : browser.post(path, encoded({ _csrf: csrf }))

/** The targets of a page's links and forms on this host. */
const reachedFrom = (path: string, body: string): { method: string; path: string }[] => {
  const links = [...body.matchAll(/<a [^>]*?href="([^"#?]+)/g)].map(([, href = '']) => ['GET', href])
  const forms = [...body.matchAll(/<form ([^>]*)>/g)].map(([, attributes = '']) => [
    /method="(\w+)"/.exec(attributes)?.[1] ?? 'get',
    /action="([^"#?]+)/.exec(attributes)?.[1] ?? path,
  ])
  return [...links, ...forms].flatMap(([method = '', href = '']) =>
    href.startsWith('/') ? [{ method: method.toUpperCase(), path: href }] : [],
  )
}

const hrefsIn = (page: string): string[] =>
  [...page.matchAll(/href="([^"]+)"/g)].map(([, href = '']) => unescaped(href))

describe.each(roles)('%s', (role) => {
  const isForThem = ({ method, path }: { method: string; path: string }): boolean => {
    if (`${method} ${path}` === 'POST /logout' || (role === 'partner' && path === '/')) return true
    const route = routeAt(method, path)
    return route !== undefined && mayOpen(role, route)
  }

  /** Why an answer is not a refusal; null if it is one. */
  const notRefused = (route: Route, { statusCode, body }: Answer): unknown => {
    const action = actionOfRoute[route] as Action
    const says = mayDo(role, action)
      ? `You are signed in with the role ${role}. This command applies to all organizations, but you can act only for your own.`
      : `You are signed in with the role ${role}, but this requires the role ${rolesThatMay(action)}.`
    return statusCode === 403 && body.includes(says) ? null : { statusCode, says }
  }

  /** Why an answer shows that access was not permitted; null if it was. Forms use ids that do not exist, so that they have no effect. */
  const notPermitted = (route: Route, path: string, { statusCode, body }: Answer): unknown => {
    if (!pageRoutes.includes(route)) return statusCode === 403 || statusCode >= 500 ? { statusCode } : null
    const refused = reachedFrom(path, body).filter((target) => !isForThem(target))
    return statusCode === 200 && refused.length === 0 ? null : { statusCode, leadsToWhatIsRefused: refused }
  }

  test('opens the pages and sends the forms in the table, and no others; its pages link only to what it may open', async () => {
    const browser = as(role)
    const csrf = tokenIn((await browser.get(`/organizations/${scene.organizationId}`)).body)
    const before = await room.foundation.eventLog.head()
    const wrong: Record<string, unknown> = {}
    for (const route of routes) {
      // A form needs the same rights as its page, so it is enough to send it for one of the operator's roles.
      if (route.startsWith('POST ') && !['admin', 'partner'].includes(role) && mayOpen(role, route)) continue
      const may = mayOpen(role, route)
      const asked = requestOf(
        route,
        may && formRoutes.includes(route) ? routeExamples(scene) : furnished.examples,
      )
      const answer = await ask(browser, asked, csrf)
      const leads =
        (role === 'partner' && route === 'GET /') ||
        (may && (route === 'GET /events/at/:position' || route.slice('GET '.length) in moved))
      const fault = leads
        ? answer.statusCode === 303
          ? null
          : answer.statusCode
        : may
          ? notPermitted(route, asked.path, answer)
          : notRefused(route, answer)
      if (fault !== null) wrong[route] = fault
    }
    expect(wrong).toEqual({})
    expect(await room.foundation.eventLog.head()).toBe(before)
  })

  test('has only pages in its menu that it can open', async () => {
    const { body } = await as(role).get(`/organizations/${scene.organizationId}`)
    for (const { href } of menu)
      expect([href, body.includes(`<a href="${href}"`)]).toEqual([
        href,
        mayOpen(role, `GET ${href}`) && !(role === 'partner' && href === '/'),
      ])
    for (const { path } of organizationMenu)
      expect(body).toContain(`href="/organizations/${scene.organizationId}${path}"`)
  })

  test('finds every command of the role in a list', async () => {
    const base = role === 'partner' ? `/organizations/${scene.organizationId}` : '/commands'
    const page = await as(role).get(role === 'partner' ? `${base}/commands` : base)
    expect(page.statusCode).toBe(200)
    const listed = hrefsIn(page.body.slice(page.body.indexOf('<h1>'))).filter((href) => href.startsWith(base))
    const offered = declarations.filter(
      ({ interfaces, action, fields }) =>
        interfaces.includes('dashboard') &&
        mayDo(role, action) &&
        (role !== 'partner' || fields.some(({ control }) => control === 'organization')),
    )
    // Files of whole ledgers name operators, so partners cannot download them.
    expect(offered.some(({ name }) => name === 'ledger export')).toBe(
      ['admin', 'finance', 'viewer'].includes(role),
    )
    expect(listed.sort()).toEqual(offered.map(({ name }) => `${base}/${name.replace(' ', '/')}`).sort())
  })
})

test('a partner finds and changes nothing with any id of another organization', async () => {
  const { organizationId } = other
  const browser = await browserOf(room, { name: 'contoso', role: 'partner', organizationId })
  const page = await browser.get(`/organizations/${other.organizationId}`)
  const csrf = tokenIn(page.body)
  const before = await room.foundation.eventLog.head()
  const wrong: unknown[] = []
  const expectRefused = async (route: Route, of: RouteExamples, expected: number): Promise<void> => {
    const asked = requestOf(route, of)
    const { statusCode, body } = await ask(browser, asked, csrf)
    const leaked = ['Northwind Traders', scene.organizationId, scene.keyId, 'production'].filter((text) =>
      body.includes(text),
    )
    if (statusCode !== expected || leaked.length > 0) wrong.push({ ...asked, statusCode, leaked })
  }
  const withIds = routes.filter((route) => route.includes(':'))
  for (const route of withIds)
    await expectRefused(
      route,
      furnished.examples,
      route.includes('/:organization') || mayOpen('partner', route) ? 404 : 403,
    )
  // Combines the partner's own paths with ids of another organization. A month is not an id.
  const mixed = { ...furnished.examples, organizations: other.organizationId }
  for (const route of withIds.filter((one) => /\/:organization\/.*:(?!month\b)/.test(one)))
    await expectRefused(route, mixed, mayOpen('partner', route) ? 404 : 403)
  expect(wrong).toEqual([])
  for (const id of ['org_01J8ZQ5V7N3K2M4P6R8T0W1X2Y', 'org_x'])
    expect((await browser.get(`/organizations/${id}`)).statusCode).toBe(404)
  expect(await room.foundation.eventLog.head()).toBe(before)
})

test('a partner sees only published prices, and its pages do not name operators', async () => {
  const { foundation } = room
  const { organizationId } = scene
  const operator = 'olga.of.finance'
  const olga = await browserOf(room, { name: operator, role: 'admin' })
  const by = { actor: `user:${operator}` }
  const tomorrow = new Date(Date.now() + 86_400_000).toISOString()
  const propose = (amount: string, reason: string) =>
    proposePriceBook(foundation, {
      rulesOver: (rules) => rules.map((rule) => (rule.sku === 'ip_lookup' ? { ...rule, amount } : rule)),
      effectiveFrom: tomorrow,
      reason,
      ...by,
    })
  const { proposal } = await propose('1.5', 'the reason of a published book')
  await approvePriceBook(foundation, { proposal, twoPerson: false, ...by })
  const open = await propose('7.25', 'the reason of an open proposal')
  await setPriceOverride(foundation, {
    organizationId,
    sku: 'ip_lookup',
    amount: 500_000n,
    effectiveFrom: tomorrow,
    reason: 'as in contract 17',
    ...by,
  })
  await grant(foundation, {
    organizationId,
    priority: 1,
    expiresAt: null,
    reason: 'goodwill',
    amount: 1_000_000n,
    ...by,
  })
  const base = `/organizations/${organizationId}`
  await olga.submit(`${base}/pixel/limit`, {
    domain: 'shop.example.com',
    number: '5',
    period: 'day',
    confirmed: 'yes',
  })
  await room.caughtUp()
  expect((await olga.get('/commands/price/show')).body).toContain('the reason of an open proposal')
  expect((await olga.get(`${base}/pixel/rules`)).body).toContain(`user:${operator}`)

  const browser = await browserOf(room, { name: 'pia', role: 'partner', organizationId })
  const seen: string[] = []
  const leaks: string[] = []
  for (const route of routes.filter((one) => one.startsWith('GET ') && mayOpen('partner', one))) {
    // Files contain the events as recorded, because the digests cover all their bytes.
    if (/\.(csv|jsonl|json)$/.test(route)) continue
    const { body, statusCode } = await browser.get(requestOf(route, routeExamples(scene)).path)
    if (statusCode === 200) seen.push(route)
    if (body.includes(operator) || /the reason of an? /.test(body)) leaks.push(route)
  }
  expect(leaks).toEqual([])
  expect((await browser.get(`${base}/ledger/lines`)).body).toContain('the operator')
  expect((await olga.get(`${base}/ledger/lines`)).body).toContain(`user:${operator}`)
  expect(seen).toContain('GET /organizations/:organization/price/show')
  expect(seen).toContain('GET /organizations/:organization/pixel/rules')
  for (const name of [`p${proposal}`, `p${open.proposal}`, '1', '99']) {
    const answer = await browser.get(`${base}/price/show?name=${name}`)
    expect([answer.statusCode, answer.body.includes('There are no prices named')]).toEqual([422, true])
  }
})

test('pages cannot be opened without signing in', async () => {
  const stranger = openBrowser(room.host)
  for (const route of routes) {
    const { method, path } = requestOf(route, routeExamples(scene))
    const answer = method === 'GET' ? await stranger.get(path) : await stranger.post(path, '')
    expect([route, answer.statusCode, String(answer.headers.location).startsWith('/login')]).toEqual([
      route,
      303,
      true,
    ])
  }
})
