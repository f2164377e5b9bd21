/** A person's work with the service, from signing in to rebuilding a projection, only by clicks. */
import { createHash } from 'node:crypto'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import pg from 'pg'
import type { Page } from 'playwright-core'
import { afterAll, expect, test } from 'vitest'
import { openChromium, picture, type Window } from './chromium/browser.ts'
import { downloaded, openInstallation, pasted } from './chromium/installation.ts'
import { type Person, signInFirst } from './chromium/people.ts'

/** Ada, with the password that she chose when she first signed in. */
let ada: Person | undefined

const house = await openInstallation()
const organization = `/organizations/${house.scene.organizationId}`
const chromium = await openChromium(house.service.dashboardUrl)
afterAll(async () => {
  await chromium.close()
  await house.close()
})

/** The longest wait for a step, even on a busy machine. */
const eventualMs = 30_000

const link = (page: Page, name: string | RegExp) =>
  page.getByRole('link', { name, exact: typeof name === 'string' })
const click = async (page: Page, name: string | RegExp): Promise<void> => link(page, name).first().click()
const press = async (page: Page, name: string | RegExp): Promise<void> =>
  page.getByRole('button', { name }).click()
const text = (page: Page): Promise<string> => page.locator('main').innerText()
const figure = async (page: Page, name: string): Promise<string> =>
  (await page.locator(`.figures div:has(dt:text-is("${name}")) dd`).innerText()).trim()
const pathOf = (page: Page): string => new URL(page.url()).pathname
const at = (days: number): string => new Date(Date.now() + days * 86_400_000).toISOString()
const monthBefore = (): string => {
  const now = new Date()
  return new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - 1)).toISOString().slice(0, 7)
}

/** Reloads the page until the projections have folded the expected row. */
const appears = async (page: Page, selector: string): Promise<void> => {
  for (const end = Date.now() + eventualMs; (await page.locator(selector).count()) === 0; await page.reload())
    if (Date.now() > end)
      throw new Error(`${page.url()} has no ${selector}: ${(await text(page)).slice(0, 500)}`)
}

const saved = async (page: Page, name: string): Promise<string> => {
  const [download] = await Promise.all([page.waitForEvent('download'), click(page, name)])
  const file = join(house.folder, download.suggestedFilename())
  await download.saveAs(file)
  return file
}

/** Opens a window and signs the person in. A person with an initial password chooses a new one. */
const open = async (person: Person): Promise<Window & { person: Person }> => {
  const window = await chromium.open({ scheme: 'light', width: 1280 })
  await window.page.context().grantPermissions(['clipboard-read', 'clipboard-write'])
  return { ...window, person: await signInFirst(window, person) }
}

/** Issues a key, pastes the copied line into a terminal, and returns the call's id. */
const issueAndCall = async (page: Page): Promise<string> => {
  await page.goto(organization)
  await click(page, 'Issue a key')
  await page.getByLabel('Name').fill('story')
  await press(page, 'Issue')
  await press(page, 'Copy curl')
  const shown = await page.locator('#line-0').innerText()
  await expect.poll(() => page.evaluate('navigator.clipboard.readText()')).toBe(shown)
  const answer = await pasted((await page.evaluate('navigator.clipboard.readText()')) as string)
  expect(answer).toMatch(/^HTTP\/1\.1 200 /)
  expect(answer).toMatch(/^credits-charged: 1\r$/m)
  return /^x-request-id: (\S+)\r$/m.exec(answer)?.[1] ?? ''
}

const explain = async (page: Page, requestId: string): Promise<void> => {
  await click(page, 'Back')
  await page.locator('nav.places').getByRole('link', { name: 'Usage', exact: true }).click()
  await page.locator('figure.plot canvas').first().waitFor()
  const calls = Number(await figure(page, 'Calls'))
  await click(page, 'Statement')
  await appears(page, `a:has-text("${requestId}")`)
  await page.goto(`${organization}/usage`)
  expect(Number(await figure(page, 'Calls'))).toBeGreaterThanOrEqual(calls)
  await click(page, 'Statement')
  await click(page, requestId)
  const said = await text(page)
  expect(said).toContain('the address was located')
  expect(said).toContain('the call is in the statement')
  expect(await figure(page, 'Cost, credits')).toBe('1')
  await picture(page, 'story-call')
}

const refundIt = async (page: Page): Promise<void> => {
  await click(page, 'Refund the call')
  await page.getByLabel('Reason').fill('asked for by the partner')
  await press(page, 'Preview')
  expect(await figure(page, 'Amount')).toBe('1')
  await press(page, 'Refund')
  await page.getByRole('heading', { name: 'Done' }).waitFor()
  expect(await figure(page, 'Costs now')).toBe('0')
  expect(await text(page)).toContain('asked for by the partner')
}

