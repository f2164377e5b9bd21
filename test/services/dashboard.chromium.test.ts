/** Every page of the dashboard in a real Chromium has no console errors, no axe findings, and nothing wider than the window. */
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { insertUser } from '../../src/administration/users/users.ts'
import { firstCalls } from '../../src/dashboard/first-call.ts'
import { moved } from '../../src/dashboard/moved.ts'
import { openFurnished } from '../dashboard/furnished.ts'
import { requestOf } from '../dashboard/route-examples.ts'
import { pageRoutes } from '../dashboard/route-table.ts'
import {
  axeFindings,
  look,
  openChromium,
  overhang,
  picture,
  screens,
  signInAs,
  type Window,
} from './chromium/browser.ts'

const ada = { name: 'ada', password: 'correct horse battery staple' }

const furnished = await openFurnished()
const { room, scene, baseUrl } = furnished
await insertUser(room.foundation.pool, { ...ada, role: 'admin' })
const chromium = await openChromium(baseUrl)
afterAll(async () => {
  await chromium.close()
  await furnished.close()
})

type Cookies = Awaited<ReturnType<ReturnType<Window['page']['context']>['cookies']>>
let signedInCookies: Promise<Cookies> | undefined

/** Signs in with the form once and reuses the cookies in later windows, because an address can sign in only ten times a minute. */
const signIn = async (window: Window): Promise<void> => {
  const context = window.page.context()
  if (signedInCookies === undefined) {
    signedInCookies = signInAs(window, ada).then(() => context.cookies())
    await signedInCookies
    return
  }
  await context.addCookies(await signedInCookies)
  await window.page.goto('/')
}

/**
 * Names for the routes in the table that `named` lacks: `GET /users/:user/disable` gets `users-user-disable`. A form that exists
 * both for one organization and for all is included only for all, because the named pages show how the pages of an organization differ.
 */
const unnamed = (named: Readonly<Record<string, string>>): Readonly<Record<string, string>> => {
  const known = new Set(Object.values(named).map((path) => path.split('?')[0]))
  const own = pageRoutes.filter(
    (route) =>
      !(route.slice('GET '.length) in moved) &&
      !pageRoutes.some(
        (other) => other === route.replace('/organizations/:organization/', '/commands/') && other !== route,
      ),
  )
  const pages = own.map((route): [string, string] => [
    route.replaceAll(/^GET \/|:/g, '').replaceAll('/', '-'),
    requestOf(route, furnished.examples).path,
  ])
  return Object.fromEntries(pages.filter(([, path]) => !known.has(path)))
}

/** The pages that every window opens: the custom ones, and one of each kind of declared page. The names are those of the screenshots. */
const paths = (): Readonly<Record<string, string>> => {
  const organization = `/organizations/${scene.organizationId}`
  return {
    overview: '/',
    account: organization,
    usage: `${organization}/usage`,
    'usage-hours': `${organization}/usage?by=key&from=${day(-2)}&to=${day(0)}`,
    calls: '/calls?live=0',
    'calls-failed': `${organization}/calls?range=7d&outcome=refused`,
    organizations: '/commands/org/list',
    call: `${organization}/calls/${scene.requestId}`,
    key: `${organization}/keys/${scene.keyId}`,
    'key-issue': `${organization}/key/issue`,
    statement: `${organization}/ledger/lines`,
    months: `${organization}/ledger/months`,
    month: `${organization}/ledger/totals?month=${day(0).slice(0, 7)}`,
    'month-before': `${organization}/ledger/totals?month=${day(-31).slice(0, 7)}`,
    lots: `${organization}/credits/lots`,
    'own-prices': `${organization}/price/show`,
    refund: `${organization}/credits/refund?request=${scene.requestId}`,
    pixel: `${organization}/pixel/rules`,
    webhooks: `${organization}/webhook/list`,
    prices: '/commands/price/show',
    proposal: '/commands/price/show?name=p1',
    'proposal-cost': `/commands/price/diff?from=1&to=p1&month=${day(0).slice(0, 7)}`,
    rerate: `/commands/rerate/show?run=${furnished.examples.rerates}`,
    reconcile: '/commands/ledger/reconcile',
    operations: '/operations',
    data: '/commands/data/list',
    projection: '/commands/projection/list?name=key_usage',
    'events-none': '/commands/event-log/list?type=ProfileErased',
    'event-price-book': '/commands/event-log/show?stream=pricebook&revision=0',
    own: '/me',
    missing: '/nothing',
  }
}

const day = (from: number): string => new Date(Date.now() + from * 86_400_000).toISOString().slice(0, 10)

const perWindowMs = 600_000

