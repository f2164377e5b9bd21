import { z } from 'zod'
import { organizationId } from './primitives.ts'

/** A calendar day or month in UTC (decision 22). */
export const pixelPeriod = z.enum(['day', 'month'])
export type PixelPeriod = z.infer<typeof pixelPeriod>

/** A domain in ASCII, lower case, without a trailing dot. A rule for a domain also applies to its subdomains. */
export const pixelDomain = z.string().min(3).max(253)

/** The facts of a call to the pixel controls. These calls are free (decision 11). */
export const pixelFacts = z.object({
  kind: z.literal('pixel'),
  action: z.enum([
    'limit_set',
    'limit_removed',
    'limits_listed',
    'blocked',
    'unblocked',
    'blocks_listed',
    'decided',
  ]),
  /** Null if the call does not concern a single domain. */
  domain: pixelDomain.nullable(),
  /** Whether the pixel may fire; null unless the call is a decision. */
  fire: z.boolean().nullable(),
})
export type PixelFacts = z.infer<typeof pixelFacts>

export const pixelLimitSetV1 = z.object({
  organization_id: organizationId,
  domain: pixelDomain,
  period: pixelPeriod,
  number: z.int().min(1).max(1_000_000_000),
})

export const pixelLimitRemovedV1 = z.object({
  organization_id: organizationId,
  domain: pixelDomain,
  period: pixelPeriod,
})

export const pixelBlockedV1 = z.object({ organization_id: organizationId, domain: pixelDomain })

export const pixelUnblockedV1 = z.object({ organization_id: organizationId, domain: pixelDomain })
