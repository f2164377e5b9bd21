/** What people see and change in their own account: role, password, sign-ins. */
import { beforeEach, describe, expect, test } from 'vitest'
import { changePassword, createUser } from '../../src/administration/users/user-changes.ts'
import { decodeEvent } from '../../src/event-log/stored-event.ts'
import { operatorStream } from '../../src/events/streams.ts'
import { openOrganization } from '../support/partners.ts'
import {
  type Browser,
  encoded,
  openBrowser,
  roomForFile,
  signedIn,
  tokenIn,
  userWhoChose,
} from './dashboard-host.ts'

let ada: Browser

const room = await roomForFile()
const { password } = await userWhoChose(room, { name: 'ada', role: 'viewer' })
ada = await signedIn(room, { name: 'ada', password })

const change = (fields: Record<string, string>) => ada.submit('/me', fields, '/me/password')

test('a button ends every other sign-in, and not this one', async () => {
  const other = await signedIn(room, { name: 'ada', password })
  expect((await ada.get('/me')).body).toContain('another browser')
  expect((await ada.submit('/me', {}, '/me/sessions/end')).statusCode).toBe(303)
  expect((await other.get('/')).statusCode).toBe(303)
  expect((await ada.get('/me')).body).not.toContain('another browser')
})

const chosen = 'four words and a number 7'

test.each([
  [
    'the current password is wrong',
    { present: 'no', new: chosen, again: chosen },
    'This is not your current password',
  ],
  ['the repetition differs', { new: chosen, again: `${chosen}8` }, 'The two new passwords differ'],
  ['it is the current password', { new: 'PRESENT', again: 'PRESENT' }, 'This is your current password'],
])('a new password is refused if %s', async (_, fields, says) => {
  const typed = Object.entries({ present: password, ...fields })
  const { statusCode, body } = await change(
    Object.fromEntries(typed.map(([name, value]) => [name, value === 'PRESENT' ? password : value])),
  )
  expect(statusCode).toBe(422)
  expect(body).toContain(says)
  expect(body).not.toContain(chosen)
})

test('a new password ends every other session, is an event, and works from then on', async () => {
  const other = await signedIn(room, { name: 'ada', password })
  const stolen = openBrowser(room.host)
  for (const [name, value] of ada.cookies) (stolen.cookies as Map<string, string>).set(name, value)
  expect((await stolen.get('/me')).statusCode).toBe(200)
  const { statusCode, headers } = await change({ present: password, new: chosen, again: chosen })
  expect({ statusCode, to: headers.location }).toEqual({ statusCode: 303, to: '/me' })
  expect((await ada.get('/me')).statusCode).toBe(200)
  // The change started a new session, so a copy of the old cookie gives no access.
  for (const ended of [other, stolen]) expect((await ended.get('/me')).headers.location).toMatch(/^\/login/)
  const events = (await room.foundation.eventLog.read(operatorStream, { direction: 'backwards', max: 5 }))
    .map(decodeEvent)
    .filter(({ type }) => type === 'UserPasswordChanged')
    .slice(0, 1)
  expect(events.map(({ metadata }) => metadata.actor)).toEqual(['user:ada'])
  expect((await openBrowser(room.host).submit('/login', { name: 'ada', password })).statusCode).toBe(401)
  ada = await signedIn(room, { name: 'ada', password: chosen })
  expect((await ada.get('/me')).statusCode).toBe(200)
})

