import { z } from 'zod'
import { type Context, command } from '../declare.ts'
import { choice, flag, id, newUser, partnerOrganization, reason, user } from '../fields.ts'
import { InputFault } from '../input.ts'
import { roles } from '../roles.ts'
import { invitationHours, invitationLink, inviteUser, withdrawInvitation } from './invitations.ts'
import { issueOperatorToken, operatorTokens, revokeOperatorTokens } from './operator-tokens.ts'
import { removeSecondFactor } from './second-factors.ts'
import { changePassword, changeRole, createUser, setDisabled } from './user-changes.ts'

/** Commands that create, invite, change and disable users. Passwords, links and tokens are only in the answer and are not stored. */

const role = (help: string) =>
  choice(
    {
      label: 'Role',
      help: `${help}; finance changes credits, prices and months, operations changes keys, projections and data, viewer only reads, partner uses one organization, admin does everything`,
    },
    roles,
  )

const userReason = () => reason({ help: 'kept in the event log with your name' })

const create = command({
  name: 'user create',
  action: 'users.change',
  summary: 'create a user with a password, which is shown once',
  input: z.object({
    name: newUser(),
    role: role('rights of the user (the first user is an admin by default)').optional(),
    organization: partnerOrganization().optional(),
  }),
  secret: 'password',
  changes: { of: 'access', asks: 'never' },
  plan: async (_, { name, role }) =>
    `Create the dashboard user ${name}${role === undefined ? '' : ` as ${role}`}, with a password.`,
  run: async ({ foundation, operator }, { name, role: asked = null, organization = null }) => {
    const wanted = { name, role: asked, organizationId: organization, actor: operator.actor }
    const { password, role } = await createUser(foundation, wanted)
    return { json: { user: name, password, role, organization_id: organization } }
  },
})

const invite = command({
  name: 'user invite',
  action: 'users.change',
  summary: `invite a person; the link is shown once, and can be used once within ${invitationHours} hours`,
  input: z.object({
    name: newUser(),
    role: role('rights of the user (required unless the link is withdrawn)').optional(),
    organization: partnerOrganization().optional(),
    withdraw: flag({ label: 'Withdraw', help: 'invalidate the link for this name' }),
  }),
  secret: 'link',
  changes: { of: 'access', asks: 'never' },
  plan: async (_, { name, role, withdraw }) =>
    withdraw
      ? `Withdraw the invitation of ${name}.`
      : `Invite ${name} as ${roleGiven(role)}, replacing an earlier link for that name.`,
  run: async (
    { foundation, operator: { actor }, dashboardUrl },
    { name, role, organization = null, withdraw },
  ) => {
    if (withdraw) {
      await withdrawInvitation(foundation, { name, actor })
      return { json: { user: name, state: 'withdrawn' } }
    }
    const invited = { name, role: roleGiven(role), organizationId: organization, actor }
    const made = await inviteUser(foundation, invited)
    return {
      json: {
        user: name,
        role: invited.role,
        organization_id: organization,
        link: invitationLink(await dashboardUrl(), made.secret),
        expires_at: made.expiresAt,
        replaced: made.replaced,
      },
    }
  },
})

const roleGiven = <Role>(role: Role | undefined): Role => {
  if (role === undefined) throw new InputFault('role', `a role is required: ${roles.join(', ')}`)
  return role
}

const changeOfRole = command({
  name: 'user role',
  action: 'users.change',
  summary: 'change the role of a user, from the next request on',
  input: z.object({
    name: user(),
    role: role('rights of the user'),
    organization: partnerOrganization().optional(),
  }),
  changes: { of: 'access', asks: 'on a terminal' },
  plan: async (_, { name, role }) => [
    `Make ${name} ${role}.`,
    ...(role === 'admin' ? [] : [`The links of open invitations made by ${name} will stop working.`]),
  ],
  run: async ({ foundation, operator }, { name, role, organization = null }) => {
    await changeRole(foundation, { name, role, organizationId: organization, actor: operator.actor })
    return { json: { user: name, role, organization_id: organization } }
  },
})

const password = command({
  name: 'user password',
  action: 'users.change',
  summary: 'set a new password for a user, which is shown once',
  input: z.object({ name: user() }),
  secret: 'password',
  changes: { of: 'access', asks: 'always' },
  plan: async (_, { name }) => [
    `Set a new password for ${name}. The current password stops working, and every open session ends.`,
    'Tokens for the command line stay valid.',
  ],
  run: async ({ foundation, operator }, { name }) => {
    const changed = await changePassword(foundation, { name, actor: operator.actor })
    return { json: { user: name, password: changed.password } }
  },
})

