/** The pages before a session exists, in a real Chromium: the sign-in, an invitation, an identity provider. */
import type { Page } from 'playwright-core'
import { afterAll, describe, expect, test } from 'vitest'
import { inviteUser } from '../../src/administration/users/invitations.ts'
import { openDashboardHost } from '../dashboard/dashboard-host.ts'
import { freePort } from '../support/free-port.ts'
import { client, openTestProvider } from '../support/identity-provider.ts'
import { axeFindings, openChromium, overhang, picture, screens } from './chromium/browser.ts'

const invited = 'ada@example.com'
const chosen = 'four words and a number 7'

// The provider and the dashboard need each other's address, so the dashboard's port is chosen first.
const baseUrl = `http://127.0.0.1:${await freePort()}`
const provider = await openTestProvider({
  redirectUri: `${baseUrl}/login/provider/callback`,
  claimsOf: (account) => ({ email: account, email_verified: true }),
})
const room = await openDashboardHost({ provider: { issuer: provider.issuer, ...client, nameClaim: 'email' } })
await room.host.listen({ host: '127.0.0.1', port: Number(new URL(baseUrl).port) })
const chromium = await openChromium(baseUrl)
afterAll(async () => {
  await chromium.close()
  await room.close()
  await provider.close()
})

const invitation = async (name: string): Promise<string> => {
  const { secret } = await inviteUser(room.foundation, {
    name,
    role: 'admin',
    organizationId: null,
    actor: 'cli:setup',
  })
  return `/invitations/${secret}`
}

const wrongWith = async (page: Page, complaints: () => string[]) => {
  const found = { said: complaints(), beyond: await overhang(page), axe: await axeFindings(page) }
  return found.said.length > 0 || found.beyond > 0 || found.axe.length > 0 ? found : null
}

describe.each(screens)('in a $scheme window of $width pixels', ({ scheme, width }) => {
  test('the sign-in page with a provider, an invitation and an invalid link are complete and without faults', async () => {
    const { page, complaints, close } = await chromium.open({ scheme, width })
    for (const [name, path, says] of [
      ['sign-in', '/login', 'Sign in with 127.0.0.1'],
      ['invitation', await invitation(`visitor-${scheme}-${width}`), 'Welcome, visitor'],
      ['invitation-ended', `/invitations/${'x'.repeat(43)}`, 'This link is not valid'],
    ] as const) {
      await page.goto(path, { waitUntil: 'networkidle' })
      await picture(page, `${name}-${scheme}-${width}`)
      expect(await page.locator('main').innerText()).toContain(says)
      const isGone = ({ length }: string[]): boolean => name === 'invitation-ended' && length === 1
      expect([
        name,
        await wrongWith(page, () => [complaints()].filter((one) => !isGone(one)).flat()),
      ]).toEqual([name, null])
    }
    await close()
  })
})

test('a person accepts the invitation, signs in with the password, and then with the provider', async () => {
  const { page, complaints, close } = await chromium.open({ scheme: 'light', width: 390 })
  await page.goto(await invitation(invited))
  await page.fill('#new', chosen)
  await page.fill('#again', chosen)
  await page.click('button[type=submit]')
  await page.waitForURL('**/login?invited=yes')
  await page.fill('#name', invited)
  await page.fill('#password', chosen)
  await page.click('button[type=submit]')
  await page.waitForURL('**/')
  await page.click('text=Sign out')
  await page.waitForURL('**/login')

  await page.goto('/login?next=/commands/user/list')
  await page.click('text=Sign in with')
  await page.waitForURL(`${provider.issuer}/**`)
  await page.fill('[name=login]', invited)
  await page.fill('[name=password]', 'any')
  await page.click('button[type=submit]')
  await page.waitForSelector('text=Continue')
  await page.click('text=Continue')
  await page.waitForURL('**/commands/user/list')
  expect(await page.locator('main').innerText()).toContain(invited)
  expect(complaints().filter((said) => said.includes(baseUrl) || said.includes('Content Security'))).toEqual(
    [],
  )
  await close()
})
