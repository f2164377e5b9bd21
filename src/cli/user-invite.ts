import {
  invitationHours,
  invitationLink,
  inviteUser,
  withdrawInvitation,
} from '../administration/users/invitations.ts'
import { addressesNow } from '../start/addresses.ts'
import type { Command } from './command.ts'
import { nameOf, nameParameter, orgOf, orgParameter, roleNames, roleOf } from './user-changes.ts'

/** Commands for invitations: a link with which a person becomes a user and chooses the password. */
export const inviteCommand: Command = {
  name: 'user invite',
  summary: `a link by which a person becomes a user and chooses the password, once, within ${invitationHours} hours; shown once, here`,
  parameters: [
    nameParameter,
    { name: 'role', help: `${roleNames}; needed unless it is withdrawn` },
    orgParameter,
    { name: 'withdraw', help: 'the link opens nothing from now on', kind: 'flag' },
  ],
  changes: {
    of: 'access',
    asks: 'never',
    left: 'A link may have been made that no one has seen: "user list" says so, and another "user invite" takes its place.',
    plan: async (_, given) => ({
      says: [
        given.flag('withdraw')
          ? `Withdraw the invitation of ${nameOf(given)}.`
          : `Invite ${nameOf(given)} as ${roleOf(given.required('role'))}, in place of an earlier link of that name.`,
      ],
    }),
  },
  run: async ({ foundation, config }, given) => {
    const name = nameOf(given)
    if (given.flag('withdraw')) {
      const open = await foundation()
      await withdrawInvitation(open, { name, actor: open.operator.actor })
      return { json: { user: name, state: 'withdrawn' }, lines: [`${name} is not invited any more`] }
    }
    const [role, organizationId] = [roleOf(given.required('role')), orgOf(given)]
    const open = await foundation()
    const made = await inviteUser(open, { name, role, organizationId, actor: open.operator.actor })
    const link = invitationLink(
      config.DASHBOARD_URL ?? (await addressesNow(config)).dashboardUrl,
      made.secret,
    )
    return {
      json: {
        user: name,
        role,
        organization_id: organizationId,
        link,
        expires_at: made.expiresAt,
        replaced: made.replaced,
      },
      lines: [
        link,
        `It makes its holder the user ${name}, ${role}: once, and until ${made.expiresAt}. It is not shown again.`,
        ...(made.replaced ? ['The link that was made before opens nothing any more.'] : []),
        ...(config.DASHBOARD_URL === undefined
          ? [
              'Its address is the one the dashboard has on this machine; DASHBOARD_URL names the one that people open.',
            ]
          : []),
      ],
    }
  },
}
