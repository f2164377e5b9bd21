import type { Capability, Meters } from '../../call/capability.ts'
import type { AnyCapabilityForm, CapabilityForm } from '../../call/form.ts'
import { forgetHits, forgetPastPeriods, forgottenAtOnceMax, openPixelCounters } from './counters.ts'
import {
  decideBlocked,
  decideBlocksListed,
  decideHit,
  decideLimitRemoved,
  decideLimitSet,
  decideLimitsListed,
  decideUnblocked,
} from './decide.ts'
import { document, pixelCalls } from './document.ts'
import {
  block,
  judgeHit,
  listBlocks,
  listLimits,
  type PixelObserver,
  type PixelParts,
  remove,
  setLimit,
} from './gather.ts'
import { parseDomainOnly, parseHit, parseLimit, parsePeriod } from './parse.ts'
import { createPixelRules } from './rules.ts'

/**
 * The pixel controls (Spec §4.5, §4.6): limits on how often an organization's pixel may fire for a domain in a UTC day or month, blocks, and
 * the decision about a hit (decision 23). Rules are events; hits are counters. All calls are free.
 *
 * A hit belongs to the period in which the process received the call. If the clocks of processes differ, the boundaries between their periods
 * also differ, but every hit is counted exactly once.
 *
 * A hit is counted before its call is recorded. If the call cannot be recorded, the caller gets an error and does not fire the pixel. The hit
 * stays counted, so a limit is never exceeded. A retry with the same hit id is not counted again.
 */
export const pixel: Capability = {
  hosts: ['api'],
  document,
  open: (ports) => {
    const jobs = {
      'forget-pixel-hits': {
        purpose: 'deletes the ids of old hits',
        cron: '7 * * * *',
        run: () => forgetHits(ports.pool),
        portionMax: forgottenAtOnceMax,
      },
      'forget-pixel-periods': {
        purpose: 'deletes the counters of past periods',
        cron: '11 * * * *',
        run: () => forgetPastPeriods(ports.pool),
        portionMax: forgottenAtOnceMax,
      },
    }
    if (!ports.answersCalls) return { forms: [], jobs }
    const { eventLog, url, secrets, meters, logger } = ports
    const counters = openPixelCounters({ url, logger })
    return {
      forms: pixelForms({
        rules: createPixelRules(eventLog),
        counters,
        requestHmac: secrets.requestHmac,
        logger,
        observe: observerOf(meters),
      }),
      jobs,
      close: counters.close,
    }
  },
}

const observerOf = (meters: Meters): PixelObserver => ({
  decided: meters.words(
    { name: 'pixel_decisions_total', help: 'Decided hits, by the reason they fired or did not fire' },
    'reason',
    ['blocked', 'no_rule', 'allowed', 'limit', 'unavailable'],
  ),
  countersFailed: meters.counter({
    name: 'pixel_counting_failures_total',
    help: 'Hits that did not fire, and limits reported without usage, because counters or rules did not answer',
  }),
})

/** Lets TypeScript check that the steps of one call fit together. */
const form = <Input, Findings, Result extends object>(
  steps: Omit<CapabilityForm<Input, Findings, Result>, 'rehearse'>,
): AnyCapabilityForm => ({ ...steps, rehearse: 'own' })

/** Returns the seven calls, all on the API host and all for keys with the permission `pixel_control`. */
const pixelForms = (parts: PixelParts): AnyCapabilityForm[] => [
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
