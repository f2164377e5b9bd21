/** Every page and every form of the table of routes, for every role, in a real Chromium: what is permitted, and what is refused. */
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
/** Of another organization, whose name and ids no page of the first may say. */
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

/** What is said about a page, but that it was refused: a browser says that of every answer that is not 2xx. */
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

  /** What is wrong with a page, or null. A partner that asks for the overview is led to its organization. */
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
      return status === 403 && isSaid && headings.join() === 'Not for you' ? null : { status, headings, says }
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
    'opens the pages of the table and no other, and none has a form or a link that would be refused',
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

  /** With a value for each field without which the list says nothing. */
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

  test('downloads the files of the table and no other', async () => {
    const wrong: Record<string, unknown> = {}
    for (const route of fileRoutes) {
      const { status, type, body } = await fetched(window.page, fileOf(route))
      const isGiven = status === 200 && !type.startsWith('text/html') && body !== ''
      if (mayOpen(role, route) ? !isGiven : status !== 403) wrong[route] = { status, type }
    }
    expect(wrong).toEqual({})
  })

  test('sends the forms of the table and no other, and a refused one changes nothing', async () => {
    await look(window.page, '/me')
    const body = encoded({ _csrf: await tokenOn(window) })
    const before = await head()
    const wrong: Record<string, number> = {}
    for (const route of formRoutes) {
      const may = mayOpen(role, route)
      // Where it is permitted, of what there is not: the form alone would approve what needs no field.
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

  /** Not found whether or not there is one; what is for other roles alone is refused as it is without an id. */
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

  test('finds nothing at any route by the ids of the first, and changes nothing', async () => {
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

  test('finds nothing by them under its own address either', async () => {
    await look(window.page, '/me')
    const before = await head()
    const wrong: Record<string, unknown> = {}
    const mixed = { ...furnished.examples, organizations: other.organizationId }
    // A month is no one's id.
    for (const route of withIds.filter((one) => /\/:organization\/.*:(?!month\b)/.test(one))) {
      const found = await wrongWith(route, mixed, [mayOpen('partner', route) ? 404 : 403])
      if (found !== null) wrong[route] = found
    }
    expect(wrong).toEqual({})
    expect(await head()).toBe(before)
  })
})

test('a route that is there only while something goes on is none that a page could be missing at', () => {
  expect(routes.filter((route) => passing.includes(route))).toEqual(passing)
})
