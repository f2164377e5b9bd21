/** What ends while something is under way: a sign-in, a change by an admin, a stream, a work behind a page. */
import { Secret, TOTP } from 'otpauth'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest'
import { setSecondFactor } from '../../src/administration/second-factors.ts'
import { freshTotpSecret } from '../../src/administration/totp.ts'
import { changePassword, setDisabled } from '../../src/administration/user-changes.ts'
import { openUserDirectory } from '../../src/administration/user-directory.ts'
import { until } from '../support/house.ts'
import {
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

/** A sign-in whose proofs were right, held before its session begins. */
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

describe('a sign-in that is under way', () => {
  test('opens nothing where the password was changed meanwhile', async () => {
    const { browser, end } = await heldSignIn()
    await changePassword(room.foundation, { name: ada.name, actor, chosen: 'another one than before' })
    await end()
    expect((await browser.get('/me')).statusCode).toBe(303)
  })

  test('opens nothing where a second factor was set meanwhile', async () => {
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

  test('opens nothing where the user was disabled meanwhile, and is enabled again', async () => {
    const { browser, end } = await heldSignIn()
    const change = { name: ada.name, reason: 'lost a laptop', actor }
    await person('admin')
    await setDisabled(room.foundation, { ...change, disabled: true })
    await end()
    await setDisabled(room.foundation, { ...change, disabled: false })
    expect((await browser.get('/me')).statusCode).toBe(303)
  })
})

test('what an admin asked for before being disabled, and what waits behind that, changes no one', async () => {
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
  const promoted = browser.submit(`/users/${bob.name}`, { role: 'admin', org: '' }, `/users/${bob.name}/role`)
  const invited = browser.submit('/invite', { name: 'mallory', role: 'admin', org: '' })
  await until('they wait', async () => (await waiting()) === 3)
  await locker.query('commit')
  locker.release()
  await disabled
  expect((await promoted).statusCode).toBe(422)
  expect((await invited).statusCode).toBe(422)
  expect(await openUserDirectory(room.foundation).standing(bob.name)).toMatchObject({ role: 'viewer' })
})
