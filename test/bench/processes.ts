import type { Logger } from 'pino'
import { catchUp } from '../../src/administration/projections/catch-up.ts'
import type { Foundation } from '../../src/foundation/foundation.ts'
import { startEventStore } from '../support/service.ts'
import { type LoadGenerator, type LoadResult, openLoadGenerator } from './load.ts'
import { processorMsOf, processorMsOfTree } from './processor-time.ts'
import { type BenchOptions, figureRow, median, type Row, ratioRow } from './row.ts'
import { openAccount, startOn } from './service.ts'
import { type Store, withFoundation } from './store.ts'

/**
 * Measures the effect of more processes on one partner's calls. Several API processes share one database, and 64 connections are
 * spread evenly over them, without a load balancer that routes by key. Processes that write one ledger compete for it. A load of
 * many organizations is also measured. No projector runs while calls are measured. The projections catch up before each set of processes starts, so the processes load accounts as they would with a
 * running projector. For every figure, the processes are started again.
 */

const connections = 64
const manyOrganizations = 2_000
const roundsMax = 3
const warmUpSeconds = 2
const loadsPerSecond = 300
const openedAtOnce = 32

/** The lowest throughput, relative to one process, for two and four processes that write one ledger. */
const leastOfOne: Readonly<Record<number, number>> = { 2: 0.6, 4: 0.45 }

type Installation = {
  readonly log: string
  /** The process of the event log, if it runs on this machine and is not PostgreSQL. */
  readonly logPid: number | undefined
  readonly foundation: Foundation
  readonly store: Store
  readonly logger: Logger
  readonly apiKeys: readonly string[]
}

type Measured = {
  readonly perSecond: number
  readonly p50Ms: number
  readonly p99Ms: number
  /** The processor time of the service and of PostgreSQL per call, in microseconds. */
  readonly processorUs: number
  readonly postgresUs: number
  readonly logUs: number
  readonly conflictsPerThousand: number
  /** The calls of the slowest process, divided by the mean. */
  readonly slowest: number
  readonly callsPerAppend: number
}

export const processes = async (options: BenchOptions): Promise<Row[]> => {
  const generator = openLoadGenerator()
  const counts = [1, 2, 4, ...(options.long ? [8] : [])]
  const most = Math.max(...counts)
  try {
    const rows = await withInstallation('the Postgres log', manyOrganizations, {}, async (on) => [
      ...(await compare(on, 1, counts, generator, options)),
      ...(await compare(on, manyOrganizations, counts, generator, options)),
    ])
    const given = process.env.TEST_EVENTSTORE_URL
    const server =
      given === undefined ? await startDouble() : { url: given, pid: undefined, stop: async () => undefined }
    const log = given === undefined ? 'the EventStoreDB double' : 'a real EventStoreDB'
    try {
      return [
        ...rows,
        ...(await withInstallation(log, most, { url: server.url, pid: server.pid }, (on) =>
          compare(on, 1, counts, generator, options),
        )),
      ]
    } finally {
      await server.stop()
    }
  } finally {
    await generator.stop()
  }
}

/** `pid` is the double's process, so its processor time can be subtracted from ours. */
const startDouble = async (): Promise<{ url: string; pid: number; stop(): Promise<void> }> => {
  const { url, child, end } = await startEventStore()
  return { url, pid: child.pid ?? 0, stop: async () => void (await end('SIGTERM')) }
}

const withInstallation = <Result>(
  log: string,
  organizations: number,
  { url, pid }: { readonly url?: string; readonly pid?: number | undefined },
  use: (installation: Installation) => Promise<Result>,
): Promise<Result> =>
  withFoundation(async ({ foundation, store, logger }) => {
    const apiKeys: string[] = []
    let left = organizations
    await Promise.all(
      Array.from({ length: Math.min(organizations, openedAtOnce) }, async () => {
        while (left-- > 0) apiKeys.push((await openAccount(foundation)).apiKey)
      }),
    )
    return use({ log, logPid: pid, foundation, store, logger, apiKeys })
  }, url)

const compare = async (
  installation: Installation,
  organizations: number,
  counts: readonly number[],
  generator: LoadGenerator,
  { rounds, seconds, report }: BenchOptions,
): Promise<Row[]> => {
  const measured = new Map<number, Measured[]>()
  const title = (count: number): string =>
    `${organizations === 1 ? 'one organization' : `${organizations.toLocaleString('en-US')} organizations`}, ${installation.log}, k = ${count}`
  for (let round = 0; round < Math.min(rounds, roundsMax); round++)
    for (const count of counts) {
      const one = await measure(installation, { organizations, count, seconds, seed: 100 + round }, generator)
      measured.set(count, [...(measured.get(count) ?? []), one])
      report(`${title(count)}: ${summaryOf(one)}`)
    }
  const alone = measured.get(1) ?? []
  return counts.flatMap((count) => {
    if (count === 1) return aloneRows(title(1), alone)
    const ours = measured.get(count) ?? []
    const perSecond = (one: Measured): number => one.perSecond
    return [
      ratioRow(`${title(count)}: throughput against one process`, {
        measured: middle(ours, perSecond),
        against: middle(alone, perSecond),
        ratio: median(ours.map((one, i) => one.perSecond / (alone[i]?.perSecond ?? Number.NaN))),
        unit: 'calls/s',
        bound: { least: organizations === 1 ? (leastOfOne[count] ?? 0) : 0.6 },
      }),
      figureRow(
        `${title(count)}: the slowest process against the mean`,
        middle(ours, ({ slowest }) => slowest),
        '',
        { least: 0.5 },
      ),
    ]
  })
}

