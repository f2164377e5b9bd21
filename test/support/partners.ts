/** Organizations with credits and a key, created with the functions behind the command line. */
import { grant } from '../../src/administration/credits/credits.ts'
import { defaultKeyLimits, issueKey } from '../../src/administration/keys/api-keys.ts'
import { createOrganization } from '../../src/administration/organizations/organizations.ts'
import { parseCredits } from '../../src/billing/money.ts'
import type { Permission } from '../../src/events/capabilities.ts'
import type { KeyLimits } from '../../src/events/keys.ts'
import type { Foundation } from '../../src/foundation/foundation.ts'

export type Partner = { readonly organizationId: string; readonly keyId: string; readonly apiKey: string }

export type PartnerOptions = {
  /** The key's name. */
  readonly name?: string
  readonly credits?: string
  readonly overdraft?: string
  readonly permissions?: readonly Permission[]
  readonly limits?: Partial<KeyLimits>
  readonly allowedCidrs?: readonly string[]
  readonly expiresAt?: string | null
}

/** Limits that no test or benchmark reaches. */
export const unlimited = { requests_per_minute: 100_000_000, requests_per_day: 1_000_000_000 }

/** An organization without credits and keys. Returns its id. */
export const openOrganization = async (
  foundation: Foundation,
  name = 'Partner',
  overdraft = '0',
): Promise<string> => {
  const overdraftLimit = parseCredits(overdraft)
  return (await createOrganization(foundation, { name, overdraftLimit, actor: 'cli' })).organizationId
}

/** Grants credits that never expire. */
export const grantTo = (foundation: Foundation, organizationId: string, credits: string, reason = 'bought') =>
  grant(foundation, {
    organizationId,
    amount: parseCredits(credits),
    priority: 100,
    expiresAt: null,
    reason,
    actor: 'cli',
  })

export const openPartner = async (
  foundation: Foundation,
  { credits = '1000', overdraft = '0', ...options }: PartnerOptions = {},
): Promise<Partner> => {
  const organizationId = await openOrganization(foundation, 'Partner', overdraft)
  if (credits !== '0') await grantTo(foundation, organizationId, credits)
  return anotherKey(foundation, organizationId, options)
}

/** Issues another key to the organization. */
export const anotherKey = async (
  foundation: Foundation,
  organizationId: string,
  {
    name = 'a key',
    permissions = ['ip_lookup'],
    limits = {},
    allowedCidrs = [],
    expiresAt = null,
  }: PartnerOptions = {},
): Promise<Partner> => {
  const { apiKey, keyId } = await issueKey(foundation, {
    organizationId,
    name,
    permissions,
    limits: { ...defaultKeyLimits, ...limits },
    allowedCidrs,
    expiresAt,
    actor: 'cli',
  })
  return { organizationId, keyId, apiKey }
}
