/** From the first start to a plotted call, with no other help than the terminal. */
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { eventually, startService } from '../support/service.ts'
import { openChromium } from './chromium/browser.ts'
import { pasted } from './chromium/installation.ts'
import { signInFirst } from './chromium/people.ts'

test('typing the lines of the first start, with the password in demo.json, leads to a plotted call', async () => {
  const dataDir = await mkdtemp(join(tmpdir(), 'first-start-'))
  const service = await startService({ DATA_DIR: dataDir })
  const chromium = await openChromium(service.dashboardUrl)
  try {
    const said = (pattern: RegExp) => eventually(async () => pattern.exec(service.output())?.[1])
    expect(await pasted(await said(/^(curl .*)$/m))).toMatch(/^HTTP\/1\.1 200 /)
    const window = await chromium.open({ scheme: 'light', width: 1280 })
    const { page } = window
    const name = await said(/^Login +user (\S+), password \S+/m)
    const demo = await readFile(await said(/^Login +user \S+, password in (\S+);/m), 'utf8')
    const { dashboard_password: password } = JSON.parse(demo) as { dashboard_password: string }
    await signInFirst(window, { name, password }, await said(/^What it cost, plotted: (\S+)$/m))
    // The call is folded within a second of its answer.
    await eventually(async () => {
      if ((await page.locator('figure.plot canvas').count()) > 0) return true
      await page.reload()
      return undefined
    })
    expect(await page.locator('.figures dd').first().innerText()).toBe('1')
    expect(window.complaints()).toEqual([])
  } finally {
    await chromium.close()
    await service.end('SIGTERM')
    await rm(dataDir, { recursive: true, force: true })
  }
}, 120_000)
