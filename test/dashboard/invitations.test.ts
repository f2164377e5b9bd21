/** An invitation is a link that works once. The tests check its page, its recipients, its limits and the data that it reveals. */
import { createHash, randomBytes } from 'node:crypto'
import { beforeEach, describe, expect, test, vi } from 'vitest'
import {
  acceptInvitation,
  inviteUser,
  listInvitations,
  withdrawInvitation,
} from '../../src/administration/users/invitations.ts'
import {
  changeRole,
  createUser,
  listUsers,
  setDisabled,
} from '../../src/administration/users/user-changes.ts'
import { decodeEvent } from '../../src/event-log/stored-event.ts'
import { operatorStream } from '../../src/events/streams.ts'
import { openOrganization } from '../support/partners.ts'
import { openBrowser, roomForFile, signedIn } from './dashboard-host.ts'

let people = 0
const actor = 'user:root'
const chosen = 'four words and a number 7'

const room = await roomForFile()
await createUser(room.foundation, { name: 'root', role: 'admin', organizationId: null, actor: 'cli:setup' })

let name = ''
beforeEach(() => {
  name = `grace-${++people}`
})

const invite = async (by = actor): Promise<string> =>
  (await inviteUser(room.foundation, { name, role: 'finance', organizationId: null, actor: by })).secret
const pathOf = (secret: string): string => `/invitations/${secret}`
const choose = (secret: string, browser = openBrowser(room.host)) =>
  browser.submit(pathOf(secret), { new: chosen, again: chosen })
const events = async () =>
  (await room.foundation.eventLog.read(operatorStream, { from: 0, max: 1_000 }))
    .map(decodeEvent)
    .filter(({ data }) => 'user' in data && data.user === name)
    .map(({ type, metadata }) => `${metadata.actor} ${type}`)
const isUser = async (): Promise<boolean> =>
  (await listUsers(room.foundation)).some((user) => user.name === name)

describe('the link', () => {
  test('creates the user with a password that the person chose, who then signs in; the event log records who invited the person', async () => {
    const secret = await invite()
    const browser = openBrowser(room.host)
    const page = await browser.get(pathOf(secret))
    expect(page.statusCode).toBe(200)
    expect(page.body).toContain(`Welcome, ${name}`)
    expect(page.body).toContain('finance')
    const answer = await choose(secret, browser)
    expect([answer.statusCode, answer.headers.location]).toEqual([303, '/login?invited=yes'])
    expect((await browser.get('/login?invited=yes')).body).toContain('Your password is set.')
    // Choosing a password does not sign the person in.
    expect((await browser.get('/')).headers.location).toBe('/login')
    expect((await (await signedIn(room, { name, password: chosen })).get('/')).statusCode).toBe(200)
    expect(await events()).toEqual([
      'user:root UserInvited',
      `user:root UserCreated`,
      `user:${name} UserInvitationAccepted`,
    ])
    const user = (await listUsers(room.foundation)).find((one) => one.name === name)
    expect(user).toMatchObject({ role: 'finance', logged: { createdBy: 'user:root' } })
    expect((await listInvitations(room.foundation)).filter((one) => one.user === name)).toEqual([])
  })

  test('can be viewed any number of times, and only its use gives the person any rights', async () => {
    const secret = await invite()
    for (let i = 0; i < 15; i++)
      expect((await openBrowser(room.host).get(pathOf(secret))).statusCode).toBe(200)
    for (const password of [secret, chosen])
      expect((await openBrowser(room.host).submit('/login', { name, password })).statusCode).toBe(401)
    expect(await isUser()).toBe(false)
    expect((await choose(secret)).statusCode).toBe(303)
  })

  test('is leaked to no other site or cache, and its secret is in no event', async () => {
    const secret = await invite()
    const { headers, body } = await openBrowser(room.host).get(pathOf(secret))
    expect(headers['referrer-policy']).toBe('no-referrer')
    expect(headers['cache-control']).toBe('no-store')
    expect(body).not.toContain(secret)
    const written = (await room.foundation.eventLog.read(operatorStream, { from: 0, max: 1_000 })).map(
      ({ data }) => data,
    )
    expect(written.join()).not.toContain(secret)
    expect(written.join()).toContain(createHash('sha256').update(secret).digest('base64url'))
  })

  test("ends another person's session in the same browser, so that the invited person has to sign in", async () => {
    const { password } = await createUser(room.foundation, {
      name: `other-${people}`,
      role: 'viewer',
      organizationId: null,
      actor,
    })
    const browser = await signedIn(room, { name: `other-${people}`, password })
    expect((await choose(await invite(), browser)).headers.location).toBe('/login?invited=yes')
    expect((await browser.get('/')).headers.location).toBe('/login')
  })
})

describe('a refused password leaves the link usable', () => {
  test.each([
    ['too short', { new: 'short', again: 'short' }, 'At least 15 characters'],
    ['typed differently', { new: chosen, again: `${chosen}8` }, 'The two passwords differ'],
  ])('%s', async (_, fields, says) => {
    const secret = await invite()
    const { statusCode, body } = await openBrowser(room.host).submit(pathOf(secret), fields)
    expect(statusCode).toBe(422)
    expect(body).toContain(says)
    expect(await isUser()).toBe(false)
    expect((await choose(secret)).statusCode).toBe(303)
  })

  test('a form without its token', async () => {
    const secret = await invite()
    const answer = await openBrowser(room.host).post(pathOf(secret), `new=${chosen}&again=${chosen}`)
    expect(answer.statusCode).toBe(403)
    expect(await isUser()).toBe(false)
  })
})

