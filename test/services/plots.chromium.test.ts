/** A plot of the overview in a real Chromium: its values at the cursor, its legend, and a range that is dragged over. */
import { afterAll, expect, test } from 'vitest'
import { insertUser } from '../../src/administration/users/users.ts'
import { openFurnished } from '../dashboard/furnished.ts'
import { openChromium, signInAs } from './chromium/browser.ts'

const ada = { name: 'ada', password: 'correct horse battery staple' }

const furnished = await openFurnished({ days: 10 })
await insertUser(furnished.room.foundation.pool, { ...ada, role: 'admin' })
const chromium = await openChromium(furnished.baseUrl)
afterAll(async () => {
  await chromium.close()
  await furnished.close()
})

test('a chart shows all values at the cursor, hides a series chosen in its legend, and opens the range that is dragged over', async () => {
  const window = await chromium.open({ scheme: 'light', width: 1280 })
  await signInAs(window, ada)
  const { page } = window
  await page.goto('/?range=7d', { waitUntil: 'networkidle' })
  const figure = page.locator('figure.plot').first()
  const over = figure.locator('.u-over')
  /** A click can scroll the page, so the chart's position is read each time. Lines that need attention can move it out of the window. */
  const moveTo = async (share: number, steps = 1): Promise<void> => {
    await over.scrollIntoViewIfNeeded()
    const box = await over.boundingBox()
    if (box === null) throw new Error('the chart has no size')
    await page.mouse.move(box.x + box.width * share, box.y + box.height / 2, { steps })
  }

  await moveTo(0.5)
  const names = await figure.locator('.u-legend .u-label').allTextContents()
  const [, ...series] = names
  const lines = figure.locator('.tooltip div')
  expect(await lines.count()).toBe(1 + series.length)
  const [time, ...values] = await lines.allTextContents()
  const row = figure
    .locator('tbody tr')
    .filter({ has: page.locator(`time[datetime^="${time?.replace(' ', 'T')}"]`) })
  const cells = await row
    .locator('data')
    .evaluateAll((all) => all.map((one) => Number(one.getAttribute('value'))))
  expect(values.map((text) => Number(text.replace(/^.*: |,/g, '')))).toEqual(cells)

  const [first = ''] = series
  await figure.locator('.u-legend .u-label', { hasText: first }).click()
  await moveTo(0.51)
  await expect.poll(() => lines.count()).toBe(series.length)
  expect(await lines.allTextContents()).not.toContainEqual(expect.stringContaining(`${first}:`))

  await moveTo(0.25)
  await page.mouse.down()
  await moveTo(0.5, 5)
  await page.mouse.up()
  await page.waitForURL(/range=custom/)
  const { searchParams } = new URL(page.url())
  const [from, to] = ['from', 'to'].map((name) => Date.parse(`${searchParams.get(name)}Z`))
  const hours = ((to ?? 0) - (from ?? 0)) / 3_600_000
  expect(hours).toBeGreaterThanOrEqual(42)
  expect(hours).toBeLessThanOrEqual(44)
  expect(window.complaints()).toEqual([])
  await window.close()
})
