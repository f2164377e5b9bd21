/** The plots on the usage page in a real Chromium: stacked bars, and no plot without usage. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createOrganization } from '../../src/administration/organizations/organizations.ts'
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
let quiet = ''
const ada = { name: 'ada', password: 'correct horse battery staple' }

beforeAll(async () => {
  furnished = await openFurnished({ days: 10 })
  const { room } = furnished
  await putUser(room.foundation.pool, ada)
  ;({ organizationId: quiet } = await createOrganization(room.foundation, {
    ...{ name: 'Quiet Ltd', overdraftLimit: 0n, actor: 'cli' },
  }))
  await room.caughtUp()
  chromium = await openChromium(furnished.baseUrl)
})
afterAll(async () => {
  await chromium?.close()
  await furnished?.close()
})

test.each(screens)('in a $scheme window of $width pixels', async (screen) => {
  const window = await chromium.open(screen)
  await signInAs(window, ada)
  const { page } = window
  window.complaints()
  await page.goto(`/organizations/${furnished.scene.organizationId}/usage`, { waitUntil: 'networkidle' })
  expect(await page.locator('figure.plot canvas').count()).toBe(2)
  await page.locator('figure.plot:last-of-type summary').click()
  await picture(page, `usage-plots-${screen.scheme}-${screen.width}`)
  expect([window.complaints(), await overhang(page), await axeFindings(page)]).toEqual([[], 0, []])
  await page.goto(`/organizations/${quiet}/usage`, { waitUntil: 'networkidle' })
  expect(await page.locator('figure.plot canvas').count()).toBe(0)
  expect(window.complaints()).toEqual([])
  await window.close()
})

test('the axis of a chart by minute has times', async () => {
  const window = await chromium.open({ scheme: 'light', width: 1280 })
  await signInAs(window, ada)
  const { page } = window
  await page.addInitScript(`
    globalThis.drawn = []
    const { fillText } = CanvasRenderingContext2D.prototype
    CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
      drawn.push(text)
      return fillText.call(this, text, ...rest)
    }`)
  await page.goto('/?range=15m', { waitUntil: 'networkidle' })
  await page.getByRole('heading', { name: 'Calls by outcome per minute' }).waitFor()
  const times = await page.evaluate('drawn.filter((text) => /^\\d\\d:\\d\\d$/.test(text))')
  expect(new Set(times as string[]).size).toBeGreaterThanOrEqual(3)
  await window.close()
})

test('a chart shows all values at the cursor, hides a series chosen in its legend, and opens the range that is dragged over', async () => {
  const window = await chromium.open({ scheme: 'light', width: 1280 })
  await signInAs(window, ada)
  const { page } = window
  await page.goto('/?range=7d', { waitUntil: 'networkidle' })
  const figure = page.locator('figure.plot').first()
  const over = figure.locator('.u-over')
  /** A click can scroll the page, so the chart's position is read each time. */
  const moveTo = async (share: number, steps = 1): Promise<void> => {
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
