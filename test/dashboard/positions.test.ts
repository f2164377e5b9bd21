/** How far rows are behind the event log: what is kept of it, and what pages say. */
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { projections } from '../../projections/index.ts'
import { grant } from '../../src/administration/credits.ts'
import { createUser } from '../../src/administration/user-changes.ts'
import { parseCredits } from '../../src/billing/money.ts'
import { actionOfRoute } from '../../src/dashboard/access.ts'
import { behindText } from '../../src/dashboard/pages/behind.ts'
import { openPositions, type Sample } from '../../src/dashboard/positions.ts'
import { byMinute } from '../../src/dashboard/positions-by-minute.ts'
import { readsOf } from '../../src/dashboard/reads.ts'
import { until } from '../support/house.ts'
import { type Browser, type DashboardHost, openDashboardHost, signedIn } from './dashboard-host.ts'
import { openScene, type Scene } from './scene.ts'

const sample = (atMs: number, head: number, positions: Readonly<Record<string, number>>): Sample => ({
  ...{ atMs, head: BigInt(head) },
  positions: new Map(Object.entries(positions).map(([name, position]) => [name, BigInt(position)])),
})

describe('by the minute', () => {
  test('the lag is the most of the minute, and the rate what was gone since the look before it', () => {
    const { lag, rate, minutes } = byMinute([
      sample(0, 100, { slow: 100, quick: 100 }),
      sample(30_000, 700, { slow: 100, quick: 700 }),
      sample(60_000, 700, { slow: 400, quick: 700 }),
      sample(90_000, 1_300, { slow: 1_300, quick: 1_300 }),
    ])
    expect(minutes).toEqual(['1970-01-01T00:00:00.000Z', '1970-01-01T00:01:00.000Z'])
    expect(lag.groups).toEqual(['slow', 'quick'])
    expect(lag.points.map(({ values }) => values)).toEqual([
      [600, 0],
      [300, 0],
    ])
    expect(rate.groups).toEqual(['event log', 'slow', 'quick'])
    expect(rate.points.map(({ values }) => values)).toEqual([
      [20, 0, 20],
      [10, 20, 10],
    ])
  })

  test('rows that were put back are no rate, and a hole in the looks is no minute', () => {
    const { rate, minutes } = byMinute([sample(0, 900, { one: 900 }), sample(3_600_000, 900, { one: 100 })])
    expect(minutes).toHaveLength(2)
    expect(rate.points.map(({ values }) => values)).toEqual([
      [0, 0],
      [0, 0],
    ])
    expect(byMinute([])).toMatchObject({ minutes: [], lag: { points: [] } })
  })

  test('of many, those that were the most behind have a line of their own, and the others one together', () => {
    const many = Object.fromEntries(Array.from({ length: 12 }, (_, i) => [`p${i}`, 100 - i]))
    const { lag, rate } = byMinute([sample(0, 100, many)])
    expect(lag.groups).toEqual(['p11', 'p10', 'p9', 'p8', 'p7', '7 others, the most'])
    expect(lag.points[0]?.values).toEqual([11, 10, 9, 8, 7, 6])
    // As many as there are colours.
    expect(rate.groups).toHaveLength(7)
  })
})

