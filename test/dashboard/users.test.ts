import { afterAll, beforeAll, expect, test } from 'vitest'
import { createOrganization } from '../../src/administration/organizations/organizations.ts'
import type { UserRole } from '../../src/events/users.ts'
import {
  type Browser,
  type DashboardHost,
  give,
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
const rowOf = (body: string, name: string): string =>
  new RegExp(`<tr>(?:(?!</tr>).)*>${name}</th>.*?</tr>`, 's').exec(body)?.[0] ?? ''

test('lists everyone with role, organization, status and last sign-in, and links to the possible changes', async () => {
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

test.each(['a b/c?d=1&x', 'ünï "quoted" <b>', 'invite'])(
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