const proposePrice = async (page: Page): Promise<string> => {
  await click(page, 'Prices')
  await click(page, 'Propose prices')
  await page.getByLabel('Rule', { exact: true }).selectOption('ip_lookup.located')
  await page.getByLabel('New price').fill('0.5')
  await page.getByLabel('From (UTC)').fill(at(1).slice(0, 16))
  await page.getByLabel('Reason').fill('the contract of next year')
  await press(page, 'Preview')
  expect(await text(page)).toContain('ip_lookup.located: 1 credit (ip_lookup, version 1) → 0.5 credits')
  await press(page, 'Propose')
  await done(page)
  return `p${await figure(page, 'Proposal')}`
}

const done = (page: Page): Promise<void> =>
  page.getByRole('heading', { name: 'Done', exact: true }).waitFor({ timeout: eventualMs })

/** Reads the preview and confirms. */
const agree = async (page: Page, verb: string): Promise<void> => {
  await press(page, 'Preview')
  await press(page, verb)
  await done(page)
}

const approvePrice = async (page: Page, proposal: string): Promise<void> => {
  await click(page, 'Prices')
  await click(page, `Cost under ${proposal}`)
  await press(page, 'Compare')
  await page.getByRole('heading', { name: `1 → ${proposal}` }).waitFor({ timeout: eventualMs })
  await click(page, 'Prices')
  expect(await text(page)).toMatch(/ip_lookup\.located\s+1 → 0\.5\s/)
  await click(page, `Approve ${proposal}`)
  await agree(page, 'Approve')
  await click(page, 'Prices')
  expect(await text(page)).toContain('user:bob')
}

/** The first person plans the re-rate, the second approves it, and the first applies it. */
const rerate = async (page: Page, second: Page, proposal: string): Promise<void> => {
  await click(page, 'Re-rates')
  await click(page, 'Plan a re-rate')
  await page.getByLabel('Prices').fill(proposal)
  await page.getByLabel('Calls from (UTC)').fill(`${monthBefore()}-01T00:00`)
  await page.getByLabel('Calls before (UTC)').fill(`${at(0).slice(0, 7)}-01T00:00`)
  await page.getByLabel('Organization').fill(house.scene.organizationId)
  await page.getByLabel('Reason').fill('charged too much')
  await press(page, 'Plan')
  await done(page)
  const given = await figure(page, 'Given back')
  expect(Number(given)).toBeGreaterThan(0)
  await click(page, /^Show/)
  const shown = new URL(page.url())
  await second.goto(`${shown.pathname}${shown.search}`)
  await click(second, 'Approve')
  await agree(second, 'Approve')
  await page.reload()
  await click(page, 'Apply')
  await agree(page, 'Apply')
  expect(await figure(page, 'Balances changed by')).toBe(given)
}

const closeMonth = async (page: Page): Promise<void> => {
  const month = monthBefore()
  await page.goto(organization)
  await page
    .getByRole('navigation', { name: /^Pages of/ })
    .getByRole('link', { name: 'Months' })
    .click()
  await click(page, `Show ${month}`)
  await click(page, `Close ${month}`)
  await press(page, 'Preview')
  expect(await text(page)).toContain('This cannot be undone.')
  await press(page, 'Close')
  await done(page)
  await page.goto(`${organization}/ledger/totals?month=${month}`)
  await page.getByText('Closed at ledger revision').waitFor({ timeout: eventualMs })
  const digest = await page.locator('.figures .id.whole').innerText()
  const lines = await readFile(await saved(page, 'Statement as JSON Lines'))
  expect(createHash('sha256').update(lines).digest('base64url')).toBe(digest)
  const csv = await readFile(await saved(page, 'Statement as CSV'), 'utf8')
  // Both files have one line for each line of the statement and for each balance. Only CSV has a line of names.
  const count = lines.toString().split('\n').length
  expect(csv.split('\r\n')).toHaveLength(count + 1)
  // Depending on the day of the month, at least nine days of calls were in the month before.
  expect(count).toBeGreaterThan(50)
}

/** Signs a checkpoint, downloads the receipt, and verifies it with the program that is published with the guides. */
const verifyReceipt = async (page: Page, requestId: string): Promise<void> => {
  await click(page, 'Operations')
  await click(page, 'Jobs')
  await click(page, 'Run checkpoint')
  await press(page, 'Run')
  await done(page)
  await page.goto(`${organization}/calls/${requestId}`)
  const receipt = await saved(page, 'Receipt')
  const program = join(house.folder, 'verify-receipt.ts')
  await writeFile(program, await (await fetch(`${house.service.apiUrl}/docs/verify-receipt.ts`)).text())
  const { verifier_key: key } = JSON.parse(await readFile(receipt, 'utf8'))
  const proved = await downloaded(house.folder, [program, receipt, key])
  expect(proved).toMatchObject({ code: 0, out: expect.stringContaining(`proved: call ${requestId}\n`) })
  await writeFile(
    receipt,
    (await readFile(receipt, 'utf8')).replace('\\"amount\\":\\"1\\"', '\\"amount\\":\\"2\\"'),
  )
  const changed = await downloaded(house.folder, [program, receipt, key])
  expect(changed).toMatchObject({ code: 1, err: expect.stringContaining('NOT PROVED') })
}

