import type pg from 'pg'
import { chainedTo, lastOf } from '../event-log/append-chained.ts'
import { appendUntilKnown } from '../event-log/append-until-known.ts'
import { eventIdOf } from '../event-log/event-id.ts'
import { AppendConflict, type EventLog } from '../event-log/port.ts'
import { encodeEvent } from '../event-log/stored-event.ts'
import type { DomainEventOf } from '../events/catalogue.ts'
import { ledgerStream, operatorStream } from '../events/streams.ts'
import { isTestOrganization } from '../events/test-organization.ts'
import type { UserRole } from '../events/users.ts'
import type { Foundation } from '../foundation/foundation.ts'
import { CommandRefused } from '../ledger/command.ts'
import { InputFault } from './input.ts'
import { type LoggedUser, noOperators, type OperatorState, operatorsSince } from './operators.ts'
import { freshPassword, putUser, type Standing, standingOf, type UserRow } from './users.ts'

/**
 * Changes of who there is and what each may do. The event comes first and is what counts; the row follows in the same
 * transaction, under a lock that all processes share. A change that is cut off between the two has happened, but for a new
 * password, which is then still the old one.
 */

type Parts = Pick<Foundation, 'pool' | 'eventLog'>

type UserEvent = DomainEventOf<
  'UserCreated' | 'UserRoleChanged' | 'UserPasswordChanged' | 'UserDisabled' | 'UserEnabled'
>

/** Any number that no other lock has. */
const usersLock = 7_105_003
const lockWaitMs = 10_000
const conflictsMax = 8
const usersMax = 10_000

/** All there are, by name. */
const userRows = async (client: Pick<pg.Pool, 'query'>): Promise<UserRow[]> => {
  const { rows } = await client.query<UserRow>(
    'select name, created_at, role, organization_id, disabled_at from users order by name limit $1',
    [usersMax],
  )
  return rows
}

type Known = { readonly rows: readonly UserRow[]; readonly state: OperatorState }

/**
 * Does one change at a time. `decide` is asked again where another process wrote in between; what it throws refuses the change.
 * `writeRow` writes the rows.
 */
const changeUsers = async <Done>(
  { pool, eventLog }: Parts,
  actor: string,
  decide: (known: Known) => {
    readonly event: UserEvent
    readonly writeRow: (client: pg.PoolClient) => Promise<Done>
  },
): Promise<Done> => {
  const client = await pool.connect()
  try {
    await client.query('begin')
    await client.query(`select set_config('lock_timeout', $1, true)`, [`${lockWaitMs}ms`])
    await client.query('select pg_advisory_xact_lock($1)', [usersLock])
    const rows = await userRows(client)
    const writeRow = await appendDecided(eventLog, actor, (state) => decide({ rows, state }))
    const done = await writeRow(client)
    await client.query('commit')
    return done
  } catch (error) {
    await client.query('rollback').catch(() => undefined)
    throw error
  } finally {
    client.release()
  }
}

/** At exactly the revision that was decided on: a lock in the database may be lost, and the log is what counts. */
const appendDecided = async <WriteRow>(
  eventLog: EventLog,
  actor: string,
  decide: (state: OperatorState) => { readonly event: UserEvent; readonly writeRow: WriteRow },
): Promise<WriteRow> => {
  let state = noOperators
  for (let conflicts = 0; ; conflicts++) {
    state = await operatorsSince(eventLog, state)
    const last = await lastOf(eventLog, operatorStream)
    const { event, writeRow } = decide(state)
    const revision = last?.revision ?? -1
    if (revision !== state.events - 1) {
      if (conflicts >= conflictsMax) throw new AppendConflict(operatorStream, state.events - 1, revision)
      continue
    }
    const effectiveAt = new Date().toISOString()
    const once = `user/${event.data.user}/${event.type}/${state.events}`
    const encoded = encodeEvent(event, { id: eventIdOf(operatorStream, once, 0), actor, effectiveAt })
    try {
      const chained = chainedTo(last, operatorStream, [encoded])
      await appendUntilKnown(eventLog, operatorStream, last?.revision ?? 'none', chained)
      return writeRow
    } catch (error) {
      if (!(error instanceof AppendConflict) || conflicts >= conflictsMax) throw error
    }
  }
}