describe('what is kept', () => {
  const logger = { warn: () => undefined }
  const world = (at: { head: bigint; position: bigint; fails?: boolean; hangs?: boolean }) => {
    let asked = 0
    const query = async (text: string) => {
      asked++
      if (at.hangs === true) await new Promise(() => undefined)
      if (at.fails === true) throw new Error('away')
      const row = {
        name: 'accounts',
        position: String(at.position),
        event_id: null,
        digest: null,
        state: 'live',
      }
      return { rows: text.includes('projection_checkpoints') ? [row] : [] }
    }
    const parts = { pool: { query }, eventLog: { head: async () => at.head, at: async () => null } } as never
    return { parts, asked: () => asked }
  }

  test('is an hour, whatever was looked at since', async () => {
    let now = 0
    const positions = openPositions(world({ head: 1n, position: 1n }).parts, {
      logger,
      everyMs: 1,
      nowMs: () => (now += 60_000),
    })
    await until('three hours', async () => now > 3 * 3_600_000)
    const [samples, last] = [positions.samples(), positions.samples().at(-1)]
    positions.close()
    expect((last?.atMs ?? 0) - (samples[0]?.atMs ?? 0)).toBeLessThanOrEqual(3_600_000)
    expect(samples.length).toBeLessThanOrEqual(61)
  })

  test('a position has been behind since the first look that found the log beyond it', async () => {
    let now = 0
    const at = { head: 10n, position: 10n }
    const positions = openPositions(world(at).parts, { logger, everyMs: 1, nowMs: () => now })
    await until('another look', async () => positions.samples().some(({ head }) => head === 10n))
    now = 1_000
    at.head = 20n
    await until('another look', async () => positions.samples().some(({ head }) => head === 20n))
    positions.close()
    expect(positions.behindMs(10n, { atMs: 9_000, head: 20n })).toBe(8_000)
    expect(positions.behindMs(9n, { atMs: 9_000, head: 20n })).toBe(9_000)
    expect(positions.behindMs(20n, { atMs: 9_000, head: 20n })).toBe(0)
  })

  test('all pages of a second share one look, and none waits long for one that hangs', async () => {
    let now = 0
    const still = world({ head: 1n, position: 1n })
    const positions = openPositions(still.parts, { logger, everyMs: 3_600_000, nowMs: () => now })
    await positions.now()
    const before = still.asked()
    for (let i = 0; i < 50; i++) await positions.now()
    expect(still.asked()).toBe(before)
    now = 1_000
    await Promise.all(Array.from({ length: 50 }, () => positions.now()))
    expect(still.asked()).toBe(before * 2)
    positions.close()

    const away = openPositions(world({ head: 1n, position: 1n, fails: true }).parts, {
      logger,
      everyMs: 3_600_000,
    })
    expect(await away.now()).toBeNull()
    away.close()
    const hanging = openPositions(world({ head: 1n, position: 1n, hangs: true }).parts, {
      logger,
      everyMs: 3_600_000,
    })
    const began = performance.now()
    expect(await hanging.now()).toBeNull()
    expect(performance.now() - began).toBeLessThan(3_000)
    hanging.close()
  })
})

test('every page says which projections it reads, if any, and every page of an organization reads one', () => {
  const names = new Set(projections.map(({ name }) => name))
  for (const route of Object.keys(actionOfRoute)) {
    const [, url = ''] = route.split(' ')
    const read = readsOf(url)
    expect([url, read?.filter((name) => !names.has(name))]).toEqual([url, []])
    if (url.startsWith('/organizations/:organization')) expect([url, read?.length]).not.toEqual([url, 0])
  }
  expect(readsOf('/organizations/:organization/pixel')).toContain('pixel_days')
  expect(readsOf('/months')).toContain('ledger_index')
})

