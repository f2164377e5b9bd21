/** Sessions: access to the dashboard, their maximum duration, their end after inactivity, and the tokens in forms. */
import { createHash } from 'node:crypto'
import { Secret, TOTP } from 'otpauth'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { setSecondFactor } from '../../src/administration/users/second-factors.ts'
import { freshTotpSecret } from '../../src/administration/users/totp.ts'
import {
  changePassword,
  changeRole,
  listUsers,
  setDisabled,
} from '../../src/administration/users/user-changes.ts'
import { openUserDirectory } from '../../src/administration/users/user-directory.ts'
import { insertUser, setPassword } from '../../src/administration/users/users.ts'
import { parseConfig } from '../../src/config.ts'
import { holdCalls } from '../support/held-calls.ts'
import { until } from '../support/house.ts'
import {
  type Browser,
  encoded,
  openBrowser,
  openDashboardHost,
  roomForFile,
  signedIn,
  tokenIn,
  unescaped,
  userWhoChose,
} from './dashboard-host.ts'

/** Every test has a new person, because failed attempts are counted per account. */
let ada = { name: '', password: 'correct horse battery staple' }
let people = 0

const room = await roomForFile()
beforeEach(async () => {
  ada = { ...ada, name: `ada-${++people}` }
  await insertUser(room.foundation.pool, { ...ada, role: 'admin' })
})

const sessions = async (user = ada.name): Promise<{ id_hash: Buffer; hours: number }[]> => {
  const { rows } = await room.foundation.pool.query(
    `select id_hash, extract(epoch from expires_at - now())::float8 / 3600 as hours
       from dashboard_sessions where user_name = $1 order by created_at`,
    [user],
  )
  return rows
}

/** Whether these cookies give access. */
const opens = async (cookies: ReadonlyMap<string, string>): Promise<boolean> => {
  const other = openBrowser(room.host)
  const cookie = [...cookies].map(([name, value]) => `${name}=${value}`).join('; ')
  return (await other.get('/', { cookie })).statusCode === 200
}

