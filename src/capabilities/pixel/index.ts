import { type Capability, type Meters, usualJobSecondsMax } from '../../call/capability.ts'
import { forgetHits, forgetPastPeriods, forgottenAtOnceMax, openPixelCounters } from './counters.ts'
import { document } from './document.ts'
import { pixelForms } from './forms.ts'
import type { PixelObserver } from './gather.ts'
import { createPixelRules } from './rules.ts'

/**
 * The pixel controls (Spec §4.5, §4.6): how often an organization's pixel may fire for a domain in a UTC day or month, where it
 * may not fire at all, and the decision about a hit (decision 23). Rules are events; hits are counters. All calls are free.
 *
 * A hit belongs to the period in which the process received the call. If the processes' clocks differ, so do the boundaries between
 * their periods, but every hit is counted exactly once.
 *
 * A hit is counted before its call is recorded. If recording fails, the caller gets an error and fires nothing, but the hit stays
 * counted, so a limit is never exceeded. A retry with the same hit id is not counted again.
 */
export const pixel: Capability = {
  hosts: ['api'],
  document,
  open: (ports) => {
    const jobs = {
      'forget-pixel-hits': {
        cron: '7 * * * *',
        expireSeconds: usualJobSecondsMax,
        run: () => forgetHits(ports.pool),
        portionMax: forgottenAtOnceMax,
      },
      'forget-pixel-periods': {
        cron: '11 * * * *',
        expireSeconds: usualJobSecondsMax,
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
