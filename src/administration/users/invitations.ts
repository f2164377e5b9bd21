import { createHash, randomBytes } from 'node:crypto'
import { ulid } from 'ulid'
import type { UserRole } from '../../events/users.ts'
import { CommandRefused } from '../../ledger/command.ts'
import { provedOperator } from '../operator.ts'
import { changeUsers, checkOrganization, checkRole, type Known, type Parts } from './change-users.ts'
import { type LoggedInvitation, noOperators, operatorsSince } from './operators.ts'
import { insertUser } from './users.ts'

/**
 * An invitation is a link that makes its holder a user, once, within 72 hours. The person chooses the password, so no one else
 * knows it. Invitations are stored only in the event log, with a hash of the secret. The secret itself is shown once.
 */

export const invitationHours = 72
const hourMs = 60 * 60 * 1_000
/** 256 bits cannot be guessed, so a plain hash is enough. */
const secretBytes = 32
const secretPattern = /^[A-Za-z0-9_-]{43}$/

const sha256Of = (secret: string): string => createHash('sha256').update(secret).digest('base64url')

/** The page of an invitation. `dashboardUrl` has no trailing slash. */
export const invitationLink = (dashboardUrl: string, secret: string): string =>
  `${dashboardUrl}/invitations/${secret}`

/**
 * Invites a person, and replaces an earlier invitation for the same name. Returns the secret, which is not stored. Throws
 * `CommandRefused` if the name is taken, and `InputFault` if the organization does not exist.
 */
export const inviteUser = async (
  parts: Parts,
  invited: { name: string; role: UserRole; organizationId: string | null; actor: string },
): Promise<{ secret: string; expiresAt: string; replaced: boolean }> => {
  const { name, role, organizationId, actor } = invited
  await checkOrganization(parts, organizationId)
  checkRole(role, organizationId)
  const secret = randomBytes(secretBytes).toString('base64url')
  return changeUsers(parts, actor, ({ rows, state }) => {
    if (rows.some((row) => row.name === name))
      throw new CommandRefused(`the user "${name}" already exists; "user password" sets a new password`)
    const expiresAt = new Date(Date.now() + invitationHours * hourMs).toISOString()
    const data = {
      invitation_id: `inv_${ulid()}`,
      user: name,
      role,
      organization_id: organizationId,
      secret_sha256: sha256Of(secret),
      expires_at: expiresAt,
    }
    const replaced = state.invitations.has(name)
    return {
      events: [{ type: 'UserInvited', data }],
      writeRow: async () => ({ secret, expiresAt, replaced }),
    }
  })
}

/** Makes the link invalid. Throws `CommandRefused` if there is no invitation for this name. */
export const withdrawInvitation = (
  parts: Parts,
  { name, actor }: { name: string; actor: string },
): Promise<void> =>
  changeUsers(parts, actor, ({ state }) => {
    const invitation = state.invitations.get(name)
    if (invitation === undefined) throw new CommandRefused(`there is no invitation for "${name}"`)
    const data = { user: name, invitation_id: invitation.invitationId }
    return { events: [{ type: 'UserInvitationWithdrawn', data }], writeRow: async () => undefined }
  })

type Invitation = LoggedInvitation & { readonly expired: boolean }

const withExpiry = (invitation: LoggedInvitation, nowMs: number): Invitation => ({
  ...invitation,
  expired: Date.parse(invitation.expiresAt) <= nowMs,
})

/** Invitations that were neither accepted nor withdrawn, by name, including expired ones. */
export const listInvitations = async ({ eventLog }: Pick<Parts, 'eventLog'>): Promise<Invitation[]> => {
  const { invitations } = await operatorsSince(eventLog, noOperators)
  return [...invitations.values()]
    .map((one) => withExpiry(one, Date.now()))
    .sort((a, b) => (a.user < b.user ? -1 : 1))
}

/** The invitation of a link; null for every invalid link, so that the answer does not reveal why a link is invalid. */
const invitationIn = ({ rows, state }: Pick<Known, 'rows' | 'state'>, secret: string): Invitation | null => {
  if (!secretPattern.test(secret)) return null
  const hash = sha256Of(secret)
  const found = [...state.invitations.values()].find(({ secretSha256 }) => secretSha256 === hash)
  if (found === undefined || rows.some(({ name }) => name === found.user)) return null
  const invitation = withExpiry(found, Date.now())
  return invitation.expired ? null : invitation
}

/** The invitation of a link that can be accepted now; null for any other text. The link can still be used afterwards. */
export const openInvitations = ({
  eventLog,
}: Pick<Parts, 'eventLog'>): ((secret: string) => Promise<Invitation | null>) => {
  let known = noOperators
  return async (secret) => {
    if (!secretPattern.test(secret)) return null
    const state = await operatorsSince(eventLog, known)
    if (state.events > known.events) known = state
    return invitationIn({ rows: [], state }, secret)
  }
}

export class InvitationEnded extends Error {
  override name = 'InvitationEnded'
}

/**
 * Creates the user with the password that the person chose. If a link is used twice at the same time, only one attempt succeeds.
 * Throws `InvitationEnded` if the link cannot be accepted.
 */
export const acceptInvitation = async (
  parts: Parts,
  { secret, password }: { secret: string; password: string },
): Promise<{ user: string }> => {
  const first = await openInvitations(parts)(secret)
  if (first === null) throw new InvitationEnded()
  return changeUsers(parts, provedOperator(first.user).actor, (known) => {
    const invitation = invitationIn(known, secret)
    if (invitation === null) throw new InvitationEnded()
    const { user: name, role, organizationId, invitationId, invitedBy } = invitation
    const createdAt = new Date().toISOString()
    const standing = { user: name, user_created_at: createdAt, role, organization_id: organizationId }
    return {
      events: [
        // The inviter gave the person these rights. The person only accepted them.
        { type: 'UserCreated', data: standing, by: invitedBy },
        {
          type: 'UserInvitationAccepted',
          data: { invitation_id: invitationId, user: name, user_created_at: createdAt },
        },
      ],
      writeRow: async (client) => {
        await insertUser(client, { name, password, role, organizationId, createdAt })
        return { user: name }
      },
    }
  })
}
