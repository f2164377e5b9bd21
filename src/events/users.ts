import { z } from 'zod'
import { instant, label, organizationId } from './primitives.ts'

/**
 * People who operate the service: who there is, what each may do, and who may no more, and who is invited. `user_created_at` tells a user from a
 * later one of the same name. Passwords are in no event.
 */

export const userRole = z.enum(['admin', 'finance', 'operations', 'viewer', 'partner'])
export type UserRole = z.infer<typeof userRole>

/** `organization_id` is a partner's, and null for every other role. */
const standing = z.object({
  user: label,
  user_created_at: instant,
  role: userRole,
  organization_id: organizationId.nullable(),
})

export const userCreatedV1 = standing

export const userRoleChangedV1 = standing

/** The user has a new password; sessions opened with the old one ended. */
export const userPasswordChangedV1 = z.object({ user: label, user_created_at: instant })

/** The user acts no more from now on: sessions and tokens ended, for good. */
export const userDisabledV1 = standing.extend({ reason: label })

/** The user may sign in again, and has no token. */
export const userEnabledV1 = standing.extend({ reason: label })

const invitationId = z.string().regex(/^inv_[0-9A-HJKMNP-TV-Z]{26}$/)

/**
 * Whoever has the secret of this SHA-256 (base64url) may become this user until `expires_at`, once. A later invitation of the same
 * name takes its place.
 */
export const userInvitedV1 = z.object({
  invitation_id: invitationId,
  user: label,
  role: userRole,
  organization_id: organizationId.nullable(),
  secret_sha256: z.string().regex(/^[A-Za-z0-9_-]{43}$/),
  expires_at: instant,
})

/** The person invited chose a password, and is the user that the event before it created. */
export const userInvitationAcceptedV1 = z.object({
  invitation_id: invitationId,
  user: label,
  user_created_at: instant,
})

export const userInvitationWithdrawnV1 = z.object({ invitation_id: invitationId, user: label })
