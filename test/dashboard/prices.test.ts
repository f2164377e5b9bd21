/** Prices in the dashboard: who sees them, who may approve them, and where the pages lead. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { createOrganization } from '../../src/administration/organizations/organizations.ts'
import { pricesAt, proposePriceBook } from '../../src/administration/prices/prices.ts'
import { defaultPriceBook } from '../../src/billing/price-book.ts'
import {
  type Browser,
  type DashboardHost,
  openDashboardHost,
  signedIn,
  userWhoChose,
  waited,
} from './dashboard-host.ts'

let room: DashboardHost
let ada: Browser
let bob: Browser
let organizationId = ''
const actor = 'cli:setup'
const at = (days: number): string => new Date(Date.now() + days * 86_400_000).toISOString()

const show = '/commands/price/show'
const approve = '/commands/price/approve'
const propose = '/commands/price/propose'

beforeAll(async () => {
  room = await openDashboardHost()
  const enter = async (name: string) =>
    signedIn(room, await userWhoChose(room, { name, role: 'finance', organizationId: null, actor }))
  await userWhoChose(room, { name: 'first', role: 'admin', organizationId: null, actor })
  ;[ada, bob] = [await enter('ada'), await enter('bob')]
  ;({ organizationId } = await createOrganization(room.foundation, {
    ...{ name: 'Northwind', overdraftLimit: 0n, actor },
  }))
  await room.caughtUp()
})
afterAll(() => room?.close())

const proposed = async (amount: string, by = 'user:ada'): Promise<string> => {
  const { proposal } = await proposePriceBook(room.foundation, {
    rulesOver: (base) => base.map((rule) => (rule.sku === 'ip_lookup' ? { ...rule, amount } : rule)),
    ...{ effectiveFrom: at(1), reason: '<b>contract</b>', actor: by },
  })
  return `p${proposal}`
}

const upcoming = async () => (await pricesAt(room.foundation, Date.now())).upcoming

/** Sends the form, and confirms on the page that follows. */
const done = async (browser: Browser, path: string, fields: Record<string, string>) => {
  const plan = await browser.submit(path, fields)
  return plan.statusCode === 200 ? browser.submit(path, { ...fields, confirmed: 'yes' }) : plan
}

describe('the prices', () => {
  test('shows those in force and the proposals, with the possible actions', async () => {
    const name = await proposed('1.5')
    const { body } = await ada.get(show)
    for (const { rule } of defaultPriceBook.rules) expect(body).toContain(rule)
    expect(body).toContain('&lt;b&gt;contract')
    expect(body).toContain(`href="${approve}?proposal=${name}"`)
    expect(body).toContain(`href="/commands/price/withdraw?name=${name}"`)
    expect(body).toContain(`href="/commands/price/diff?from=1&amp;to=${name}"`)
    expect((await ada.get('/')).body).toContain(`href="${show}"`)
  })

  test('of an unknown name are refused', async () => {
    for (const name of ['p99', '99', 'x', '%00'])
      expect([name, (await ada.get(`${show}?name=${name}`)).statusCode]).toEqual([name, 422])
  })

  test("are shown to a partner without proposals, and without the operator's users", async () => {
    const name = await proposed('1.75', 'user:olga.of.finance')
    const user = { name: 'pia', role: 'partner', organizationId, actor } as const
    const pia = await signedIn(room, await userWhoChose(room, user))
    const own = `/organizations/${organizationId}/price/show`
    const page = await pia.get(own)
    expect(page.statusCode).toBe(200)
    expect(page.body).toContain('ip_lookup.located')
    for (const hidden of ['olga.of.finance', 'contract', 'Approver', 'price/approve', 'price/propose'])
      expect([hidden, page.body.includes(hidden)]).toEqual([hidden, false])
    for (const asked of [name, '1', '99']) {
      const answer = await pia.get(`${own}?name=${asked}`)
      expect([answer.statusCode, answer.body.includes('There is nothing of the name')]).toEqual([422, true])
    }
    expect((await pia.get(show)).statusCode).toBe(403)
    expect(page.body).not.toContain(`href="${show}"`)
  })
})

