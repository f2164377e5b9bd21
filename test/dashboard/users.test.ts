/** What is special about users in the dashboard: every change counts at once, and what protects the installation holds there too. */
import { Secret, TOTP } from 'otpauth'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createOrganization } from '../../src/administration/organizations/organizations.ts'
import { setSecondFactor } from '../../src/administration/users/second-factors.ts'
import { freshTotpSecret } from '../../src/administration/users/totp.ts'
import { decodeEvent } from '../../src/event-log/stored-event.ts'
import { operatorStream } from '../../src/events/streams.ts'
import type { UserRole } from '../../src/events/users.ts'
import {
  type Browser,
  type DashboardHost,
  encoded,
  give,
  hiddenIn,
  openBrowser,
  openDashboardHost,
  signedIn,
  unescaped,
  userWhoChose,
} from './dashboard-host.ts'

let room: DashboardHost
let root: Browser
let organizationId = ''
const actor = 'cli:setup'
const list = '/commands/user/list'

const person = (name: string, role: UserRole, org: string | null = null) =>
  userWhoChose(room, { name, role, organizationId: org, actor })

beforeAll(async () => {
  room = await openDashboardHost()
  root = await signedIn(room, await person('root', 'admin'))
  ;({ organizationId } = await createOrganization(room.foundation, {
    name: 'Acme',
    overdraftLimit: 0n,
    actor,
  }))
})
afterAll(() => room?.close())

const done = (verb: string, fields: Record<string, string>) => give(root, `/commands/user/${verb}`, fields)
const shownIn = (body: string): string => /<code id="secret">([^<]+)</.exec(body)?.[1] ?? ''
const rowOf = (body: string, name: string): string =>
  new RegExp(`<tr>(?:(?!</tr>).)*>${name}</th>.*?</tr>`, 's').exec(body)?.[0] ?? ''

const written = async (user: string): Promise<string[]> =>
  (await room.foundation.eventLog.read(operatorStream, { from: 0, max: 1_000 }))
    .map(decodeEvent)
    .filter(({ data, metadata }) => 'user' in data && data.user === user && metadata.actor !== actor)
    .map(({ type, metadata }) => `${metadata.actor} ${type}`)

test('lists everyone with role, organization, status and last sign-in, and leads to what can be changed', async () => {
  await signedIn(room, await person('bob', 'finance'))
  await person('pam', 'partner', organizationId)
  await room.caughtUp()
  const { body } = await root.get(list)
  expect(rowOf(body, 'bob')).toMatch(/Finance.*enabled.*<time/is)
  expect(rowOf(body, 'bob')).toContain('href="/commands/user/role?name=bob&amp;role=finance"')
  expect(rowOf(body, 'bob')).not.toContain('/commands/user/enable')
  expect(rowOf(body, 'pam')).toContain(`<a href="/organizations/${organizationId}">Acme</a>`)
  expect(rowOf(body, 'pam')).toContain(`role=partner&amp;org=${organizationId}"`)
  const form = (await root.get(`/commands/user/role?name=bob&role=finance`)).body
  expect(form).toMatch(/id="name"[^>]*value="bob"[^>]*readonly/)
  expect(form).toContain('<option value="finance" selected>')
  expect(body).toMatch(/<a href="\/commands\/user\/list" aria-current="page">Users/)
})

test('a viewer sees the users and no link to a change; finance and a partner do not see the page', async () => {
  const viewer = await signedIn(room, await person('vic', 'viewer'))
  const { statusCode, body } = await viewer.get(list)
  expect([statusCode, /\/user\/(?!list|tokens)\w/.test(body)]).toEqual([200, false])
  expect((await viewer.get('/commands/user/invite')).statusCode).toBe(403)
  for (const role of ['finance', 'partner'] as const) {
    const other = await person(`a-${role}`, role, role === 'partner' ? organizationId : null)
    expect([role, (await (await signedIn(room, other)).get(list)).statusCode]).toEqual([role, 403])
  }
})

test('another role counts at once, and what a role and an organization do not allow is refused', async () => {
  const dan = await signedIn(room, await person('dan', 'viewer'))
  const change = (role: string, org: string) => done('role', { name: 'dan', role, org })
  const wrong = await change('partner', '')
  expect(wrong.statusCode).toBe(422)
  expect(wrong.body).toContain('A partner has an organization: name it.')
  expect(wrong.body).toContain('<option value="partner" selected>')
  expect((await change('emperor', '')).statusCode).toBe(422)
  expect((await change('partner', 'org_x')).body).toContain('is not the id of an organization.')
  expect((await change('partner', organizationId)).statusCode).toBe(200)
  expect(await written('dan')).toEqual(['user:root UserRoleChanged'])
  expect((await dan.get('/')).headers.location).toBe(`/organizations/${organizationId}`)
})

test('sessions of a disabled user end at once, after the page said so', async () => {
  const eve = await signedIn(room, await person('eve', 'operations'))
  const path = '/commands/user/disable'
  const plan = await root.submit(path, { name: 'eve', reason: 'left us' })
  expect(plan.body).toContain('every session ends at once')
  expect((await eve.get('/')).statusCode).toBe(200)
  expect((await root.post(path, encoded(hiddenIn(plan.body)))).statusCode).toBe(200)
  expect((await eve.get('/')).headers.location).toBe('/login')
  const row = rowOf((await root.get(list)).body, 'eve')
  expect(row).toContain('left us')
  expect(row).toContain('/commands/user/enable?name=eve')
  expect((await done('enable', { name: 'eve', reason: 'is back' })).statusCode).toBe(200)
  expect(await written('eve')).toEqual(['user:root UserDisabled', 'user:root UserEnabled'])
})

