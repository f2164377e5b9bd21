/** Calls are re-rated; everything is reconciled. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { refund } from '../../src/administration/credits/refunds.ts'
import { proposePriceBook } from '../../src/administration/prices/prices.ts'
import { planFileOf, provedRun } from '../../src/administration/rerates/proof.ts'
import { putUser } from '../../src/administration/users/users.ts'
import {
  type Browser,
  type DashboardHost,
  give,
  openDashboardHost,
  signedIn,
  waited,
} from './dashboard-host.ts'
import { openScene, type Scene } from './scene.ts'

let room: DashboardHost
let ada: Browser
let bob: Browser
let scene: Scene
let base = ''
const nowMs = Date.now()
const at = (days: number): string => new Date(nowMs + days * 86_400_000).toISOString()

beforeAll(async () => {
  room = await openDashboardHost()
  const users = ['ada', 'bob'].map((name) => ({ name, password: 'correct horse battery staple' }))
  for (const user of users) await putUser(room.foundation.pool, user)
  const [first, second] = await Promise.all(users.map((user) => signedIn(room, user)))
  if (first === undefined || second === undefined) throw new Error('no one')
  ;[ada, bob] = [first, second]
  scene = await openScene(room, { nowMs, days: 40 })
  base = `/organizations/${scene.organizationId}`
})
afterAll(() => room?.close())

const propose = async (amount: string): Promise<string> => {
  const { proposal } = await proposePriceBook(room.foundation, {
    rulesOver: (base) => base.map((rule) => (rule.sku === 'ip_lookup' ? { ...rule, amount } : rule)),
    ...{ effectiveFrom: at(2), reason: 'next year', actor: 'user:ada' },
  })
  return `p${proposal}`
}

const rerates = '/commands/rerate'

/** The page that a form leads to. */
const sent = async (browser: Browser, verb: string, fields: Record<string, string>) =>
  waited(browser, await browser.submit(`${rerates}/${verb}`, fields))
const done = (browser: Browser, verb: string, fields: Record<string, string>) =>
  sent(browser, verb, { ...fields, confirmed: 'yes' })

const runIn = (page: string): string => /rr_[0-9A-Z]{26}/.exec(page)?.[0] ?? ''

