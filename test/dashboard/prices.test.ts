/** What people see of prices, and how a person who is signed in approves a proposal. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { pricesAt, proposePriceBook } from '../../src/administration/prices/prices.ts'
import { putUser } from '../../src/administration/users/users.ts'
import { defaultPriceBook } from '../../src/billing/price-book.ts'
import {
  type Browser,
  type DashboardHost,
  openBrowser,
  openDashboardHost,
  signedIn,
} from './dashboard-host.ts'

let room: DashboardHost
let ada: Browser
let bob: Browser

beforeAll(async () => {
  room = await openDashboardHost()
  const [first, second] = ['ada', 'bob'].map((name) => ({ name, password: 'correct horse battery staple' }))
  if (first === undefined || second === undefined) throw new Error('no one')
  for (const user of [first, second]) await putUser(room.foundation.pool, user)
  ada = await signedIn(room, first)
  bob = await signedIn(room, second)
})
afterAll(() => room?.close())

const propose = async (amount: string, actor = 'user:ada'): Promise<number> =>
  (
    await proposePriceBook(room.foundation, {
      rulesOver: (base) => base.map((rule) => (rule.sku === 'ip_lookup' ? { ...rule, amount } : rule)),
      effectiveFrom: new Date(Date.now() + 86_400_000).toISOString(),
      reason: '<b>contract</b>',
      actor,
    })
  ).proposal

const upcoming = async () => (await pricesAt(room.foundation, Date.now())).upcoming

describe('the prices', () => {
  test('are those in force, and what is proposed', async () => {
    const proposal = await propose('1.5')
    const { body, statusCode } = await ada.get('/prices')
    expect(statusCode).toBe(200)
    for (const { rule } of defaultPriceBook.rules) expect(body).toContain(rule)
    expect(body).toContain(`href="/prices/p${proposal}"`)
    expect(body).toContain('&lt;b&gt;contract')
    expect((await ada.get('/')).body).toContain('href="/prices"')
  })

  test('are for people who are signed in', async () => {
    const stranger = openBrowser(room.host)
    for (const path of ['/prices', '/prices/p1']) {
      const { statusCode, headers } = await stranger.get(path)
      expect({ statusCode, to: headers.location }).toEqual({
        statusCode: 303,
        to: `/login?next=${encodeURIComponent(path)}`,
      })
    }
  })

  test('of a proposal that does not exist are a page that is missing', async () => {
    for (const path of ['/prices/p99', '/prices/1', '/prices/x'])
      expect((await ada.get(path)).statusCode).toBe(404)
  })
})

describe('a proposal', () => {
  test('is approved by another person than the one who proposed it, once', async () => {
    const proposal = await propose('2.5')
    const path = `/prices/p${proposal}`
    const shown = await ada.get(path)
    expect(shown.body).toContain('1 → 2.5')
    expect(shown.body).toContain('Ada proposed it: another person has to approve it')
    expect(shown.body).not.toContain('<button type="submit">Approve')
    const own = await ada.submit('/prices', {}, `${path}/approve`)
    expect(own.statusCode).toBe(422)
    expect(own.body).toContain('Ada proposed it')
    expect(await upcoming()).toEqual([])

    const approved = await bob.submit(path, {}, `${path}/approve`)
    expect({ statusCode: approved.statusCode, to: approved.headers.location }).toEqual({
      statusCode: 303,
      to: '/prices',
    })
    expect(await upcoming()).toMatchObject([
      { proposal, approver: 'user:bob', published: { by: 'user:bob' } },
    ])
    expect((await bob.submit('/prices', {}, `${path}/approve`)).body).toContain('is approved already')
    expect((await bob.get(path)).body).not.toContain('<button type="submit">Approve')
  })

  test('is not approved by a request from elsewhere', async () => {
    const before = await upcoming()
    const proposal = await propose('3.5', 'user:ada')
    expect((await bob.post(`/prices/p${proposal}/approve`, '_csrf=guessed')).statusCode).toBe(403)
    expect(await upcoming()).toEqual(before)
  })

  test('that a label made is approved by no one', async () => {
    const proposal = await propose('4.5', 'cli:ada')
    expect((await bob.get(`/prices/p${proposal}`)).body).toContain('which is a label only')
  })
})