const rebuild = async (page: Page): Promise<void> => {
  const told: string[] = []
  await page.exposeFunction('told', (progress: string) => told.push(progress))
  await page.addInitScript(`new MutationObserver(() => {
    const progress = document.querySelector('[data-progress]')
    if (progress !== null) told(progress.textContent)
  }).observe(document, { subtree: true, childList: true, characterData: true })`)
  await click(page, 'Operations')
  await click(page, /^Rebuild ledger_lines/)
  await page.getByLabel('Reason').fill('to see it move')
  await press(page, 'Preview')
  const moved = () => new Set(told.filter((progress) => /position \d+ of \d+/.test(progress))).size
  // Stops the rebuild between batches, so that the page can show several positions even if the rebuild is fast.
  const holder = new pg.Client({ connectionString: house.databaseUrl })
  await holder.connect()
  const hold = async (until: () => Promise<unknown>): Promise<void> => {
    await holder.query('begin')
    await holder.query('lock table projection_builds in exclusive mode')
    await until()
    await holder.query('commit')
  }
  try {
    await hold(async () => {
      await press(page, 'Rebuild')
      await page.waitForURL((url) => url.pathname.startsWith('/jobs/'), { timeout: eventualMs })
    })
    for (let n = 0; n < 10 && moved() < 2; n++) await hold(() => page.waitForTimeout(1_000))
  } finally {
    await holder.end()
  }
  await done(page)
  expect(moved()).toBeGreaterThan(1)
}

/** Every step of this story must be in the audit, with the person who did it. */
const readAudit = async (page: Page): Promise<void> => {
  const acts = [
    ['user:ada', 'issued the key'],
    ['user:ada', 'asked for by the partner'],
    ['user:ada', 'proposed the price book p1'],
    ['user:bob', 'published the price book 2'],
    ['user:ada', 'proposed the re-rate'],
    ['user:bob', 'approved the re-rate'],
    ['user:ada', 'ended the re-rate'],
    ['user:ada', `closed ${monthBefore()}`],
    ['user:ada', 'began to rebuild ledger_lines: to see it move'],
  ] as const
  await click(page, 'Audit')
  // Waits until the last of these events is folded.
  await appears(page, 'td:has-text("to see it move")')
  const rows = await page.locator('tbody tr').allInnerTexts()
  const missing = acts.filter(([by, what]) => !rows.some((row) => row.includes(by) && row.includes(what)))
  expect(missing).toEqual([])
}

test('a key is issued, its call is made, seen, explained, refunded and proved, prices and a month are settled, a projection is rebuilt', async () => {
  const [first, other] = [await open(house.ada), await open(house.bob)]
  const [page, second] = [first.page, other.page]
  ada = first.person
  const complaints = (): string[] => [...first.complaints(), ...other.complaints()]
  const chapter = async <Result>(title: string, work: () => Promise<Result>): Promise<Result> => {
    const result = await work().catch(async (cause: unknown) => {
      await picture(page, 'story-fault')
      throw new Error(`${title}, at ${page.url()}: ${String(cause)}`, { cause })
    })
    expect({ title, complaints: complaints() }).toEqual({ title, complaints: [] })
    return result
  }
  const requestId = await chapter('issue a key and call', () => issueAndCall(page))
  await chapter('see and explain the call', () => explain(page, requestId))
  await chapter('refund it', () => refundIt(page))
  const proposal = await chapter('propose a price', () => proposePrice(page))
  await chapter('approve it as another person', () => approvePrice(second, proposal))
  await chapter('re-rate', () => rerate(page, second, proposal))
  await chapter('close the month and download it', () => closeMonth(page))
  await chapter('verify a receipt offline', () => verifyReceipt(page, requestId))
  await chapter('rebuild with progress', () => rebuild(page))
  await chapter('read who did all that', () => readAudit(page))
})

test('without JavaScript a person signs in, issues a key, and refunds its call', async () => {
  const window = await chromium.open({ scheme: 'dark', width: 390, script: false })
  const { page } = window
  await page.goto(`${organization}/key/issue`)
  ada ??= (await open(house.ada)).person
  await page.getByLabel('User').fill(ada.name)
  await page.getByLabel('Password').fill(ada.password)
  await press(page, 'Sign in')
  // The link that was opened still leads to its page after signing in.
  expect(pathOf(page)).toBe(`${organization}/key/issue`)
  await page.getByLabel('Name').fill('without scripts')
  await press(page, 'Issue')
  expect(await page.locator('button[data-copy]:visible').count()).toBe(0)
  const answer = await pasted(await page.locator('#line-0').innerText())
  const requestId = /^x-request-id: (\S+)\r$/m.exec(answer)?.[1] ?? ''
  await page.goto(`${organization}/ledger/lines`)
  await appears(page, `a:has-text("${requestId}")`)
  await click(page, requestId)
  await refundIt(page)
  expect(window.complaints()).toEqual([])
  await window.close()
})
