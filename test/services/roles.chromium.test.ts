/** Every page and form of the table of routes, for every role, in a real Chromium: the permitted and the refused ones. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Action, mayDo, rolesThatMay } from '../../src/administration/roles.ts'
import { actionOfRoute, mayOpen, type Route } from '../../src/dashboard/access.ts'
import { askedFields, places } from '../../src/dashboard/declared.ts'
import type { UserRole } from '../../src/events/users.ts'
import { encoded, userWhoChose } from '../dashboard/dashboard-host.ts'
import { type RouteExamples, requestOf, routeExamples } from '../dashboard/route-examples.ts'
import { openScene, type Scene } from '../dashboard/scene.ts'
import {
  type Chromium,
  fetched,
  look,
  openChromium,
  reachedFrom,
  signInAs,
  type Window,
} from './chromium/browser.ts'
import { type Furnished, openFurnished } from './chromium/furnished.ts'
import { fileRoutes, formRoutes, pageRoutes, passing, routeAt, routes } from './chromium/table.ts'

let furnished: Furnished
let chromium: Chromium
/** Another organization, whose name and ids must not appear on any page of the first one. */
let other: Scene
const otherName = 'Contoso Unlimited'

beforeAll(async () => {
  furnished = await openFurnished({ days: 2 })
  other = await openScene(furnished.room, { nowMs: Date.now(), days: 2, name: otherName })
  chromium = await openChromium(furnished.baseUrl)
})
afterAll(async () => {
  await chromium?.close()
  await furnished?.close()
})

const open = async (role: UserRole, organizationId: string | null): Promise<Window> => {
  const name = `${role}-${organizationId === other.organizationId ? 'elsewhere' : 'here'}`
  const user = { name, role, organizationId, actor: 'cli:setup' }
  const window = await chromium.open({ scheme: 'light', width: 1280 })
  await signInAs(window, await userWhoChose(furnished.room, user))
  return window
}

const head = () => furnished.room.foundation.eventLog.head()
const tokenOn = ({ page }: Window): Promise<string> => page.locator('input[name=_csrf]').first().inputValue()

/** The console errors, without those about refusals: a browser logs every answer that is not 2xx. */
const complaintsOf = ({ complaints }: Window): string[] =>
  complaints().filter(
    (said) => !/^Failed to load resource: the server responded with a status of 4\d\d /.test(said),
  )

const perRoleMs = 180_000

