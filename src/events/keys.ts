import { z } from 'zod'
import { permission } from './capabilities.ts'
import { instant, keyedHmac, keyId, label, organizationId } from './primitives.ts'

/** Rate limits of one key. Null calls per second: no such window. */
export const keyLimits = z.object({
  requests_per_minute: z.int().min(1).max(100_000_000),
  requests_per_day: z.int().min(1).max(1_000_000_000),
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

/** The key has a successor; it keeps working until `grace_until`. */
export const apiKeyRotatedV1 = z.object({ key_id: keyId, successor_id: keyId, grace_until: instant })
export type ApiKeyRotated = z.infer<typeof apiKeyRotatedV1>

export const apiKeyLimitsChangedV1 = z.object({ key_id: keyId, limits: keyLimits })
export type ApiKeyLimitsChanged = z.infer<typeof apiKeyLimitsChangedV1>

export const apiKeyRevokedV1 = z.object({ key_id: keyId, reason: label })
export type ApiKeyRevoked = z.infer<typeof apiKeyRevokedV1>