describe('signing in', () => {
  test.each([
    ['a wrong password', () => ({ name: ada.name, password: 'wrong' })],
    ['an unknown user', () => ({ name: 'unknown', password: ada.password })],
    ['no password', () => ({ name: ada.name })],
    ['a name longer than any', () => ({ name: 'a'.repeat(5_000), password: ada.password })],
    [
      'names and passwords given twice',
      () => ({ name: ['unknown', ada.name], password: ['x', ada.password] }),
    ],
  ])('%s gives no access, and every refusal has the same text', async (_, fieldsOf) => {
    const browser = openBrowser(room.host)
    const answer = await browser.submit('/login', fieldsOf())
    expect(answer.statusCode).toBe(401)
    expect(answer.body).toContain('The user name or the password is wrong.')
    expect(answer.cookies.map(({ name }) => name)).not.toContain('dashboard_session')
    expect((await browser.get('/')).headers.location).toBe('/login')
  })

  test('the eleventh attempt in a minute from one address is refused, even with the correct password', async () => {
    const browser = openBrowser(room.host)
    for (let i = 0; i < 10; i++)
      expect((await browser.submit('/login', { name: `guess-${i}`, password: 'x' })).statusCode).toBe(401)
    const answer = await browser.submit('/login', ada)
    expect(answer.statusCode).toBe(429)
    expect(Number(answer.headers['retry-after'])).toBeGreaterThan(0)
    expect(answer.body).toMatch(/Too many attempts\. Try again in \d+ seconds\./)
    expect(browser.cookies.has('dashboard_session')).toBe(false)
  })

  test('attempts count across all dashboard processes, and typed text is not stored', async () => {
    const other = await openDashboardHost({ beside: room })
    try {
      for (let i = 0; i < 10; i++) {
        const { host } = i % 2 === 0 ? room : other
        expect((await openBrowser(host).submit('/login', { ...ada, password: 'x' })).statusCode).toBe(401)
      }
      for (const { host } of [room, other])
        expect((await openBrowser(host).submit('/login', ada)).statusCode).toBe(429)
      const { rows } = await room.foundation.pool.query('select key from dashboard_attempts')
      expect(JSON.stringify(rows)).not.toMatch(/ada-|127\.1\./)
    } finally {
      await other.close()
    }
  })

  describe('guesses do not lock an operator out', () => {
    /** Guesses an account's password from as many addresses as needed, until the account accepts no more attempts. */
    const besiege = async (name: string): Promise<void> => {
      const statuses: number[] = []
      while (statuses.length < 11 && !statuses.includes(429))
        statuses.push((await openBrowser(room.host).submit('/login', { name, password: 'x' })).statusCode)
      expect(statuses.at(-1)).toBe(429)
    }
    const signOut = (browser: Browser) => browser.submit('/', {}, '/logout')

    test('a person can sign in on a known device while strangers guess, but not on a new device', async () => {
      const browser = await signedIn(room, ada)
      await signOut(browser)
      expect([...browser.cookies.keys()].sort()).toEqual(['dashboard_device', 'dashboard_form'])
      await besiege(ada.name)
      expect((await openBrowser(room.host).submit('/login', ada)).statusCode).toBe(429)
      expect((await browser.submit('/login', ada)).statusCode).toBe(303)
    })

    test('a known device still works if the guesses use up the limit of a shared address', async () => {
      const address = '127.77.0.1'
      const browser = openBrowser(room.host, address)
      expect((await browser.submit('/login', ada)).statusCode).toBe(303)
      await signOut(browser)
      const stranger = openBrowser(room.host, address)
      for (let i = 0; i < 9; i++)
        expect((await stranger.submit('/login', { name: `x${i}`, password: 'x' })).statusCode).toBe(401)
      expect((await stranger.submit('/login', ada)).statusCode).toBe(429)
      expect((await browser.submit('/login', ada)).statusCode).toBe(303)
    })

    test('a device has its own ten attempts a minute, separate from those of other devices', async () => {
      const [lent, kept] = [await signedIn(room, ada), await signedIn(room, ada)]
      await signOut(lent)
      await signOut(kept)
      for (let i = 0; i < 10; i++)
        expect((await lent.submit('/login', { ...ada, password: 'x' })).statusCode).toBe(401)
      const over = await lent.submit('/login', ada)
      expect(over.statusCode).toBe(429)
      expect(Number(over.headers['retry-after'])).toBeGreaterThan(0)
      expect((await kept.submit('/login', ada)).statusCode).toBe(303)
    })

    test('repeated sign-ins do not give a device more attempts', async () => {
      const browser = await signedIn(room, ada)
      for (let i = 0; i < 10; i++) {
        await signOut(browser)
        expect((await browser.submit('/login', ada)).statusCode).toBe(303)
      }
      await signOut(browser)
      expect((await browser.submit('/login', ada)).statusCode).toBe(429)
    })

    test("an invented cookie, one for another account, or a modified one counts as a stranger's", async () => {
      const eve = { name: `eve-${ada.name}`, password: 'eve has a password' }
      await insertUser(room.foundation.pool, { ...eve, role: 'admin' })
      const device = (await signedIn(room, eve)).cookies.get('dashboard_device') ?? ''
      await besiege(ada.name)
      const own = (await signedIn(room, eve)).cookies.get('dashboard_device') ?? ''
      expect(own).not.toBe(device)
      for (const claimed of ['', 'made-up', device, `${device}A`, `A${device.slice(1)}`]) {
        const browser = openBrowser(room.host)
        const token = tokenIn((await browser.get('/login')).body)
        const cookie = `dashboard_form=${browser.cookies.get('dashboard_form')}; dashboard_device=${claimed}`
        const answer = await browser.post('/login', encoded({ _csrf: token, ...ada }), { cookie })
        expect([claimed, answer.statusCode]).toEqual([claimed, 429])
      }
    })

    test("the device cookie is hidden from scripts and other sites, lasts up to the browsers' maximum, and gives no access", async () => {
      const answer = await openBrowser(room.host).submit('/login', ada)
      const cookie = answer.cookies.find(({ name }) => name === 'dashboard_device')
      expect(cookie).toMatchObject({
        httpOnly: true,
        sameSite: 'Strict',
        path: '/',
        maxAge: 400 * 24 * 60 * 60,
      })
      expect(cookie?.value).not.toContain(ada.name)
      expect(await opens(new Map([['dashboard_device', cookie?.value ?? '']]))).toBe(false)
      const wrong = await openBrowser(room.host).submit('/login', { ...ada, password: 'x' })
      expect(wrong.cookies.map(({ name }) => name)).not.toContain('dashboard_device')
    })
  })

  test('it redirects to the requested page, and never to another site', async () => {
    const page = '/organizations/org_01J8ZQ5V7N3K2M4P6R8T0W1X2Y'
    const browser = openBrowser(room.host)
    const sent = await browser.get(page)
    expect(sent.headers.location).toBe(`/login?next=${encodeURIComponent(page)}`)
    expect((await browser.submit('/login', { ...ada, next: page })).headers.location).toBe(page)
    for (const next of [
      'https://example.com',
      '//example.com',
      '/\\example.com',
      `${page}\r\nx: y`,
      `/login?${page}`,
    ])
      expect((await openBrowser(room.host).submit('/login', { ...ada, next })).headers.location).toBe('/')
  })
})

