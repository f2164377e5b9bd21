import { Secret, TOTP } from 'otpauth'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { checkSecondFactor, removeSecondFactor } from '../../src/administration/users/second-factors.ts'
import { changePassword, setDisabled } from '../../src/administration/users/user-changes.ts'
import { openUserDirectory } from '../../src/administration/users/user-directory.ts'
import { operatorStream } from '../../src/events/streams.ts'
import { until } from '../support/house.ts'
import type { Browser } from './dashboard-host.ts'
import {
  encoded,
  openBrowser,
  roomForFile,
  signedIn,
  signInEvents,
  tokenIn,
  userWhoChose,
} from './dashboard-host.ts'

let made = 0
let ada = { name: '', password: '' }
let browser: Browser
/** Each test has its own minute, because a code can be used only once. */
let nowMs = Date.UTC(2026, 10, 23, 12)

const room = await roomForFile()
await userWhoChose(room, { name: 'root', role: 'admin' })
beforeEach(async () => {
  vi.useFakeTimers({ toFake: ['Date'] })
  nowMs = Math.max(nowMs, Date.now())
  later(0)
  const name = `ada-${++made}`
  ada = await userWhoChose(room, { name, role: 'admin' })
  browser = await signedIn(room, ada)
})
afterEach(() => {
  vi.useRealTimers()
})

const later = (seconds: number): void => {
  nowMs += seconds * 1_000
  vi.setSystemTime(nowMs)
}
const codeOf = (secret: string): string =>
  new TOTP({ secret: Secret.fromBase32(secret) }).generate({ timestamp: nowMs })
const secretOn = (page: string): string =>
  (/aria-label="Secret"><code>([A-Z2-7 ]+)</.exec(page)?.[1] ?? '').replaceAll(' ', '')
const codesOn = (page: string): string[] => page.match(/([A-Z2-7]{4}-){3}[A-Z2-7]{4}/g) ?? []

const setUpForm = async () => {
  const { body } = await browser.get('/me/second-factor')
  const field = (name: string): string => new RegExp(`name="${name}" value="([^"]+)"`).exec(body)?.[1] ?? ''
  const hidden = { _csrf: field('_csrf'), once: field('once'), sealed: field('sealed') }
  return { secret: secretOn(body), hidden, body }
}
/** Sets the second factor up, and waits until the app shows a new code. */
const setUp = async (): Promise<{ secret: string; codes: string[] }> => {
  const { secret, hidden } = await setUpForm()
  const fields = { ...hidden, present: ada.password, code: codeOf(secret) }
  const { statusCode, body } = await browser.post('/me/second-factor', encoded(fields))
  expect(statusCode).toBe(200)
  later(60)
  return { secret, codes: codesOn(body) }
}
/** A browser after the correct password and before the second factor. */
const half = async (next = '/'): Promise<Browser> => {
  const other = openBrowser(room.host)
  const { headers } = await other.submit('/login', { ...ada, next })
  expect(headers.location).toBe('/login/code')
  return other
}
const events = async (type: string) =>
  (await room.foundation.eventLog.read(operatorStream, { from: 0, max: 1_000 }))
    .filter((event) => event.type === type)
    .map(({ data, metadata }) => ({ ...JSON.parse(data), by: JSON.parse(metadata).actor }))
    .filter(({ user }) => user === ada.name)
const refusals = async () =>
  (await signInEvents(room)).filter(({ type, user }) => type === 'SecondFactorsRefused' && user === ada.name)

describe('setting it up', () => {
  test('shows secret and picture without a script or a style, and takes effect with a correct code', async () => {
    const { secret, hidden, body } = await setUpForm()
    expect(secret).toMatch(/^[A-Z2-7]{32}$/)
    expect(body).toMatch(/<svg class="qr" role="img" aria-label="[^"]+" viewBox="0 0 \d+ \d+"/)
    expect(body).not.toMatch(/style=|data:|<img/)
    const wrong = await browser.post(
      '/me/second-factor',
      encoded({ ...hidden, present: ada.password, code: '000000' }),
    )
    expect(wrong.statusCode).toBe(422)
    expect(wrong.body).toContain('This is not the current code')
    // The form keeps the secret, because the app already has it.
    expect(secretOn(wrong.body)).toBe(secret)
    expect(await events('SecondFactorSet')).toEqual([])
    expect((await openBrowser(room.host).submit('/login', ada)).headers.location).toBe('/')
  })

  test('requires the password', async () => {
    const { secret, hidden } = await setUpForm()
    const fields = { ...hidden, present: 'not the password', code: codeOf(secret) }
    const { statusCode, body } = await browser.post('/me/second-factor', encoded(fields))
    expect(statusCode).toBe(422)
    expect(body).toContain('This is not your current password')
    expect(await events('SecondFactorSet')).toEqual([])
  })

  test('refuses the secret of another session or another person', async () => {
    const { hidden } = await setUpForm()
    const other = await signedIn(room, ada)
    const page = (await other.get('/me/second-factor')).body
    const once = /name="once" value="([^"]+)"/.exec(page)?.[1] ?? ''
    const fields = { _csrf: tokenIn(page), once, sealed: hidden.sealed, present: ada.password, code: '1' }
    const { statusCode, body } = await other.post('/me/second-factor', encoded(fields))
    expect(statusCode).toBe(422)
    expect(body).toContain('The form has expired')
  })

  test('ends other sign-ins, shows ten recovery codes once, and is an event', async () => {
    const other = await signedIn(room, ada)
    const { codes } = await setUp()
    expect(codes).toHaveLength(10)
    expect((await other.get('/')).statusCode).toBe(303)
    expect((await browser.get('/')).statusCode).toBe(200)
    expect(await events('SecondFactorSet')).toMatchObject([{ by: `user:${ada.name}` }])
    const { body } = await browser.get('/me/second-factor')
    expect(codesOn(body)).toEqual([])
    expect(body).toContain('Recovery codes left')
    expect((await browser.get('/me')).body).toContain('set up')
  })
})