describe('a proposal', () => {
  test('is made with a form that contains the prices in force', async () => {
    const { body } = await ada.get(show)
    const href = /href="(\/commands\/price\/propose\?[^"]+)"/.exec(body)?.[1]?.replaceAll('&amp;', '&') ?? ''
    const form = (await ada.get(href)).body
    expect(form).toContain(
      '{&quot;rule&quot;:&quot;ip_lookup.located&quot;,&quot;amount&quot;:&quot;1&quot;}',
    )
    const file = '[{"rule": "ip_lookup.located", "amount": "2.50"}, {"rule": "whoami", "amount": "0"}]'
    const answer = await ada.submit(propose, { file, from: at(1), reason: 'next year' })
    expect(answer.body).toContain('<h1>Done</h1>')
    expect(answer.body).toMatch(/2\.5<.*/)
    const { open } = await pricesAt(room.foundation, Date.now())
    expect(open.at(-1)?.rules).toEqual(
      defaultPriceBook.rules.map((rule) =>
        rule.rule === 'ip_lookup.located' ? { ...rule, amount: '2.5' } : rule,
      ),
    )
  })

  test.each([
    [{ from: 'soon' }, 'is not an ISO 8601 instant', 'from'],
    [{ from: '2020-01-01T00:00:00Z' }, 'prices never change backwards', 'from'],
    [{ file: '/etc/passwd' }, 'It is not JSON', 'file'],
    [{ file: '[{"rule": "sold"}]' }, 'is not in the book it changes', 'file'],
    [{ file: '[{"rule": "ip_lookup.located", "amount": "-1"}]' }, 'decimal number of credits', 'file'],
    [{ file: '[{"rule": "ip_lookup.located", "amount": "1"}]' }, 'has these very rules', null],
  ])('with %j is refused in the form, which keeps the input', async (wrong, why, field) => {
    const before = await room.foundation.eventLog.head()
    const typed = { file: '[{"rule": "ip_lookup.located", "amount": "7"}]', from: at(1), reason: 'typed <b>' }
    const answer = await ada.submit(propose, { ...typed, ...wrong })
    expect(answer.statusCode).toBe(422)
    expect(answer.body).toContain(why)
    expect(answer.body).toContain('typed &lt;b&gt;')
    if (field !== null) expect(answer.body).toMatch(new RegExp(`id="${field}"[^>]*aria-invalid="true"`))
    expect(await room.foundation.eventLog.head()).toBe(before)
  })

  test('is approved once, by a person other than the proposer', async () => {
    const name = await proposed('3.5')
    const before = await room.foundation.eventLog.head()
    for (const fields of [{ proposal: name }, { proposal: name, confirmed: 'yes' }]) {
      const own = await ada.submit(approve, fields)
      expect([
        own.statusCode,
        own.body.includes('Ada proposed it: another person has to approve it'),
      ]).toEqual([...[422, true]])
    }
    expect(await room.foundation.eventLog.head()).toBe(before)

    const plan = await bob.submit(approve, { proposal: name })
    expect(plan.body).toContain('ip_lookup.located: 1 credit (ip_lookup, version 1) → 3.5 credits')
    expect(plan.body).toContain('It can be withdrawn until then')
    expect((await done(bob, approve, { proposal: name })).body).toContain('<h1>Done</h1>')
    expect(await upcoming()).toMatchObject([
      { proposal: Number(name.slice(1)), approver: 'user:bob', published: { by: 'user:bob' } },
    ])
    expect((await bob.submit(approve, { proposal: name })).body).toContain('is approved already')
  })
})

describe('the cost of a month under other prices', () => {
  const diff = '/commands/price/diff'

  test('is computed for two price books, and refused for a month that has not begun', async () => {
    expect((await ada.get(diff)).body).toContain('name="to"')
    const asked = async (month: string) => waited(ada, await ada.submit(diff, { from: '1', to: '1', month }))
    expect((await asked('')).body).toContain('No calls in')
    const wrong = await asked('2026-13')
    expect([wrong.statusCode, /id="month"[^>]*aria-invalid="true"/.test(wrong.body)]).toEqual([422, true])
    const early = await asked('9998-01')
    expect([early.statusCode, early.body.includes('9998-01 has not begun')]).toEqual([422, true])
  })
})
