import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from '@prometheus-io/client'
import client from '@prometheus-io/client/package.json' with { type: 'json' }
import type { MicroCredits } from '../billing/money.ts'
import type { Meters, Sample } from '../call/capability.ts'
import type { CallObserver } from '../call/dependencies.ts'
import { type CallOutcome, callOutcome, rateLimitExceededV1 } from '../events/calls.ts'
import { type Capability, capability } from '../events/capabilities.ts'
import type { AuthenticationFailure } from '../guard/authenticate.ts'
import type { RatePolicy } from '../guard/limits/rate-limit.ts'
import type { RateLimiterObserver } from '../guard/limits/redis-rate-limiter.ts'
import type { LedgerObserver } from '../ledger/write/options.ts'

/**
 * Creates the metrics of one process. Values that every call changes are plain numbers, which become metrics only when they are read. An
 * increment in the library builds a text key, and three increments take longer than the rest of a call's admission.
 */
export const createMeters = (registry: Registry): Meters => {
  const registers = [registry]
  const total: Meters['total'] = ({ name, help, labels = [] }, read) => {
    new Counter({
      name: `enrichment_${name}`,
      help,
      labelNames: labels,
      registers,
      collect() {
        this.reset()
        const samples = read()
        if (samples.length === 0 && labels.length === 0) this.remove()
        for (const { labels: of = {}, value } of samples) this.inc(of, value)
      },
    })
  }
  return {
    total,
    words: (meter, label, words) => {
      const counts = new Map<string, number>(words.map((word) => [word, 0]))
      total({ ...meter, labels: [label] }, () =>
        [...counts].map(([word, value]): Sample => ({ labels: { [label]: word }, value })),
      )
      return (word) => void counts.set(word, (counts.get(word) ?? 0) + 1)
    },
    counter: (meter) => {
      let value = 0
      total(meter, () => [{ value }])
      return () => {
        value++
      }
    },
    histogram: ({ name, help, labels = [], buckets }) => {
      const histogram = new Histogram({
        name: `enrichment_${name}`,
        help,
        labelNames: labels,
        buckets: [...buckets],
        registers,
      })
      return (value, of = {}) => histogram.observe(of, value)
    },
    gauge: ({ name, help, labels = [] }, read) => {
      new Gauge({
        name: `enrichment_${name}`,
        help,
        labelNames: labels,
        registers,
        async collect() {
          // A figure that cannot be read is left out. Otherwise, Prometheus would get no metrics at all.
          const samples = await Promise.try(read).catch(() => [])
          this.reset()
          if (samples.length === 0 && labels.length === 0) this.remove()
          for (const { labels: of = {}, value } of samples) this.set(of, value)
        },
      })
    },
  }
}

/**
 * Metrics for Prometheus, with one registry per process. Other folders depend only on the observer types, which this file implements.
 *
 * Names have the prefix `enrichment_` and base units; the metrics of Node.js keep their usual names. The values of labels are fixed words from
 * the code. The labels are capability, outcome, code, policy, reason, projection, guards, model, row, status, source, provider, answer, state,
 * result, and name (of a job). A label never contains a key, an organization, an address, a domain, or anything else from a request.
 */

export type Metrics = {
  readonly call: Required<CallObserver>
  readonly ledger: Required<LedgerObserver>
  readonly rateLimiter: RateLimiterObserver
  /** For capabilities and DNS, which define their own metrics. */
  readonly meters: Meters
  /** Called when a connection is reset because there are too many connections, from its address or in total. */
  readonly connectionRefused: () => void
  /** Returns all metrics in Prometheus' text format. */
  text(): Promise<string>
  readonly contentType: string
  /** Returns the 95th percentile of the durations of calls since the process started; null: there were no calls. */
  p95Seconds(): Promise<number | null>
}

const durationBuckets = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30]
const batchBuckets = [1, 2, 4, 8, 16, 32, 64, 128, 256]
const failureReasons = [
  'missing',
  'malformed',
  'unknown',
  'wrong_secret',
  'ended',
  'in_doubt',
] as const satisfies readonly AuthenticationFailure[]
const ratePolicies: readonly RatePolicy[] = rateLimitExceededV1.shape.policy.options

/** How often the delay of the event loop is measured. A shorter interval costs time, and a much longer interval would miss delays. */
const eventLoopLookMs = 20

/** `service`: adds the metrics of the release and of Node.js. The Node.js collectors run until the process exits. */
export const createMetrics = ({ service }: { service?: { readonly version: string } } = {}): Metrics => {
  const registry = new Registry()
  const meters = createMeters(registry)
  const durations: CallDurations = new Histogram({
    name: 'enrichment_call_duration_seconds',
    help: 'Duration of calls, from arrival to answer',
    labelNames: ['capability', 'outcome'],
    buckets: durationBuckets,
    registers: [registry],
  })
  if (service !== undefined) {
    collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: eventLoopLookMs })
    buildInfo(meters, service)
  }
  return {
    call: callMetrics(durations, meters),
    ledger: ledgerMetrics(meters),
    rateLimiter: {
      degraded: meters.counter({
        name: 'rate_limiter_degradations_total',
        help: 'How often Redis stopped answering, so that this process counted rate limits on its own',
      }),
    },
    meters,
    connectionRefused: meters.counter({
      name: 'refused_connections_total',
      help: 'Connections reset because there were too many connections, from one address or in total',
    }),
    text: () => registry.metrics(),
    contentType: registry.contentType,
    p95Seconds: () => percentile(0.95, durations),
  }
}

