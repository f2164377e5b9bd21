import { z } from 'zod'
import { permission } from './capabilities.ts'
import { instant, isInstant, keyedHmac, keyId, label, organizationId } from './primitives.ts'

/** A key's rate limits, for all its calls and for its e-mail validations (Spec §8: 10 a second, upgradeable). */
const keyLimits = z.object({
  requests_per_minute: z.int().min(1).max(100_000_000),
  requests_per_day: z.int().min(1).max(1_000_000_000),
  email_validations_per_second: z.int().min(1).max(100_000),
})
export type KeyLimits = z.infer<typeof keyLimits>

export const apiKeyIssuedV1 = z.object({
  key_id: keyId,
  organization_id: organizationId,
  organization_name: label,
  name: label,
  secret_hmac: keyedHmac,
  last4: z.string().length(4),
  permissions: z.array(permission),
  limits: keyLimits,
  allowed_cidrs: z.array(z.string().max(64)).max(100),
  expires_at: instant.nullable(),
})
export type ApiKeyIssued = z.infer<typeof apiKeyIssuedV1>

/** The key has a successor. The old key works until `grace_until`. */
export const apiKeyRotatedV1 = z.object({ key_id: keyId, successor_id: keyId, grace_until: instant })

export const apiKeyLimitsChangedV1 = z.object({ key_id: keyId, limits: keyLimits })

export const apiKeyRevokedV1 = z.object({ key_id: keyId, reason: label })

const realInstant = instant.refine(isInstant)

/**
 * The members that must be valid before these events can give access. Display texts are not checked, because an invalid
 * name does not make a key invalid.
 */
export const guardedKeyEvents = {
  ApiKeyIssued: apiKeyIssuedV1.extend({
    organization_name: z.string(),
    name: z.string(),
    last4: z.string(),
    // A permission that this release does not have gives no access.
    permissions: z.array(z.string()),
    allowed_cidrs: z.array(z.string()),
    expires_at: realInstant.nullable(),
  }),
  ApiKeyRotated: apiKeyRotatedV1.extend({ grace_until: realInstant }),
  ApiKeyLimitsChanged: apiKeyLimitsChangedV1,
  ApiKeyRevoked: z.object({ key_id: keyId }),
} as const