// Each window mostly uses one processor, and only reads pages.
describe.concurrent.each(screens.map((screen, place) => ({ ...screen, place })))(
  'in a $scheme window of $width pixels',
  ({ scheme, width, place }) => {
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
      'every page is complete and clean',
      async () => {
        const wrong: Record<string, unknown> = {}
        // All other pages are rendered from declarations by the same code, so each is opened in one of the windows.
        const others = Object.entries(unnamed(paths())).filter((_, i) => i % screens.length === place)
        for (const [name, path] of [...Object.entries(paths()), ...others]) {
          window.complaints()
          await look(window.page, path)
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
  },
)

test('clicks issue and copy a key, and the shown commands make calls with it', async () => {
  const window = await chromium.open({ scheme: 'light', width: 390 })
  const { page } = window
  await signIn(window)
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write'])
  await page.goto(`/organizations/${scene.organizationId}/key/issue`)
  await page.fill('#name', 'browser')
  await page.getByRole('button', { name: 'Issue' }).click()
  const apiKey = (await page.locator('#secret').textContent()) ?? ''
  await page.click('button[data-copy=secret]')
  await expect.poll(() => page.evaluate('navigator.clipboard.readText()')).toBe(apiKey)
  await picture(page, 'key-shown-light-390')
  expect([await axeFindings(page), await overhang(page), window.complaints()]).toEqual([[], 0, []])
  const lines = firstCalls({
    apiUrl: baseUrl,
    dashboardUrl: baseUrl,
    apiKey,
    permissions: [],
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

test('times are local if the person chooses this, and can be switched back to UTC', async () => {
  const window = await chromium.open({ scheme: 'light', width: 1280 })
  await signIn(window)
  const { page } = window
  const at = async (): Promise<(string | null)[]> => {
    await page.goto(`/organizations/${scene.organizationId}/ledger/lines`)
    const time = page.locator('tbody time[datetime*=T]').first()
    const head = page.locator('thead th', { hasText: /time/i }).first()
    return [await time.getAttribute('datetime'), await time.textContent(), await head.textContent()]
  }
  const [iso, utc] = await at()
  await page.goto('/me')
  await page.getByRole('button', { name: 'Show local time' }).click()
  await page.getByRole('button', { name: 'Show local time', pressed: true }).waitFor()
  // The browser's time zone is Tokyo, nine hours ahead.
  const tokyo = new Date(Date.parse(String(iso)) + 9 * 3_600_000).toISOString()
  const [, local, head] = await at()
  expect(local).toBe(tokyo.replace('T', ' ').slice(0, utc?.length))
  expect(head).toContain('(local)')
  expect(await page.locator('footer').textContent()).toContain('Times are in Asia/Tokyo')
  expect(await page.locator('tbody time[datetime*=T]:not([title])').count()).toBe(0)
  expect([await axeFindings(page), window.complaints()]).toEqual([[], []])
  await page.goto('/me')
  await page.getByRole('button', { name: 'Show UTC' }).click()
  await page.getByRole('button', { name: 'Show UTC', pressed: true }).waitFor()
  expect((await at())[1]).toBe(utc)
  await window.close()
})

test('organizations are suggested while their name is typed, and can also be found without scripts, like users', async () => {
  const window = await chromium.open({ scheme: 'dark', width: 390 })
  await signIn(window)
  const { page } = window
  await page.goto('/commands/credits/grant')
  const field = page.getByLabel('Organization')
  await field.pressSequentially('northwi')
  const option = page.locator('#org-choices option').first()
  await expect.poll(() => page.locator('#org-choices option').count()).toBe(1)
  const name = await option.getAttribute('value')
  expect(name).toContain(`(${scene.organizationId})`)
  await field.fill(String(name))
  await page.getByLabel('Credits').fill('1')
  await page.getByRole('button', { name: 'Preview' }).click()
  await page.getByRole('heading', { name: 'Grant credits to an organization?' }).waitFor()
  expect(await page.locator('main').textContent()).toContain(scene.organizationId)
  // A complete key is a secret, and must not be in any URL.
  await page.goto('/commands/key/revoke')
  const asked: string[] = []
  page.on('request', (request) => asked.push(request.url()))
  await page.getByLabel('Key').fill('enl_live_0123456789abcdef_and_more')
  await page.getByLabel('Reason').fill('lost')
  await page.getByLabel('Organization').fill('northw')
  await expect.poll(() => asked.some((url) => url.includes('/pick/organizations'))).toBe(true)
  expect(asked.filter((url) => url.includes('/pick/keys') || url.includes('enl_live'))).toEqual([])
  await window.close()

  const plain = await chromium.open({ scheme: 'light', width: 390, script: false })
  await signIn(plain)
  await plain.page.goto('/commands/credits/grant')
  await plain.page.getByLabel('Organization').fill('northwind traders')
  await plain.page.getByLabel('Credits').fill('1')
  await plain.page.getByRole('button', { name: 'Preview' }).click()
  await plain.page.getByRole('heading', { name: 'Grant credits to an organization?' }).waitFor()
  expect(await plain.page.locator('main').textContent()).toContain(
    `Northwind Traders (${scene.organizationId})`,
  )
  // Several users have this letter in their names.
  await plain.page.goto('/commands/user/password')
  await plain.page.getByLabel('User').fill('a')
  await plain.page.getByRole('button', { name: 'Preview' }).click()
  expect(await plain.page.getByRole('alert').textContent()).toContain('grace')
  await plain.close()
})