const ledgerMetrics = (meters: Meters): Required<LedgerObserver> => {
  const batchCommands = meters.histogram({
    name: 'ledger_batch_commands',
    help: 'Commands written by one append',
    buckets: batchBuckets,
  })
  const batchEvents = meters.histogram({
    name: 'ledger_batch_events',
    help: 'Events written by one append',
    buckets: batchBuckets.map((size) => size * 2),
  })
  const appendSeconds = meters.histogram({
    name: 'ledger_append_duration_seconds',
    help: 'Time until a batch is durable in the event log, including retries',
    buckets: durationBuckets,
  })
  return {
    batch: (commands, events, ms) => {
      batchCommands(commands)
      batchEvents(events)
      appendSeconds(ms / 1000)
    },
    conflict: meters.counter({
      name: 'ledger_conflicts_total',
      help: 'Appends rejected because another process had appended first; their commands were decided again',
    }),
    unknownOutcome: meters.counter({
      name: 'ledger_unknown_outcomes_total',
      help: 'Appends sent again because their outcome was unknown',
    }),
    fence: meters.counter({
      name: 'ledger_fences_total',
      help: 'Appends with an unknown outcome that were blocked, so that they cannot be written later',
    }),
    reversal: meters.counter({
      name: 'ledger_reversals_total',
      help: 'Charges reversed because the outcome of their call was not known in time',
    }),
  }
}

/** Adds the versions in use, so that figures from before and after an upgrade can be compared. */
const buildInfo = (meters: Meters, service: { readonly version: string }): void => {
  const labels = {
    version: service.version,
    node_version: process.version,
    client_version: client.version,
  }
  meters.gauge(
    {
      name: 'build_info',
      help: 'Always 1; the labels are the versions of the service, of Node.js, and of the metrics library',
      labels: Object.keys(labels),
    },
    () => [{ labels, value: 1 }],
  )
}

type CallDurations = Histogram<'capability' | 'outcome'>

type CapabilityCounts = Record<CallOutcome, Map<string, number>> & { chargedMicro: number }

const callMetrics = (durations: CallDurations, meters: Meters): Required<CallObserver> => {
  for (const name of capability.options)
    for (const outcome of callOutcome.options) durations.zero({ capability: name, outcome })
  const countsOf = (): CapabilityCounts => ({
    answered: new Map([['', 0]]),
    refused: new Map(),
    failed: new Map(),
    chargedMicro: 0,
  })
  const counts = Object.fromEntries(capability.options.map((name) => [name, countsOf()])) as Record<
    Capability,
    CapabilityCounts
  >
  meterCounts(meters, counts)
  return {
    answered: (name, outcome, code, seconds, chargedMicro: MicroCredits) => {
      const counted = counts[name]
      const calls = counted[outcome]
      const word = code ?? ''
      calls.set(word, (calls.get(word) ?? 0) + 1)
      durations.observe({ capability: name, outcome }, seconds)
      if (chargedMicro !== 0n) counted.chargedMicro += Number(chargedMicro)
    },
    notAuthenticated: meters.words(
      {
        name: 'authentication_failures_total',
        help: 'Requests without a valid key, by reason',
      },
      'reason',
      failureReasons,
    ),
    rateLimited: meters.words(
      {
        name: 'rate_limited_calls_total',
        help: 'Calls refused by a rate limit, by policy',
      },
      'policy',
      ratePolicies,
    ),
  }
}

const meterCounts = (meters: Meters, counts: Readonly<Record<Capability, CapabilityCounts>>): void => {
  meters.total(
    {
      name: 'calls_total',
      help: 'Calls with a valid key, by outcome; code is the error code of a refused or failed call',
      labels: ['capability', 'outcome', 'code'],
    },
    () =>
      capability.options.flatMap((name) =>
        callOutcome.options.flatMap((outcome) =>
          [...counts[name][outcome]].map(
            ([code, value]): Sample => ({ labels: { capability: name, outcome, code }, value }),
          ),
        ),
      ),
  )
  meters.total(
    {
      name: 'credits_charged_total',
      help: 'Credits charged for calls; the exact amounts are in the ledger',
      labels: ['capability'],
    },
    () =>
      capability.options.map((name) => ({
        labels: { capability: name },
        value: counts[name].chargedMicro / 1e6,
      })),
  )
}

/** Returns a percentile as Prometheus computes it: linear within a bucket, and at most the largest bound. Null: there are no durations. */
const percentile = async (share: number, durations: CallDurations): Promise<number | null> => {
  const { values } = await durations.get()
  const countAt = (bound: number | string): number =>
    values.reduce((sum, { labels, value }) => ('le' in labels && labels.le === bound ? sum + value : sum), 0)
  const least = share * countAt('+Inf')
  if (least === 0) return null
  const at = durationBuckets.findIndex((bound) => countAt(bound) >= least)
  const bound = durationBuckets[at]
  if (bound === undefined) return durationBuckets.at(-1) ?? null
  const lower = durationBuckets[at - 1] ?? 0
  const below = countAt(lower)
  return lower + ((bound - lower) * (least - below)) / (countAt(bound) - below)
}