describe('a page', () => {
  let room: DashboardHost
  let scene: Scene
  let other: Scene
  let ada: Browser
  let partner: Browser
  let owner: pg.Client

  beforeAll(async () => {
    room = await openDashboardHost({ lateAfterMs: 1 })
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

  const notNow = 'The figures here are not of now.'
  const account = () => `/organizations/${scene.organizationId}`
  /** Asks until the look that pages share is a new one. */
  const shows = (browser: Browser, path: string, text: string, does = true): Promise<void> =>
    until(
      `${path} ${does ? 'says' : 'does not say'}: ${text}`,
      async () => (await browser.get(path)).body.includes(text) === does,
    )

  test.each([
    [null, 0, 'unknown'],
    [0n, 0, '–'],
    [800n, 0, 'a moment'],
    [1n, 12_000, '12 s or longer'],
  ] as const)('%s positions for %s ms are told as %s', (behind, behindMs, text) => {
    expect(behindText({ behind, behindMs })).toBe(text)
  })

  test('whose rows are of now says nothing of it', async () => {
    await shows(ada, account(), notNow, false)
    for (const path of ['/', account(), `${account()}/statement`, '/operations'])
      expect([path, (await ada.get(path)).body.includes(notNow)]).toEqual([path, false])
  })

  test('whose rows are behind says which, how far, since when, and up to what they show', async () => {
    await owner.query('begin')
    // Whoever folds waits for this, and readers do not.
    await owner.query('select from projection_checkpoints for update')
    const { rows } = await owner.query<{ position: string }>(
      `select position from projection_checkpoints where name = 'accounts'`,
    )
    await grant(room.foundation, {
      ...{ organizationId: scene.organizationId, priority: 1, expiresAt: null, reason: 'late', actor: 'cli' },
      amount: parseCredits('1'),
    })
    try {
      await shows(ada, account(), notNow)
      const { body, statusCode } = await ada.get(account())
      expect(statusCode).toBe(200)
      expect(body).toContain(
        '<a href="/operations/projections/accounts">accounts</a> is 1 position behind the event log for',
      )
      const event = await room.foundation.eventLog.at(BigInt(rows[0]?.position ?? 0))
      const at = new Date(event?.recordedAtMs ?? 0).toISOString()
      expect(body).toContain(`figures as of position ${rows[0]?.position}, <time datetime="${at}">`)
      // A partner is told the same, and is led nowhere it may not go.
      const own = await partner.get(account())
      expect(own.body).toContain(notNow)
      expect(own.body).not.toContain('/operations/')
      // What shows no rows says nothing of them.
      for (const path of ['/events', '/me', '/operations/doctor'])
        expect([path, (await ada.get(path)).body.includes(notNow)]).toEqual([path, false])
      // In time: positions are events on one log and bytes on the other.
      for (const path of ['/', '/operations']) {
        const { body: listed } = await ada.get(path)
        expect([path, listed]).toEqual([
          path,
          expect.stringMatching(/data-head="Behind"><div>\d+ (?:ms|s|min) or longer</),
        ])
        expect(listed).not.toContain('Behind, events')
      }
    } finally {
      await owner.query('rollback')
    }
    await shows(ada, account(), notNow, false)
  })

  test('whose projection is halted says so, until it is rebuilt', async () => {
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
    await shows(ada, '/audit', 'audit</a> is halted')
    await owner.query(`update projection_checkpoints set state = 'live', error = null where name = 'audit'`)
    await shows(ada, '/audit', notNow, false)
  })

  test('of an organization whose rows alone have stopped says so, and no other does', async () => {
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

  test('operations shows the last hour as plots, each of them a table, too', async () => {
    for (const path of ['/operations', '/operations/plots']) {
      const { body } = await ada.get(path)
      expect(body).toContain('hx-get="/operations/plots"')
      expect(body.match(/<figure class="plot" data-kind="lines"/g)).toHaveLength(2)
      expect(body).toContain('Behind the event log as a table')
      expect(body).toContain('Rate as a table')
      expect(body).not.toContain('>CSV<')
    }
    expect((await partner.get('/operations/plots')).statusCode).toBe(403)
    expect((await partner.get('/operations/doctor')).statusCode).toBe(403)
  })

  test('the overview leads to the reconciliation, and names no command for it', async () => {
    const { body } = await ada.get('/')
    expect(body).toContain('href="/reconcile"')
    expect(body).not.toContain('ledger reconcile')
  })
})

test('every page and the sign-in lead to the documentation, where it is known where that is', async () => {
  const room = await openDashboardHost({ apiUrl: 'https://api.example.com' })
  try {
    const { password } = await createUser(room.foundation, {
      name: 'ada',
      role: 'admin',
      organizationId: null,
      actor: 'cli:setup',
    })
    const ada = await signedIn(room, { name: 'ada', password })
    expect((await ada.get('/')).body).toContain('<a href="https://api.example.com/docs">Documentation</a>')
    await ada.submit('/', {}, '/logout')
    expect((await ada.get('/login')).body).toContain('href="https://api.example.com/docs"')
  } finally {
    await room.close()
  }
})
