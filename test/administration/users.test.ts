/** Users have the rights of their role. A disabled user has no rights. */
import crypto, { randomUUID } from 'node:crypto'
import { syncBuiltinESMExports } from 'node:module'
import { beforeEach, describe, expect, test, vi } from 'vitest'
import { type Action, mayDo, rolePermissions, roles } from '../../src/administration/roles.ts'
import {
  issueOperatorToken,
  operatorTokens,
  userOfToken,
} from '../../src/administration/users/operator-tokens.ts'
import { noOperators, operatorsSince } from '../../src/administration/users/operators.ts'
import {
  changePassword,
  changeRole,
  createUser,
  listUsers,
  setDisabled,
} from '../../src/administration/users/user-changes.ts'
import { openUserDirectory } from '../../src/administration/users/user-directory.ts'
import { insertUser, passwordIsRight } from '../../src/administration/users/users.ts'
import { requirePermission } from '../../src/cli/host.ts'
import { appendChained } from '../../src/event-log/append-chained.ts'
import type { EventLog } from '../../src/event-log/port.ts'
import { encodeEvent } from '../../src/event-log/stored-event.ts'
import { createSecrets } from '../../src/guard/secrets/secrets.ts'
import { commands } from '../cli/commands.ts'
import { createMemoryEventLog, type MemoryEventLog } from '../support/memory-event-log.ts'
import { databaseForFile } from '../support/postgres.ts'

let memory: MemoryEventLog
let eventLog: EventLog
const secrets = createSecrets('a secret of at least thirty-two characters')
const parts = () => ({ pool, eventLog, secrets })
const actor = 'cli:setup'
const org = 'org_01J8ZQ5V7N3K2M4P6R8T0W1X2Y'

const { pool } = await databaseForFile({ max: 8 })
beforeEach(async () => {
  memory = createMemoryEventLog()
  eventLog = memory.client('one')
  await pool.query('delete from users')
  await eventLog.append(`ledger-${org}`, 'none', [
    encodeEvent(
      { type: 'OrganizationRegistered', data: { organization_id: org, name: 'Acme', overdraft_limit: '0' } },
      { id: '3f0c8f2e-1d5b-5c0e-9a51-0a6f0b7f3f10', actor, effectiveAt: new Date().toISOString() },
    ),
  ])
})

const make = (
  name: string,
  role: (typeof roles)[number] | null = 'admin',
  organizationId: string | null = null,
) => createUser(parts(), { name, role, organizationId, actor })
const disable = (name: string, by = parts()) =>
  setDisabled(by, { name, disabled: true, reason: 'left', actor: 'user:ada' })
const enable = (name: string) => setDisabled(parts(), { name, disabled: false, reason: 'back', actor })
const role = (name: string, to: (typeof roles)[number], by = parts()) =>
  changeRole(by, { name, role: to, organizationId: null, actor })
const standing = (name: string) => openUserDirectory(parts()).standing(name)
const operations = () =>
  memory.eventsOf('operator').map(({ type, data }) => ({ type, data: JSON.parse(data) }))
/** A session as the dashboard stores it. */
const openSession = (name: string) =>
  pool.query(
    `insert into dashboard_sessions (id_hash, user_name, expires_at) values (sha256(gen_random_uuid()::text::bytea), $1, now() + interval '1 h')`,
    [name],
  )
const sessions = async (): Promise<number> =>
  (await pool.query('select from dashboard_sessions')).rowCount ?? 0