describe('a re-rate', () => {
  test('is planned, looked at, approved by another person, applied, and never twice', async () => {
    const wanted = { book: await propose('0.5'), from: at(-10), to: at(-1), reason: 'too dear <b>' }
    const plan = await sent(ada, 'plan', wanted)
    expect(plan.body).toContain('<h1>Done</h1>')
    const run = runIn(plan.body)
    expect(plan.body).toContain(`href="${rerates}/show?run=${run}"`)
    const shown = (await ada.get(`${rerates}/show?run=${run}`)).body
    expect(shown).toContain('too dear &lt;b&gt;')
    expect(shown).toContain(`href="${base}"`)
    expect(shown).toContain(`href="${rerates}/approve?run=${run}"`)
    expect(shown).not.toContain(`href="${rerates}/apply`)
    for (const send of [sent, done]) {
      const own = await send(ada, 'approve', { run })
      expect([own.statusCode, own.body.includes('another person has to approve it')]).toEqual([422, true])
      const early = await send(ada, 'apply', { run })
      expect([early.statusCode, early.body.includes('is not approved')]).toEqual([422, true])
    }
    const asked = await sent(bob, 'approve', { run })
    const given = /<dt>Given back<\/dt><dd>([^<]+)/.exec(asked.body)?.[1] ?? ''
    expect(Number(given)).toBeGreaterThan(0)
    expect((await done(bob, 'approve', { run })).body).toContain(`href="${rerates}/apply?run=${run}"`)
    const applied = await done(bob, 'apply', { run })
    expect(applied.body).toContain('<h1>Done</h1>')
    const after = (await ada.get(`${rerates}/show?run=${run}`)).body
    expect(after).toMatch(new RegExp(`<dt>Balances changed by</dt><dd>${given}<`))
    expect(after).not.toContain(`href="${rerates}/apply`)
    for (const send of [sent, done])
      expect((await send(ada, 'apply', { run })).body).toContain('it is never applied twice')
    expect((await ada.get(`${rerates}/list`)).body).toContain(`href="${rerates}/show?run=${run}"`)
  })

  test('whose given plan is another one is not approved', async () => {
    const wanted = { book: '1', from: at(-2), to: at(-1), reason: 'r' }
    const run = runIn((await sent(ada, 'plan', wanted)).body)
    const { json } = await planJson(run)
    expect((await sent(bob, 'approve', { run, plan: JSON.stringify(json) })).body).toContain(
      'name="confirmed"',
    )
    const changed = JSON.stringify(json).replace('"reason":"r"', '"reason":"s"')
    for (const send of [sent, done])
      expect((await send(bob, 'approve', { run, plan: changed })).body).toContain(
        `is not the plan of ${run}: plan differs`,
      )
  })

  test('lists the calls apart that were refunded, and changes nothing of them at unchanged prices', async () => {
    const { organizationId, requestId } = scene
    await refund(room.foundation, {
      ...{ requestId, organizationId, amount: 250_000n, reason: 'wrong', actor: 'user:ada', dryRun: false },
    })
    const wanted = { book: '1', from: at(-0.5), to: new Date().toISOString(), reason: 'the same' }
    const { body } = await sent(ada, 'plan', { ...wanted, org: organizationId })
    expect(body).toMatch(/<dt>Taken<\/dt><dd>0</)
    expect(body).toContain(': 1. The re-rate keeps the 0.25 credits')
    expect(body).toContain(requestId)
  })

  test.each([
    [{ book: 'x' }, 'is neither a version', 'book'],
    [{ book: '99' }, 'there is no price book 99', null],
    [{ from: 'x' }, 'is not an ISO 8601 instant', 'from'],
    [{ to: '2999-01-01T00:00:00Z' }, 'is still to come', 'to'],
    [{ reason: '' }, 'is required', 'reason'],
  ])('with %j is not planned', async (wrong, why, field) => {
    const answer = await sent(ada, 'plan', { book: '1', from: at(-2), to: at(-1), reason: 'r', ...wrong })
    expect(answer.statusCode).toBe(422)
    expect(answer.body.toLowerCase()).toContain(why.toLowerCase())
    if (field !== null) expect(answer.body).toMatch(new RegExp(`id="${field}"[^>]*aria-invalid="true"`))
  })

  test('is abandoned with a reason', async () => {
    const wanted = { book: '1', from: at(-2), to: at(-1), org: scene.organizationId, reason: 'r' }
    const run = runIn((await sent(ada, 'plan', wanted)).body)
    expect((await done(ada, 'abandon', { run, reason: '' })).statusCode).toBe(422)
    expect((await done(ada, 'abandon', { run, reason: 'not now' })).body).toContain('<h1>Done</h1>')
    expect((await ada.get(`${rerates}/show?run=${run}`)).body).toContain('not now')
    expect((await done(ada, 'abandon', { run, reason: 'again' })).body).toContain('was abandoned by')
  })

  test('that does not exist is refused', async () => {
    for (const run of ['x', '%00', 'rr_01J8ZQ5V7N3K2M4P6R8T0W1X2Y'])
      expect([run, (await ada.get(`${rerates}/show?run=${run}`)).statusCode]).toEqual([run, 422])
  })
})

/** The plan as the command line writes it. */
const planJson = async (run: string) => {
  const { proposed, ledgers } = await provedRun(room.foundation, run)
  return { json: planFileOf({ proposed, ledgers: [...ledgers.values()] }) }
}

describe('a reconciliation', () => {
  test('of everything agrees, and is recorded', async () => {
    expect((await ada.get('/reconcile')).body).toContain('href="/commands/ledger/reconcile"')
    const done = await give(ada, '/commands/ledger/reconcile', {})
    expect(done.body).toContain('<h1>Done</h1>')
    expect((await ada.get('/reconcile')).body).toContain('<dt>Differences</dt><dd>0</dd>')
  })

  test('names a row that was changed', async () => {
    const { pool } = room.foundation
    const change = (by: number) =>
      pool.query(
        `update ledger_lines_v1 set amount_micro = amount_micro + $2 where ledger = ledger_key($1) and request_id = $3`,
        [...[scene.organizationId, by, scene.requestId]],
      )
    await change(1)
    const done = await give(ada, `${base}/ledger/reconcile`, {})
    await change(-1)
    expect(done.body).toContain('<h1>Done, with failures</h1>')
    expect(done.body).toContain(scene.requestId)
  })

  test('of a month that is none is refused in the form', async () => {
    expect((await give(ada, '/commands/ledger/reconcile', { month: '2026-13' })).statusCode).toBe(422)
  })
})
