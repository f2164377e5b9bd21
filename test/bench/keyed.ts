import { ulid } from 'ulid'
import { defaultKeyLimits, issueKey } from '../../src/administration/keys/api-keys.ts'
import { lookup } from '../support/service.ts'
import { writeHistory } from './ledger-history.ts'
import { onOne, openLoadGenerator } from './load.ts'
import { caughtUp } from './projection-lag.ts'
import { type BenchOptions, figureRow, median, type Row, ratioRow } from './row.ts'
import { startMeasured } from './service.ts'

/** Compares calls with and without an Idempotency-Key: under load in old ledgers, and with read models far behind. */
export const keyed = async (options: BenchOptions): Promise<Row[]> => [
  ...(await keyedInOldLedgers(options)),
  ...(await keyedAheadOfRows(options)),
]

const connections = 32
const lineCounts = [10_000, 1_000_000] as const
/** Seven of eight calls are charged. A charge is an event, but not a line. */
const eventsPerLine = 15 / 8

/** Runs equal loads on a short and on a long ledger in turn, with all roles in one process. */
async function keyedInOldLedgers({ rounds, seconds, report }: BenchOptions): Promise<Row[]> {
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
      keys.push((await issueKey(service.foundation, unlimitedKeyOf(organizationId))).apiKey)
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

const unlimitedKeyOf = (organizationId: string) => ({
  organizationId,
  name: 'bench',
  permissions: ['ip_lookup' as const],
  limits: { ...defaultKeyLimits, requests_per_minute: 100_000_000, requests_per_day: 1_000_000_000 },
  allowedCidrs: [],
  expiresAt: null,
  actor: 'cli' as const,
})

/* Without a projector, the ledger is far ahead of its read models. Even then a call with a key must cost little more than one without. */

const eventsBehind = 150_000
const atOnce = 16
const callsPerKind = 50

const keyedAheadOfRows = async ({ report }: BenchOptions): Promise<Row[]> => {
  const service = await startMeasured({ roles: 'api' })
  const { foundation } = service
  try {
    const organizationId = `org_${ulid()}`
    await writeHistory(foundation.url, [{ organizationId, events: eventsBehind }])
    const { apiKey } = await issueKey(foundation, unlimitedKeyOf(organizationId))
    const call = async (key?: string): Promise<number> => {
      const startedAt = performance.now()
      const { status, body } = await lookup(
        `http://127.0.0.1:${service.port}`,
        apiKey,
        '81.2.69.142',
        key === undefined ? {} : { 'idempotency-key': key },
      )
      if (status !== 200) throw new Error(`${status}: ${JSON.stringify(body)}`)
      return performance.now() - startedAt
    }
    report(`keyed: a process’s first call, which loads the account, takes ${(await call()).toFixed(0)} ms`)
    const first = await call('first')
    const together = await Promise.all(Array.from({ length: atOnce }, (_, n) => call(`together-${n}`)))
    const without: number[] = []
    const under: number[] = []
    for (let n = 0; n < callsPerKind; n++) {
      without.push(await call())
      under.push(await call(`key-${n}`))
    }
    report(
      `keyed: ${eventsBehind} events behind: the first under a key ${first.toFixed(1)} ms, the last of ${atOnce} together ${Math.max(...together).toFixed(1)} ms`,
    )
    return [
      figureRow('first call under a key, 150,000 events behind', first, 'ms', null),
      figureRow('16 simultaneous first calls under keys, the last', Math.max(...together), 'ms', null),
      ratioRow('call under a key p50, 150,000 events behind, against one without', {
        measured: median(under),
        against: median(without),
        unit: 'ms',
        bound: { most: 5 },
      }),
    ]
  } finally {
    await service.stop()
  }
}