describe('a user', () => {
  test('is disabled although others record acts in the operators’ stream all the time', async () => {
    await make('ada')
    await make('bob', 'viewer')
    let acts = 0
    const append: EventLog['append'] = async (...asked) => {
      if (acts++ < 20) {
        const id = randomUUID()
        const data = { backup_id: id, position: '1', bytes: 1, sha256: '0'.repeat(64) }
        const act = encodeEvent(
          { type: 'BackupCreated', data },
          { id, actor, effectiveAt: new Date().toISOString() },
        )
        await appendChained(eventLog, 'operator', operations().length - 1, [act])
      }
      return eventLog.append(...asked)
    }
    await disable('bob', { ...parts(), eventLog: { ...eventLog, append } })
    expect(await standing('bob')).toMatchObject({ kind: 'refused', why: 'disabled' })
  })

  test('is not copied for every request, however many users there are', async () => {
    await make('ada')
    const known = await operatorsSince(eventLog, noOperators)
    const again = await operatorsSince(eventLog, known)
    for (const part of ['users', 'tokens', 'invitations', 'factors'] as const)
      expect(again[part]).toBe(known[part])
    await make('bob', 'viewer')
    expect([...(await operatorsSince(eventLog, known)).users.keys()]).toEqual(['ada', 'bob'])
    expect([...known.users.keys()]).toEqual(['ada'])
  })

  test('the first user is always an admin; all others need a role', async () => {
    expect(await make('ada', null)).toMatchObject({ role: 'admin' })
    await expect(make('bob', null)).rejects.toThrow('users already exist: give the role of this one')
    await make('bob', 'viewer')
    expect((await listUsers(parts())).map((one) => [one.name, one.role])).toEqual([
      ['ada', 'admin'],
      ['bob', 'viewer'],
    ])
  })

  test('keeps name and password when it is one of more than ten thousand', async () => {
    const { password } = await make('zoe')
    await pool.query(
      `insert into users (name, password_phc, role) select 'u' || n, '', 'viewer' from generate_series(1, 10000) n`,
    )
    await expect(make('zoe', 'admin')).rejects.toThrow('the user "zoe" already exists')
    expect(await passwordIsRight(pool, { name: 'zoe', password })).toBe(true)
    expect(await standing('zoe')).toMatchObject({ kind: 'acts' })
  })

  test('signs in with the generated password, which is not in the event', async () => {
    const { password } = await make('ada')
    expect(await passwordIsRight(pool, { name: 'ada', password })).toBe(true)
    const [created] = operations()
    expect(created).toMatchObject({
      type: 'UserCreated',
      data: { user: 'ada', role: 'admin', organization_id: null },
    })
    expect(JSON.stringify(operations())).not.toContain(password)
  })

  test('has a password stored as argon2id with 19 MiB and two passes', async () => {
    const hashing = vi.spyOn(crypto, 'argon2')
    syncBuiltinESMExports()
    await make('ada')
    expect(hashing.mock.lastCall).toMatchObject([
      'argon2id',
      { memory: 19_456, passes: 2, parallelism: 1, tagLength: 32 },
      expect.any(Function),
    ])
    hashing.mockRestore()
    syncBuiltinESMExports()
    const { rows } = await pool.query<{ phc: string }>('select password_phc as phc from users')
    expect(rows).toEqual([{ phc: expect.stringMatching(/^\$argon2id\$v=19\$m=19456,t=2,p=1\$/) }])
  })

  test('is not made twice, even by concurrent requests', async () => {
    const made = await Promise.allSettled([make('ada'), make('ada'), make('ada')])
    expect(made.filter(({ status }) => status === 'fulfilled')).toHaveLength(1)
    expect(operations()).toHaveLength(1)
    expect(await standing('ada')).toMatchObject({ kind: 'acts', role: 'admin' })
  })

  test('with the role partner has one existing organization; no other role has one', async () => {
    await make('ada')
    await make('pam', 'partner', org)
    expect(await standing('pam')).toEqual({
      kind: 'acts',
      user: 'pam',
      role: 'partner',
      organizationId: org,
      passwordGiven: true,
    })
    await expect(make('pat', 'partner')).rejects.toThrow('a partner needs an organization: give its id')
    await expect(make('pat', 'viewer', org)).rejects.toThrow('only a partner has an organization')
    await expect(make('pat', 'partner', org.replace('0W1X', '0W1Z'))).rejects.toThrow(
      'there is no organization',
    )
    await expect(make('pat', 'partner', org.replace('org_', 'org_test_'))).rejects.toThrow(
      'is a test organization',
    )
  })

  test('gets a new password, and sessions with the old one end', async () => {
    const { password: old } = await make('ada')
    await openSession('ada')
    const { password } = await changePassword(parts(), { name: 'ada', actor })
    expect(await passwordIsRight(pool, { name: 'ada', password: old })).toBe(false)
    expect(await passwordIsRight(pool, { name: 'ada', password })).toBe(true)
    expect(await sessions()).toBe(0)
    await expect(changePassword(parts(), { name: 'bob', actor })).rejects.toThrow('there is no user "bob"')
  })

  test('whose change was interrupted before the row was written has the state of the event', async () => {
    await make('ada')
    await make('bob', 'admin')
    await disable('bob')
    await pool.query(`update users set disabled_at = null where name = 'bob'`)
    expect(await standing('bob')).toMatchObject({ kind: 'refused', why: 'disabled' })
    await pool.query(`update users set role = 'viewer' where name = 'ada'`)
    expect(await standing('ada')).toMatchObject({ role: 'admin' })
  })
})

