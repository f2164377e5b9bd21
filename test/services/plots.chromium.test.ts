/** The plots of the usage page in a real Chromium: bars on each other, lines with gaps, and nothing where nothing was used. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createOrganization } from '../../src/administration/organizations.ts'
import { putUser } from '../../src/administration/users.ts'
import { axeFindings, type Chromium, openChromium, overhang, picture, signInAs } from './chromium/browser.ts'
import { type Furnished, openFurnished } from './chromium/furnished.ts'

let furnished: Furnished
let chromium: Chromium
let quiet = ''
const ada = { name: 'ada', password: 'correct horse battery staple' }
const dayMs = 86_400_000

beforeAll(async () => {
  furnished = await openFurnished({ days: 10 })
  const { room, scene } = furnished
  await putUser(room.foundation.pool, ada)
  ;({ organizationId: quiet } = await createOrganization(room.foundation, {
    ...{ name: 'Quiet Ltd', overdraftLimit: 0n, actor: 'cli' },
  }))
  await room.caughtUp()
  // A day without calls among the others, and one whose slowest are beyond every bound.
  for (let day = 0; day < 9; day++)
    if (day !== 4)
      for (let i = 0; i < 200; i++)
        for (const [capability, ms] of [
          ['ip_lookup', 1 + (i % 7)],
          ['email_validation', day === 2 && i > 190 ? 100_000 : 80 + i * 9],
        ] as const)
          room.latencies.add(scene.organizationId, capability, { atMs: Date.now() - day * dayMs, ms })
  await room.latencies.close()
  chromium = await openChromium(furnished.baseUrl)
})
afterAll(async () => {
  await chromium?.close()
  await furnished?.close()
})

test.each([
  { scheme: 'light', width: 1280 },
  { scheme: 'dark', width: 390 },
] as const)('in a $scheme window of $width pixels', async (screen) => {
  const window = await chromium.open(screen)
  await signInAs(window, ada)
  const { page } = window
  window.complaints()
  await page.goto(`/organizations/${furnished.scene.organizationId}/usage`, { waitUntil: 'networkidle' })
  expect(await page.locator('figure.plot canvas').count()).toBe(4)
  expect(await page.locator('figure.plot[data-kind="lines"] .chart .u-legend .u-series').count()).toBe(8)
  // The gap is a cell without a number, and what is beyond the last bound says so.
  await page.locator('figure.plot:last-of-type summary').click()
  expect(await page.locator('figure.plot td:not(:has(data))').count()).toBeGreaterThan(3)
  expect(await page.locator('figure.plot').filter({ hasText: 'email validation' }).innerText()).toBeTruthy()
  await picture(page, `usage-latency-${screen.scheme}-${screen.width}`)
  expect([window.complaints(), await overhang(page), await axeFindings(page)]).toEqual([[], 0, []])
  await page.goto(`/organizations/${quiet}/usage`, { waitUntil: 'networkidle' })
  expect(await page.locator('figure.plot canvas').count()).toBe(0)
  expect(window.complaints()).toEqual([])
  await window.close()
})
