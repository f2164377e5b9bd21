import { type LoadGenerator, type LoadResult, onOne, openLoadGenerator } from './load.ts'
import { processorMsOf } from './processor-time.ts'
import { caughtUp, watchLag } from './projection-lag.ts'
import { type BenchOptions, figureRow, median, type Row, ratioRow } from './row.ts'
import { type BareRoute, type MeasuredService, startBareRoute, startMeasured } from './service.ts'

/**
 * The whole call compared with a bare route that gives the same answer: throughput, latency at half load and processor time,
 * first with the projector in another process and paused, then with everything in one process.
 */

const connections = 64
/** Machine code is optimized for about ten seconds of load; the first seconds cost twice as much. */
const warmUpSeconds = 10

type Place = { readonly port: number; readonly apiKey: string }
type Measured = LoadResult & {
  readonly processorUsPerCall: number
  readonly postgresUsPerCall: number
  readonly callsPerAppend: number
}

export const call = async (options: BenchOptions): Promise<Row[]> => {
  const bare = await startBareRoute(options)
  const generator = openLoadGenerator()
  try {
    return [
      ...(await against(bare, generator, options, {
        roles: 'api',
        title: 'call, projector paused',
        throughputLeast: 0.6,
        processorMost: 1.9,
      })),
      ...(await against(bare, generator, options, {
        roles: 'api,dashboard,projector,jobs',
        title: 'call, all in one process',
        throughputLeast: 0.45,
        processorMost: 2.7,
      })),
    ]
  } finally {
    await Promise.all([bare.stop(), generator.stop()])
  }
}

const against = async (
  bare: BareRoute,
  generator: LoadGenerator,
  options: BenchOptions,
  {
    roles,
    title,
    throughputLeast,
    processorMost,
  }: { roles: string; title: string; throughputLeast: number; processorMost: number },
): Promise<Row[]> => {
  const { rounds, seconds, report } = options
  const projecting = roles.includes('projector')
  const service = await startMeasured({ roles })
  try {
    const bareAt = { port: bare.port, apiKey: service.apiKey }
    const load = (
      place: Place,
      seed: number,
      rate: number | null,
      forSeconds = seconds,
    ): Promise<LoadResult> => generator.run({ ...onOne(place), connections, seconds: forSeconds, rate, seed })
    await load(bareAt, 1, null, warmUpSeconds)
    await load(service, 1, null, warmUpSeconds)
    const ours: Measured[] = []
    const theirs: Measured[] = []
    const lags: number[] = []
    for (let round = 0; round < rounds; round++) {
      const seed = 100 + round
      const routeFrom = processorMsOf(bare.pid)
      const route = await load(bareAt, seed, null)
      theirs.push({
        ...route,
        processorUsPerCall: perCall(processorMsOf(bare.pid) - routeFrom, route),
        postgresUsPerCall: 0,
        callsPerAppend: 0,
      })
      if (projecting) await caughtUp(service.foundation)
      const appendsFrom = await appendsOf(service)
      const from = service.processorMs()
      const lag = projecting ? watchLag(service.foundation, seconds * 1_000) : null
      const result = await load(service, seed, null)
      if (lag !== null) lags.push(await lag.lagS())
      // The projector's remaining work for the measured calls is part of their cost.
      if (projecting) await caughtUp(service.foundation)
      const to = service.processorMs()
      ours.push({
        ...result,
        processorUsPerCall: perCall(to.service - from.service + to.postgres - from.postgres, result),
        postgresUsPerCall: perCall(to.postgres - from.postgres, result),
        callsPerAppend: result.answered / ((await appendsOf(service)) - appendsFrom),
      })
      report(
        `${title}: round ${round + 1}: bare ${summary(theirs.at(-1))}; service ${summary(ours.at(-1))}` +
          `${lag === null ? '' : `; lag ${lags.at(-1)?.toFixed(2)} s`}`,
      )
    }
    // Half of our own capacity: at higher rates, the queue would be measured instead of the service.
    const rate = median(ours.map(({ perSecond }) => perSecond)) / 2
    const p99 = { ours: [] as number[], theirs: [] as number[] }
    for (let round = 0; round < rounds; round++) {
      const seed = 200 + round
      const route = await load(bareAt, seed, rate)
      const result = await load(service, seed, rate)
      p99.theirs.push(route.p99Ms)
      p99.ours.push(result.p99Ms)
      report(
        `${title}: ${Math.round(rate)}/s: bare p50 ${route.p50Ms} p99 ${route.p99Ms} (from send ${route.p99FromSendMs}) ms; ` +
          `service p50 ${result.p50Ms} p99 ${result.p99Ms} (from send ${result.p99FromSendMs}) ms`,
      )
    }
    const pairs = <Key extends 'perSecond' | 'processorUsPerCall'>(key: Key): number =>
      median(ours.map((one, i) => one[key] / (theirs[i]?.[key] ?? Number.NaN)))
    return [
      ratioRow(`${title}: throughput`, {
        measured: median(ours.map(({ perSecond }) => perSecond)),
        against: median(theirs.map(({ perSecond }) => perSecond)),
        ratio: pairs('perSecond'),
        unit: 'calls/s',
        bound: { least: throughputLeast },
      }),
      ratioRow(`${title}: p99 at ${Math.round(rate)} calls/s`, {
        measured: median(p99.ours),
        against: median(p99.theirs),
        ratio: median(p99.ours.map((one, i) => one / (p99.theirs[i] ?? Number.NaN))),
        unit: 'ms',
        bound: { most: 4 },
      }),
      ratioRow(`${title}: processor time per call, PostgreSQL included`, {
        measured: median(ours.map(({ processorUsPerCall }) => processorUsPerCall)),
        against: median(theirs.map(({ processorUsPerCall }) => processorUsPerCall)),
        ratio: pairs('processorUsPerCall'),
        unit: 'us',
        bound: { most: processorMost },
      }),
      ...(projecting
        ? [figureRow(`${title}: projector behind at the end`, median(lags), 's', { most: 1 })]
        : []),
    ]
  } finally {
    await service.stop()
  }
}

const perCall = (processorMs: number, { answered }: LoadResult): number => (processorMs * 1_000) / answered

const summary = (one: Measured | undefined): string =>
  one === undefined
    ? ''
    : `${Math.round(one.perSecond)}/s p99 ${one.p99Ms} ms ${one.processorUsPerCall.toFixed(0)} us/call` +
      `${one.callsPerAppend === 0 ? '' : `, of it PostgreSQL ${one.postgresUsPerCall.toFixed(0)}; ${one.callsPerAppend.toFixed(1)} calls/append`} (generator ${(one.generatorLoad * 100).toFixed(0)} %)`

/** Transactions that appended to the log. */
const appendsOf = async ({ foundation }: MeasuredService): Promise<number> => {
  const { rows } = await foundation.pool.query<{ appends: string }>(
    'select count(distinct xmin::text) as appends from log_segments',
  )
  return Number(rows[0]?.appends ?? 0)
}
