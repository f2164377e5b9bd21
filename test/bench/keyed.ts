import { ulid } from 'ulid'
import { anotherKey, unlimited } from '../support/partners.ts'
import { writeHistory } from './ledger-history.ts'
import { onOne, openLoadGenerator } from './load.ts'
import { caughtUp } from './projection-lag.ts'
import { type BenchOptions, median, type Row, ratioRow } from './row.ts'
import { startMeasured } from './service.ts'

const connections = 32
const lineCounts = [10_000, 1_000_000] as const
/** Seven of eight calls are charged. A charge is an event, but not a line. */
const eventsPerLine = 15 / 8

/**
 * Compares calls with and without an Idempotency-Key, under equal loads on a short and on a long ledger in turn, with all roles in
 * one process.
 */
export async function keyed({ rounds, seconds, report }: BenchOptions): Promise<Row[]> {
  const service = await startMeasured({ roles: 'api,dashboard,projector,jobs' })
  const generator = openLoadGenerator()
  try {
    const ledgers = lineCounts.map((lines) => ({
      organizationId: `org_${ulid()}`,
      events: lines * eventsPerLine,
    }))
    const startedAt = performance.now()
    await writeHistory(service.foundation.url, ledgers)
    const keys = []
    for (const { organizationId } of ledgers)
      keys.push((await anotherKey(service.foundation, organizationId, { limits: unlimited })).apiKey)
    await caughtUp(service.foundation)
    report(
      `keyed: ${lineCounts.join(' + ')} lines written and projected in ${((performance.now() - startedAt) / 1_000).toFixed(0)} s`,
    )
    const perSecond = async (apiKey: string, round: number, idempotencyKeys?: string): Promise<number> => {
      await caughtUp(service.foundation)
      const place = onOne({ port: service.port, apiKey })
      const load = { ...place, connections, seconds, rate: null, seed: 300 + round }
      const result = await generator.run(idempotencyKeys === undefined ? load : { ...load, idempotencyKeys })
      report(
        `keyed: ${idempotencyKeys ?? 'plain'}: ${Math.round(result.perSecond)}/s, p50 ${result.p50Ms} ms, p99 ${result.p99Ms} ms`,
      )
      return result.perSecond
    }
    for (const [n, apiKey] of keys.entries()) await perSecond(apiKey, 0, `warm-${n}`)
    const measured = lineCounts.map(() => ({ plain: [] as number[], keyed: [] as number[] }))
    for (let round = 1; round <= rounds; round++)
      for (const [n, apiKey] of keys.entries()) {
        measured[n]?.plain.push(await perSecond(apiKey, round))
        measured[n]?.keyed.push(await perSecond(apiKey, round, `${lineCounts[n]}-${round}`))
      }
    const [short, long] = measured
    return [
      ratioRow(`${connections} simultaneous keyed calls, ${lineCounts[1]} lines, against plain calls`, {
        measured: median(long?.keyed ?? []),
        against: median(long?.plain ?? []),
        unit: 'calls/s',
        bound: { least: 0.3 },
      }),
      ratioRow(`${connections} simultaneous keyed calls, ${lineCounts[1]} lines against ${lineCounts[0]}`, {
        measured: median(long?.keyed ?? []),
        against: median(short?.keyed ?? []),
        unit: 'calls/s',
        bound: { least: 0.9 },
      }),
    ]
  } finally {
    await generator.stop()
    await service.stop()
  }
}