test('the last admin is neither disabled nor given another role', async () => {
  for (const [verb, fields] of [
    ['disable', { name: 'root', reason: 'x' }],
    ['role', { name: 'root', role: 'viewer' }],
  ] as const) {
    const answer = await done(verb, fields)
    expect(answer.statusCode).toBe(422)
    expect(answer.body).toContain('Root is the only admin that is not disabled: make another one first')
  }
  expect(await written('root')).toEqual([])
})

test('a new password is shown once, and a reload of the form makes no other', async () => {
  const { name } = await person('fay', 'viewer')
  const path = '/commands/user/password'
  const body = encoded(hiddenIn((await root.submit(path, { name })).body))
  const password = shownIn((await root.post(path, body)).body)
  expect((await openBrowser(room.host).submit('/login', { name, password })).statusCode).toBe(303)
  const again = await root.post(path, body)
  expect([again.statusCode, again.body.includes(password)]).toEqual([409, false])
  expect(await written(name)).toEqual(['user:root UserPasswordChanged'])
})

test('a token is shown once, is in no list, and is revoked by its id', async () => {
  await person('tom', 'viewer')
  const token = shownIn((await done('token', { name: 'tom' })).body)
  expect(token).toMatch(/^enl_operator_/)
  const { body } = await root.get('/commands/user/tokens?name=tom')
  const href = /href="(\/commands\/user\/token\?[^"]+)"/.exec(body)?.[1] ?? ''
  expect([body.includes(token), href]).toEqual([false, expect.stringContaining('revoke=on')])
  const id = new URLSearchParams(unescaped(href).split('?')[1]).get('id') ?? ''
  const ask = (of: string) =>
    room.host.inject({ url: '/admin/v1/org/list', headers: { authorization: `Bearer ${of}` } })
  expect((await ask(token)).statusCode).toBe(200)
  expect((await done('token', { name: 'tom', revoke: 'on', id })).body).toContain(id)
  expect((await ask(token)).statusCode).toBe(401)
})

test('invites by a link that is shown once, lists the invitation, and withdraws it', async () => {
  const wrong = await done('invite', { name: 'gil', role: 'partner' })
  expect([wrong.statusCode, wrong.body.includes('value="gil"')]).toEqual([422, true])
  const link = async (): Promise<string> =>
    shownIn((await done('invite', { name: 'gil', role: 'viewer' })).body)
  const first = await link()
  expect(first).toMatch(/^http:\/\/localhost(:\d+)?\/invitations\/[\w-]{43}$/)
  const { body } = await root.get(list)
  expect(rowOf(body, 'gil')).toContain('/commands/user/invite?name=gil&amp;role=viewer"')
  expect(body).not.toContain(first)
  const second = await link()
  const opens = async (one: string) => (await openBrowser(room.host).get(new URL(one).pathname)).statusCode
  expect([await opens(first), await opens(second)]).toEqual([404, 200])
  expect((await done('invite', { name: 'gil', withdraw: 'on' })).statusCode).toBe(200)
  expect(await opens(second)).toBe(404)
  expect((await root.get(list)).body).not.toContain('gil')
})

test('a second factor is removed by a link of the list that says so', async () => {
  await person('sue', 'viewer')
  const [secret, nowMs] = [freshTotpSecret(), Date.now()]
  const typed = TOTP.generate({ secret: Secret.fromBase32(secret), timestamp: nowMs })
  await setSecondFactor(room.foundation, { user: 'sue', secret, typed, actor }, nowMs)
  expect(rowOf((await root.get(list)).body, 'sue')).toContain('/second-factor?name=sue&amp;remove=on')
  expect((await done('second-factor', { name: 'sue', reason: 'lost' })).statusCode).toBe(422)
  expect((await done('second-factor', { name: 'sue', remove: 'on', reason: 'lost' })).statusCode).toBe(200)
  expect(rowOf((await root.get(list)).body, 'sue')).not.toContain('/second-factor')
})

test.each(['a b/c?d=1&x', 'ünï "quoted" <b>', '%2e', 'x'.repeat(64), '😀'.repeat(32), 'invite'])(
  'a user named %s can be disabled from the list',
  async (name) => {
    await person(name, 'viewer')
    const { body } = await root.get(list)
    const href = `/commands/user/disable?${new URLSearchParams({ name }).toString()}`
    expect(body).toContain(`href="${href}"`)
    const form = await root.get(href)
    const typed = /id="name"[^>]*value="([^"]*)"/.exec(form.body)?.[1] ?? ''
    expect(unescaped(typed)).toBe(name)
    expect((await done('disable', { name, reason: 'gone' })).body).toContain('<h1>Done</h1>')
  },
)

test('a long list has pages', async () => {
  const { pool } = room.foundation
  await pool.query(
    `insert into users (name, password_phc, role) select 'z' || lpad(n::text, 4, '0'), 'none', 'viewer' from generate_series(1, 250) n`,
  )
  const first = (await root.get(list)).body
  const href = /href="([^"]+)">Next page/.exec(first)?.[1] ?? ''
  const second = (await root.get(href)).body
  expect([first.split('<tr').length - 2, second.split('<tr').length - 2]).toEqual([100, 100])
  expect(second).toContain('First page')
  expect((await root.get(`${list}?cursor=x`)).statusCode).toBe(422)
})
