import { z } from 'zod'
import { instant, label, organizationId } from './primitives.ts'

/**
 * People who operate the service: users, roles and invitations. `user_created_at` distinguishes a user from a later
 * user with the same name. Events never contain a password.
 */

const userRole = z.enum(['admin', 'finance', 'operations', 'viewer', 'partner'])
export type UserRole = z.infer<typeof userRole>

/** `organization_id` is set for a partner, and null for every other role. */
const standing = z.object({
  user: label,
  user_created_at: instant,
  role: userRole,
  organization_id: organizationId.nullable(),
})

export const userCreatedV1 = standing

export const userRoleChangedV1 = standing

/** The user has a new password. Sessions opened with the old one have ended. */
export const userPasswordChangedV1 = z.object({ user: label, user_created_at: instant })

/** The user can no longer act. Sessions and tokens have ended permanently. */
export const userDisabledV1 = standing.extend({ reason: label })

/** The user can sign in again. Tokens stay revoked. */
export const userEnabledV1 = standing.extend({ reason: label })

const invitationId = z.string().regex(/^inv_[0-9A-HJKMNP-TV-Z]{26}$/)

/**
 * Until `expires_at`, the holder of the secret with this SHA-256 (base64url) can become this user, once. A later
 * invitation for the same name replaces it.
 */
export const userInvitedV1 = z.object({
  invitation_id: invitationId,
  user: label,
  role: userRole,
  organization_id: organizationId.nullable(),
  secret_sha256: z.string().regex(/^[A-Za-z0-9_-]{43}$/),
  expires_at: instant,
})

/** The invited person chose a password. The event before this one created the user. */
export const userInvitationAcceptedV1 = z.object({
  invitation_id: invitationId,
  user: label,
  user_created_at: instant,
})

export const userInvitationWithdrawnV1 = z.object({ invitation_id: invitationId, user: label })
