/** The search of the dashboard in a real Chromium. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { putUser } from '../../src/administration/users/users.ts'
import { type Furnished, openFurnished } from '../dashboard/furnished.ts'
import {
  axeFindings,
  type Chromium,
  openChromium,
  overhang,
  picture,
  screens,
  signInAs,
} from './chromium/browser.ts'

let furnished: Furnished
let chromium: Chromium
const ada = { name: 'ada', password: 'correct horse battery staple' }

beforeAll(async () => {
  furnished = await openFurnished()
  await putUser(furnished.room.foundation.pool, ada)
  chromium = await openChromium(furnished.baseUrl)
}, 120_000)
afterAll(async () => {
  await chromium?.close()
  await furnished?.close()
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