describe('an invalid link shows the same page for every reason', () => {
  const ended = async (secret: string): Promise<string> => {
    const { statusCode, body } = await openBrowser(room.host).get(pathOf(secret))
    expect(statusCode).toBe(404)
    expect(body).not.toContain(name)
    return body
  }

  test('because it was used, withdrawn, replaced, expired, made for a name taken since, or invented', async () => {
    const never = await ended(randomBytes(32).toString('base64url'))
    expect(never).toContain('This link is not valid')

    const used = await invite()
    await choose(used)
    expect(await ended(used)).toBe(never)

    name = `${name}-b`
    const replaced = await invite()
    const withdrawn = await invite()
    expect(await ended(replaced)).toBe(never)
    await withdrawInvitation(room.foundation, { name, actor })
    expect(await ended(withdrawn)).toBe(never)

    const expired = await invite()
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 72 * 3_600_000 })
    try {
      expect(await ended(expired)).toBe(never)
      await expect(acceptInvitation(room.foundation, { secret: expired, password: chosen })).rejects.toThrow()
    } finally {
      vi.useRealTimers()
    }

    const taken = await invite()
    await createUser(room.foundation, { name, role: 'viewer', organizationId: null, actor })
    expect(await ended(taken)).toBe(never)

    for (const odd of ['x', '%00', 'a'.repeat(43), encodeURIComponent('ä'.repeat(43))])
      expect(await ended(odd)).toBe(never)
  })

  test('a form that was opened while the link was valid is refused', async () => {
    const secret = await invite()
    const browser = openBrowser(room.host)
    await browser.get(pathOf(secret))
    const before = await browser.get(pathOf(secret))
    const csrf = /name="_csrf" value="([^"]+)"/.exec(before.body)?.[1] ?? ''
    await withdrawInvitation(room.foundation, { name, actor })
    const answer = await browser.post(
      pathOf(secret),
      new URLSearchParams({ _csrf: csrf, new: chosen, again: chosen }).toString(),
    )
    expect(answer.statusCode).toBe(404)
    expect(await isUser()).toBe(false)
  })
})

test('if two browsers send the form at the same time, only one succeeds', async () => {
  const secret = await invite()
  const answers = await Promise.all(
    ['first one, twelve', 'second one, twelve'].map((password) =>
      openBrowser(room.host).submit(pathOf(secret), { new: password, again: password }),
    ),
  )
  expect(answers.map(({ statusCode }) => statusCode).sort()).toEqual([303, 404])
  expect((await events()).filter((event) => event.endsWith('UserCreated'))).toHaveLength(1)
  const opens = await Promise.all(
    ['first one, twelve', 'second one, twelve'].map(async (password) => {
      const { statusCode } = await openBrowser(room.host).submit('/login', { name, password })
      return statusCode
    }),
  )
  expect(opens.sort()).toEqual([303, 401])
})

test('attempts from one address are limited, and those from another are not', async () => {
  const secret = await invite()
  const guesser = openBrowser(room.host)
  const codes = []
  for (let i = 0; i < 25; i++)
    codes.push((await guesser.get(pathOf(randomBytes(32).toString('base64url')))).statusCode)
  expect(codes.filter((code) => code === 404)).toHaveLength(20)
  const limited = await guesser.get(pathOf(secret))
  expect(limited.statusCode).toBe(429)
  expect(Number(limited.headers['retry-after'])).toBeGreaterThan(0)
  expect((await choose(secret)).statusCode).toBe(303)
})

describe('an invitation', () => {
  test('is refused for an existing name, for a partner without an organization, and for an unknown organization', async () => {
    const make = (role: 'partner' | 'viewer', organizationId: string | null, called = name) =>
      inviteUser(room.foundation, { name: called, role, organizationId, actor })
    await expect(make('viewer', null, 'root')).rejects.toThrow('the user "root" already exists')
    await expect(make('partner', null)).rejects.toThrow('a partner needs an organization')
    await expect(make('partner', 'org_01J8ZQ5V7N3K2M4P6R8T0W1X2Y')).rejects.toThrow(
      'there is no organization',
    )
    const organizationId = await openOrganization(room.foundation)
    await expect(make('viewer', organizationId)).rejects.toThrow('only a partner has an organization')
    await make('partner', organizationId)
    const open = (await listInvitations(room.foundation)).filter(({ user }) => user === name)
    expect(open).toMatchObject([{ organizationId, expired: false }])
    await withdrawInvitation(room.foundation, { name, actor })
    await expect(withdrawInvitation(room.foundation, { name, actor })).rejects.toThrow(
      'there is no invitation',
    )
  })

  test.each([
    [
      'disabled',
      (user: string) => setDisabled(room.foundation, { name: user, disabled: true, reason: 'left', actor }),
    ],
    [
      'made anything but admin',
      (user: string) =>
        changeRole(room.foundation, { name: user, role: 'viewer', organizationId: null, actor }),
    ],
  ])('by a person who was %s is no longer valid', async (_, end) => {
    const inviter = `inviter-${people}`
    await createUser(room.foundation, { name: inviter, role: 'admin', organizationId: null, actor })
    const secret = await invite(`user:${inviter}`)
    await end(inviter)
    expect((await openBrowser(room.host).get(pathOf(secret))).statusCode).toBe(404)
    await expect(acceptInvitation(room.foundation, { secret, password: chosen })).rejects.toThrow()
    expect(await isUser()).toBe(false)
  })
})