describe('changes to an account', () => {
  const lastPassword = 'seven unrelated things on a shelf'

  test('are shown first at the next sign-in on another device, which then continues to the requested page', async () => {
    const grace = await userWhoChose(room, { name: 'grace', role: 'viewer' })
    const [here, elsewhere] = [openBrowser(room.host), openBrowser(room.host)]
    expect((await here.submit('/login', grace)).headers.location).toBe('/')
    await here.submit('/', {}, '/logout')
    expect((await elsewhere.submit('/login', grace)).headers.location).toBe('/')
    const changed = { present: grace.password, new: lastPassword, again: lastPassword }
    expect((await elsewhere.submit('/me', changed, '/me/password')).statusCode).toBe(303)
    await elsewhere.submit('/', {}, '/logout')
    await room.caughtUp()
    const renewed = { ...grace, password: lastPassword, next: '/operations' }
    // The device on which the change was made does not show the notice.
    expect((await elsewhere.submit('/login', renewed)).headers.location).toBe('/operations')
    const { location } = (await here.submit('/login', renewed)).headers
    expect(location).toMatch(/^\/me\?since=\d{13}&next=%2Foperations$/)
    const { body } = await here.get(String(location))
    const notice = /<section class="notice"[\s\S]*?<\/section>/.exec(body)?.[0] ?? ''
    expect(notice).toContain('Since you last signed in on this device')
    expect(notice).toContain('The password was changed.')
    expect(notice).toContain('There was a sign-in on a new device.')
    expect(notice).toContain('href="/operations"')
    await here.submit('/', {}, '/logout')
    expect((await here.submit('/login', renewed)).headers.location).toBe('/operations')
    expect((await here.get('/me')).body).toContain('The password was changed.')
  })

  test('name no operator', async () => {
    const organizationId = await openOrganization(room.foundation)
    const pia = await userWhoChose(room, { name: 'pia', role: 'partner', organizationId })
    await userWhoChose(room, { name: 'olga.operator', role: 'admin' })
    await changePassword(room.foundation, { name: 'pia', chosen: lastPassword, actor: 'user:olga.operator' })
    await room.caughtUp()
    const browser = await signedIn(room, { ...pia, password: lastPassword })
    const { body } = await browser.get('/me')
    expect(body).toContain('The password was changed by an operator.')
    expect(body).not.toContain('olga')
  })
})

describe('with a generated password', () => {
  let eve = { name: '', password: '' }
  let browser: Browser
  let made = 0

  beforeEach(async () => {
    const name = `eve-${++made}`
    const { password } = await createUser(room.foundation, {
      name,
      role: 'admin',
      organizationId: null,
      actor: 'cli:setup',
    })
    eve = { name, password }
    browser = await withPassword(eve.password)
  })

  const withPassword = async (password: string): Promise<Browser> => {
    const one = openBrowser(room.host)
    expect((await one.submit('/login', { name: eve.name, password })).statusCode).toBe(303)
    return one
  }
  const choose = (fields: Record<string, string> = {}) =>
    browser.submit('/me', { present: eve.password, new: chosen, again: chosen, ...fields }, '/me/password')

  test('every page redirects to the form that replaces it', async () => {
    for (const [path, to] of [
      ['/', '/me'],
      ['/commands/audit/list?actor=ada', '/me?next=%2Fcommands%2Faudit%2Flist%3Factor%3Dada'],
      ['/operations', '/me?next=%2Foperations'],
    ] as const) {
      const { statusCode, headers } = await browser.get(path)
      expect([path, statusCode, headers.location]).toEqual([path, 303, to])
    }
    const { statusCode, body } = await browser.get('/me?next=%2Foperations')
    expect(statusCode).toBe(200)
    expect(body).toContain('Your current password was generated')
    expect(body).toContain('name="next" value="/operations"')
  })

  test('every other form is refused, and changes nothing', async () => {
    const csrf = tokenIn((await browser.get('/me')).body)
    const before = await room.foundation.eventLog.head()
    for (const path of [
      '/me/sessions/end',
      '/commands/ledger/reconcile',
      '/commands/price/propose',
      '/commands/jobs/run',
    ]) {
      const { statusCode, body } = await browser.post(path, encoded({ _csrf: csrf }))
      expect([path, statusCode]).toEqual([path, 403])
      expect(body).toContain('Choose a password first')
    }
    expect(await room.foundation.eventLog.head()).toBe(before)
  })

  test('signing out works', async () => {
    expect((await browser.submit('/me', {}, '/logout')).headers.location).toBe('/login')
  })

  test('a chosen password opens everything, and redirects to the requested page', async () => {
    const { statusCode, headers } = await choose({ next: '/operations' })
    expect({ statusCode, to: headers.location }).toEqual({
      statusCode: 303,
      to: '/operations',
    })
    expect((await browser.get('/operations')).statusCode).toBe(200)
    const again = openBrowser(room.host)
    expect((await again.submit('/login', { ...eve, password: chosen })).headers.location).toBe('/')
    expect((await again.get('/operations')).statusCode).toBe(200)
  })

  test('after an error, the requested page is still remembered', async () => {
    const { body } = await choose({ again: `${chosen}!`, next: '/operations' })
    expect(body).toContain('name="next" value="/operations"')
    const elsewhere = await choose({ next: '//evil.example' })
    expect(elsewhere.headers.location).toBe('/')
  })

  test('a password that an operator reset has to be replaced again', async () => {
    await choose()
    const { password } = await changePassword(room.foundation, { name: eve.name, actor: 'cli:root' })
    const again = await withPassword(password)
    expect((await again.get('/')).headers.location).toBe('/me')
  })
})
