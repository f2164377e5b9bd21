/** Access to the dashboard by role and organization, never for disabled users; and the events for sign-ins. */
import { beforeEach, describe, expect, test } from 'vitest'
import { defaultKeyLimits, keyToChange, revoke } from '../../src/administration/keys/api-keys.ts'
import { changeRole, setDisabled } from '../../src/administration/users/user-changes.ts'
import type { KeyLimits } from '../../src/events/keys.ts'
import type { UserRole } from '../../src/events/users.ts'
import { until } from '../support/house.ts'
import { anotherKey, openOrganization } from '../support/partners.ts'
import {
  openBrowser,
  openDashboardHost,
  roomForFile,
  signedIn,
  signInEvents,
  userWhoChose,
} from './dashboard-host.ts'

const actor = 'cli:setup'
let made = 0

type Person = { readonly name: string; readonly password: string }

const person = async (role: UserRole, organizationId: string | null = null): Promise<Person> => {
  const name = `${role}-${++made}`
  return userWhoChose(room, { name, role, organizationId })
}

const room = await roomForFile()
const ours = await openOrganization(room.foundation)
await room.caughtUp()
await person('admin')
const disable = ({ name }: Person) =>
  setDisabled(room.foundation, { name, disabled: true, reason: 'left', actor })

describe("the limits of a partner's keys", () => {
  const keyOf = (limits: Partial<KeyLimits>) => anotherKey(room.foundation, ours, { limits })
  const limitsOf = async (keyId: string) => (await keyToChange(room.foundation, { keyId }, 'limits'))?.limits
  const fieldsOf = (limits: KeyLimits): Record<string, string> => ({
    'requests-per-minute': String(limits.requests_per_minute),
    'requests-per-day': String(limits.requests_per_day),
    'email-validations-per-second': String(limits.email_validations_per_second),
  })

  test.each([
    ['requests_per_minute', 100_000_000],
    ['requests_per_day', 1_000_001],
    ['email_validations_per_second', 11],
  ] as const)(
    '%s cannot be raised above the default by the partner, on a key or a new one',
    async (limit, more) => {
      const browser = await signedIn(room, await person('partner', ours))
      const { keyId } = await keyOf({})
      await room.caughtUp()
      const path = `/organizations/${ours}/key/limits`
      const wanted = { key: keyId, confirmed: 'yes', ...fieldsOf({ ...defaultKeyLimits, [limit]: more }) }
      const refused = await browser.submit(path, wanted)
      expect(refused.statusCode).toBe(422)
      expect(refused.body).toContain(
        `At most ${defaultKeyLimits[limit]}; ask the operator of the service for a higher limit.`,
      )
      expect(await limitsOf(keyId)).toEqual(defaultKeyLimits)
      const { key: _, ...fresh } = { ...wanted, name: 'another', permissions: ['ip_lookup'] }
      const before = await room.foundation.eventLog.head()
      expect((await browser.submit(`/organizations/${ours}/key/issue`, fresh)).statusCode).toBe(422)
      expect(await room.foundation.eventLog.head()).toBe(before)
      const operations = await signedIn(room, await person('operations'))
      expect((await operations.submit(path, wanted)).statusCode).toBe(200)
    },
  )

  test('a higher limit that an operator has set stays: the partner can change limits up to it', async () => {
    const browser = await signedIn(room, await person('partner', ours))
    const { keyId } = await keyOf({ requests_per_minute: 60_000 })
    await room.caughtUp()
    const path = `/organizations/${ours}/key/limits`
    const named = { key: keyId, confirmed: 'yes' }
    const raised = { ...defaultKeyLimits, requests_per_minute: 60_000, requests_per_day: 5 }
    expect((await browser.submit(path, { ...named, ...fieldsOf(raised) })).statusCode).toBe(200)
    expect(await limitsOf(keyId)).toEqual(raised)
    const beyond = fieldsOf({ ...raised, requests_per_minute: 60_001 })
    expect((await browser.submit(path, { ...named, ...beyond })).statusCode).toBe(422)
  })
})

test("a partner cannot allow its keys to export the ledger, which names the operator's people", async () => {
  const path = `/organizations/${ours}/key/issue`
  const wanted = { name: 'all of it', permissions: ['ip_lookup', 'ledger_read'] }
  const partner = await signedIn(room, await person('partner', ours))
  for (const more of [{}, { test: 'on' }]) {
    const before = await room.foundation.eventLog.head()
    const refused = await partner.submit(path, { ...wanted, ...more })
    expect([refused.statusCode, refused.body]).toEqual([
      422,
      expect.stringContaining('Only an operator can give ledger_read'),
    ])
    expect(await room.foundation.eventLog.head()).toBe(before)
  }
  const operations = await signedIn(room, await person('operations'))
  expect((await operations.submit(path, wanted)).statusCode).toBe(200)
})

