/** Questions of dashboard users, each answered within two clicks from the overview, in a real Chromium. */
import { afterAll, expect, test } from 'vitest'
import { insertUser } from '../../src/administration/users/users.ts'
import { openFurnished } from '../dashboard/furnished.ts'
import { axeFindings, openChromium, overhang, picture, screens, signInAs } from './chromium/browser.ts'

const ada = { name: 'ada', password: 'correct horse battery staple' }

const furnished = await openFurnished()
await insertUser(furnished.room.foundation.pool, { ...ada, role: 'admin' })
const chromium = await openChromium(furnished.baseUrl)
const window = await chromium.open({ scheme: 'light', width: 1280 })
await signInAs(window, ada)
afterAll(async () => {
  await chromium.close()
  await furnished.close()
})

const main = (): Promise<string> => window.page.locator('main').innerText()

test('on the overview: which organization spent most today, and is the service healthy', async () => {
  const { page } = window
  await page.goto('/?range=24h')
  expect(await page.locator('section[aria-labelledby=by-credits] tbody tr').first().innerText()).toContain(
    'Northwind Traders',
  )
  expect(await page.locator('#health').innerText()).toMatch(/checks of this process are ok/)
  await picture(page, 'question-spent-most')
})

test('after one click: what failed in the last hour', async () => {
  const { page } = window
  await page.goto('/?range=24h')
  await page.getByRole('link', { name: 'Errors in the last hour' }).click()
  expect(new URL(page.url()).search).toBe('?range=1h&outcome=errors')
  expect(await page.locator('#calls').count()).toBe(1)
  await picture(page, 'question-failed')
})

test('after two clicks: why was this call charged', async () => {
  const { page } = window
  await page.goto('/')
  await page.getByRole('link', { name: 'Calls', exact: true }).click()
  await page.locator('#calls tbody tr', { hasText: 'answered' }).first().getByRole('link').first().click()
  expect(await main()).toMatch(/\d credits?: .*\(rule |Free: .*\(rule /)
  await picture(page, 'question-charged')
})

test('after two clicks: when will this customer run out of credits', async () => {
  const { page } = window
  await page.goto('/')
  await page.getByRole('link', { name: 'Organizations', exact: true }).click()
  await page.getByRole('link', { name: 'Northwind Traders' }).first().click()
  expect(await main()).toContain('Days left at the current rate')
  await picture(page, 'question-runs-out')
})

test.each(screens)(
  'find a call, and a key by a part of its name: from any page, by the keyboard alone, $scheme at $width pixels',
  async ({ scheme, width }) => {
    const { page, complaints, close } = await chromium.open({ scheme, width })
    await signInAs({ page, complaints, close }, ada)
    const whole = async (name: string) => {
      await picture(page, `${name}-${scheme}-${width}`)
      expect([await axeFindings(page), await overhang(page), complaints()]).toEqual([[], 0, []])
    }
    const { organizationId, requestId, keyId } = furnished.scene
    await page.goto('/operations')
    await page.keyboard.press('Control+k')
    await page.keyboard.type(requestId)
    await page.keyboard.press('Enter')
    await page.waitForURL(`/organizations/${organizationId}/calls/${requestId}`)
    await page.getByText('Facts and events').click()
    await whole('search-call')
    await page.keyboard.press('/')
    await page.keyboard.type('product')
    await expect.poll(() => page.locator('#q-choices option').count()).toBe(1)
    await page.keyboard.press('Enter')
    await page.waitForURL('/search')
    await whole('search-groups')
    // On every page, the first Tab stop is a link that skips the header.
    await page.keyboard.press('Tab')
    await page.keyboard.press('Enter')
    await page.keyboard.press('Tab')
    await page.keyboard.press('Enter')
    await page.waitForURL(`/organizations/${organizationId}/keys/${keyId}`)
    await page.fill('#q', 'none of these')
    await page.press('#q', 'Enter')
    await page.getByRole('heading', { name: 'Search: none of these' }).waitFor()
    await whole('search-nothing')
    await close()
  },
)

test('the search works without scripts, and never sends a complete key', async () => {
  for (const script of [true, false]) {
    const own = await chromium.open({ scheme: 'light', width: 390, script })
    const { page } = own
    await signInAs(own, ada)
    const asked: string[] = []
    page.on('request', (request) => asked.push(request.url()))
    await page.fill('#q', `enl_live_${furnished.scene.keyId}_secret`)
    await page.press('#q', 'Enter')
    await page.fill('#q', 'northwind traders')
    await page.press('#q', 'Enter')
    await page.waitForURL(`/organizations/${furnished.scene.organizationId}`)
    expect(asked.filter((url) => url.includes('secret'))).toEqual([])
    await own.close()
  }
})
