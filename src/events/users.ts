import { z } from 'zod'
import { instant, label, organizationId } from './primitives.ts'

/**
 * Users of the dashboard and the command line: roles, passwords and invitations. `user_created_at` distinguishes a user
 * from a later user with the same name. Events never contain a password.
 */

const userRole = z.enum(['admin', 'finance', 'operations', 'viewer', 'partner'])
export type UserRole = z.infer<typeof userRole>

/** `organization_id` is set for the role `partner`, and null for other roles. */
const standing = z.object({
  user: label,
  user_created_at: instant,
  role: userRole,
  organization_id: organizationId.nullable(),
})

export const userCreatedV1 = standing

export const userRoleChangedV1 = standing

/** The user has a new password. Sessions that were opened with the old one have ended. */
export const userPasswordChangedV1 = z.object({ user: label, user_created_at: instant })

/** The user can no longer sign in or use commands. Open sessions and tokens are revoked permanently. */
export const userDisabledV1 = standing.extend({ reason: label })

/** The user can sign in again. Previously revoked tokens stay revoked. */
export const userEnabledV1 = standing.extend({ reason: label })

const invitationId = z.string().regex(/^inv_[0-9A-HJKMNP-TV-Z]{26}$/)

/**
 * Until `expires_at`, the secret with this SHA-256 (base64url) can be used once to become this user. A later invitation
 * for the same name replaces this one.
 */
export const userInvitedV1 = z.object({
  invitation_id: invitationId,
  user: label,
  role: userRole,
  organization_id: organizationId.nullable(),
  secret_sha256: z.string().regex(/^[A-Za-z0-9_-]{43}$/),
  expires_at: instant,
})

/** The invited person chose a password. The previous event created the user. */
export const userInvitationAcceptedV1 = z.object({
  invitation_id: invitationId,
  user: label,
  user_created_at: instant,
})

export const userInvitationWithdrawnV1 = z.object({ invitation_id: invitationId, user: label })
