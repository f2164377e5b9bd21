import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from '@prometheus-io/client'
import client from '@prometheus-io/client/package.json' with { type: 'json' }
import type { MicroCredits } from '../billing/money.ts'
import type { CallObserver } from '../call/dependencies.ts'
import { type CallOutcome, callOutcome, rateLimitExceededV1 } from '../events/calls.ts'
import { type Capability, capability } from '../events/capabilities.ts'
import type { AuthenticationFailure } from '../guard/authenticate.ts'
import type { RatePolicy } from '../guard/rate-limit.ts'
import type { RateLimiterObserver } from '../guard/redis-counters.ts'
import type { LedgerObserver } from '../ledger/commit.ts'
import { CallDurations, type Durations } from './call-durations.ts'
import {
  type CapabilitySources,
  dnsMetrics,
  type EmailMetrics,
  emailMetrics,
  type PixelMetrics,
  type ProfileMetrics,
  pixelMetrics,
  profileMetrics,
} from './capabilities.ts'
import { countWords, setCount } from './counts.ts'
import type { ProjectionLag } from './health.ts'

/**
 * What operations measures, for Prometheus: one registry per process, handed down and never global. Other folders do not
 * know it: each reports to an observer of its own, and these are the implementations.
 *
 * Base units, names with the prefix `enrichment_`; those of the process and of Node.js have the names every Node.js
 * process gives them. Labels hold words of ours only: capability, outcome, code, policy,
 * reason, projection, model, row, status, source, provider, answer. Never a key, an organization, an address, a domain, or
 * anything else that came with a request.
 *
 * It is not a record: the event log is. A counter starts at zero with its process.
 */

export type Metrics = {
  readonly call: Required<CallObserver>
  readonly ledger: Required<LedgerObserver>
  readonly rateLimiter: Required<RateLimiterObserver>
  readonly email: EmailMetrics
  readonly profile: ProfileMetrics
  readonly pixel: PixelMetrics
  /** A connection was reset because its address, or all addresses together, held too many. */
  readonly connectionRefused: () => void
  /** Says where the gauges are read when they are asked for. Sources that a process does not have stay out. */
  watch(sources: Partial<MetricSources>): void
  /** Everything, as Prometheus reads it. */
  text(): Promise<string>
  readonly contentType: string
}

export type MetricSources = CapabilitySources & {
  /** Null: unknown at the moment, and then left out rather than reported as zero. */
  projectionLags(): Promise<readonly ProjectionLag[] | null>
  /** When the oldest location file in use was built, milliseconds since the epoch. */
  geoBuiltAtMs(): number
  /** Whether rate limits are counted where all processes see them. */
  rateLimitsShared(): boolean
  /** Of each model that guards: the streams with an event that cannot be read. */
  doubtful: Readonly<Record<string, () => number>>
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

/** How often the delay of the event loop is looked at. Twice a second would miss it, and oftener is felt. */
const eventLoopLookMs = 20

/**
 * `service`: the running process is this release of the service. Then its figures and those of Node.js are among them,
 * whose collectors run until the process ends.
 */
export const createMetrics = ({
  clock,
  service,
}: {
  clock: { now(): number }
  service?: { readonly version: string }
}): Metrics => {
  const registry = new Registry()
  const registers = [registry]
  if (service !== undefined) {
    collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: eventLoopLookMs })
    buildInfo(registers, service)
  }
  let sources: Partial<MetricSources> = {}

  const counter = (name: string, help: string): Counter => {
    const created = new Counter({ name: `enrichment_${name}`, help, registers })
    created.inc(0)
    return created
  }
  const conflicts = counter('ledger_conflicts_total', 'Appends another process was ahead of; decided anew')
  const unknownOutcomes = counter(
    'ledger_unknown_outcomes_total',
    'Appends whose outcome had to be found out by sending them again',
  )
  const reversals = counter(
    'ledger_reversals_total',
    'Charges given back because their call had already been refused',
  )
  const degradations = counter(
    'rate_limiter_degradations_total',
    'Times Redis stopped serving and the process began to count rate limits for itself',
  )
  const refusedConnections = counter(
    'refused_connections_total',
    'Connections reset because their address, or all together, held too many',
  )
  const batchCommands = new Histogram({
    name: 'enrichment_ledger_batch_commands',
    help: 'Commands written by one append',
    buckets: batchBuckets,
    registers,
  })
  const batchEvents = new Histogram({
    name: 'enrichment_ledger_batch_events',
    help: 'Events written by one append',
    buckets: batchBuckets.map((size) => size * 2),
    registers,
  })
  const appendSeconds = new Histogram({
    name: 'enrichment_ledger_append_duration_seconds',
    help: 'From handing a batch to the event log until it is durable, repetitions included',
    buckets: durationBuckets,
    registers,
  })
  const gauge = (name: string, help: string, collect: (gauge: Gauge) => void): Gauge =>
    new Gauge({
      name: `enrichment_${name}`,
      help,
      registers,
      collect() {
        collect(this)
      },
    })
  gauge(
    'rate_limiter_degraded',
    '1 while Redis does not serve and the process counts rate limits for itself',
    (degraded) => degraded.set(sources.rateLimitsShared?.() === false ? 1 : 0),
  )
  gauge('geo_database_age_seconds', 'Since the oldest location file in use was built', (age) => {
    age.reset()
    if (sources.geoBuiltAtMs === undefined) return age.remove()
    age.set(Math.max(0, clock.now() - sources.geoBuiltAtMs()) / 1000)
  })
  new Gauge({
    name: 'enrichment_doubtful_streams',
    help: 'Streams with an event that cannot be read; what they are about is refused',
    labelNames: ['model'],
    registers,
    collect() {
      for (const [model, count] of Object.entries(sources.doubtful ?? {})) this.set({ model }, count())
    },
  })
  dnsMetrics(registers, () => sources)
  lagGauges(registers, () => sources.projectionLags?.() ?? Promise.resolve(null))

  return {
    call: callMetrics(registers),
    ledger: {
      batch: (commands, events, ms) => {
        batchCommands.observe(commands)
        batchEvents.observe(events)
        appendSeconds.observe(ms / 1000)
      },
      conflict: () => conflicts.inc(),
      unknownOutcome: () => unknownOutcomes.inc(),
      reversal: () => reversals.inc(),
    },
    rateLimiter: { degraded: () => degradations.inc() },
    email: emailMetrics(registers, () => sources),
    profile: profileMetrics(registers, () => sources),
    pixel: pixelMetrics(registers),
    connectionRefused: () => refusedConnections.inc(),
    watch: (more) => {
      sources = { ...sources, ...more, doubtful: { ...sources.doubtful, ...more.doubtful } }
    },
    text: () => registry.metrics(),
    contentType: registry.contentType,
  }
}

