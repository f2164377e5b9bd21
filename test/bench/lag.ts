import { startDouble } from './eventstoredb.ts'
import { onOne, openLoadGenerator } from './load.ts'
import { caughtUp, watchLag } from './projection-lag.ts'
import { type BenchOptions, figureRow, type Row } from './row.ts'
import { startMeasured } from './service.ts'

/**
 * Measures how far the projections are behind when a steady load ends, on the PostgreSQL log and on EventStoreDB. All roles run
 * in one process. The protocol double of EventStoreDB runs in a second process, unless TEST_EVENTSTORE_URL names a real server;
 * the rows show which of them was used.
 */

const connections = 64
const callsPerSecond = [400, 1_000]
const warmUpSeconds = 2
/** Up to this lag, a dashboard shows current data. */
const lagMostSeconds = 1

export const lag = async (options: BenchOptions): Promise<Row[]> => {
  const given = process.env.TEST_EVENTSTORE_URL
  const rows = await lagOn('the Postgres log', undefined, options)
  const server = given === undefined ? await startDouble() : { url: given, stop: async () => undefined }
  const where = given === undefined ? 'EventStoreDB, played by the protocol double' : 'EventStoreDB itself'
  try {
    return [...rows, ...(await lagOn(where, server.url, options))]
  } finally {
    await server.stop()
  }
}

const lagOn = async (
  where: string,
  eventLogUrl: string | undefined,
  { seconds, begin, report }: BenchOptions,
): Promise<Row[]> => {
  const service = await startMeasured({
    roles: 'api,dashboard,projector,jobs',
    ...(eventLogUrl === undefined ? {} : { eventLogUrl }),
  })
  const generator = openLoadGenerator()
  const load = (rate: number, forSeconds: number) =>
    generator.run({
      ...onOne(service),
      connections,
      seconds: forSeconds,
      rate,
      seed: rate,
    })
  try {
    await load(200, warmUpSeconds)
    begin()
    const rows: Row[] = []
    for (const rate of callsPerSecond) {
      await caughtUp(service.foundation)
      const watching = watchLag(service.foundation, seconds * 1_000)
      const result = await load(rate, seconds)
      const lagS = await watching.lagS()
      const title = `projections on ${where} after ${seconds} s of ${rate} calls/s: behind`
      report(
        `${title} ${lagS.toFixed(2)} s; ` +
          `${Math.round(result.perSecond)} calls/s answered, p99 ${result.p99Ms} ms`,
      )
      rows.push(figureRow(title, lagS, 's', { most: lagMostSeconds }))
    }
    return rows
  } finally {
    await generator.stop()
    await service.stop()
  }
}
