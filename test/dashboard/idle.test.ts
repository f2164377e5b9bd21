/** A session ends if its person sends no requests. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { listUsers } from '../../src/administration/users/user-changes.ts'
import { putUser } from '../../src/administration/users/users.ts'
import { parseConfig } from '../../src/config.ts'
import type { Browser, DashboardHost } from './dashboard-host.ts'
import { openBrowser, openDashboardHost, signedIn, unescaped } from './dashboard-host.ts'

let room: DashboardHost
let ada: Browser
const user = { name: 'ada', password: 'correct horse battery staple' }

beforeAll(async () => {
  room = await openDashboardHost()
  await putUser(room.foundation.pool, user)
})
afterAll(() => room.close())
beforeEach(async () => {
  await room.foundation.pool.query('delete from dashboard_sessions')
  ada = await signedIn(room, user)
})

const minutesLeft = async (): Promise<number> => {
  const { rows } = await room.foundation.pool.query<{ minutes: number }>(
    'select extract(epoch from idle_until - now())::float8 / 60 as minutes from dashboard_sessions',
  )
  return rows[0]?.minutes ?? Number.NaN
}
const idleUntil = async (): Promise<unknown> =>
  (await room.foundation.pool.query('select idle_until::text from dashboard_sessions')).rows
const setLeft = (seconds: number) =>
  room.foundation.pool.query(`update dashboard_sessions set idle_until = now() + $1 * interval '1 second'`, [
    seconds,
  ])

describe('without a request by its person', () => {
  test('it ends after 60 minutes; the sign-in page gives the reason, and redirects to the requested page', async () => {
    expect(await minutesLeft()).toBeGreaterThan(59)
    expect(await minutesLeft()).toBeLessThanOrEqual(60)
    await setLeft(-1)
    const { statusCode, headers } = await ada.get('/operations')
    expect([statusCode, headers.location]).toEqual([303, '/login?next=%2Foperations'])
    const page = await ada.get('/login?next=%2Foperations')
    expect(page.body).toContain('You were signed out after 60 minutes without a request.')
    const answer = await ada.submit('/login?next=%2Foperations', { ...user, next: '/operations' }, '/login')
    expect([answer.statusCode, answer.headers.location]).toEqual([303, '/operations'])
    expect((await ada.get('/operations')).statusCode).toBe(200)
  })

  test('it stays ended: no request revives it, and no list shows it', async () => {
    await setLeft(-1)
    await ada.get('/')
    await ada.get('/me')
    expect((await ada.get('/')).statusCode).toBe(303)
    expect(await minutesLeft()).toBeLessThan(0)
    expect((await listUsers(room.foundation)).map(({ sessions }) => sessions)).toEqual([0])
  })

  test('a form sent after that does nothing', async () => {
    const once = (await ada.get('/commands/ledger/reconcile')).body
    await setLeft(-1)
    const before = await room.foundation.eventLog.head()
    const csrf = /name="_csrf" value="([^"]+)"/.exec(once)?.[1] ?? ''
    const { headers } = await ada.post(
      '/commands/ledger/reconcile',
      new URLSearchParams({ _csrf: csrf }).toString(),
    )
    expect(headers.location).toBe('/login?next=%2Fcommands%2Fledger%2Freconcile')
    expect(await room.foundation.eventLog.head()).toBe(before)
  })

  test('a visitor who was never signed in sees no such message', async () => {
    expect((await openBrowser(room.host).get('/login')).body).not.toContain('signed out after')
  })
})

describe('with a request by its person', () => {
  test('it continues for 60 minutes from then, and for 12 hours at most', async () => {
    await setLeft(90)
    expect((await ada.get('/')).statusCode).toBe(200)
    expect(await minutesLeft()).toBeGreaterThan(59)
    await room.foundation.pool.query(`update dashboard_sessions set expires_at = now() - interval '1 s'`)
    expect((await ada.get('/')).statusCode).toBe(303)
  })

  test('a second page within a minute writes nothing', async () => {
    await setLeft(3_570)
    const before = await idleUntil()
    await ada.get('/')
    expect(await idleUntil()).toEqual(before)
    await setLeft(3_530)
    await ada.get('/')
    expect(await minutesLeft()).toBeGreaterThan(59.5)
  })

  test('a missing or refused page also counts as a request', async () => {
    await setLeft(90)
    expect((await ada.get('/organizations/none')).statusCode).toBe(404)
    expect(await minutesLeft()).toBeGreaterThan(59)
  })

  test('requests sent by the page itself do not extend it', async () => {
    await setLeft(90)
    const [calls, overview] = [await ada.get('/calls?live=0'), await ada.get('/')]
    const refreshed = [calls, overview].map(({ body }) =>
      unescaped(/hx-get="([^"]+refresh=yes)"/.exec(body)?.[1] ?? ''),
    )
    expect(refreshed).toEqual([expect.stringContaining('/calls?'), expect.stringMatching(/^\/\?/)])
    await setLeft(90)
    for (const path of ['/jobs/none', '/jobs/none/progress', '/waiting/none/progress', ...refreshed])
      await ada.get(path)
    expect(await minutesLeft()).toBeLessThan(2)
  })
})

test('DASHBOARD_IDLE_MINUTES is whole minutes from 5 to 720', () => {
  expect(parseConfig({}).DASHBOARD_IDLE_MINUTES).toBe(60)
  expect(parseConfig({ DASHBOARD_IDLE_MINUTES: '5' }).DASHBOARD_IDLE_MINUTES).toBe(5)
  for (const text of ['4', '721', '0', '-5', '7.5', '1e2', ' 60'])
    expect(() => parseConfig({ DASHBOARD_IDLE_MINUTES: text })).toThrow('DASHBOARD_IDLE_MINUTES')
})