/** The commands that disable and enable a user. */
const disabling = (disabled: boolean) =>
  command({
    name: disabled ? 'user disable' : 'user enable',
    action: 'users.change',
    summary: disabled
      ? 'disable a user: sessions and tokens end immediately'
      : 'let a disabled user sign in again',
    input: z.object({ name: user(), reason: userReason() }),
    changes: { of: 'access', asks: disabled ? 'always' : 'on a terminal' },
    plan: async (_, { name }) =>
      disabled
        ? [
            `Disable ${name}: every session ends immediately, and every token is revoked permanently.`,
            `The links of open invitations made by ${name} will stop working.`,
          ]
        : [
            `Let ${name} sign in again, with the same password and role as before.`,
            'Previously revoked tokens stay revoked.',
          ],
    run: async ({ foundation, operator }, { name, reason }) => {
      await setDisabled(foundation, { name, reason, disabled, actor: operator.actor })
      return { json: { user: name, state: disabled ? 'disabled' : 'enabled', reason } }
    },
  })

/** Users set up their own second factor in the dashboard. An operator can remove it if the user's device is lost. */
const secondFactor = command({
  name: 'user second-factor',
  action: 'users.change',
  summary: 'remove the second factor of a user whose device is lost',
  input: z.object({
    name: user(),
    remove: flag({ label: 'Remove it', help: 'required; users set up a second factor themselves' }),
    reason: userReason(),
  }),
  changes: { of: 'access', asks: 'always' },
  plan: async (_, { name, remove }) => {
    refuseUnlessRemoved(remove)
    return [
      `Remove the second factor of ${name}: the password alone then opens the dashboard, and the recovery codes stop working.`,
      'Verify the identity of the person who asks for this: afterwards, anyone who knows the password can sign in.',
    ]
  },
  run: async ({ foundation, operator }, { name, remove, reason }) => {
    refuseUnlessRemoved(remove)
    await removeSecondFactor(foundation, { user: name, reason, actor: operator.actor })
    return { json: { user: name, second_factor: false, reason } }
  },
})

const refuseUnlessRemoved = (remove: boolean): void => {
  if (!remove)
    throw new InputFault('remove', 'this flag is required; users set up a second factor in the dashboard')
}

const tokenOf = z.object({
  name: user(),
  revoke: flag({
    label: 'Revoke',
    help: 'revoke all tokens of the user, or one of them, instead of creating one',
  }),
  id: id(
    { label: 'Token', help: 'to revoke only this token, as in "user tokens"' },
    /^[0-9A-Za-z]{16}$/,
    'l1WO9Eavc8p3Riys',
  ).optional(),
})

/** Throws `InputFault` if a token's id is given without `revoke`, because a new token would be issued instead. */
const refuseIdAlone = ({ revoke, id }: z.output<typeof tokenOf>): void => {
  if (id !== undefined && !revoke)
    throw new InputFault('revoke', `set this flag to revoke the token ${id}; a new token has no id yet`)
}

const token = command({
  name: 'user token',
  action: 'users.change',
  summary: 'create or revoke tokens for the command line and the admin API; a new token is shown once',
  input: tokenOf,
  secret: 'token',
  changes: { of: 'access', asks: 'never' },
  plan: async (context, input) => {
    refuseIdAlone(input)
    const { name, revoke, id } = input
    if (!revoke) return `Create a token with which ${name} can use the command line and the admin API.`
    const ended = await tokensThatWork(context, { name, id })
    return {
      says: [
        ended.length === 0
          ? `There is nothing to revoke: ${name} has no such valid token.`
          : `Revoke these tokens of ${name}: ${ended.join(', ')}.`,
      ],
      asks: 'always',
    }
  },
  run: async ({ foundation, operator: { actor } }, input) => {
    refuseIdAlone(input)
    const { name, revoke, id } = input
    if (revoke) {
      const revoked = await revokeOperatorTokens(foundation, { user: name, tokenId: id, actor })
      return { json: { user: name, revoked } }
    }
    const issued = await issueOperatorToken(foundation, { user: name, actor })
    return { json: { user: name, token_id: issued.tokenId, token: issued.token } }
  },
})

const tokensThatWork = async (
  { foundation }: Context,
  { name, id }: { name: string; id: string | undefined },
): Promise<string[]> =>
  (await operatorTokens(foundation))
    .filter((one) => one.user === name && one.revoked === null && (id === undefined || one.tokenId === id))
    .map(({ tokenId }) => tokenId)

export const declarations = [
  create,
  invite,
  changeOfRole,
  password,
  disabling(true),
  disabling(false),
  secondFactor,
  token,
]