const standingIn = ({ rows, state }: Known, name: string): Standing =>
  standingOf(name, rows.find((row) => row.name === name) ?? null, state.users.get(name))

/** The user's row, whether enabled or not. Throws `CommandRefused` where there is none, or another than the log knows. */
const userIn = (known: Known, name: string): { row: UserRow; standing: Standing } => {
  const row = known.rows.find((one) => one.name === name)
  const standing = standingIn(known, name)
  if (row === undefined || (standing.kind === 'refused' && standing.why === 'another'))
    throw new CommandRefused(standing.kind === 'refused' ? standing.says : `there is no user "${name}"`)
  return { row, standing }
}

/** Throws `CommandRefused` where no one would be left who can give and take roles. */
const refuseLastAdmin = (known: Known, name: string): void => {
  const isAdmin = (user: string): boolean => {
    const standing = standingIn(known, user)
    return standing.kind === 'acts' && standing.role === 'admin'
  }
  if (isAdmin(name) && !known.rows.some((row) => row.name !== name && isAdmin(row.name)))
    throw new CommandRefused(
      `${name} is the only admin that is not disabled: make another one first, or no one could give roles`,
    )
}

/** Throws `InputFault`: a partner has one organization that there is, and no one else has any. */
const checkOrganization = async ({ eventLog }: Parts, organizationId: string | null): Promise<void> => {
  if (organizationId === null) return
  if (isTestOrganization(organizationId))
    throw new InputFault('org', "a partner's test organization comes with the organization itself: name that")
  if ((await lastOf(eventLog, ledgerStream(organizationId))) === null)
    throw new InputFault('org', `there is no organization ${organizationId}; see "org list"`)
}

const checkRole = (role: UserRole, organizationId: string | null): void => {
  if (role === 'partner' && organizationId === null)
    throw new InputFault('org', 'a partner has an organization: name it')
  if (role !== 'partner' && organizationId !== null)
    throw new InputFault('org', `only a partner has an organization; ${role} has all`)
}

type NewUser = {
  readonly name: string
  readonly role: UserRole | null
  readonly organizationId: string | null
}

/**
 * Makes a user. `role` null: admin for the first of all, and refused for any other. Returns the password, which is kept nowhere.
 * Throws `CommandRefused` for a name that is taken.
 */
export const createUser = async (
  parts: Parts,
  { name, role: asked, organizationId, actor }: NewUser & { readonly actor: string },
): Promise<{ password: string; role: UserRole }> => {
  await checkOrganization(parts, organizationId)
  return changeUsers(parts, actor, (known) => {
    if (known.rows.some((row) => row.name === name))
      throw new CommandRefused(`there is a user "${name}" already; "user password" gives a new password`)
    if (asked === null && known.rows.length > 0)
      throw new InputFault('role', 'there are users already: say what this one may do')
    const role = asked ?? 'admin'
    checkRole(role, organizationId)
    const createdAt = new Date().toISOString()
    const data = { user: name, user_created_at: createdAt, role, organization_id: organizationId }
    return {
      event: { type: 'UserCreated', data },
      writeRow: async (client) => {
        const password = freshPassword()
        await putUser(client, { name, password, role, organizationId, createdAt })
        return { password, role }
      },
    }
  })
}

