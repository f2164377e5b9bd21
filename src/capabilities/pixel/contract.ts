import { z } from 'zod'
import { pixelDomain, pixelPeriod } from '../../events/pixel.ts'
import { instant } from '../../events/primitives.ts'

/** The wire format of `result` in the pixel controls (Spec §4.5, §4.6, decisions 22 and 23). */

/** `used` and `remaining` are null if the counters did not answer. */
export const pixelLimit = z.object({
  domain: pixelDomain,
  period: pixelPeriod,
  number: z.int(),
  used: z.int().min(0).nullable(),
  remaining: z.int().min(0).nullable(),
  resets_at: instant,
})
export type PixelLimit = z.infer<typeof pixelLimit>

/** `removed` is false if the limit did not exist, which is not an error. */
export const pixelLimitRemoval = z.object({
  domain: pixelDomain,
  period: pixelPeriod,
  removed: z.boolean(),
})
export type PixelLimitRemoval = z.infer<typeof pixelLimitRemoval>

export const pixelLimits = z.object({ limits: z.array(pixelLimit) })
export type PixelLimits = z.infer<typeof pixelLimits>

export const pixelBlock = z.object({ domain: pixelDomain, blocked: z.literal(true), blocked_at: instant })
export type PixelBlock = z.infer<typeof pixelBlock>

/** Removing a block does not remove a block on a parent domain. */
export const pixelBlockRemoval = z.object({
  domain: pixelDomain,
  blocked: z.literal(false),
  blocked_at: z.null(),
  removed: z.boolean(),
})
export type PixelBlockRemoval = z.infer<typeof pixelBlockRemoval>

export const pixelBlocks = z.object({ blocks: z.array(pixelBlock) })
export type PixelBlocks = z.infer<typeof pixelBlocks>

/**
 * The reason why a pixel may fire or not. `no_rule`: no rule covers the host. `allowed`: the hit was counted and is within every limit.
 * `limit`: a limit is used up, and the hit was not counted. `unavailable`: rules or counters did not answer in time.
 */
const pixelReason = z.enum(['no_rule', 'allowed', 'limit', 'blocked', 'unavailable'])

export const pixelDecision = z.object({
  fire: z.boolean(),
  reason: pixelReason,
  domain: pixelDomain.nullable(),
  /** The number of hits left under the decisive rule after this hit; null unless the rule is a limit. */
  remaining: z.int().min(0).nullable(),
  resets_at: instant.nullable(),
})
export type PixelDecision = z.infer<typeof pixelDecision>
