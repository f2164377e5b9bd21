import pg from 'pg'
import { ulid } from 'ulid'
import { projections } from '../../projections/index.ts'
import { openPostgresEventLog } from '../../src/event-log/postgres/index.ts'
import type { Foundation } from '../../src/foundation/foundation.ts'
import { createLedger, type Ledger } from '../../src/ledger/write/ledger.ts'
import { snapshotFrom } from '../../src/ledger/write/snapshot.ts'
import { rebuildProjections } from '../../src/projector/rebuild.ts'
import { writeHistory } from './ledger-history.ts'
import { type BenchOptions, median, type Row, ratioRow } from './row.ts'
import { commitCall, msOf, withFoundation } from './store.ts'

/**
 * Measures whether loading an account and committing a call cost more in a ledger with a long history. All ledgers are in one
 * log, and their calls alternate.
 */

const callsPerRound = 100
const loadsPerRound = 20

export const age = ({ rounds, long, report }: BenchOptions): Promise<Row[]> =>
  withFoundation(async ({ foundation, logger }) => {
    const { url, pool } = foundation
    const sizes = [10_000, 100_000, 1_000_000, ...(long ? [10_000_000] : [])]
    const ledgers = sizes.map((events) => ({ organizationId: `org_${ulid()}`, events }))
    const startedAt = performance.now()
    await writeHistory(url, ledgers)
    const eventLog = openPostgresEventLog({ url, logger })
    try {
      await project(foundation, eventLog)
      report(
        `age: ${sizes.join(' + ')} events written and projected in ${((performance.now() - startedAt) / 1_000).toFixed(0)} s`,
      )
      const open = (): Ledger =>
        createLedger({
          eventLog,
          snapshot: snapshotFrom(pool, foundation.secrets.rowSeal),
          logger,
          clock: Date,
        })
      const loads = sizes.map((): number[] => [])
      const calls = sizes.map((): number[] => [])
      for (let round = 0; round <= rounds; round++) {
        for (let n = 0; n < loadsPerRound; n++)
          for (const [i, { organizationId }] of ledgers.entries()) {
            const took = await msOf(() => open().lastSeen(organizationId))
            if (round > 0) loads[i]?.push(took)
          }
        const ledger = open()
        for (const { organizationId } of ledgers) await ledger.lastSeen(organizationId)
        for (let n = 0; n < callsPerRound; n++)
          for (const [i, { organizationId }] of ledgers.entries()) {
            const took = await msOf(() => commitCall(ledger, organizationId))
            if (round > 0) calls[i]?.push(took)
          }
        await project(foundation, eventLog)
      }
      for (const [i, size] of sizes.entries())
        report(
          `age: ${size} events: load p50 ${median(loads[i] ?? []).toFixed(2)} ms, call p50 ${median(calls[i] ?? []).toFixed(2)} ms`,
        )
      const row = (what: string, figures: number[][], i: number): Row =>
        ratioRow(`${what}, ${sizes[i]?.toLocaleString('en-US')} events against 10,000`, {
          measured: median(figures[i] ?? []),
          against: median(figures[0] ?? []),
          unit: 'ms',
          bound: { most: 1.2 },
        })
      return sizes
        .slice(1)
        .flatMap((_, i) => [row('account load p50', loads, i + 1), row('call commit p50', calls, i + 1)])
    } finally {
      await eventLog.close()
    }
  })

/** Brings the rows up to the log's head. The projector does this continuously; the benchmark does it at chosen moments. */
const project = async (
  { url, secrets }: Pick<Foundation, 'url' | 'secrets'>,
  eventLog: ReturnType<typeof openPostgresEventLog>,
): Promise<void> => {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  try {
    await client.query('update projection_checkpoints set position = (select position from log_head)')
  } finally {
    await client.end()
  }
  for (const projection of projections)
    if (projection.name === 'accounts')
      await rebuildProjections({ url, eventLog, seal: secrets.rowSeal, projections: [projection] })
}
