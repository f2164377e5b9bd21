import { type Refusal, wrongParameter } from '../../call/errors.ts'
import type { CallDecision } from '../../call/form.ts'
import type { PixelFacts } from '../../events/pixel.ts'
import type {
  PixelBlock,
  PixelBlockRemoval,
  PixelBlocks,
  PixelDecision,
  PixelLimit,
  PixelLimitRemoval,
  PixelLimits,
} from './contract.ts'
import type { HitVerdict } from './counters.ts'
import { periodEndMs } from './period.ts'
import { type LimitWindow, rulesMax } from './rules-state.ts'

/** `used` is null if the counter did not answer. */
export type CountedLimit = { readonly limit: LimitWindow; readonly used: number | null }

/** The findings, or `too_many` if the organization already has the maximum number of rules. */
export type Changed<Findings> = Findings | 'too_many'

const factsOf = (
  action: PixelFacts['action'],
  domain: string | null = null,
  fire: boolean | null = null,
): PixelFacts => ({ kind: 'pixel', action, domain, fire })

const resetsAt = ({ period, periodStart }: LimitWindow): string =>
  new Date(periodEndMs(period, periodStart)).toISOString()

const tooManyRules = (): Refusal =>
  wrongParameter(
    'domain',
    `a domain that already has a rule, because there are ${rulesMax} rules; remove one first`,
  )

const limitOf = ({ limit, used }: CountedLimit): PixelLimit => ({
  domain: limit.domain,
  period: limit.period,
  number: limit.number,
  used,
  // A new limit can be lower than the number of hits already counted.
  remaining: used === null ? null : Math.max(0, limit.number - used),
  resets_at: resetsAt(limit),
})

export const decideLimitSet = (findings: Changed<CountedLimit>): CallDecision<PixelLimit> =>
  findings === 'too_many'
    ? { refusal: tooManyRules() }
    : { result: limitOf(findings), facts: factsOf('limit_set', findings.limit.domain) }

export const decideLimitRemoved = (
  { removed }: { readonly removed: boolean },
  { domain, period }: Pick<PixelLimitRemoval, 'domain' | 'period'>,
): CallDecision<PixelLimitRemoval> => ({
  result: { domain, period, removed },
  facts: factsOf('limit_removed', domain),
})

export const decideLimitsListed = (limits: readonly CountedLimit[]): CallDecision<PixelLimits> => ({
  result: { limits: limits.map(limitOf) },
  facts: factsOf('limits_listed'),
})

export const decideBlocked = (
  findings: Changed<{ readonly blockedAt: string }>,
  { domain }: { readonly domain: string },
): CallDecision<PixelBlock> =>
  findings === 'too_many'
    ? { refusal: tooManyRules() }
    : {
        result: { domain, blocked: true, blocked_at: findings.blockedAt },
        facts: factsOf('blocked', domain),
      }

export const decideUnblocked = (
  { removed }: { readonly removed: boolean },
  { domain }: { readonly domain: string },
): CallDecision<PixelBlockRemoval> => ({
  result: { domain, blocked: false, blocked_at: null, removed },
  facts: factsOf('unblocked', domain),
})

export const decideBlocksListed = (
  blocks: readonly { readonly domain: string; readonly at: string }[],
): CallDecision<PixelBlocks> => ({
  result: {
    blocks: blocks.map(({ domain, at }) => ({ domain, blocked: true, blocked_at: at })),
  },
  facts: factsOf('blocks_listed'),
})

/** If there is no verdict about a hit, the pixel must not fire. This is not an error (decision 23). */
export const decideHit = (findings: HitVerdict | 'unavailable'): CallDecision<PixelDecision> => {
  const result = findings === 'unavailable' ? unavailable : decisionOf(findings)
  return { result, facts: factsOf('decided', result.domain, result.fire) }
}

const unavailable: PixelDecision = {
  fire: false,
  reason: 'unavailable',
  domain: null,
  remaining: null,
  resets_at: null,
}

const decisionOf = ({ rules: { blockedBy, limits }, fires, used }: HitVerdict): PixelDecision => {
  if (blockedBy !== null)
    return { fire: false, reason: 'blocked', domain: blockedBy, remaining: null, resets_at: null }
  const decisive = decisiveLimit(limits, used)
  if (decisive === null)
    return { fire: true, reason: 'no_rule', domain: null, remaining: null, resets_at: null }
  const { domain, remaining, endsMs } = decisive
  const resets_at = new Date(endsMs).toISOString()
  return { fire: fires, reason: fires ? 'allowed' : 'limit', domain, remaining, resets_at }
}

/**
 * Returns the limit with the fewest hits left. Among several such limits, the one whose period ends last counts, and then the one nearest to
 * the host.
 */
const decisiveLimit = (limits: readonly LimitWindow[], used: readonly number[]) => {
  let decisive: { domain: string; remaining: number; endsMs: number } | null = null
  for (const [i, { domain, period, periodStart, number }] of limits.entries()) {
    const remaining = Math.max(0, number - (used[i] ?? 0))
    const endsMs = periodEndMs(period, periodStart)
    if (
      decisive === null ||
      remaining < decisive.remaining ||
      (remaining === decisive.remaining && endsMs > decisive.endsMs)
    )
      decisive = { domain, remaining, endsMs }
  }
  return decisive
}
