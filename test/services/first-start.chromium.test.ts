/** From the first start to a plotted call, with the terminal and the overview as the only help. */
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { eventually, startService } from '../support/service.ts'
import { axeFindings, openChromium, overhang, picture, screens, signInAs } from './chromium/browser.ts'
import { pasted } from './chromium/installation.ts'

test('the first start leads from its password to a call that is plotted, priced and explained, and to a key', async () => {
  const dataDir = await mkdtemp(join(tmpdir(), 'first-start-'))
  onTestFinished(() => rm(dataDir, { recursive: true, force: true }))
  const service = await startService({ DATA_DIR: dataDir })
  onTestFinished(async () => {
    await service.end('SIGTERM')
  })
  const chromium = await openChromium(service.dashboardUrl)
  onTestFinished(() => chromium.close())
  const said = (pattern: RegExp) => eventually(async () => pattern.exec(service.output())?.[1])
  const name = await said(/^Login +user (\S+), password \S+/m)
  const demo = await readFile(await said(/^Login +user \S+, password in (\S+);/m), 'utf8')
  const { dashboard_password: password } = JSON.parse(demo) as { dashboard_password: string }
  const window = await chromium.open({ scheme: 'light', width: 1280 })
  const { page } = window
  await signInAs(window, { name, password })
  const steps = page.locator('section[aria-labelledby=first-steps]')
  await steps.getByRole('button', { name: 'Send' }).waitFor()
  for (const { scheme, width } of screens) {
    await page.emulateMedia({ colorScheme: scheme })
    await page.setViewportSize({ width, height: 900 })
    await picture(page, `first-steps-${scheme}-${width}`)
    expect(await axeFindings(page)).toEqual([])
    expect(await overhang(page)).toBeLessThanOrEqual(0)
  }
  const curl = await steps.locator('#first-curl').innerText()
  await steps.getByRole('button', { name: 'Send' }).click()
  await page.getByRole('heading', { name: 'The answer' }).waitFor()
  expect(await page.locator('section[aria-labelledby=first-answer]').innerText()).toContain(
    '1 credit charged',
  )
  await page.locator('figure.plot canvas').waitFor()
  for (const { scheme, width } of screens) {
    await page.emulateMedia({ colorScheme: scheme })
    await page.setViewportSize({ width, height: 900 })
    await picture(page, `first-answer-${scheme}-${width}`)
    expect(await axeFindings(page)).toEqual([])
    expect(await overhang(page)).toBeLessThanOrEqual(0)
  }
  expect(await pasted(curl)).toMatch(/^HTTP\/1\.1 200 /)
  // When the overview refreshes itself, it draws the chart again, and the link must still have the focus.
  await steps.getByRole('link', { name: 'Issue a key' }).focus()
  await page.locator('dl.today dd strong', { hasText: /^2$/ }).first().waitFor()
  await page.locator('figure.plot canvas').waitFor()
  expect(await page.evaluate('document.activeElement.textContent')).toBe('Issue a key')
  expect(await page.getByRole('heading', { name: 'The answer' }).count()).toBe(1)
  await steps.getByRole('link', { name: 'Open the call' }).click()
  expect(await page.locator('main').innerText()).toMatch(/1 credit: the address was located/)
  await page.goto('/')
  await steps.getByRole('link', { name: 'Issue a key' }).click()
  expect(new URL(page.url()).pathname).toMatch(/^\/organizations\/org_\w+\/key\/issue$/)
  // If the browser leaves a page while the page refreshes itself, it reports "Failed to fetch".
  expect(window.complaints().filter((said) => !said.includes('Failed to fetch'))).toEqual([])
})
