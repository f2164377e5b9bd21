/** Calls are re-rated; everything is reconciled. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { refund } from '../../src/administration/credits/refunds.ts'
import { proposePriceBook } from '../../src/administration/prices/prices.ts'
import { putUser } from '../../src/administration/users/users.ts'
import {
  type Browser,
  type DashboardHost,
  give,
  openBrowser,
  openDashboardHost,
  signedIn,
} from './dashboard-host.ts'
import { openScene, type Scene } from './scene.ts'

let room: DashboardHost
let ada: Browser
let bob: Browser
let scene: Scene
let base = ''
/** The organization by its name, as a link to its page. */
let named = ''
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
  named = `<a href="${base}">Northwind Traders</a>`
})
afterAll(() => room?.close())

/** Follows to the page of what was begun, until it has come to something. */
const ended = async (browser: Browser, path: string) => {
  for (let looks = 0; looks < 2_000; looks++) {
    const answer = await browser.get(path)
    if (!answer.body.includes('data-progress=')) return answer
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
  throw new Error('it never ended')
}

const propose = async (amount: string): Promise<string> => {
  const { proposal } = await proposePriceBook(room.foundation, {
    rulesOver: (base) => base.map((rule) => (rule.sku === 'ip_lookup' ? { ...rule, amount } : rule)),
    ...{ effectiveFrom: at(2), reason: 'next year', actor: 'user:ada' },
  })
  return `p${proposal}`
}

describe('a re-rate', () => {
  test('is planned, looked at, approved by another person, applied with progress, and never twice', async () => {
    const proposal = await propose('0.5')
    const wanted = { book: proposal, from: at(-10), to: at(-1), organization: '', reason: 'too dear <b>' }
    const begun = await ada.submit('/rerates/new', wanted)
    const planned = await ended(ada, String(begun.headers.location))
    const path = String(planned.headers.location)
    expect(path).toMatch(/^\/rerates\/rr_/)
    const shown = await ada.get(path)
    expect(shown.body).toContain('too dear &lt;b&gt;')
    expect(shown.body).toContain(named)
    expect(shown.body).toContain('another person has to approve it')
    expect((await ada.submit(path, {}, `${path}/approve`)).statusCode).toBe(422)
    const early = await ended(ada, String((await ada.submit(path, {}, `${path}/apply`)).headers.location))
    expect(early.statusCode).toBe(422)
    expect(early.body).toContain('is not approved')
    expect((await bob.submit(path, {}, `${path}/approve`)).headers.location).toBe(path)
    const approved = await bob.get(path)
    expect(approved.body).toContain('Apply it')
    const given = /<dt>Given back, credits<\/dt><dd>([^<]+)/.exec(approved.body)?.[1] ?? ''
    expect(Number(given)).toBeGreaterThan(0)
    const applied = await ended(bob, String((await bob.submit(path, {}, `${path}/apply`)).headers.location))
    expect(applied.headers.location).toBe(path)
    expect((await ada.get(path)).body).toContain(`balances changed by ${given}`)
    expect((await ada.get(path)).body).not.toContain('Apply it')
    const again = await ended(
      ada,
      String((await ada.submit('/rerates/new', {}, `${path}/apply`)).headers.location),
    )
    expect(again.statusCode).toBe(422)
    expect((await ada.get('/rerates')).body).toContain(path)
  })

  test('lists the calls apart that were refunded, and changes nothing of them at unchanged prices', async () => {
    const { organizationId, requestId } = scene
    await refund(room.foundation, {
      ...{ requestId, organizationId, amount: 250_000n, reason: 'wrong', actor: 'user:ada', dryRun: false },
    })
    const to = new Date().toISOString()
    const wanted = { book: '1', from: at(-0.5), to, organization: organizationId, reason: 'the same' }
    const planned = await ended(ada, String((await ada.submit('/rerates/new', wanted)).headers.location))
    const { body } = await ada.get(String(planned.headers.location))
    expect(body).toMatch(/<dt>Taken, credits<\/dt><dd>0</)
    expect(body).toContain('Refunded or reversed calls: 1. The re-rate keeps the 0.25 credits')
    expect(body).toContain(`href="${base}/calls/${requestId}"`)
  })

  test.each([
    [{ book: 'x' }, 'is neither a version', 'book'],
    [{ book: '99' }, 'there is no price book 99', null],
    [{ from: 'x' }, 'is not an ISO 8601 instant', 'from'],
    [{ to: '2999-01-01T00:00:00Z' }, 'is still to come', 'to'],
    [{ organization: 'x' }, 'is no id of an organization', 'organization'],
    [{ reason: '' }, 'Nothing but white space', 'reason'],
  ])('with %j is not planned', async (wrong, why, field) => {
    const answer = await ada.submit('/rerates/new', {
      ...{ book: '1', from: at(-2), to: at(-1), organization: '', reason: 'r' },
      ...wrong,
    })
    expect(answer.statusCode).toBe(422)
    expect(answer.body.toLowerCase()).toContain(why.toLowerCase())
    if (field !== null) expect(answer.body).toMatch(new RegExp(`id="${field}"[^>]*aria-invalid="true"`))
  })

  test('is given up with a reason', async () => {
    const wanted = { book: '1', from: at(-2), to: at(-1), organization: scene.organizationId, reason: 'r' }
    const planned = await ended(ada, String((await ada.submit('/rerates/new', wanted)).headers.location))
    const path = String(planned.headers.location)
    expect((await ada.submit(path, { reason: '' }, `${path}/abandon`)).statusCode).toBe(422)
    expect((await ada.submit(path, { reason: 'not now' }, `${path}/abandon`)).headers.location).toBe(path)
    expect((await ada.get(path)).body).toContain('not now')
  })

  test('that does not exist is no page', async () => {
    for (const run of ['x', '%00']) expect((await ada.get(`/rerates/${run}`)).statusCode).toBe(404)
    const none = await ada.get('/rerates/rr_01J8ZQ5V7N3K2M4P6R8T0W1X2Y')
    expect(none.statusCode).toBe(422)
    expect(none.body).toContain('There is no re-rate')
  })
})

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

test('none of it is for people who are not signed in', async () => {
  const stranger = openBrowser(room.host)
  for (const path of ['/rerates', '/rerates/new', '/reconcile'])
    expect((await stranger.get(path)).statusCode).toBe(303)
})
