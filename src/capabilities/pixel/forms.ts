import type { AnyCapabilityForm, CapabilityForm } from '../../call/form.ts'
import {
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
import { parseDomainOnly, parseHit, parseLimit, parsePeriod } from './parse.ts'

/** Checks that the steps of one call fit together. */
const form = <Input, Findings, Result extends object>(
  steps: Omit<CapabilityForm<Input, Findings, Result>, 'rehearse'>,
): AnyCapabilityForm => ({ ...steps, rehearse: 'own' })

/** Returns the seven calls, all on the API host and all for keys with the permission `pixel_control`. */
export const pixelForms = (parts: PixelParts): AnyCapabilityForm[] => [
  form({
    ...pixelCalls.setLimit,
    parse: parseLimit,
    gather: (input, caller) => setLimit(parts, input, caller),
    decide: decideLimitSet,
  }),
  form({
    ...pixelCalls.removeLimit,
    parse: parsePeriod,
    gather: (input, caller) => remove(parts, { kind: 'unlimit', ...input }, caller),
    decide: decideLimitRemoved,
  }),
  form({
    ...pixelCalls.listLimits,
    parse: () => ({ input: null }),
    gather: (_input, caller) => listLimits(parts, caller),
    decide: decideLimitsListed,
  }),
  form({
    ...pixelCalls.block,
    parse: parseDomainOnly,
    gather: (input, caller) => block(parts, input, caller),
    decide: decideBlocked,
  }),
  form({
    ...pixelCalls.unblock,
    parse: parseDomainOnly,
    gather: ({ domain }, caller) => remove(parts, { kind: 'unblock', domain }, caller),
    decide: decideUnblocked,
  }),
  form({
    ...pixelCalls.listBlocks,
    parse: () => ({ input: null }),
    gather: (_input, caller) => listBlocks(parts, caller),
    decide: decideBlocksListed,
  }),
  form({
    ...pixelCalls.decide,
    parse: parseHit,
    gather: (input, caller) => judgeHit(parts, input, caller),
    decide: (verdict) => {
      const decision = decideHit(verdict)
      // The reason is counted here, because only the decision contains it. The observer does not affect the decision.
      if ('result' in decision) parts.observe?.decided(decision.result.reason)
      return decision
    },
  }),
]
