/** Warnings on pages whose rows are behind the event log. */
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { grant } from '../../src/administration/credits/credits.ts'
import { createUser } from '../../src/administration/users/user-changes.ts'
import { parseCredits } from '../../src/billing/money.ts'
import { type Browser, type DashboardHost, openDashboardHost, signedIn } from './dashboard-host.ts'
import { openScene, type Scene } from './scene.ts'

describe('a page', () => {
  let room: DashboardHost
  let scene: Scene
  let other: Scene
  let ada: Browser
  let partner: Browser
  let owner: pg.Client

  beforeAll(async () => {
    room = await openDashboardHost({ lateAfterMs: 1, apiUrl: 'https://api.example.com' })
    scene = await openScene(room, { nowMs: Date.now(), days: 1 })
    other = await openScene(room, { nowMs: Date.now(), days: 1, name: 'Contoso' })
    const person = async (name: string, role: 'admin' | 'partner') => {
      const organizationId = role === 'partner' ? scene.organizationId : null
      const { password } = await createUser(room.foundation, {
        name,
        role,
        organizationId,
        actor: 'cli:setup',
      })
      return signedIn(room, { name, password })
    }
    ada = await person('ada', 'admin')
    partner = await person('pat', 'partner')
    owner = new pg.Client({ connectionString: room.url })
    await owner.connect()
    await room.caughtUp()
  })
  afterAll(async () => {
    await owner?.end()
    await room?.close()
  })

  const notNow = 'Some figures are out of date.'
  const account = () => `/organizations/${scene.organizationId}`
  /** Polls until the page shows the text. Pages share one reading of the delay, which is renewed only after a while. */
  const shows = (browser: Browser, path: string, text: string, does = true): Promise<void> =>
    expect
      .poll(async () => (await browser.get(path)).body.includes(text), {
        interval: 100,
        message: `${path}: ${text}`,
      })
      .toBe(does)

  test('with current rows shows no warning', async () => {
    await shows(ada, account(), notNow, false)
    for (const path of ['/', account(), `${account()}/ledger/lines`, '/operations'])
      expect([path, (await ada.get(path)).body.includes(notNow)]).toEqual([path, false])
  })

  test('with late rows names them and their delay', async () => {
    await owner.query('begin')
    // The projector waits for this lock; readers do not.
    await owner.query('select from projection_checkpoints for update')
    await grant(room.foundation, {
      organizationId: scene.organizationId,
      priority: 1,
      expiresAt: null,
      reason: 'late',
      actor: 'cli',
      amount: parseCredits('1'),
    })
    try {
      await shows(ada, account(), notNow)
      const { body, statusCode } = await ada.get(account())
      expect(statusCode).toBe(200)
      expect(body).toMatch(
        /<a href="\/commands\/projection\/list\?name=accounts">accounts<\/a> is \d+ (?:ms|s) \(1 position\) behind the event log\./,
      )
      // A partner gets this message too, but without links to pages that the partner cannot open.
      const own = await partner.get(account())
      expect(own.body).toContain(notNow)
      expect(own.body).not.toContain('/commands/projection')
      // Every page has the warning.
      for (const path of ['/operations', '/me'])
        expect([path, (await ada.get(path)).body.includes(notNow)]).toEqual([path, true])
    } finally {
      await owner.query('rollback')
    }
    await shows(ada, account(), notNow, false)
  })

  test('with a halted projection shows a warning until the projection is rebuilt', async () => {
    await owner.query(
      `update projection_checkpoints set state = 'halted', error = 'a test' where name = 'accounts'`,
    )
    await shows(ada, '/', notNow)
    expect((await ada.get('/')).body).toContain('accounts</a> is halted')
    await owner.query(
      `update projection_checkpoints set state = 'live', error = null where name = 'accounts'`,
    )
    await shows(ada, '/', notNow, false)
    await owner.query(
      `update projection_checkpoints set state = 'halted', error = 'a test' where name = 'audit'`,
    )
    await shows(ada, '/commands/audit/list', 'audit</a> is halted')
    await owner.query(`update projection_checkpoints set state = 'live', error = null where name = 'audit'`)
    await shows(ada, '/commands/audit/list', notNow, false)
  })

  test('about an organization shows a warning if its own rows have stopped, and other pages do not', async () => {
    await owner.query(
      `insert into halted_streams (projection, stream, position, error) values ('accounts', $1, 5, 'a test')`,
      [`ledger-${scene.organizationId}`],
    )
    await shows(ada, account(), notNow)
    expect((await ada.get(account())).body).toContain('has stopped for this organization')
    expect((await ada.get(`/organizations/${other.organizationId}`)).body).not.toContain(notNow)
    await owner.query('delete from halted_streams')
    await shows(ada, account(), notNow, false)
  })
})
