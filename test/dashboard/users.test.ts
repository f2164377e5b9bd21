/** The page of users: who there is, and every change of it, as an event with the person who made it. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createOrganization } from '../../src/administration/organizations/organizations.ts'
import { decodeEvent } from '../../src/event-log/stored-event.ts'
import { operatorStream } from '../../src/events/streams.ts'
import type { UserRole } from '../../src/events/users.ts'
import {
  type Browser,
  type DashboardHost,
  openBrowser,
  openDashboardHost,
  signedIn,
  userWhoChose,
} from './dashboard-host.ts'

let room: DashboardHost
let root: Browser
let organizationId = ''
const actor = 'cli:setup'

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

const written = async (user: string): Promise<string[]> =>
  (await room.foundation.eventLog.read(operatorStream, { from: 0, max: 1_000 }))
    .map(decodeEvent)
    .filter(({ data, metadata }) => 'user' in data && data.user === user && metadata.actor !== actor)
    .map(({ type, metadata }) => `${metadata.actor} ${type}`)

test('lists everyone with role, organization, state and last sign-in', async () => {
  const bob = await person('bob', 'finance')
  await person('pam', 'partner', organizationId)
  await signedIn(room, bob)
  await room.caughtUp()
  const { body } = await root.get('/users')
  const rowOf = (name: string): string =>
    new RegExp(`<tr>(?:(?!</tr>).)*>${name}</a>.*?</tr>`, 's').exec(body)?.[0] ?? ''
  expect(rowOf('bob')).toMatch(/finance.*enabled.*<time/s)
  expect(rowOf('pam')).toContain(`<a href="/organizations/${organizationId}">Acme</a>`)
  expect(rowOf('pam')).toContain('not known')
  const page = await root.get('/users/bob')
  expect(page.statusCode).toBe(200)
  expect(page.body).toContain('cli:setup')
})

test('a viewer sees the users and no form; finance and a partner do not see the page', async () => {
  const viewer = await signedIn(room, await person('vic', 'viewer'))
  for (const path of ['/users', '/users/root']) {
    const { statusCode, body } = await viewer.get(path)
    expect(statusCode).toBe(200)
    expect(body).not.toMatch(/\/invite|\/users\/root\/(role|password|disable)/)
  }
  expect((await viewer.get('/invite')).statusCode).toBe(403)
  const finance = await signedIn(room, await person('fin', 'finance'))
  expect((await finance.get('/users')).statusCode).toBe(403)
})

test('changes a role, as an event of the person who changed it, and counts at once', async () => {
  const dan = await signedIn(room, await person('dan', 'viewer'))
  const change = (fields: Record<string, string>) => root.submit('/users/dan', fields, '/users/dan/role')
  const wrong = await change({ role: 'partner', org: '' })
  expect(wrong.statusCode).toBe(422)
  expect(wrong.body).toContain('A partner has an organization: name it.')
  expect(wrong.body).toContain('<option value="partner" selected>')
  expect((await change({ role: 'emperor', org: '' })).statusCode).toBe(422)
  expect((await change({ role: 'partner', org: 'org_x' })).body).toContain(
    'It is not the id of an organization.',
  )
  expect((await change({ role: 'partner', org: organizationId })).statusCode).toBe(303)
  expect(await written('dan')).toEqual(['user:root UserRoleChanged'])
  expect((await dan.get('/')).headers.location).toBe(`/organizations/${organizationId}`)
})

test('disables after saying what will happen, and enables again', async () => {
  const eve = await signedIn(room, await person('eve', 'operations'))
  const ask = await root.get('/users/eve/disable')
  expect(ask.body).toContain('Every session ends at once')
  expect((await root.submit('/users/eve/disable', { reason: '' })).statusCode).toBe(422)
  expect((await eve.get('/')).statusCode).toBe(200)
  expect((await root.submit('/users/eve/disable', { reason: 'left us' })).statusCode).toBe(303)
  expect((await eve.get('/')).headers.location).toBe('/login')
  const { body } = await root.get('/users/eve')
  expect(body).toContain('left us')
  expect(body).toContain('/users/eve/enable')
  expect((await root.submit('/users/eve/enable', { reason: 'is back' })).statusCode).toBe(303)
  expect(await written('eve')).toEqual(['user:root UserDisabled', 'user:root UserEnabled'])
})

test('the last admin is neither disabled nor given another role', async () => {
  for (const [path, fields] of [
    ['/users/root/disable', { reason: 'x' }],
    ['/users/root/role', { role: 'viewer', org: '' }],
  ] as const) {
    const form = path.endsWith('role') ? '/users/root' : path
    const answer = await root.submit(form, fields, path)
    expect(answer.statusCode).toBe(422)
    expect(answer.body).toContain('Root is the only admin that is not disabled: make another one first')
  }
  expect(await written('root')).toEqual([])
})

test('gives a new password that is shown once, and a reload of the form makes no other', async () => {
  const { name } = await person('fay', 'viewer')
  const page = (await root.get(`/users/${name}/password`)).body
  const hidden = (field: string) => new RegExp(`name="${field}" value="([^"]+)"`).exec(page)?.[1] ?? ''
  const body = new URLSearchParams({ _csrf: hidden('_csrf'), once: hidden('once') }).toString()
  const shown = await root.post(`/users/${name}/password`, body)
  const password = /<code id="shown">([^<]+)</.exec(shown.body)?.[1] ?? ''
  expect((await openBrowser(room.host).submit('/login', { name, password })).statusCode).toBe(303)
  expect((await root.post(`/users/${name}/password`, body)).statusCode).toBe(409)
  expect((await openBrowser(room.host).submit('/login', { name, password })).statusCode).toBe(303)
  expect(await written(name)).toEqual(['user:root UserPasswordChanged'])
})

test('invites by a link that is shown once, lists the invitation, and withdraws it', async () => {
  const wrong = await root.submit('/invite', { name: 'gil', role: 'partner', org: '' })
  expect(wrong.statusCode).toBe(422)
  expect(wrong.body).toContain('value="gil"')
  const link = async (): Promise<string> => {
    const { body } = await root.submit('/invite', { name: 'gil', role: 'viewer', org: '' })
    return /<code id="shown">([^<]+)</.exec(body)?.[1] ?? ''
  }
  const first = await link()
  expect(first).toMatch(/^http:\/\/localhost(:\d+)?\/invitations\/[\w-]{43}$/)
  const list = (await root.get('/users')).body
  expect(list).toContain('/invite?name=gil&amp;role=viewer&amp;org=')
  expect(list).not.toContain(first)
  expect((await root.get('/invite?name=gil&role=viewer')).body).toContain('value="gil"')
  const second = await link()
  expect((await openBrowser(room.host).get(new URL(first).pathname)).statusCode).toBe(404)
  expect((await openBrowser(room.host).get(new URL(second).pathname)).statusCode).toBe(200)
  expect((await root.submit('/users', { name: 'gil' }, '/invite/withdraw')).statusCode).toBe(303)
  expect((await openBrowser(room.host).get(new URL(second).pathname)).statusCode).toBe(404)
  expect((await root.get('/users')).body).not.toContain('gil')
})

test.each(['a b/c?d=1&x', 'ünï "quoted" <b>', '%2e', 'x'.repeat(64), '😀'.repeat(32), 'invite'])(
  'a user named %s has a page',
  async (name) => {
    await person(name, 'viewer')
    const list = (await root.get('/users')).body
    const href = `/users/${encodeURIComponent(name)}`
    expect(list).toContain(`href="${href.replaceAll("'", '&#39;')}"`)
    expect((await root.get(href)).statusCode).toBe(200)
    expect((await root.submit(`${href}/disable`, { reason: 'gone' })).statusCode).toBe(303)
  },
)

test('a user that is not there has no page', async () => {
  for (const name of ['nobody', '%00', 'a'.repeat(200)])
    expect((await root.get(`/users/${name}`)).statusCode).toBe(404)
})