type Run = {
  readonly organizations: number
  readonly count: number
  readonly seconds: number
  readonly seed: number
}

const measure = async (
  { foundation, logger, store, logPid, apiKeys }: Installation,
  { organizations, count, seconds, seed }: Run,
  generator: LoadGenerator,
): Promise<Measured> => {
  await catchUp(foundation, logger)
  const started = await startProcesses(store, count)
  try {
    const places = started.ports.map((port) => ({ port, apiKeys: apiKeys.slice(0, organizations) }))
    const load = { places, connections, rate: null, seed }
    // In each process, the first call of an organization loads its account.
    await generator.run({ ...load, seconds: warmUpSeconds + (organizations * count) / loadsPerSecond })
    const from = { ...(await started.figures()), logMs: processorMsOf(logPid ?? 0) }
    const result = await generator.run({ ...load, seconds })
    const logMs = processorMsOf(logPid ?? 0) - from.logMs
    return measuredOf(result, { from, to: await started.figures(), logMs })
  } finally {
    await started.stop()
  }
}

type ProcessFigures = {
  readonly serviceMs: number
  readonly postgresMs: number
  /** Appends that failed because another process had written first. */
  readonly conflicts: number
  readonly appends: number
  /** Commands that the appends wrote. */
  readonly commands: number
}

/** Several API processes of one installation, each on its own port, and the sum of their metrics. */
const startProcesses = async (store: Store, count: number) => {
  const started = await Promise.allSettled(
    Array.from({ length: count }, () => startOn(store, { ROLES: 'api' })),
  )
  const services = started.flatMap((one) => (one.status === 'fulfilled' ? one.value : []))
  const stop = async (): Promise<void> => {
    await Promise.all(services.map(({ end }) => end('SIGTERM')))
  }
  const failed = started.find(({ status }) => status === 'rejected')
  if (failed?.status === 'rejected') {
    await stop()
    throw failed.reason
  }
  return {
    ports: services.map(({ apiUrl }) => Number(new URL(apiUrl).port)),
    figures: async (): Promise<ProcessFigures> => {
      // Processor times are read before the metrics are requested, because that request is not part of a call.
      const serviceMs = services.reduce((sum, { child }) => sum + processorMsOf(child.pid ?? 0), 0)
      const postgresMs = processorMsOfTree(store.postgresPid)
      const texts = await Promise.all(
        services.map(async ({ metricsUrl }) => (await fetch(`${metricsUrl}/metrics`)).text()),
      )
      const total = (name: string): number =>
        texts.reduce((sum, text) => sum + Number(new RegExp(`^${name} (\\S+)$`, 'm').exec(text)?.[1] ?? 0), 0)
      return {
        serviceMs,
        postgresMs,
        conflicts: total('enrichment_ledger_conflicts_total'),
        appends: total('enrichment_ledger_batch_commands_count'),
        commands: total('enrichment_ledger_batch_commands_sum'),
      }
    },
    stop,
  }
}

const measuredOf = (
  { answered, answeredAt, perSecond, p50Ms, p99Ms }: LoadResult,
  { from, to, logMs }: { from: ProcessFigures; to: ProcessFigures; logMs: number },
): Measured => {
  const perCall = (ms: number): number => (ms * 1_000) / answered
  const postgresMs = to.postgresMs - from.postgresMs
  return {
    perSecond,
    p50Ms,
    p99Ms,
    processorUs: perCall(to.serviceMs - from.serviceMs + postgresMs),
    postgresUs: perCall(postgresMs),
    logUs: perCall(logMs),
    conflictsPerThousand: ((to.conflicts - from.conflicts) * 1_000) / answered,
    slowest: (Math.min(...answeredAt) * answeredAt.length) / answered,
    callsPerAppend: (to.commands - from.commands) / Math.max(1, to.appends - from.appends),
  }
}

const summaryOf = (one: Measured): string =>
  `${one.perSecond.toFixed(0)}/s, ${one.processorUs.toFixed(0)} us a call, of it PostgreSQL ${one.postgresUs.toFixed(0)}` +
  `${one.logUs === 0 ? '' : `, and the log ${one.logUs.toFixed(0)}`}; p50 ${one.p50Ms} p99 ${one.p99Ms} ms; ` +
  `${one.conflictsPerThousand.toFixed(1)} conflicts in 1,000; slowest ${one.slowest.toFixed(2)}; ${one.callsPerAppend.toFixed(1)} calls/append`

const middle = (runs: readonly Measured[], figure: (one: Measured) => number): number =>
  median(runs.map(figure))

const aloneRows = (title: string, alone: readonly Measured[]): Row[] => [
  figureRow(
    `${title}: throughput`,
    middle(alone, ({ perSecond }) => perSecond),
    'calls/s',
    null,
  ),
  figureRow(
    `${title}: processor time per call`,
    middle(alone, ({ processorUs }) => processorUs),
    'us',
    null,
  ),
  figureRow(
    `${title}: p99`,
    middle(alone, ({ p99Ms }) => p99Ms),
    'ms',
    null,
  ),
]
