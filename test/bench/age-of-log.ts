import pg from 'pg'
import pino from 'pino'
import { ulid } from 'ulid'
import { projections } from '../../projections/index.ts'
import { statementLines } from '../../src/administration/ledgers/lines.ts'
import { verifyLog } from '../../src/event-log/verify/verify-log.ts'
import type { Foundation } from '../../src/foundation/foundation.ts'
import { createLedger, type Ledger } from '../../src/ledger/write/ledger.ts'
import { snapshotFrom } from '../../src/ledger/write/snapshot.ts'
import { rebuildProjections } from '../../src/projector/rebuild.ts'
import { openHistories } from './ledger-history.ts'
import { type BenchOptions, figureRow, median, type Row, ratioRow } from './row.ts'
import { commitCall, msOf, withFoundation } from './store.ts'

/**
 * Measures one log after its first month and again after many months: the work per call, per checkpoint, and per event of a
 * rebuild and of a verification. Ledgers grow in turn, so the events of one ledger are far apart in the log.
 */

const organizations = 20
const monthsUsual = 3
const monthsLong = 30
const times = 60
const checkpointsMade = 9
const most = { most: 1.2 }

type Figures = Readonly<Record<Measure, number>>
const measures = {
  'account load p50': 'ms',
  'call commit p50': 'ms',
  'page of the statement p50': 'ms',
  'checkpoint after 20 calls p50': 'ms',
  'rebuild of all projections, an event': 'µs',
  'event-log verify, an event': 'µs',
} as const
type Measure = keyof typeof measures

export const ageOfLog = ({ events, long, report }: BenchOptions): Promise<Row[]> =>
  withFoundation(async ({ foundation }) => {
    const months = long ? monthsLong : monthsUsual
    const ids = Array.from({ length: organizations }, () => `org_${ulid()}`)
    const ledgers = openHistories(foundation.url, ids)
    // The measured calls go to these ledgers, which have no other history.
    const asides = Array.from({ length: organizations }, () => `org_${ulid()}`)
    const aside = openHistories(foundation.url, asides)
    let written = 0
    const grow = async (month: number): Promise<void> => {
      written += await ledgers.grow(Math.round(events / organizations), {
        from: Date.UTC(2023, month - 1, 1),
        to: Date.UTC(2023, month, 1),
      })
    }
    const measure = async (): Promise<Figures> => {
      const figures = await measured(foundation, { ids, asides, written })
      const size = await bytesOf(foundation)
      report(
        `age of the log: ${written} events, ${size.lines} lines; ${Object.entries(figures)
          .map(([what, value]) => `${what} ${value.toFixed(2)} ${measures[what as Measure]}`)
          .join(', ')}; ${(size.bytes / size.lines).toFixed(0)} B a call`,
      )
      return figures
    }
    written += await aside.grow(100, { from: Date.UTC(2023, 0, 1), to: Date.UTC(2023, 1, 1) })
    await grow(1)
    // The first measurement only warms up.
    await measure()
    const young = await measure()
    for (let month = 2; month <= months; month++) {
      const startedAt = performance.now()
      await grow(month)
      report(
        `age of the log: month ${month} written in ${((performance.now() - startedAt) / 1_000).toFixed(0)} s`,
      )
    }
    const old = await measure()
    const { bytes, lines } = await bytesOf(foundation)
    const what = `${written.toLocaleString('en-US')} events against ${Math.round(written / months).toLocaleString('en-US')}`
    return [
      ...Object.entries(measures).map(([name, unit]) =>
        ratioRow(`${name}, ${what}`, {
          measured: old[name as Measure],
          against: young[name as Measure],
          unit,
          bound: most,
        }),
      ),
      figureRow('event log and statement with their indexes, a call', bytes / lines, 'B', { most: 600 }),
    ]
  })

const measured = async (
  foundation: Foundation,
  { ids, asides, written }: { ids: readonly string[]; asides: readonly string[]; written: number },
): Promise<Figures> => {
  const { url, eventLog, secrets, pool, checkpoints, treeStore } = foundation
  const logger = pino({ level: 'warn' })
  await withOwner(foundation, (client) =>
    client.query('update projection_checkpoints set position = (select position from log_head)'),
  )
  const rebuiltMs = await msOf(() =>
    rebuildProjections({ url, eventLog, seal: secrets.rowSeal, projections }),
  )
  await withOwner(foundation, (client) => client.query('vacuum analyze'))
  await checkpoints.make()
  const verifiedMs = await msOf(async () => {
    const { faults } = await verifyLog({ eventLog, store: treeStore })
    if (faults.length > 0)
      throw new Error(`the log that was written does not verify: ${JSON.stringify(faults[0])}`)
  })
  const loads: number[] = []
  const calls: number[] = []
  const pages: number[] = []
  const open = (): Ledger =>
    createLedger({ eventLog, snapshot: snapshotFrom(pool, secrets.rowSeal), logger, clock: Date })
  const ledger = open()
  for (let n = 0; n < times; n++) {
    const id = ids[n % ids.length] ?? ''
    loads.push(await msOf(() => open().lastSeen(id)))
    const other = asides[n % asides.length] ?? ''
    await ledger.lastSeen(other)
    calls.push(await msOf(() => commitCall(ledger, other)))
    const { text, values } = statementLines(
      { organization: id },
      { first: 0n, below: BigInt(Number.MAX_SAFE_INTEGER), max: 50 },
    )
    pages.push(await msOf(() => pool.query(text, [...values])))
  }
  const made: number[] = []
  for (let n = 0; n < checkpointsMade; n++) {
    for (const id of asides) await commitCall(ledger, id)
    made.push(await msOf(() => checkpoints.make()))
  }
  return {
    'account load p50': median(loads),
    'call commit p50': median(calls),
    'page of the statement p50': median(pages),
    'checkpoint after 20 calls p50': median(made),
    'rebuild of all projections, an event': (rebuiltMs * 1_000) / written,
    'event-log verify, an event': (verifiedMs * 1_000) / written,
  }
}

const bytesOf = async ({ pool }: Foundation): Promise<{ bytes: number; lines: number }> => {
  const { rows } = await pool.query<{ bytes: string; lines: string }>(
    `select (pg_total_relation_size('log_segments') + pg_total_relation_size('ledger_lines_v2'))::text as bytes,
            (select count(*) from ledger_lines_v2)::text as lines`,
  )
  return { bytes: Number(rows[0]?.bytes), lines: Number(rows[0]?.lines) }
}

const withOwner = async (
  { migrationUrl }: Foundation,
  work: (client: pg.Client) => Promise<unknown>,
): Promise<void> => {
  const client = new pg.Client({ connectionString: migrationUrl })
  await client.connect()
  try {
    await work(client)
  } finally {
    await client.end()
  }
}