describe('a session', () => {
  test('a visitor gets no session, and leaves none behind', async () => {
    const before = await sessions()
    const browser = openBrowser(room.host)
    await browser.get('/login')
    await browser.get('/')
    expect([...browser.cookies.keys()]).toEqual(['dashboard_form'])
    expect(await sessions()).toEqual(before)
  })

  test('only the browser has its id: the database contains a hash', async () => {
    const browser = await signedIn(room, ada)
    const id = decodeURIComponent(browser.cookies.get('dashboard_session') ?? '').split('.')[0] ?? ''
    const row = (await sessions()).at(-1)
    expect(row?.id_hash).toEqual(createHash('sha256').update(id).digest())
    expect(row?.hours).toBeGreaterThan(11.9)
    expect(row?.hours).toBeLessThanOrEqual(12)
  })

  test('signing in again gives a new one, and ends the previous one', async () => {
    const browser = await signedIn(room, ada)
    const first = new Map(browser.cookies)
    const token = tokenIn((await browser.get('/')).body)
    const answer = await browser.post('/login', encoded({ _csrf: token, ...ada }))
    expect(answer.statusCode).toBe(303)
    expect(browser.cookies.get('dashboard_session')).not.toBe(first.get('dashboard_session'))
    expect(await opens(first)).toBe(false)
    expect(await opens(browser.cookies)).toBe(true)
  })

  test('an invented id is not adopted', async () => {
    const browser = openBrowser(room.host)
    const answer = await browser.get('/login', { cookie: 'dashboard_session=made-up.signature' })
    const token = tokenIn(answer.body)
    const form = browser.cookies.get('dashboard_form')
    const cookie = `dashboard_form=${form}; dashboard_session=made-up.signature`
    const signed = await browser.post('/login', encoded({ _csrf: token, ...ada }), { cookie })
    expect(signed.statusCode).toBe(303)
    expect(browser.cookies.get('dashboard_session')).not.toContain('made-up')
  })

  test('signing out ends it on the server: its cookie no longer gives access', async () => {
    const browser = await signedIn(room, ada)
    const kept = new Map(browser.cookies)
    expect(await opens(kept)).toBe(true)
    const answer = await browser.submit('/', {}, '/logout')
    expect(answer.statusCode).toBe(303)
    expect(answer.headers.location).toBe('/login')
    expect(browser.cookies.has('dashboard_session')).toBe(false)
    expect(await opens(kept)).toBe(false)
  })

  test('it ends after 12 hours even if it is used, and the next sign-in removes expired sessions', async () => {
    const browser = await signedIn(room, ada)
    await room.foundation.pool.query("update dashboard_sessions set expires_at = now() - interval '1 s'")
    expect((await browser.get('/')).headers.location).toBe('/login')
    await signedIn(room, ada)
    expect((await sessions()).length).toBe(1)
  })

  test('viewing pages does not extend it', async () => {
    const browser = await signedIn(room, ada)
    const until = async () =>
      (await room.foundation.pool.query('select max(expires_at)::text as at from dashboard_sessions')).rows[0]
        ?.at
    const before = await until()
    const page = await browser.get('/')
    expect(page.cookies).toEqual([])
    expect(await until()).toBe(before)
  })

  test("a new password ends all of a user's sessions; so does deleting the user", async () => {
    const eve = { name: 'eve', password: 'first password' }
    await insertUser(room.foundation.pool, { ...eve, role: 'admin' })
    const browser = await signedIn(room, eve)
    expect(await opens(browser.cookies)).toBe(true)
    await setPassword(room.foundation.pool, { ...eve, password: 'second password' })
    expect(await opens(browser.cookies)).toBe(false)
    const again = await signedIn(room, { ...eve, password: 'second password' })
    await room.foundation.pool.query('delete from users where name = $1', [eve.name])
    expect(await opens(again.cookies)).toBe(false)
  })
})

