import type { AnyCapabilityForm, CapabilityForm } from '../../call/form.ts'
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
import {
  type Changed,
  type CountedLimit,
  decideBlocked,
  decideBlocksListed,
  decideHit,
  decideLimitRemoved,
  decideLimitSet,
  decideLimitsListed,
  decideUnblocked,
} from './decide.ts'
import { pixelCalls } from './document.ts'
import { block, judgeHit, listBlocks, listLimits, type PixelParts, remove, setLimit } from './gather.ts'
import {
  type DomainInput,
  type HitInput,
  type LimitInput,
  type PeriodInput,
  parseDomainOnly,
  parseHit,
  parseLimit,
  parsePeriod,
} from './parse.ts'

/** Returns the seven calls, all on the API host and all for keys with the permission `pixel_control`. */
export const pixelForms = (parts: PixelParts): AnyCapabilityForm[] => [
  limitSet(parts),
  limitRemoved(parts),
  limitsListed(parts),
  blocked(parts),
  unblocked(parts),
  blocksListed(parts),
  decided(parts),
]

const limitSet = (parts: PixelParts): CapabilityForm<LimitInput, Changed<CountedLimit>, PixelLimit> => ({
  ...pixelCalls.setLimit,
  parse: parseLimit,
  rehearse: 'own',
  gather: (input, caller) => setLimit(parts, input, caller),
  decide: decideLimitSet,
})

const limitRemoved = (
  parts: PixelParts,
): CapabilityForm<PeriodInput, { removed: boolean }, PixelLimitRemoval> => ({
  ...pixelCalls.removeLimit,
  parse: parsePeriod,
  rehearse: 'own',
  gather: (input, caller) => remove(parts, { kind: 'unlimit', ...input }, caller),
  decide: decideLimitRemoved,
})

const limitsListed = (parts: PixelParts): CapabilityForm<null, readonly CountedLimit[], PixelLimits> => ({
  ...pixelCalls.listLimits,
  parse: () => ({ input: null }),
  rehearse: 'own',
  gather: (_input, caller) => listLimits(parts, caller),
  decide: decideLimitsListed,
})

const blocked = (
  parts: PixelParts,
): CapabilityForm<DomainInput, Changed<{ blockedAt: string }>, PixelBlock> => ({
  ...pixelCalls.block,
  parse: parseDomainOnly,
  rehearse: 'own',
  gather: (input, caller) => block(parts, input, caller),
  decide: decideBlocked,
})

const unblocked = (
  parts: PixelParts,
): CapabilityForm<DomainInput, { removed: boolean }, PixelBlockRemoval> => ({
  ...pixelCalls.unblock,
  parse: parseDomainOnly,
  rehearse: 'own',
  gather: ({ domain }, caller) => remove(parts, { kind: 'unblock', domain }, caller),
  decide: decideUnblocked,
})

const blocksListed = (
  parts: PixelParts,
): CapabilityForm<null, readonly { readonly domain: string; readonly at: string }[], PixelBlocks> => ({
  ...pixelCalls.listBlocks,
  parse: () => ({ input: null }),
  rehearse: 'own',
  gather: (_input, caller) => listBlocks(parts, caller),
  decide: decideBlocksListed,
})

const decided = (parts: PixelParts): CapabilityForm<HitInput, HitVerdict | 'unavailable', PixelDecision> => ({
  ...pixelCalls.decide,
  parse: parseHit,
  rehearse: 'own',
  gather: (input, caller) => judgeHit(parts, input, caller),
  decide: (verdict) => {
    const decision = decideHit(verdict)
    // The reason is counted here, because only the decision contains it. The observer does not affect the decision.
    if ('result' in decision) parts.observe?.decided(decision.result.reason)
    return decision
  },
})
