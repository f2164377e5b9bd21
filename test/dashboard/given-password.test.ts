/** A generated password opens only the form that replaces it. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { changePassword, createUser } from '../../src/administration/users/user-changes.ts'
import type { Browser, DashboardHost } from './dashboard-host.ts'
import { encoded, openBrowser, openDashboardHost, tokenIn } from './dashboard-host.ts'

let room: DashboardHost
let eve = { name: '', password: '' }
let browser: Browser
let made = 0
const chosen = 'four words and a number 7'

beforeAll(async () => {
  room = await openDashboardHost()
})
afterAll(() => room.close())
beforeEach(async () => {
  const name = `eve-${++made}`
  const { password } = await createUser(room.foundation, {
    ...{ name, role: 'admin', organizationId: null, actor: 'cli:setup' },
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

describe('with a generated password', () => {
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

  test('the same password is refused, and opens no more than before', async () => {
    const { statusCode, body } = await choose({ new: eve.password, again: eve.password })
    expect(statusCode).toBe(422)
    expect(body).toContain('It is the current password')
    expect((await browser.get('/')).headers.location).toBe('/me')
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

  test('an error keeps the requested page', async () => {
    const { body } = await choose({ again: `${chosen}!`, next: '/operations' })
    expect(body).toContain('name="next" value="/operations"')
    const elsewhere = await choose({ next: '//evil.example' })
    expect(elsewhere.headers.location).toBe('/')
  })
})

test('a password reset by an operator has to be replaced again', async () => {
  await choose()
  const { password } = await changePassword(room.foundation, { name: eve.name, actor: 'cli:root' })
  const again = await withPassword(password)
  expect((await again.get('/')).headers.location).toBe('/me')
})
