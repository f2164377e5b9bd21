/** A real Chromium, started from PATH, and the problems that it finds on a page. */
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { type BrowserContext, chromium, type Page } from 'playwright-core'

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')

export type Screen = { readonly scheme: 'light' | 'dark'; readonly width: number }
/**
 * Two of the four combinations of scheme and width are enough, because colours depend only on the scheme and the layout only on
 * the width.
 */
export const screens: readonly Screen[] = [
  { scheme: 'light', width: 1280 },
  { scheme: 'dark', width: 390 },
]

/** Only ends a test that hangs. On a busy machine, a page takes far longer than on a quiet one. */
const hangsAfterMs = 120_000

export type Window = {
  readonly page: Page
  /** The console messages and violations of the content security policy since the last call. */
  complaints(): string[]
  close(): Promise<void>
}

export type Chromium = {
  open(screen: Screen & { readonly script?: boolean }): Promise<Window>
  close(): Promise<void>
}

export const openChromium = async (baseURL: string): Promise<Chromium> => {
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-dev-shm-usage'],
  })
  const contexts: BrowserContext[] = []
  return {
    open: async ({ scheme, width, script = true }) => {
      const context = await browser.newContext({
        baseURL,
        colorScheme: scheme,
        viewport: { width, height: 900 },
        javaScriptEnabled: script,
        locale: 'en-GB',
        timezoneId: 'Asia/Tokyo',
      })
      context.setDefaultTimeout(hangsAfterMs)
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

/** The problems that axe finds on the current page. Without their selectors, which are not printed, this takes three quarters of the time. */
export const axeFindings = async (page: Page): Promise<Finding[]> => {
  // `evaluate` runs code in the page despite the page's Content-Security-Policy; an added script would be blocked.
  await page.evaluate(axe)
  const findings =
    await page.evaluate(`axe.run(document, { resultTypes: ['violations'], selectors: false }).then(({ violations }) =>
    violations.map(({ id, impact, nodes }) => ({ id, impact, where: nodes.slice(0, 3).map(({ html, failureSummary }) => html.slice(0, 160) + ' ' + failureSummary.slice(0, 200)) })))`)
  return findings as Finding[]
}

/** How far the page extends beyond the window, in pixels. */
export const overhang = (page: Page): Promise<number> =>
  page.evaluate('document.documentElement.scrollWidth - window.innerWidth') as Promise<number>

/** Saves a picture of the page in `SCREENSHOTS`, if that names a folder. */
export const picture = async (page: Page, name: string): Promise<void> => {
  const folder = process.env.SCREENSHOTS
  if (folder !== undefined) await page.screenshot({ path: join(folder, `${name}.png`), fullPage: true })
}

/** Signs in with the form to which a page leads, and follows the redirection. */
export const signInAs = async (
  { page }: Window,
  { name, password }: { readonly name: string; readonly password: string },
  from = '/login',
): Promise<void> => {
  await page.goto(from)
  await page.fill('#name', name)
  await page.fill('#password', password)
  await Promise.all([
    page.waitForURL((url) => url.pathname !== '/login'),
    page.click('main button[type=submit]'),
  ])
}

/** Opens a page and waits until it is complete, including everything that its scripts draw. */
export const look = async (page: Page, path: string): Promise<number> => {
  const response = await page.goto(path)
  for (const chart of await page.locator('figure.plot:has(table)').all())
    await chart.locator('canvas').waitFor()
  return response?.status() ?? 0
}
