/** Questions of dashboard users, each answered within two clicks from the overview, in a real Chromium. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { putUser } from '../../src/administration/users/users.ts'
import { type Chromium, openChromium, picture, signInAs, type Window } from './chromium/browser.ts'
import { type Furnished, openFurnished } from './chromium/furnished.ts'

let furnished: Furnished
let chromium: Chromium
let window: Window
const ada = { name: 'ada', password: 'correct horse battery staple' }

beforeAll(async () => {
  furnished = await openFurnished()
  await putUser(furnished.room.foundation.pool, ada)
  chromium = await openChromium(furnished.baseUrl)
  window = await chromium.open({ scheme: 'light', width: 1280 })
  await signInAs(window, ada)
}, 120_000)
afterAll(async () => {
  await chromium?.close()
  await furnished?.close()
})

const main = (): Promise<string> => window.page.locator('main').innerText()

test('which organization spent most today, and is the service healthy: on the overview', async () => {
  const { page } = window
  await page.goto('/?range=24h')
  expect(await page.locator('section[aria-labelledby=by-credits] tbody tr').first().innerText()).toContain(
    'Northwind Traders',
  )
  expect(await page.locator('#health').innerText()).toMatch(/checks of this process are ok/)
  await picture(page, 'question-spent-most')
})

test('what failed in the last hour: one click', async () => {
  const { page } = window
  await page.goto('/?range=24h')
  await page.getByRole('link', { name: 'Failed in the last hour' }).click()
  expect(new URL(page.url()).search).toBe('?range=1h&outcome=failed')
  expect(await page.locator('#calls').count()).toBe(1)
  await picture(page, 'question-failed')
})

test('why was this call charged: two clicks', async () => {
  const { page } = window
  await page.goto('/')
  await page.getByRole('link', { name: 'Calls', exact: true }).click()
  await page.locator('#calls tbody tr', { hasText: 'answered' }).first().getByRole('link').first().click()
  expect(await main()).toMatch(/\d credits?: .*\(rule |Free: .*\(rule /)
  await picture(page, 'question-charged')
})

test('when will this customer run out of credits: two clicks', async () => {
  const { page } = window
  await page.goto('/')
  await page.getByRole('link', { name: 'Organizations', exact: true }).click()
  await page.getByRole('link', { name: 'Northwind Traders' }).first().click()
  expect(await main()).toContain('Days left at the current rate')
  await picture(page, 'question-runs-out')
})
