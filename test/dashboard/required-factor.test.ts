/** If the operator requires a second factor, a person without a second factor can open only the set-up form. */
import { Secret, TOTP } from 'otpauth'
import { afterAll, describe, expect, test } from 'vitest'
import { createUser } from '../../src/administration/users/user-changes.ts'
import type { UserRole } from '../../src/events/users.ts'
import {
  type Browser,
  type DashboardHost,
  encoded,
  openBrowser,
  openDashboardHost,
  tokenIn,
  userWhoChose,
} from './dashboard-host.ts'

let made = 0
const setUpPath = '/me/second-factor'

afterAll(async () => {
  await forAdmins.close()
  await forAll.close()
})

const person = (role: UserRole) => userWhoChose(forAll, { name: `${role}-${++made}`, role })

const forAll = await openDashboardHost({ environment: { DASHBOARD_SECOND_FACTOR: 'all' } })
const forAdmins = await openDashboardHost({
  environment: { DASHBOARD_SECOND_FACTOR: 'admins' },
  beside: forAll,
})
await person('admin')

const enter = async ({ host }: DashboardHost, who: { name: string; password: string }): Promise<Browser> => {
  const browser = openBrowser(host)
  expect((await browser.submit('/login', who)).statusCode).toBe(303)
  return browser
}

describe('a person who needs one but has none', () => {
  test('is redirected to the form from every page, and every other form is refused', async () => {
    const browser = await enter(forAll, await person('viewer'))
    for (const path of ['/', '/usage', '/operations?a=b']) {
      const { statusCode, headers } = await browser.get(path)
      expect([path, statusCode, headers.location]).toEqual([path, 303, setUpPath])
    }
    const { body } = await browser.get(setUpPath)
    expect(body).toContain('Your role requires a second factor')
    expect(body).not.toContain('>Cancel<')
    const refused = await browser.post('/me/sessions/end', encoded({ _csrf: tokenIn(body) }))
    expect(refused.statusCode).toBe(403)
    expect(refused.body).toContain('Set up a second factor first')
  })

  test('can open all other pages after setting it up', async () => {
    const who = await person('viewer')
    const browser = await enter(forAll, who)
    const { body } = await browser.get(setUpPath)
    const field = (name: string): string => new RegExp(`name="${name}" value="([^"]+)"`).exec(body)?.[1] ?? ''
    const secret = (/aria-label="Secret"><code>([A-Z2-7 ]+)</.exec(body)?.[1] ?? '').replaceAll(' ', '')
    const code = new TOTP({ secret: Secret.fromBase32(secret) }).generate()
    const hidden = { _csrf: field('_csrf'), once: field('once'), sealed: field('sealed') }
    const set = await browser.post(setUpPath, encoded({ ...hidden, present: who.password, code }))
    expect(set.statusCode).toBe(200)
    expect((await browser.get('/')).statusCode).toBe(200)
  })

  test('chooses a password first, if it was generated', async () => {
    const name = `viewer-${++made}`
    const user = { name, role: 'viewer', organizationId: null, actor: 'cli:setup' } as const
    const { password } = await createUser(forAll.foundation, user)
    const browser = await enter(forAll, { name, password })
    expect((await browser.get('/usage')).headers.location).toBe('/me?next=%2Fusage')
    expect((await browser.get('/me')).statusCode).toBe(200)
  })
})

test('with "admins" it is required only for admins', async () => {
  const [admin, viewer] = [await person('admin'), await person('viewer')]
  expect((await (await enter(forAdmins, admin)).get('/')).headers.location).toBe(setUpPath)
  expect((await (await enter(forAdmins, viewer)).get('/')).statusCode).toBe(200)
})