describe('signing in', () => {
  test('requires the code after the password, and redirects to the requested page', async () => {
    const { secret } = await setUp()
    const other = await half('/operations')
    expect((await other.get('/login/code')).body).toContain('type the code from your authenticator app')
    const { statusCode, headers } = await other.submit('/login/code', { code: codeOf(secret) })
    expect([statusCode, headers.location]).toEqual([303, '/operations'])
    expect((await other.get('/operations')).statusCode).toBe(200)
    expect(other.cookies.has('dashboard_half')).toBe(false)
  })

  test('gives no access and no session before the code', async () => {
    await setUp()
    const other = await half()
    for (const path of ['/', '/me', '/me/second-factor', '/commands/audit/list'])
      expect([path, (await other.get(path)).headers.location?.startsWith('/login')]).toEqual([path, true])
    expect([...other.cookies.keys()].sort()).toEqual(['dashboard_form', 'dashboard_half'])
    const { rows } = await room.foundation.pool.query('select from dashboard_sessions where user_name = $1', [
      ada.name,
    ])
    expect(rows).toHaveLength(1)
  })

  test('a code counts once, and lets only one browser in', async () => {
    const { secret } = await setUp()
    const [one, other] = [await half(), await half()]
    const code = codeOf(secret)
    const answers = await Promise.all([one, other].map((each) => each.submit('/login/code', { code })))
    expect(answers.map(({ statusCode }) => statusCode).sort()).toEqual([303, 401])
    expect(answers.find(({ statusCode }) => statusCode === 401)?.body).toContain(
      'This code has already been used',
    )
  })

  test('a wrong code is refused and counted; after ten in a minute, no more from that address are compared', async () => {
    const { secret } = await setUp()
    const other = await half('/commands/audit/list')
    for (let tried = 0; tried < 10; tried++)
      expect((await other.submit('/login/code', { code: '00000x' })).statusCode).toBe(401)
    const answer = await other.submit('/login/code', { code: codeOf(secret) })
    expect(answer.statusCode).toBe(429)
    expect(Number(answer.headers['retry-after'])).toBeGreaterThan(0)
    await until('both are recorded', async () => (await refusals()).length === 2)
    expect((await refusals()).map(({ reason, count }) => [reason, count]).sort()).toEqual([
      ['limited', 1],
      ['wrong', 1],
    ])
  })

  describe('wrong codes from other addresses do not lock the owner out', () => {
    /** Someone who has the password guesses codes on unknown devices until codes are no longer compared. */
    const besiege = async (): Promise<void> => {
      const { foundation } = room
      const factor = await openUserDirectory(foundation).secondFactor(ada.name)
      if (factor === null) throw new Error('no factor')
      const guess = { user: ada.name, factor, typed: '00000x', provedBefore: false, actor: 'system' }
      for (let tried = 0; tried < 100; tried++)
        expect(await checkSecondFactor(foundation, guess, nowMs)).toEqual({ kind: 'wrong' })
      later(61)
    }

    test('a device on which the factor was set up or used can enter codes and recovery codes', async () => {
      const { secret, codes } = await setUp()
      const second = await half()
      expect((await second.submit('/login/code', { code: codeOf(secret) })).statusCode).toBe(303)
      await second.submit('/', {}, '/logout')
      await besiege()
      for (const device of [browser, second]) {
        await device.submit('/', {}, '/logout')
        expect((await device.submit('/login', ada)).headers.location).toBe('/login/code')
        expect((await device.submit('/login/code', { code: codeOf(secret) })).statusCode).toBe(303)
        later(60)
      }
      await second.submit('/', {}, '/logout')
      await second.submit('/login', ada)
      expect((await second.submit('/login/code', { code: codes[1] ?? '' })).statusCode).toBe(303)
    })

    test('a device on which only the password was used has no attempts of its own', async () => {
      const early = await signedIn(room, ada)
      const { secret } = await setUp()
      await besiege()
      expect((await early.submit('/login', ada)).headers.location).toBe('/login/code')
      expect((await early.submit('/login/code', { code: codeOf(secret) })).statusCode).toBe(429)
    })
  })

  test('the time for the code is five minutes, and the requested page is remembered', async () => {
    const { secret } = await setUp()
    const other = await half('/commands/audit/list')
    const page = (await other.get('/login/code')).body
    const kept = new Map(other.cookies)
    later(301)
    const cookie = [...kept].map(([name, value]) => `${name}=${value}`).join('; ')
    const fields = { _csrf: tokenIn(page), next: '/commands/audit/list', code: codeOf(secret) }
    const { headers } = await other.post('/login/code', encoded(fields), { cookie })
    expect(headers.location).toBe('/login?next=%2Fcommands%2Faudit%2Flist')
    expect((await other.get('/login/code', { cookie })).headers.location).toBe('/login')
  })

  test('the time for the code ends with a new password, and when the user is disabled', async () => {
    const { secret } = await setUp()
    const [changed, ended] = [await half(), await half()]
    const pages = [(await changed.get('/login/code')).body, (await ended.get('/login/code')).body]
    await changePassword(room.foundation, { name: ada.name, chosen: ada.password, actor: 'cli:root' })
    const send = (each: Browser, page = '') =>
      each.post('/login/code', encoded({ _csrf: tokenIn(page), code: codeOf(secret) }))
    expect((await send(changed, pages[0])).headers.location).toBe('/login')
    await setDisabled(room.foundation, { name: ada.name, disabled: true, reason: 'left', actor: 'cli:root' })
    expect((await send(ended, pages[1])).headers.location).toBe('/login')
  })

  test('an invented or modified cookie is invalid', async () => {
    await setUp()
    const other = await half()
    const sealed = other.cookies.get('dashboard_half') ?? ''
    for (const value of ['x', `${sealed.slice(0, -2)}AA`, ''])
      expect((await other.get('/login/code', { cookie: `dashboard_half=${value}` })).headers.location).toBe(
        '/login',
      )
  })

  test('if the stored data are missing, no one gets in, and the page says what to do', async () => {
    const { secret, codes } = await setUp()
    await room.foundation.pool.query('delete from user_second_factors where user_name = $1', [ada.name])
    for (const code of [codeOf(secret), codes[0] ?? '']) {
      const { statusCode, body } = await (await half()).submit('/login/code', { code })
      expect(statusCode).toBe(403)
      expect(body).toContain('user second-factor NAME --remove')
    }
    await removeSecondFactor(room.foundation, { user: ada.name, reason: 'lost', actor: 'cli:root' })
    expect((await openBrowser(room.host).submit('/login', ada)).headers.location).toBe('/')
  })
})

