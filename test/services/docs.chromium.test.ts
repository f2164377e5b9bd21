/** The pages for partners in a real Chromium, and the calls that people make from them. */
import { afterAll, describe, expect, test } from 'vitest'
import { openTestOrganization } from '../../src/administration/keys/api-keys.ts'
import { permission } from '../../src/events/capabilities.ts'
import { openHouse } from '../support/house.ts'
import { axeFindings, openChromium, overhang, picture, screens } from './chromium/browser.ts'

const house = await openHouse()
const { organizationId } = await house.partner()
const opened = await openTestOrganization(house.foundation, { organizationId, actor: 'cli' })
const tester = await house.key(opened, { permissions: permission.options })
const chromium = await openChromium(house.apiUrl)
afterAll(async () => {
  await chromium.close()
  await house.close()
})

const guides = [
  'quick-start',
  'partners',
  'errors',
  'idempotency',
  'billing',
  'webhooks',
  'receipts',
  'testing',
]
const paths = ['', ...guides.map((name) => `/${name}`), '/changelog']

describe.each(screens)('in a $scheme window of $width pixels', ({ scheme, width }) => {
  test('pages have no console errors and no axe findings, and fit the window', async () => {
    const window = await chromium.open({ scheme, width })
    for (const path of paths) {
      await window.page.goto(`/docs${path}`)
      await picture(window.page, `docs${path.replace('/', '-')}-${scheme}-${width}`)
      expect([path, await axeFindings(window.page)]).toEqual([path, []])
      expect([path, await overhang(window.page)]).toEqual([path, 0])
    }
    expect(window.complaints()).toEqual([])
    await window.close()
  })
})

test('calls are made with a key, to this host alone, without an Idempotency-Key; the key is not stored', async () => {
  const window = await chromium.open({ scheme: 'dark', width: 390 })
  const { page } = window
  const asked: { url: string; method: string; headers: Record<string, string> }[] = []
  page.on('request', (request) =>
    asked.push({ url: request.url(), method: request.method(), headers: request.headers() }),
  )
  await page.goto('/docs/reference')
  await page.click('.auth-wrapper .authorize')
  await page.fill('.modal-ux input', tester.apiKey)
  await page.click('.modal-ux .authorize')
  await page.click('.modal-ux .btn-done')
  const lookUp = '#operations-ip_lookup-lookUpIp'
  await page.click(`${lookUp} .opblock-summary-control`)
  await page.click(`${lookUp} .try-out__btn`)
  // The second body is a second call, because no Idempotency-Key is sent unless it is typed.
  for (const ip of ['192.0.2.1', '10.0.0.1']) {
    await page.fill(`${lookUp} textarea`, JSON.stringify({ ip }))
    await page.click(`${lookUp} .execute`)
    await page.locator(`${lookUp} .live-responses-table`, { hasText: `"ip": "${ip}"` }).waitFor()
  }
  const answer = page.locator(`${lookUp} .live-responses-table`)
  expect(await answer.textContent()).toMatch(/200[\s\S]*"success": false/)
  for (const { scheme, width } of screens) {
    await page.emulateMedia({ colorScheme: scheme })
    await page.setViewportSize({ width, height: 900 })
    await picture(page, `docs-reference-${scheme}-${width}`)
    expect(await overhang(page)).toBe(0)
  }
  const sent = ({ headers, ...request }: (typeof asked)[number]) => ({
    ...request,
    key: headers['x-api-key'],
    idempotency: headers['idempotency-key'],
  })
  const call = {
    url: `${house.apiUrl}/v1/ip/lookup`,
    method: 'POST',
    key: tester.apiKey,
    idempotency: undefined,
  }
  expect(asked.map(sent).filter(({ key, method }) => key !== undefined || method === 'POST')).toEqual([
    call,
    call,
  ])
  const outside = asked.filter(({ url }) => !/^(data|blob):/.test(url) && !url.startsWith(house.apiUrl))
  expect(outside).toEqual([])
  expect(await page.evaluate('JSON.stringify([localStorage, sessionStorage, document.cookie])')).toBe(
    '[{},{},""]',
  )
  expect(window.complaints()).toEqual([])
  await window.close()
})