/** What a user may do from now on, at the next thing it asks for. */
export const changeRole = async (
  parts: Parts,
  {
    name,
    role,
    organizationId,
    actor,
  }: { name: string; role: UserRole; organizationId: string | null; actor: string },
): Promise<void> => {
  await checkOrganization(parts, organizationId)
  await changeUsers(parts, actor, (known) => {
    const { row } = userIn(known, name)
    checkRole(role, organizationId)
    if (role !== 'admin') refuseLastAdmin(known, name)
    const data = {
      ...{ user: name, user_created_at: row.created_at.toISOString() },
      ...{ role, organization_id: organizationId },
    }
    return {
      event: { type: 'UserRoleChanged', data },
      writeRow: async (client) => {
        await client.query('update users set role = $2, organization_id = $3 where name = $1', [
          ...[name, role, organizationId],
        ])
      },
    }
  })
}

/**
 * A new password, the person's own choice or a fresh one, which is kept nowhere; sessions of the old one end. Tokens go on: they are
 * revoked by themselves.
 */
export const changePassword = (
  parts: Parts,
  { name, actor, chosen }: { name: string; actor: string; chosen?: string },
): Promise<{ password: string }> =>
  changeUsers(parts, actor, (known) => {
    const { row, standing } = userIn(known, name)
    if (standing.kind === 'refused') throw new CommandRefused(`${standing.says}; "user enable" comes first`)
    const data = { user: name, user_created_at: row.created_at.toISOString() }
    return {
      event: { type: 'UserPasswordChanged', data },
      writeRow: async (client) => {
        const password = chosen ?? freshPassword()
        await putUser(client, { name, password })
        return { password }
      },
    }
  })

/**
 * Ends a user, or takes it up again. Disabled: sessions and tokens are refused from the event on, in every process, and tokens
 * for good. Throws `CommandRefused` for the last admin.
 */
export const setDisabled = (
  parts: Parts,
  { name, disabled, reason, actor }: { name: string; disabled: boolean; reason: string; actor: string },
): Promise<void> =>
  changeUsers(parts, actor, (known) => {
    const { row, standing } = userIn(known, name)
    if (disabled === (standing.kind === 'refused'))
      throw new CommandRefused(disabled ? `${name} is disabled already` : `${name} is not disabled`)
    if (disabled) refuseLastAdmin(known, name)
    const logged = known.state.users.get(name)
    const data = {
      ...{ user: name, user_created_at: row.created_at.toISOString(), reason },
      role: logged?.role ?? row.role,
      organization_id: logged === undefined ? row.organization_id : logged.organizationId,
    }
    return {
      event: disabled ? { type: 'UserDisabled', data } : { type: 'UserEnabled', data },
      writeRow: async (client) => {
        await client.query('update users set disabled_at = case when $2 then now() end where name = $1', [
          ...[name, disabled],
        ])
      },
    }
  })

type ListedUser = {
  readonly name: string
  readonly createdAt: Date
  readonly standing: Standing
  readonly role: UserRole
  readonly organizationId: string | null
  readonly logged: LoggedUser | undefined
  readonly sessions: number
  readonly tokens: number
}

/** Everyone, by name, with what is open in their name. */
export const listUsers = async ({ pool, eventLog }: Parts): Promise<ListedUser[]> => {
  const state = await operatorsSince(eventLog, noOperators)
  const rows = await userRows(pool)
  const { rows: sessions } = await pool.query<{ name: string; open: number }>(
    'select user_name as name, count(*)::int as open from dashboard_sessions where expires_at > now() group by 1',
  )
  return rows.map((row) => {
    const logged = state.users.get(row.name)
    const standing = standingOf(row.name, row, logged)
    const live = [...state.tokens.values()].filter(
      (one) =>
        one.user === row.name && one.revoked === null && one.user_created_at === row.created_at.toISOString(),
    )
    return {
      ...{ name: row.name, createdAt: row.created_at, standing, logged },
      role: logged?.role ?? row.role,
      organizationId: logged === undefined ? row.organization_id : logged.organizationId,
      sessions: standing.kind === 'acts' ? (sessions.find(({ name }) => name === row.name)?.open ?? 0) : 0,
      tokens: standing.kind === 'acts' ? live.length : 0,
    }
  })
}