describe('new recovery codes and removing', () => {
  const renew = (fields: Record<string, string>) =>
    browser.submit('/me/second-factor', fields, '/me/second-factor/codes')
  const remove = (fields: Record<string, string>) =>
    browser.submit('/me/second-factor', fields, '/me/second-factor/remove')

  test.each([
    ['no password', () => ({ code: '000000' }), 'This is not your current password'],
    ['a wrong code', () => ({ present: ada.password, code: '000000' }), 'The code is wrong'],
  ])('with %s, both are refused', async (_, fieldsOf, says) => {
    await setUp()
    for (const send of [renew, remove]) {
      const { statusCode, body } = await send(fieldsOf())
      expect(statusCode).toBe(422)
      expect(body).toContain(says)
    }
    expect(await events('SecondFactorRemoved')).toEqual([])
    expect(await events('RecoveryCodesRenewed')).toEqual([])
  })

  test('new codes replace the previous ones', async () => {
    const { secret, codes } = await setUp()
    const { statusCode, body } = await renew({ present: ada.password, code: codeOf(secret) })
    expect(statusCode).toBe(200)
    const fresh = codesOn(body)
    expect(fresh).toHaveLength(10)
    expect((await (await half()).submit('/login/code', { code: codes[0] ?? '' })).statusCode).toBe(401)
    expect((await (await half()).submit('/login/code', { code: fresh[0] ?? '' })).statusCode).toBe(303)
  })

  test('after the factor is removed, the password is enough again', async () => {
    const { secret } = await setUp()
    const { statusCode, headers } = await remove({ present: ada.password, code: codeOf(secret) })
    expect([statusCode, headers.location]).toEqual([303, '/me'])
    expect(await events('SecondFactorRemoved')).toMatchObject([{ reason: null, by: `user:${ada.name}` }])
    expect((await openBrowser(room.host).submit('/login', ada)).headers.location).toBe('/')
    expect((await remove({ present: ada.password, code: '1' })).headers.location).toBe('/me/second-factor')
  })
})