/** By its labels, so that a figure can be told from before and after an upgrade. */
const buildInfo = (registers: Registry[], service: { readonly version: string }): void => {
  const info = new Gauge({
    name: 'enrichment_build_info',
    help: 'Always 1: the version of the service, of Node.js, and of the library that writes these lines',
    labelNames: ['version', 'node_version', 'client_version'],
    registers,
  })
  info.set({ version: service.version, node_version: process.version, client_version: client.version }, 1)
}

/** What is counted of one capability, as plain numbers: see `callMetrics`. */
type CapabilityCounts = Record<CallOutcome, { calls: Map<string, number>; durations: Durations }> & {
  chargedMicro: number
}

/** Calls count into plain numbers, see `counts.ts`. */
const callMetrics = (registers: Registry[]): Required<CallObserver> => {
  const durations = new CallDurations({
    name: 'enrichment_call_duration_seconds',
    help: 'Calls from arrival to answer',
    buckets: durationBuckets,
    registers,
  })
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
  new Counter({
    name: 'enrichment_calls_total',
    help: 'Calls of known keys, by what became of them; code names why one was refused or failed',
    labelNames: ['capability', 'outcome', 'code'],
    registers,
    collect() {
      for (const name of capability.options)
        for (const outcome of callOutcome.options)
          for (const [code, calls] of counts[name][outcome].calls)
            setCount(this, { capability: name, outcome, code }, calls)
    },
  })
  new Counter({
    name: 'enrichment_credits_charged_total',
    help: 'Credits charged for calls; the ledger has them to the millionth',
    labelNames: ['capability'],
    registers,
    collect() {
      for (const name of capability.options)
        setCount(this, { capability: name }, counts[name].chargedMicro / 1e6)
    },
  })
  return {
    answered: (name, outcome, code, seconds, chargedMicro: MicroCredits) => {
      const counted = counts[name]
      const { calls, durations } = counted[outcome]
      const word = code ?? ''
      calls.set(word, (calls.get(word) ?? 0) + 1)
      durations.add(seconds)
      if (chargedMicro !== 0n) counted.chargedMicro += Number(chargedMicro)
    },
    notAuthenticated: countWords(
      {
        name: 'authentication_failures_total',
        help: 'Requests without a valid key, by what was wrong with it',
        registers,
      },
      'reason',
      failureReasons,
    ),
    rateLimited: countWords(
      {
        name: 'rate_limited_calls_total',
        help: 'Calls refused by a rate limit, by the window that was full',
        registers,
      },
      'policy',
      ratePolicies,
    ),
  }
}

/** All three are read once per scrape, from one look at the checkpoints. */
const lagGauges = (registers: Registry[], lags: () => Promise<readonly ProjectionLag[] | null>): void => {
  const gauge = (name: string, help: string, value: (lag: ProjectionLag) => number) =>
    new Gauge({
      name: `enrichment_projection_${name}`,
      help,
      labelNames: ['projection'],
      registers,
      async collect() {
        const known = await lags()
        this.reset()
        for (const lag of known ?? []) this.set({ projection: lag.name }, value(lag))
      },
    })
  gauge(
    'lag_positions',
    "How far its rows are behind the event log, in the log's positions: events in PostgreSQL, bytes in EventStoreDB",
    ({ behind }) => Number(behind),
  )
  gauge('lag_seconds', 'Age of the oldest event its rows do not show', ({ seconds }) => seconds)
  gauge('halted', '1 when it stopped until it is rebuilt', ({ halted }) => (halted ? 1 : 0))
  gauge(
    'halted_streams',
    'Streams whose rows stopped at an event it cannot take',
    ({ haltedStreams }) => haltedStreams.length,
  )
}