describe('a disabled user', () => {
  test('no longer has sessions and tokens, and never gets the old ones back', async () => {
    await make('ada')
    await make('bob', 'finance')
    await openSession('bob')
    const { token } = await issueOperatorToken(parts(), { user: 'bob', actor })
    expect(await userOfToken(parts(), token)).toEqual({ user: 'bob', role: 'finance' })
    await disable('bob')
    expect(await sessions()).toBe(0)
    await expect(userOfToken(parts(), token)).rejects.toThrow(/of bob was revoked at .* by user:ada/)
    await expect(issueOperatorToken(parts(), { user: 'bob', actor })).rejects.toThrow('was disabled at')
    await expect(changePassword(parts(), { name: 'bob', actor })).rejects.toThrow('run "user enable" first')
    await enable('bob')
    expect(await standing('bob')).toMatchObject({ kind: 'acts', role: 'finance' })
    await expect(userOfToken(parts(), token)).rejects.toThrow('was revoked')
    expect(await operatorTokens(parts())).toMatchObject([{ user: 'bob', revoked: { by: 'user:ada' } }])
  })

  test('is also disabled in a process that had read the user before', async () => {
    await make('ada')
    await make('bob', 'finance')
    const other = openUserDirectory({ ...parts(), eventLog: memory.client('two') })
    expect(await other.standing('bob')).toMatchObject({ kind: 'acts' })
    await disable('bob')
    expect(await other.standing('bob')).toMatchObject({ kind: 'refused', why: 'disabled' })
    await enable('bob')
    await role('bob', 'viewer')
    expect(await other.standing('bob')).toMatchObject({ kind: 'acts', role: 'viewer' })
  })

  test('is disabled by the row alone, and by the event log alone', async () => {
    await make('ada')
    await make('bob', 'finance')
    const { token } = await issueOperatorToken(parts(), { user: 'bob', actor })
    await pool.query(`update users set disabled_at = now() where name = 'bob'`)
    expect(await standing('bob')).toMatchObject({ kind: 'refused', why: 'disabled' })
    await expect(userOfToken(parts(), token)).rejects.toThrow(
      'the user bob is disabled in the table of users',
    )
  })

  test('cannot return if someone deletes and inserts the row', async () => {
    await make('ada')
    await make('bob', 'finance')
    await disable('bob')
    await pool.query(`delete from users where name = 'bob'`)
    expect(await standing('bob')).toMatchObject({ kind: 'refused', why: 'missing' })
    await insertUser(pool, {
      name: 'bob',
      password: 'x',
      role: 'admin',
      createdAt: '2026-01-01T00:00:00.000Z',
    })
    expect(await standing('bob')).toMatchObject({ kind: 'refused', why: 'another' })
    await expect(enable('bob')).rejects.toThrow('is not the user in the event log')
  })

  test('cannot do anything while the event log is down', async () => {
    await make('ada')
    const away = memory.client('away', { onRead: () => 'unavailable' })
    await expect(openUserDirectory({ ...parts(), eventLog: away }).standing('ada')).rejects.toThrow()
  })
})