describe('a form', () => {
  const refused = (body: string) => expect(body).toContain('The form was refused')

  test('without a token is refused with a page, and changes nothing', async () => {
    const browser = await signedIn(room, ada)
    const before = await room.foundation.eventLog.head()
    for (const path of ['/logout', '/organizations/x/key/issue', '/organizations/x/key/revoke', '/login']) {
      const answer = await browser.post(path, encoded({ name: 'x', reason: 'y' }))
      expect(answer.statusCode).toBe(403)
      expect(answer.headers['content-type']).toBe('text/html; charset=utf-8')
      refused(answer.body)
    }
    expect(await room.foundation.eventLog.head()).toBe(before)
    expect(await opens(browser.cookies)).toBe(true)
  })

  test("with the token of another session is refused, even with that session's form cookie", async () => {
    const [mine, theirs] = [await signedIn(room, ada), await signedIn(room, ada)]
    const token = tokenIn((await theirs.get('/')).body)
    const cookie = `dashboard_session=${mine.cookies.get('dashboard_session')}; dashboard_form=${theirs.cookies.get('dashboard_form')}`
    const answer = await mine.post('/logout', encoded({ _csrf: token }), { cookie })
    expect(answer.statusCode).toBe(403)
    expect(await opens(mine.cookies)).toBe(true)
  })

  test('with the token from the sign-in page is refused after the sign-in', async () => {
    const browser = openBrowser(room.host)
    const token = tokenIn((await browser.get('/login')).body)
    await browser.submit('/login', ada)
    expect((await browser.post('/logout', encoded({ _csrf: token }))).statusCode).toBe(403)
  })

  test('with an invalid body is refused with a page', async () => {
    const browser = await signedIn(room, ada)
    const token = tokenIn((await browser.get('/')).body)
    const json = await browser.post('/logout', JSON.stringify({ _csrf: token }), {
      'content-type': 'application/json',
    })
    expect(json.statusCode).toBe(415)
    expect(json.body).toContain('The request was refused')
    const large = await browser.post('/logout', encoded({ _csrf: token, more: 'x'.repeat(20_000) }))
    expect(large.statusCode).toBe(413)
    expect(large.headers['content-type']).toBe('text/html; charset=utf-8')
    expect(await opens(browser.cookies)).toBe(true)
  })
})

