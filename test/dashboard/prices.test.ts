/** Prices in the dashboard: who may approve them, and where the pages lead. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { pricesAt, proposePriceBook } from '../../src/administration/prices/prices.ts'
import { defaultPriceBook } from '../../src/billing/price-book.ts'
import {
  type Browser,
  type DashboardHost,
  openDashboardHost,
  signedIn,
  userWhoChose,
} from './dashboard-host.ts'

let room: DashboardHost
let ada: Browser
let bob: Browser
const actor = 'cli:setup'
const at = (days: number): string => new Date(Date.now() + days * 86_400_000).toISOString()

const show = '/commands/price/show'
const approve = '/commands/price/approve'

beforeAll(async () => {
  room = await openDashboardHost()
  const enter = async (name: string) =>
    signedIn(room, await userWhoChose(room, { name, role: 'finance', organizationId: null, actor }))
  await userWhoChose(room, { name: 'first', role: 'admin', organizationId: null, actor })
  ;[ada, bob] = [await enter('ada'), await enter('bob')]
})
afterAll(() => room?.close())

const proposed = async (amount: string): Promise<string> => {
  const { proposal } = await proposePriceBook(room.foundation, {
    rulesOver: (base) => base.map((rule) => (rule.sku === 'ip_lookup' ? { ...rule, amount } : rule)),
    ...{ effectiveFrom: at(1), reason: '<b>contract</b>', actor: 'user:ada' },
  })
  return `p${proposal}`
}

const upcoming = async () => (await pricesAt(room.foundation, Date.now())).upcoming

/** Sends the form, and confirms on the page that follows. */
const done = async (browser: Browser, path: string, fields: Record<string, string>) => {
  const plan = await browser.submit(path, fields)
  return plan.statusCode === 200 ? browser.submit(path, { ...fields, confirmed: 'yes' }) : plan
}

test('the prices in force and the proposals are shown, with the possible actions', async () => {
  const name = await proposed('1.5')
  const { body } = await ada.get(show)
  for (const { rule } of defaultPriceBook.rules) expect(body).toContain(rule)
  expect(body).toContain('&lt;b&gt;contract')
  expect(body).toContain(`href="${approve}?proposal=${name}"`)
  expect(body).toContain(`href="/commands/price/withdraw?name=${name}"`)
  expect(body).toContain(`href="/commands/price/diff?from=1&amp;to=${name}"`)
  expect((await ada.get('/')).body).toContain(`href="${show}"`)
})

test('a proposal is approved once, by a person other than the proposer', async () => {
  const name = await proposed('3.5')
  const before = await room.foundation.eventLog.head()
  for (const fields of [{ proposal: name }, { proposal: name, confirmed: 'yes' }]) {
    const own = await ada.submit(approve, fields)
    expect([own.statusCode, own.body.includes('Ada proposed it: another person has to approve it')]).toEqual([
      ...[422, true],
    ])
  }
  expect(await room.foundation.eventLog.head()).toBe(before)

  const plan = await bob.submit(approve, { proposal: name })
  expect(plan.body).toContain('ip_lookup.located: 1 credit (ip_lookup, version 1) → 3.5 credits')
  expect(plan.body).toContain('It can be withdrawn until then')
  expect((await done(bob, approve, { proposal: name })).body).toContain('<h1>Done</h1>')
  expect(await upcoming()).toMatchObject([
    { proposal: Number(name.slice(1)), approver: 'user:bob', published: { by: 'user:bob' } },
  ])
  expect((await bob.submit(approve, { proposal: name })).body).toContain('is already approved')
})
