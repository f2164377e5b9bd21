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
import type { LedgerObserver } from '../ledger/write/commit.ts'

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
  p95Seconds(): number | null
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
  const durations = new CallDurations({
    name: 'enrichment_call_duration_seconds',
    help: 'Duration of calls, from arrival to answer',
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
    p95Seconds: () => durations.percentile(0.95),
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

type CapabilityCounts = Record<CallOutcome, { calls: Map<string, number>; durations: Durations }> & {
  chargedMicro: number
}

const callMetrics = (durations: CallDurations, meters: Meters): Required<CallObserver> => {
  const countsOf = (name: Capability): CapabilityCounts => ({
    answered: { calls: new Map([['', 0]]), durations: durations.of(name, 'answered') },
    refused: { calls: new Map(), durations: durations.of(name, 'refused') },
    failed: { calls: new Map(), durations: durations.of(name, 'failed') },
    chargedMicro: 0,
  })
  const counts = Object.fromEntries(capability.options.map((name) => [name, countsOf(name)])) as Record<
    Capability,
    CapabilityCounts
  >
  meterCounts(meters, counts)
  return {
    answered: (name, outcome, code, seconds, chargedMicro: MicroCredits) => {
      const counted = counts[name]
      const { calls, durations } = counted[outcome]
      const word = code ?? ''
      calls.set(word, (calls.get(word) ?? 0) + 1)
      durations.add(seconds)
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
          [...counts[name][outcome].calls].map(
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

type Durations = {
  /** Adds a duration, without creating an object. */
  add(seconds: number): void
}

type Counted = {
  readonly capability: string
  readonly outcome: string
  /** The count of each bucket, not cumulative. The last bucket counts durations above every bound. */
  readonly buckets: Float64Array
  sum: number
}

/**
 * A histogram that counts in plain numbers, and converts them to the library's form when it is read. The library's own `observe` looks up
 * labels by text and creates two objects each time.
 */
class CallDurations extends Histogram<'capability' | 'outcome'> {
  readonly #described: { readonly name: string; readonly help: string }
  readonly #bounds: readonly number[]
  readonly #counted: Counted[] = []

  constructor(configuration: {
    name: string
    help: string
    buckets: number[]
    registers: NonNullable<ConstructorParameters<typeof Histogram>[0]['registers']>
  }) {
    super({ ...configuration, labelNames: ['capability', 'outcome'] })
    this.#described = configuration
    this.#bounds = configuration.buckets
  }

  of(capability: string, outcome: string): Durations {
    const bounds = this.#bounds
    const counted: Counted = {
      capability,
      outcome,
      buckets: new Float64Array(bounds.length + 1),
      sum: 0,
    }
    this.#counted.push(counted)
    return {
      add: (seconds) => {
        let i = 0
        while (i < bounds.length && seconds > (bounds[i] ?? 0)) i++
        counted.buckets[i] = (counted.buckets[i] ?? 0) + 1
        counted.sum += seconds
      },
    }
  }

  /** Returns a percentile as Prometheus computes it: linear within a bucket, and at most the largest bound. Null: there are no durations. */
  percentile(share: number): number | null {
    const counts = Array.from({ length: this.#bounds.length + 1 }, (_, i) =>
      this.#counted.reduce((sum, { buckets }) => sum + (buckets[i] ?? 0), 0),
    )
    const all = counts.reduce((sum, count) => sum + count, 0)
    if (all === 0) return null
    let below = 0
    for (const [i, bound] of this.#bounds.entries()) {
      const count = counts[i] ?? 0
      const lower = this.#bounds[i - 1] ?? 0
      if (count > 0 && below + count >= share * all)
        return lower + ((bound - lower) * (share * all - below)) / count
      below += count
    }
    return this.#bounds.at(-1) ?? null
  }

  /** The library calls this for every output format. */
  async getForPromString() {
    const { name, help } = this.#described
    return {
      name,
      help,
      type: 'histogram',
      aggregator: 'sum',
      values: this.#counted.flatMap(({ capability, outcome, buckets, sum }) => {
        const sharedLabels = { capability, outcome }
        let calls = 0
        const cumulated = Array.from(buckets, (count, i) => {
          calls += count
          return {
            labels: { le: this.#bounds[i] ?? '+Inf' },
            sharedLabels,
            value: calls,
            metricName: `${name}_bucket`,
          }
        })
        return [
          ...cumulated,
          { labels: {}, sharedLabels, value: sum, metricName: `${name}_sum` },
          { labels: {}, sharedLabels, value: calls, metricName: `${name}_count` },
        ]
      }),
    }
  }
}
