/** Navigation: the menu, the way back, and the list of all commands. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { declarations } from '../../src/administration/declarations.ts'
import { mayDo, roles } from '../../src/administration/roles.ts'
import {
  type Browser,
  type DashboardHost,
  openDashboardHost,
  signedIn,
  unescaped,
  userWhoChose,
} from './dashboard-host.ts'
import { openScene, type Scene } from './scene.ts'

const actor = 'cli'
let room: DashboardHost
let scene: Scene
const people = new Map<string, Browser>()

beforeAll(async () => {
  room = await openDashboardHost()
  scene = await openScene(room, { nowMs: Date.now(), days: 1 })
  for (const role of roles) {
    const organizationId = role === 'partner' ? scene.organizationId : null
    people.set(
      role,
      await signedIn(room, await userWhoChose(room, { name: role, role, organizationId, actor })),
    )
  }
})
afterAll(() => room?.close())

const as = (role: string): Browser => {
  const browser = people.get(role)
  if (browser === undefined) throw new Error(`there is no ${role}`)
  return browser
}

const hrefsIn = (page: string): string[] =>
  [...page.matchAll(/href="([^"]+)"/g)].map(([, href = '']) => unescaped(href))

test.each(roles)('a person with the role %s finds every command of that role in a list', async (role) => {
  const path = role === 'partner' ? `/organizations/${scene.organizationId}/commands` : '/commands'
  const page = await as(role).get(path)
  expect(page.statusCode).toBe(200)
  const base = role === 'partner' ? `/organizations/${scene.organizationId}` : '/commands'
  const listed = hrefsIn(page.body.slice(page.body.indexOf('<h1>'))).filter((href) => href.startsWith(base))
  const offered = declarations.filter(
    ({ interfaces, action, fields, types }) =>
      interfaces.includes('dashboard') &&
      mayDo(role, action) &&
      // Files of whole ledgers name operators.
      (role !== 'partner' ||
        (types === undefined && fields.some(({ control }) => control === 'organization'))),
  )
  // `access.test.ts` opens each of them.
  expect(listed.sort()).toEqual(offered.map(({ name }) => `${base}/${name.replace(' ', '/')}`).sort())
})

test('commands of other interfaces are listed without a link', async () => {
  expect((await as('admin').get('/commands')).body).toContain(
    'event-log show <small>command line, admin API</small>',
  )
})

test('the menu groups its pages, and shows them to people who may open them', async () => {
  const { body } = await as('finance').get('/months')
  const menu = body.slice(body.indexOf('<nav class="menu"'), body.indexOf('</nav>'))
  expect([...menu.matchAll(/role="group" aria-label="([^"]+)"/g)].map(([, name]) => name)).toEqual([
    'Customers',
    'Billing',
    'System',
  ])
  expect(menu).toContain('<a href="/months" aria-current="page">Months</a>')
  expect([menu.includes('>Users<'), (await as('viewer').get('/')).body.includes('>Users<')]).toEqual([
    false,
    true,
  ])
  for (const href of hrefsIn(menu))
    expect([href, (await as('finance').get(href)).statusCode]).toEqual([href, 200])
})

test('a page shows where it is, and every page above it opens', async () => {
  const own = `/organizations/${scene.organizationId}`
  const wayOf = async (role: string, path: string) => {
    const { body } = await as(role).get(path)
    const way = /<nav class="crumbs"[^>]*>(.*?)<\/nav>/s.exec(body)?.[1] ?? ''
    for (const href of hrefsIn(way))
      expect([href, (await as(role).get(href)).statusCode]).toEqual([href, 200])
    return [...way.matchAll(/<li><(?:a|span)[^>]*>([^<]*)</g)].map(([, name]) => name)
  }
  expect(await wayOf('viewer', own)).toEqual(['Organizations', 'Northwind Traders'])
  expect(await wayOf('viewer', `${own}/keys/${scene.keyId}`)).toEqual([
    'Organizations',
    'Northwind Traders',
    'Key production',
  ])
  expect(await wayOf('viewer', `${own}/price/show`)).toEqual(['Organizations', 'Northwind Traders', 'Prices'])
  expect(await wayOf('partner', `${own}/key/issue`)).toEqual(['Northwind Traders', 'Issue an API key'])
  expect(await wayOf('admin', '/commands/user/invite')).toEqual([
    'Commands',
    expect.stringContaining('Invite'),
  ])
  const month = new Date().toISOString().slice(0, 7)
  expect(await wayOf('partner', `${own}/months/${month}`)).toEqual(['Northwind Traders', 'Months', month])
})