// The first user of an installation is an admin.
describe.each(['admin', 'finance', 'operations', 'viewer', 'partner'] as const)('%s', (role) => {
  let window: Window
  beforeAll(async () => {
    window = await open(role, role === 'partner' ? furnished.scene.organizationId : null)
  })
  afterAll(() => window?.close())

  /** The fault of a page, or null. The overview redirects a partner to its organization. */
  const wrongWith = async (route: Route): Promise<unknown> => {
    const { page } = window
    const status = await look(page, requestOf(route, furnished.examples).path)
    const headings = await page.locator('h1').allInnerTexts()
    const complaints = complaintsOf(window)
    if (complaints.length > 0) return { complaints }
    if (!mayOpen(role, route) && !(role === 'partner' && route === 'GET /')) {
      const action = actionOfRoute[route] as Action
      const says = mayDo(role, action)
        ? `You are signed in as ${role}. This is about all organizations.`
        : `You are signed in as ${role}. This is for ${rolesThatMay(action)}.`
      const isSaid = (await page.locator('main').innerText()).includes(says)
      return status === 403 && isSaid && headings.join() === 'You do not have permission to do this'
        ? null
        : { status, headings, says }
    }
    const [heading = ''] = headings
    if (status !== 200 || headings.length !== 1 || heading === '') return { status, headings }
    const reached = await reachedFrom(page)
    const refused = reached.filter(({ method, path }) => !isForThem(method, path))
    return refused.length > 0 ? { leadsToWhatIsRefused: refused } : null
  }

  const isForThem = (method: string, path: string): boolean => {
    if (`${method} ${path}` === 'POST /logout' || (role === 'partner' && path === '/')) return true
    const route = routeAt(method, path)
    return route !== undefined && mayOpen(role, route)
  }

  test(
    'opens exactly the pages of the table; none has a form or link that would be refused',
    async () => {
      const wrong: Record<string, unknown> = {}
      for (const route of pageRoutes) {
        const found = await wrongWith(route)
        if (found !== null) wrong[route] = found
      }
      expect(wrong).toEqual({})
    },
    perRoleMs,
  )

  /** The request for a file, with values for the fields without which its list would be empty. */
  const fileOf = (route: Route) => {
    const { method, path } = requestOf(route, furnished.examples)
    const place = places.find((one) => [`GET ${one.path}.csv`, `GET ${one.path}/file`].includes(route))
    const needed =
      place === undefined
        ? []
        : askedFields(place).filter(({ required, control }) => required || control === 'organization')
    const values = needed.map(({ flag, control }): [string, string] => [
      flag,
      furnished.examples[control === 'organization' ? 'organizations' : `${flag}s`] ?? '',
    ])
    return { method, path: `${path}?${new URLSearchParams(values).toString()}` }
  }

  test('downloads exactly the files of the table', async () => {
    const wrong: Record<string, unknown> = {}
    for (const route of fileRoutes) {
      const { status, type, body } = await fetched(window.page, fileOf(route))
      const isGiven = status === 200 && !type.startsWith('text/html') && body !== ''
      if (mayOpen(role, route) ? !isGiven : status !== 403) wrong[route] = { status, type }
    }
    expect(wrong).toEqual({})
  })

  test('sends exactly the forms of the table, and a refused one changes nothing', async () => {
    await look(window.page, '/me')
    const body = encoded({ _csrf: await tokenOn(window) })
    const before = await head()
    const wrong: Record<string, number> = {}
    for (const route of formRoutes) {
      const may = mayOpen(role, route)
      // A permitted form uses ids that do not exist: a form without required fields would otherwise take effect.
      const of = may ? routeExamples(furnished.scene) : furnished.examples
      const { status } = await fetched(window.page, { ...requestOf(route, of), body })
      if (may ? status === 403 || status >= 500 : status !== 403) wrong[route] = status
    }
    expect(wrong).toEqual({})
    expect(await head()).toBe(before)
    complaintsOf(window)
  })
})

describe('a partner of another organization', () => {
  let window: Window
  beforeAll(async () => {
    window = await open('partner', other.organizationId)
  })
  afterAll(() => window?.close())

  /** An id of another organization is "not found", as if it did not exist. Routes for other roles are refused as without an id. */
  const wrongWith = async (
    route: Route,
    of: RouteExamples,
    expected: readonly number[],
  ): Promise<unknown> => {
    const asked = requestOf(route, of)
    const body = asked.method === 'POST' ? encoded({ _csrf: await tokenOn(window) }) : ''
    const answer = await fetched(window.page, { ...asked, body })
    const leaked = [
      'Northwind Traders',
      furnished.scene.organizationId,
      furnished.scene.keyId,
      'production',
    ].filter((text) => answer.body.includes(text))
    return expected.includes(answer.status) && leaked.length === 0
      ? null
      : { ...asked, status: answer.status, leaked }
  }

  const withIds = routes.filter((route) => route.includes(':'))

  test('finds nothing at any route with the ids of the first organization, and changes nothing', async () => {
    await look(window.page, '/me')
    const before = await head()
    const wrong: Record<string, unknown> = {}
    for (const route of withIds) {
      const expected = route.includes('/:organization') || mayOpen('partner', route) ? [404] : [403]
      const found = await wrongWith(route, furnished.examples, expected)
      if (found !== null) wrong[route] = found
    }
    expect(wrong).toEqual({})
    expect(await head()).toBe(before)
  })

  test('finds nothing with those ids under its own address either', async () => {
    await look(window.page, '/me')
    const before = await head()
    const wrong: Record<string, unknown> = {}
    const mixed = { ...furnished.examples, organizations: other.organizationId }
    // A month is not an id.
    for (const route of withIds.filter((one) => /\/:organization\/.*:(?!month\b)/.test(one))) {
      const found = await wrongWith(route, mixed, [mayOpen('partner', route) ? 404 : 403])
      if (found !== null) wrong[route] = found
    }
    expect(wrong).toEqual({})
    expect(await head()).toBe(before)
  })
})

test('each route that exists only while work runs is in the table', () => {
  expect(routes.filter((route) => passing.includes(route))).toEqual(passing)
})