test('a partner cannot issue a key with 100 live keys, or rotate one with 200, and an operator can', async () => {
  const organizationId = await openOrganization(room.foundation)
  const keys = await Promise.all(
    Array.from({ length: 200 }, () => anotherKey(room.foundation, organizationId)),
  )
  await room.caughtUp()
  const [first] = keys
  if (first === undefined) throw new Error('there are no keys')
  const path = `/organizations/${organizationId}/key`
  const wanted = { name: 'one more', permissions: ['ip_lookup'] }
  const rotation = { key: first.keyId, grace: '0s', confirmed: 'yes' }
  const partner = await signedIn(room, await person('partner', organizationId))
  for (const [command, fields, max] of [
    ['issue', wanted, 100],
    ['issue', { ...wanted, test: 'on' }, 100],
    ['rotate', rotation, 200],
  ] as const) {
    const refused = await partner.submit(`${path}/${command}`, fields)
    expect([refused.statusCode, refused.body]).toEqual([
      422,
      expect.stringContaining(`Your organization already has ${max} keys`),
    ])
  }
  const operations = await signedIn(room, await person('operations'))
  expect((await operations.submit(`${path}/issue`, wanted)).statusCode).toBe(200)
  expect((await operations.submit(`${path}/rotate`, rotation)).statusCode).toBe(200)
  // Of 202 keys, one ended with its grace period. After this, 99 are live.
  await Promise.all(
    keys
      .slice(1, 103)
      .map(({ keyId }) => revoke(room.foundation, { keyId, reason: 'not used', actor: 'cli' })),
  )
  await room.caughtUp()
  expect((await partner.submit(`${path}/issue`, wanted)).statusCode).toBe(200)
})

describe('a session', () => {
  test('ends when its user is disabled, in every process, even if the row has not been updated', async () => {
    const bob = await person('finance')
    const browser = await signedIn(room, bob)
    expect((await browser.get('/')).statusCode).toBe(200)
    await disable(bob)
    expect((await browser.get('/')).headers.location).toBe('/login')

    const eve = await person('finance')
    const kept = await signedIn(room, eve)
    // Simulates the death of the process that disabled the user, after it wrote the event but before it wrote the row.
    await room.foundation.pool.query('alter table users disable trigger users_disabled')
    try {
      await disable(eve)
      await room.foundation.pool.query('update users set disabled_at = null where name = $1', [eve.name])
    } finally {
      await room.foundation.pool.query('alter table users enable trigger users_disabled')
    }
    expect((await kept.get('/')).headers.location).toBe('/login')
    expect(
      (await room.foundation.pool.query('select from dashboard_sessions where user_name = $1', [eve.name]))
        .rowCount,
    ).toBe(0)
  })

  test('has the current role at its next page', async () => {
    const bob = await person('operations')
    const browser = await signedIn(room, bob)
    expect((await browser.get(`/organizations/${ours}/key/issue`)).statusCode).toBe(200)
    await changeRole(room.foundation, { name: bob.name, role: 'viewer', organizationId: null, actor })
    const refused = await browser.get(`/organizations/${ours}/key/issue`)
    expect(refused.statusCode).toBe(403)
    expect(refused.body).toContain(
      'You are signed in with the role viewer, but this requires the role admin, operations or partner.',
    )
  })
})

describe('sign-ins are events', () => {
  let before = 0
  beforeEach(async () => {
    before = (await signInEvents(room)).length
  })
  const since = async () => (await signInEvents(room)).slice(before)

  test('signing in and out, with a keyed hash of the address', async () => {
    const bob = await person('viewer')
    const browser = await signedIn(room, bob)
    await browser.submit('/', {}, '/logout')
    await browser.submit('/login', bob)
    const hash = expect.stringMatching(/^[\w-]{43}$/)
    const by = `user:${bob.name}`
    expect(await since()).toEqual([
      { type: 'UserSignedIn', user: bob.name, address_hmac: hash, known_device: false, way: 'password', by },
      { type: 'UserSignedOut', user: bob.name, by },
      { type: 'UserSignedIn', user: bob.name, address_hmac: hash, known_device: true, way: 'password', by },
    ])
  })

  test('a wrong password names a known user, an unknown name names no user, and typed text is not stored', async () => {
    const bob = await person('viewer')
    for (const name of [bob.name, 'hunter2-typed-here'])
      expect((await openBrowser(room.host).submit('/login', { name, password: 'hunter3' })).statusCode).toBe(
        401,
      )
    await until('both are recorded', async () => (await since()).length === 2)
    expect(new Set((await since()).map(({ user, reason, count }) => ({ user, reason, count })))).toEqual(
      new Set([
        { user: bob.name, reason: 'wrong', count: 1 },
        { user: null, reason: 'wrong', count: 1 },
      ]),
    )
    expect(JSON.stringify(await since())).not.toContain('hunter')
  })

  test('a disabled user only sees that the sign-in is wrong, and the event records the reason', async () => {
    const bob = await person('viewer')
    await disable(bob)
    const answer = await openBrowser(room.host).submit('/login', bob)
    expect(answer.statusCode).toBe(401)
    expect(answer.body).toContain('The user name or the password is wrong.')
    await until('it is recorded', async () => (await since()).length === 1)
    expect(await since()).toMatchObject([
      { type: 'SignInsRefused', user: bob.name, reason: 'disabled', by: 'system' },
    ])
  })
})

test('many guesses are one event with a count', async () => {
  const own = await openDashboardHost({ beside: room })
  try {
    const { name } = await person('viewer')
    const before = (await signInEvents(room)).length
    for (let i = 0; i < 9; i++) await openBrowser(own.host).submit('/login', { name, password: 'x' })
    await own.host.close()
    expect((await signInEvents(room)).slice(before)).toMatchObject([
      { user: name, count: 1 },
      { user: name, count: 8 },
    ])
  } finally {
    await own.close()
  }
})
