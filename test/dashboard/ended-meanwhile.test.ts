/** Changes while something is in progress: a sign-in, an admin's change, or work behind a page. */
import { Secret, TOTP } from 'otpauth'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest'
import { setSecondFactor } from '../../src/administration/users/second-factors.ts'
import { freshTotpSecret } from '../../src/administration/users/totp.ts'
import { changePassword, changeRole, setDisabled } from '../../src/administration/users/user-changes.ts'
import { openUserDirectory } from '../../src/administration/users/user-directory.ts'
import { until } from '../support/house.ts'
import {
  type Browser,
  type DashboardHost,
  openBrowser,
  openDashboardHost,
  signedIn,
  userWhoChose,
} from './dashboard-host.ts'

const actor = 'cli:setup'
let room: DashboardHost
let people = 0
let ada = { name: '', password: '' }

beforeAll(async () => {
  room = await openDashboardHost()
})
afterAll(() => room?.close())
beforeEach(async () => {
  ada = await person('admin')
})
afterEach(() => {
  vi.restoreAllMocks()
})

const person = (role: 'admin' | 'finance' | 'viewer') =>
  userWhoChose(room, { name: `person-${++people}`, role, organizationId: null, actor })
const signInStreams = /^signin-/

/** A sign-in with correct credentials that is paused before its session begins. */
const heldSignIn = async () => {
  const { eventLog } = room.foundation
  const append = eventLog.append.bind(eventLog)
  const held = Promise.withResolvers<void>()
  const reached = Promise.withResolvers<void>()
  vi.spyOn(eventLog, 'append').mockImplementation(async (stream, ...rest) => {
    if (signInStreams.test(stream)) {
      reached.resolve()
      await held.promise
    }
    return append(stream, ...rest)
  })
  const browser = openBrowser(room.host)
  const answer = browser.submit('/login', ada)
  await reached.promise
  return {
    browser,
    end: () => {
      held.resolve()
      return answer
    },
  }
}

describe('a sign-in in progress', () => {
  test('does not open a session if the password has been changed', async () => {
    const { browser, end } = await heldSignIn()
    await changePassword(room.foundation, { name: ada.name, actor, chosen: 'another one than before' })
    await end()
    expect((await browser.get('/me')).statusCode).toBe(303)
  })

  test('does not open a session if a second factor has been set up', async () => {
    const secret = freshTotpSecret()
    const typed = new TOTP({ secret: Secret.fromBase32(secret) }).generate()
    const own = await signedIn(room, ada)
    const { browser, end } = await heldSignIn()
    await setSecondFactor(room.foundation, { user: ada.name, secret, typed, actor }, Date.now())
    await own.submit('/me', {}, '/me/sessions/end')
    await end()
    expect((await browser.get('/me')).statusCode).toBe(303)
    expect((await own.get('/me')).statusCode).toBe(200)
  })

  test('does not open a session if the user has been disabled, even if enabled again', async () => {
    const { browser, end } = await heldSignIn()
    const change = { name: ada.name, reason: 'lost a laptop', actor }
    await person('admin')
    await setDisabled(room.foundation, { ...change, disabled: true })
    await end()
    await setDisabled(room.foundation, { ...change, disabled: false })
    expect((await browser.get('/me')).statusCode).toBe(303)
  })
})

test('requests by a disabled admin, and those waiting behind them, change no users', async () => {
  const [eve, bob] = [await person('admin'), await person('viewer')]
  const browser = await signedIn(room, eve)
  const { pool } = room.foundation
  const locker = await pool.connect()
  const waiting = async (): Promise<number> =>
    (
      await pool.query(
        `select from pg_locks where locktype = 'advisory' and not granted and database = (select oid from pg_database where datname = current_database())`,
      )
    ).rowCount ?? 0
  await locker.query('begin')
  await locker.query('select pg_advisory_xact_lock(7105003)')
  const disabled = setDisabled(room.foundation, { name: eve.name, disabled: true, reason: 'left', actor })
  await until('it waits', async () => (await waiting()) === 1)
  const promoted = browser.submit('/commands/user/role', {
    ...{ name: bob.name, role: 'admin', confirmed: 'yes' },
  })
  const invited = browser.submit('/commands/user/invite', { name: 'mallory', role: 'admin' })
  await until('they wait', async () => (await waiting()) === 3)
  await locker.query('commit')
  locker.release()
  await disabled
  expect((await promoted).statusCode).toBe(422)
  expect((await invited).statusCode).toBe(422)
  expect(await openUserDirectory(room.foundation).standing(bob.name)).toMatchObject({ role: 'viewer' })
})

describe('work behind a page', () => {
  /** Starts work that does not end before `end` is called. */
  const heldWork = async (browser: Browser) => {
    const { eventLog } = room.foundation
    const streams = eventLog.streams.bind(eventLog)
    const held = Promise.withResolvers<void>()
    vi.spyOn(eventLog, 'streams').mockImplementation(async (prefix) => {
      if (prefix.startsWith('ledger-')) await held.promise
      return streams(prefix)
    })
    const { headers } = await browser.submit('/commands/ledger/reconcile', {})
    return { path: String(headers.location), end: held.resolve }
  }

  test.each([
    ['a sign-out', async (browser: Browser) => void (await browser.submit('/me', {}, '/logout'))],
    [
      'the end of the user',
      () => setDisabled(room.foundation, { name: ada.name, disabled: true, reason: 'left', actor }),
    ],
  ])('reports nothing more after %s', async (_, ends: (browser: Browser) => Promise<void>) => {
    await person('admin')
    const browser = await signedIn(room, ada)
    const { path, end } = await heldWork(browser)
    try {
      const cookie = [...browser.cookies].map(([name, value]) => `${name}=${value}`).join('; ')
      const look = () => room.host.inject({ url: path, headers: { cookie } })
      expect((await look()).body).toContain('data-progress')
      await ends(browser)
      const { statusCode, body } = await look()
      expect([statusCode, body.includes('data-progress')]).toEqual([303, false])
    } finally {
      end()
    }
  })

  test('is not shown after a change of the role with which it was started', async () => {
    await person('admin')
    const browser = await signedIn(room, ada)
    const { path, end } = await heldWork(browser)
    expect((await browser.get(path)).statusCode).toBe(200)
    const change = { name: ada.name, organizationId: null, actor }
    await changeRole(room.foundation, { ...change, role: 'viewer' })
    expect((await browser.get(path)).statusCode).toBe(404)
    end()
  })
})