describe('a session ends', () => {
  let browser: Browser
  beforeEach(async () => {
    await room.foundation.pool.query('delete from dashboard_sessions')
    browser = await signedIn(room, ada)
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
    room.foundation.pool.query(
      `update dashboard_sessions set idle_until = now() + $1 * interval '1 second'`,
      [seconds],
    )

  describe('without a request from its user', () => {
    test('it ends after 60 minutes; the sign-in page shows the reason, and redirects to the requested page', async () => {
      expect(await minutesLeft()).toBeGreaterThan(59)
      expect(await minutesLeft()).toBeLessThanOrEqual(60)
      await setLeft(-1)
      const { statusCode, headers } = await browser.get('/operations')
      expect([statusCode, headers.location]).toEqual([303, '/login?next=%2Foperations'])
      const page = await browser.get('/login?next=%2Foperations')
      expect(page.body).toContain('You were signed out after 60 minutes without a request.')
      const answer = await browser.submit(
        '/login?next=%2Foperations',
        { ...ada, next: '/operations' },
        '/login',
      )
      expect([answer.statusCode, answer.headers.location]).toEqual([303, '/operations'])
      expect((await browser.get('/operations')).statusCode).toBe(200)
    })

    test('it stays ended: no request revives it, and no list shows it', async () => {
      await setLeft(-1)
      await browser.get('/')
      await browser.get('/me')
      expect((await browser.get('/')).statusCode).toBe(303)
      expect(await minutesLeft()).toBeLessThan(0)
      expect((await listUsers(room.foundation)).filter(({ sessions }) => sessions > 0)).toEqual([])
    })

    test('a form sent after that has no effect', async () => {
      const once = (await browser.get('/commands/ledger/reconcile')).body
      await setLeft(-1)
      const before = await room.foundation.eventLog.head()
      const csrf = /name="_csrf" value="([^"]+)"/.exec(once)?.[1] ?? ''
      const { headers } = await browser.post(
        '/commands/ledger/reconcile',
        new URLSearchParams({ _csrf: csrf }).toString(),
      )
      expect(headers.location).toBe('/login?next=%2Fcommands%2Fledger%2Freconcile&unsent=yes')
      expect((await browser.get(String(headers.location))).body).toContain(
        'You were signed out before your form arrived, so nothing was changed.',
      )
      expect(await room.foundation.eventLog.head()).toBe(before)
    })
  })

  describe('with a request from its user', () => {
    test('it continues for 60 minutes from then on, and for 12 hours at most', async () => {
      await setLeft(90)
      expect((await browser.get('/')).statusCode).toBe(200)
      expect(await minutesLeft()).toBeGreaterThan(59)
      await room.foundation.pool.query(`update dashboard_sessions set expires_at = now() - interval '1 s'`)
      expect((await browser.get('/')).statusCode).toBe(303)
    })

    test('a second page within a minute writes nothing', async () => {
      await setLeft(3_570)
      const before = await idleUntil()
      await browser.get('/')
      expect(await idleUntil()).toEqual(before)
      await setLeft(3_530)
      await browser.get('/')
      expect(await minutesLeft()).toBeGreaterThan(59.5)
    })

    test('a missing or refused page also counts as a request', async () => {
      await setLeft(90)
      expect((await browser.get('/organizations/none')).statusCode).toBe(404)
      expect(await minutesLeft()).toBeGreaterThan(59)
    })

    test('requests sent by the page itself do not extend it', async () => {
      await setLeft(90)
      const [calls, overview] = [await browser.get('/calls?live=0'), await browser.get('/')]
      const refreshed = [calls, overview].map(({ body }) =>
        unescaped(/hx-get="([^"]+refresh=yes)"/.exec(body)?.[1] ?? ''),
      )
      expect(refreshed).toEqual([expect.stringContaining('/calls?'), expect.stringMatching(/^\/\?/)])
      await setLeft(90)
      for (const path of ['/jobs/none', ...refreshed]) await browser.get(path)
      expect(await minutesLeft()).toBeLessThan(2)
    })
  })
})

test('DASHBOARD_IDLE_MINUTES must be whole minutes from 5 to 720', () => {
  expect(parseConfig({}).DASHBOARD_IDLE_MINUTES).toBe(60)
  expect(parseConfig({ DASHBOARD_IDLE_MINUTES: '5' }).DASHBOARD_IDLE_MINUTES).toBe(5)
  for (const text of ['4', '721', '0', '-5', '7.5', '1e2', ' 60'])
    expect(() => parseConfig({ DASHBOARD_IDLE_MINUTES: text })).toThrow('DASHBOARD_IDLE_MINUTES')
})

describe('changes while something is in progress:', () => {
  const actor = 'cli:setup'
  let people = 0
  let ada = { name: '', password: '' }

  beforeEach(async () => {
    ada = await person('admin')
  })
  afterEach(() => {
    vi.restoreAllMocks()
  })

  const person = (role: 'admin' | 'finance' | 'viewer') =>
    userWhoChose(room, { name: `person-${++people}`, role })
  const signInStreams = /^signin-/

  /** A sign-in with correct credentials that is paused before its session begins. */
  const heldSignIn = async () => {
    const held = holdCalls(room.foundation.eventLog, 'append', (stream) => signInStreams.test(stream))
    const browser = openBrowser(room.host)
    const answer = browser.submit('/login', ada)
    await until('the sign-in is being recorded', async () => held.count() > 0)
    return {
      browser,
      end: () => {
        held.release()
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
      name: bob.name,
      role: 'admin',
      confirmed: 'yes',
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
      const held = holdCalls(room.foundation.eventLog, 'streams', (prefix) => prefix.startsWith('ledger-'))
      const { headers } = await browser.submit('/commands/ledger/reconcile', {})
      return { path: String(headers.location), end: held.release }
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
})
