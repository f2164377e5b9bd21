/** A real Chromium, started from PATH, and what it says about a page. */
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { type BrowserContext, chromium, type Page } from 'playwright-core'

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')

export type Screen = { readonly scheme: 'light' | 'dark'; readonly width: number }
export const screens: readonly Screen[] = [
  { scheme: 'light', width: 1280 },
  { scheme: 'dark', width: 1280 },
  { scheme: 'light', width: 390 },
  { scheme: 'dark', width: 390 },
]

export type Window = {
  readonly page: Page
  /** What the console said, and what the content security policy kept from happening, since this was last asked. */
  complaints(): string[]
  close(): Promise<void>
}

export type Chromium = {
  open(screen: Screen): Promise<Window>
  close(): Promise<void>
}

export const openChromium = async (baseURL: string): Promise<Chromium> => {
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-dev-shm-usage'],
  })
  const contexts: BrowserContext[] = []
  return {
    open: async ({ scheme, width }) => {
      // axe is put into pages by the browser, past their policy; its own context tells what the policy of a page refuses.
      const context = await browser.newContext({
        ...{ baseURL, colorScheme: scheme, viewport: { width, height: 900 } },
        locale: 'en-GB',
        timezoneId: 'Asia/Tokyo',
      })
      contexts.push(context)
      const page = await context.newPage()
      let said: string[] = []
      page.on('console', (message) => {
        if (message.type() === 'error' || message.type() === 'warning') said.push(message.text())
      })
      page.on('pageerror', (error) => said.push(String(error)))
      return {
        page,
        complaints: () => {
          const before = said
          said = []
          return before
        },
        close: () => context.close(),
      }
    },
    close: async () => {
      for (const context of contexts) await context.close()
      await browser.close()
    },
  }
}

type Finding = { readonly id: string; readonly impact: string | null; readonly where: readonly string[] }

/** What axe finds wrong with a page as it is now. */
export const axeFindings = async (page: Page): Promise<Finding[]> => {
  // `evaluate` runs in the page past its policy, which an added script would not.
  await page.evaluate(axe)
  const findings =
    await page.evaluate(`axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) =>
    violations.map(({ id, impact, nodes }) => ({ id, impact, where: nodes.slice(0, 3).map(({ html, failureSummary }) => html.slice(0, 160) + ' ' + failureSummary.slice(0, 200)) })))`)
  return findings as Finding[]
}

/** How far the page reaches beyond the window, in pixels. */
export const overhang = (page: Page): Promise<number> =>
  page.evaluate('document.documentElement.scrollWidth - window.innerWidth') as Promise<number>

/** A picture of the page into `SCREENSHOTS`, where that names a folder. */
export const picture = async (page: Page, name: string): Promise<void> => {
  const folder = process.env.SCREENSHOTS
  if (folder !== undefined) await page.screenshot({ path: join(folder, `${name}.png`), fullPage: true })
}
