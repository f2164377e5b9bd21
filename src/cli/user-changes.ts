import { InputFault, labelOf } from '../administration/input.ts'
import { roles } from '../administration/roles.ts'
import { listInvitations } from '../administration/users/invitations.ts'
import {
  changePassword,
  changeRole,
  createUser,
  listUsers,
  setDisabled,
} from '../administration/users/user-changes.ts'
import { organizationId } from '../events/primitives.ts'
import { type UserRole, userRole } from '../events/users.ts'
import { type Command, type Given, type Parameter, wholeOrNot } from './command.ts'
import { table } from './table.ts'

/** Commands that list, create, change and disable users. */

export const nameMax = 64
export const nameParameter: Parameter = { name: 'name', help: 'such as ada', required: true }

export const roleNames = roles.join(', ')
export const orgParameter: Parameter = {
  name: 'org',
  help: 'of a partner: its organization, such as org_01J…',
}
const reasonParameter: Parameter = { name: 'reason', help: 'kept in the event log', required: true }

export const nameOf = (given: Given): string => labelOf('name', given.required('name'), nameMax)

export const roleOf = (text: string): UserRole => {
  const role = userRole.safeParse(text)
  if (!role.success) throw new InputFault('role', `"${text}" is no role; there are ${roleNames}`)
  return role.data
}

export const orgOf = (given: Given): string | null => {
  const text = given.text('org')
  if (text === undefined) return null
  if (!organizationId.safeParse(text).success)
    throw new InputFault('org', `"${text}" is not the id of an organization`)
  return text
}

const create: Command = {
  name: 'user create',
  summary: 'create a user of dashboard and command line; the password is shown once, here',
  parameters: [
    nameParameter,
    { name: 'role', help: `${roleNames}; the first user of all is admin without it` },
    orgParameter,
  ],
  changes: {
    of: 'access',
    asks: 'never',
    left: 'The user may have a password that no one has seen: "user password" gives another one.',
    plan: async (_, given) => {
      const role = given.text('role')
      return {
        says: [
          `Create the dashboard user ${nameOf(given)}${role === undefined ? '' : ` as ${roleOf(role)}`}, with a password.`,
        ],
      }
    },
  },
  run: async ({ foundation }, given) => {
    const [name, role] = [nameOf(given), given.text('role')]
    const organization = orgOf(given)
    const open = await foundation()
    const made = await createUser(open, {
      name,
      role: role === undefined ? null : roleOf(role),
      organizationId: organization,
      actor: open.operator.actor,
    })
    return {
      json: { user: name, password: made.password, role: made.role, organization_id: organization },
    }
  },
}

const list: Command = {
  name: 'user list',
  summary:
    'who there is, with role, second factor, open sessions and tokens, who is disabled and who is invited',
  parameters: [],
  changes: 'nothing',
  run: async ({ foundation }) => {
    const open = await foundation()
    const listed = (await listUsers(open)).map(
      ({
        name,
        role,
        organizationId: organization,
        standing,
        createdAt,
        logged,
        secondFactor,
        sessions,
        tokens,
      }) => ({
        user: name,
        role,
        organization_id: organization,
        state: standing.kind === 'acts' ? 'enabled' : standing.why,
        created_at: createdAt.toISOString(),
        created_by: logged?.createdBy ?? null,
        second_factor: secondFactor !== null,
        sessions,
        tokens,
        disabled_by: logged?.disabled?.by ?? null,
        reason: logged?.disabled?.reason ?? null,
      }),
    )
    const all = [...listed, ...(await listInvitations(open)).map(invited)]
    return { json: all, lines: all.length === 0 ? ['there are no users'] : table(all) }
  },
}

const invited = (one: Awaited<ReturnType<typeof listInvitations>>[number]) => ({
  user: one.user,
  role: one.role,
  organization_id: one.organizationId,
  state: one.expired ? 'invited, and the link has expired' : 'invited',
  created_at: one.invitedAt,
  created_by: one.invitedBy,
  sessions: 0,
  tokens: 0,
  disabled_by: null,
  reason: null,
})

const role: Command = {
  name: 'user role',
  summary: 'what a user may do from now on; a session that is open has it at its next page',
  parameters: [nameParameter, { name: 'role', help: roleNames, required: true }, orgParameter],
  changes: {
    of: 'access',
    asks: 'on a terminal',
    left: wholeOrNot('user list'),
    plan: async (_, given) => ({
      says: [`Make ${nameOf(given)} ${roleOf(given.required('role'))}.`],
    }),
  },
  run: async ({ foundation }, given) => {
    const [name, wanted, organization] = [nameOf(given), roleOf(given.required('role')), orgOf(given)]
    const open = await foundation()
    await changeRole(open, {
      name,
      role: wanted,
      organizationId: organization,
      actor: open.operator.actor,
    })
    return {
      json: { user: name, role: wanted, organization_id: organization },
      lines: [`${name} is ${wanted} now`],
    }
  },
}

const password: Command = {
  name: 'user password',
  summary: 'give a user a new password, shown once, here; sessions that are open end',
  parameters: [nameParameter],
  changes: {
    of: 'access',
    asks: 'always',
    left: 'The user may have a password that no one has seen: "user password" again gives another one.',
    plan: async (_, given) => ({
      says: [`Give ${nameOf(given)} a new password: the one of now ends. Open sessions end with it.`],
    }),
  },
  run: async ({ foundation }, given) => {
    const name = nameOf(given)
    const open = await foundation()
    const changed = await changePassword(open, { name, actor: open.operator.actor })
    return { json: { user: name, password: changed.password } }
  },
}

const disable: Command = {
  name: 'user disable',
  summary: 'end a user: sessions and tokens are refused from now on, in every process',
  parameters: [nameParameter, reasonParameter],
  changes: {
    of: 'access',
    asks: 'always',
    left: wholeOrNot('user list'),
    plan: async (_, given) => ({
      says: [`Disable ${nameOf(given)}: every session ends, and every token for good.`],
    }),
  },
  run: async ({ foundation }, given) => {
    const [name, reason] = [nameOf(given), labelOf('reason', given.required('reason'))]
    const open = await foundation()
    await setDisabled(open, { name, reason, disabled: true, actor: open.operator.actor })
    return { json: { user: name, state: 'disabled', reason }, lines: [`${name} is disabled`] }
  },
}

const enable: Command = {
  name: 'user enable',
  summary: 'let a user that was disabled sign in again; tokens of before stay revoked',
  parameters: [nameParameter, reasonParameter],
  changes: {
    of: 'access',
    asks: 'on a terminal',
    left: wholeOrNot('user list'),
    plan: async (_, given) => ({ says: [`Let ${nameOf(given)} sign in again.`] }),
  },
  run: async ({ foundation }, given) => {
    const [name, reason] = [nameOf(given), labelOf('reason', given.required('reason'))]
    const open = await foundation()
    await setDisabled(open, { name, reason, disabled: false, actor: open.operator.actor })
    return { json: { user: name, state: 'enabled', reason }, lines: [`${name} is enabled`] }
  },
}

export const userChangeCommands: readonly Command[] = [create, list, role, password, disable, enable]
