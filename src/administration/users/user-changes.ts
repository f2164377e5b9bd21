import type { UserRole } from '../../events/users.ts'
import { CommandRefused } from '../../ledger/command.ts'
import { InputFault } from '../input.ts'
import {
  changeUsers,
  checkOrganization,
  checkRole,
  type Parts,
  refuseLastAdmin,
  userIn,
  userRows,
} from './change-users.ts'
import { noOperators, operatorsSince } from './operators.ts'
import { freshPassword, insertUser, rightsOf, setPassword, standingOf } from './users.ts'

/**
 * Changes to users and their rights (see `change-users.ts`). A change that is interrupted after the event and before the row is
 * still in effect. A new password is the exception: the old password stays valid.
 */

type NewUser = {
  readonly name: string
  readonly role: UserRole | null
  readonly organizationId: string | null
}

/**
 * Creates a user. If `role` is null, the first user becomes admin, and any other user is refused. Returns the password, which is
 * not stored. Throws `CommandRefused` if the name is taken.
 */
export const createUser = async (
  parts: Parts,
  { name, role: asked, organizationId, actor }: NewUser & { readonly actor: string },
): Promise<{ password: string; role: UserRole }> => {
  await checkOrganization(parts, organizationId)
  return changeUsers(parts, actor, (known) => {
    if (known.rows.some((row) => row.name === name))
      throw new CommandRefused(`the user "${name}" already exists; "user password" sets a new password`)
    if (asked === null && known.rows.length > 0)
      throw new InputFault('role', 'users already exist: give the role of this one')
    const role = asked ?? 'admin'
    checkRole(role, organizationId)
    const createdAt = new Date().toISOString()
    const data = { user: name, user_created_at: createdAt, role, organization_id: organizationId }
    return {
      events: [{ type: 'UserCreated', data }],
      writeRow: async (client) => {
        const password = freshPassword()
        await insertUser(client, { name, password, given: true, role, organizationId, createdAt })
        return { password, role }
      },
    }
  })
}

/** Changes a user's rights, from the next request on. */
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
    const { named } = userIn(known, name)
    checkRole(role, organizationId)
    if (role !== 'admin') refuseLastAdmin(known, name)
    const data = { ...named, role, organization_id: organizationId }
    return {
      events: [{ type: 'UserRoleChanged', data }],
      writeRow: async (client) => {
        await client.query('update users set role = $2, organization_id = $3 where name = $1', [
          name,
          role,
          organizationId,
        ])
      },
    }
  })
}

/**
 * Sets a new password and ends the user's sessions. If no password was `chosen`, returns a generated one, which the user must
 * replace. Tokens stay valid, because they are revoked separately. `mark` is the new password's mark, for a new session.
 */
export const changePassword = (
  parts: Parts,
  { name, actor, chosen }: { name: string; actor: string; chosen?: string },
): Promise<{ password: string; mark: string }> =>
  changeUsers(parts, actor, (known) => {
    const { named, standing } = userIn(known, name)
    if (standing.kind === 'refused') throw new CommandRefused(`${standing.says}; run "user enable" first`)
    return {
      events: [{ type: 'UserPasswordChanged', data: named }],
      writeRow: async (client) => {
        const password = chosen ?? freshPassword()
        return { password, ...(await setPassword(client, { name, password, given: chosen === undefined })) }
      },
    }
  })

/**
 * Disables a user, or enables a user again. Once the event is written, every process refuses the sessions and tokens of a disabled
 * user; tokens are refused permanently. Throws `CommandRefused` for the last admin.
 */
export const setDisabled = (
  parts: Parts,
  { name, disabled, reason, actor }: { name: string; disabled: boolean; reason: string; actor: string },
): Promise<void> =>
  changeUsers(parts, actor, (known) => {
    const { row, named, standing } = userIn(known, name)
    if (disabled === (standing.kind === 'refused'))
      throw new CommandRefused(disabled ? `${name} is already disabled` : `${name} is not disabled`)
    if (disabled) refuseLastAdmin(known, name)
    const { role, organizationId } = rightsOf(row, known.state.users.get(name))
    const data = { ...named, reason, role, organization_id: organizationId }
    return {
      events: [disabled ? { type: 'UserDisabled', data } : { type: 'UserEnabled', data }],
      writeRow: async (client) => {
        await client.query('update users set disabled_at = case when $2 then now() end where name = $1', [
          name,
          disabled,
        ])
      },
    }
  })

/** All users by name, with their open sessions and tokens. */
export const listUsers = async ({ pool, eventLog }: Parts) => {
  const state = await operatorsSince(eventLog, noOperators)
  const rows = await userRows(pool)
  const { rows: sessions } = await pool.query<{ name: string; open: number }>(
    'select user_name as name, count(*)::int as open from dashboard_sessions where expires_at > now() and idle_until > now() group by 1',
  )
  return rows.map((row) => {
    const logged = state.users.get(row.name)
    const standing = standingOf(row.name, row, logged)
    const live = [...state.tokens.values()].filter(
      (one) =>
        one.user === row.name && one.revoked === null && one.user_created_at === row.created_at.toISOString(),
    )
    return {
      name: row.name,
      createdAt: row.created_at,
      standing,
      logged,
      secondFactor: state.factors.get(row.name) ?? null,
      ...rightsOf(row, logged),
      sessions: standing.kind === 'acts' ? (sessions.find(({ name }) => name === row.name)?.open ?? 0) : 0,
      tokens: standing.kind === 'acts' ? live.length : 0,
    }
  })
}