describe('the last admin', () => {
  test('cannot be disabled and cannot get another role', async () => {
    await make('ada')
    await make('bob', 'finance')
    const alone = 'ada is the only active admin'
    await expect(disable('ada')).rejects.toThrow(alone)
    await expect(role('ada', 'viewer')).rejects.toThrow(alone)
    await role('bob', 'admin')
    await role('ada', 'viewer')
    await expect(disable('bob')).rejects.toThrow('bob is the only active admin')
  })

  test('a disabled admin does not count as another admin', async () => {
    await make('ada')
    await make('bob')
    await disable('bob')
    await expect(disable('ada')).rejects.toThrow('only active admin')
  })

  test('remains if two processes each disable the other of two admins', async () => {
    await make('ada')
    await make('bob')
    const [one, two] = [memory.client('one'), memory.client('two')]
    const done = await Promise.allSettled([
      disable('ada', { ...parts(), eventLog: one }),
      disable('bob', { ...parts(), eventLog: two }),
    ])
    expect(done.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected'])
    const left = [await standing('ada'), await standing('bob')].filter(({ kind }) => kind === 'acts')
    expect(left).toHaveLength(1)
  })

  test('is protected by the event log even if the database lock was lost', async () => {
    await make('ada')
    await make('bob')
    // Between this process's read and append, another process, which does not use the lock, disables the last other admin.
    let meanwhile: (() => Promise<unknown>) | undefined = async () => {
      meanwhile = undefined
      const known = memory.eventsOf('operator').find(({ data }) => data.includes('"bob"'))
      const { user_created_at } = JSON.parse(known?.data ?? '{}')
      const [id, at] = ['3f0c8f2e-1d5b-5c0e-9a51-0a6f0b7f3f11', new Date().toISOString()]
      const data = {
        user: 'bob',
        user_created_at,
        role: 'admin',
        organization_id: null,
        reason: 'left',
      } as const
      await eventLog.append('operator', memory.eventsOf('operator').length - 1, [
        encodeEvent({ type: 'UserDisabled', data }, { id, actor, effectiveAt: at }),
      ])
    }
    const slow = memory.client('slow', {
      onAppend: async () => {
        await meanwhile?.()
        return undefined
      },
    })
    await expect(disable('ada', { ...parts(), eventLog: slow })).rejects.toThrow(
      'ada is the only active admin',
    )
    expect(await standing('ada')).toMatchObject({ kind: 'acts' })
  })
})

describe('a user whose row is not in the event log', () => {
  test('is in the event log after the first change', async () => {
    for (const name of ['ada', 'bob']) await insertUser(pool, { name, password: 'x', role: 'admin' })
    expect(await standing('ada')).toMatchObject({ kind: 'acts', role: 'admin' })
    await disable('bob')
    expect(await standing('bob')).toMatchObject({ kind: 'refused', why: 'disabled' })
    await role('ada', 'admin')
    await pool.query(`update users set role = 'viewer' where name = 'ada'`)
    expect(await standing('ada')).toMatchObject({ role: 'admin' })
  })
})

describe('the actions of each role', () => {
  const actions = Object.keys(rolePermissions).sort() as Action[]

  test('are one table: admins do everything, viewers change nothing, and partners have only their own actions', () => {
    expect(actions.length).toBeGreaterThan(15)
    expect(actions.filter((action) => !mayDo('admin', action))).toEqual([])
    expect(actions.filter((action) => mayDo('viewer', action) && !/\.(read|export)$/.test(action))).toEqual(
      [],
    )
    expect(actions.filter((action) => mayDo('partner', action))).toEqual([
      'accounts.read',
      'calls.find',
      'keys.change',
      'ledgers.export',
      'pixel.change',
      'webhooks.change',
    ])
    expect(roles.filter((one) => mayDo(one, 'users.change'))).toEqual(['admin'])
    expect(roles.filter((one) => mayDo(one, 'credits.change'))).toEqual(['admin', 'finance'])
    expect(roles.filter((one) => mayDo(one, 'projections.change'))).toEqual(['admin', 'operations'])
  })

  test('a command that changes something has no read action', () => {
    const changing = commands.filter(({ changes }) => changes !== 'nothing')
    expect(changing.length).toBeGreaterThan(20)
    expect(changing.filter(({ action }) => action.endsWith('.read')).map(({ name }) => name)).toEqual([])
  })

  test('a command is refused to a person whose role lacks its action; without a token, it is allowed', () => {
    const command = { name: 'credits grant', action: 'credits.change' } as const
    const may = (role: (typeof roles)[number] | null) =>
      requirePermission({ actor: 'user:vic', role }, command)
    expect(() => may('viewer')).toThrow(
      'vic has the role viewer, but "credits grant" requires admin or finance',
    )
    expect(() => may('finance')).not.toThrow()
    expect(() => may(null)).not.toThrow()
  })
})
