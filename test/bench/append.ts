import { randomUUID } from 'node:crypto'
import { getPostgreSQLEventStore } from '@event-driven-io/emmett-postgresql'
import pg from 'pg'
import { defaultPriceBook, priceBookOf } from '../../src/billing/price-book.ts'
import type { NewEvent } from '../../src/event-log/port.ts'
import { openPostgresEventLog } from '../../src/event-log/postgres/index.ts'
import { type BenchOptions, median, type Row, ratioRow } from './row.ts'
import { openAccount } from './service.ts'
import { keepBusy, withFoundation } from './store.ts'

/**
 * Measures appends of one event each, with 256 in progress: in our log, over many streams and through one ledger; in a simple log
 * with a transaction and a head row per event; and in Emmett's store. They take turns in one PostgreSQL with fsync on.
 */

const width = 256
const streams = 4_096
/** The pool size of a service on this kind of machine. Larger pools were slower in this benchmark. */
const poolMax = 16

const data = {
  key_id: 'key_01J9ZC6T0N5W3V9Y8X7R6Q5P4M',
  capability: 'ip_lookup',
  outcome: 'answered',
  facts: {
    kind: 'ip_lookup',
    success: true,
    country_code: 'DE',
    address_hmac: 'hK0mXbq7mU5r3Qm1b7Y2aQmB9xT4vZp8eWc6sJd0fLg',
  },
}
const metadata = { schema_version: 1, actor: 'system', effective_at: '2026-01-01T00:00:00.000Z' }
const type = 'KeyUsed'

export const append = (options: BenchOptions): Promise<Row[]> =>
  withFoundation(async ({ foundation, logger }) => {
    const { rounds, seconds, report } = options
    const { url, migrationUrl } = foundation
    const eventLog = openPostgresEventLog({ url, logger })
    // The simple log and Emmett's store create their own tables, which needs the owner's rights.
    const pool = new pg.Pool({ connectionString: migrationUrl, max: poolMax })
    const emmett = getPostgreSQLEventStore(await emmettDatabase(migrationUrl))
    await naiveSchema(pool)
    const { organizationId } = await openAccount(foundation)
    const book = priceBookOf(defaultPriceBook)

    const revisions = new Map<number, number>()
    /** Writers do not share streams, so there are no conflicts. */
    const ours = (run: string) => {
      revisions.clear()
      let turn = 0
      return async (lane: number): Promise<number> => {
        const stream = lane + width * (turn++ % (streams / width))
        const revision = revisions.get(stream) ?? -1
        revisions.set(stream, revision + 1)
        await eventLog.append(`bench-${run}.${stream}`, revision === -1 ? 'none' : revision, [newEvent()])
        return 1
      }
    }
    const hot = async (): Promise<number> => {
      const { events } = await foundation.ledger.submit(organizationId, {
        key: randomUUID(),
        atMs: Date.now(),
        actor: 'system',
        kind: 'record',
        call: {
          keyId: data.key_id,
          capability: 'ip_lookup',
          outcome: 'answered',
          facts: {
            kind: 'ip_lookup',
            success: true,
            country_code: 'DE',
            address_hmac: data.facts.address_hmac,
          },
        },
        book,
      })
      return events.length
    }
    const naive = (run: string) => {
      let turn = 0
      return async (lane: number): Promise<number> => {
        await naiveAppend(pool, `bench-${run}.${lane + width * (turn++ % (streams / width))}`)
        return 1
      }
    }
    const theirs = (run: string) => {
      let turn = 0
      return async (lane: number): Promise<number> => {
        const stream = `bench-${run}.${lane + width * (turn++ % (streams / width))}`
        await emmett.appendToStream(stream, [{ type, data, metadata }] as never)
        return 1
      }
    }

    const rates = { ours: [] as number[], hot: [] as number[], naive: [] as number[], emmett: [] as number[] }
    try {
      for (let round = 0; round <= rounds; round++) {
        const load = { width, seconds: round === 0 ? 1 : seconds }
        const run = String(round)
        const now = {
          ours: await keepBusy(load, ours(run)),
          hot: await keepBusy(load, hot),
          naive: await keepBusy(load, naive(run)),
          emmett: await keepBusy(load, theirs(run)),
        }
        report(
          `append: round ${round}: ours ${now.ours.toFixed(0)}, one ledger ${now.hot.toFixed(0)}, ` +
            `a transaction each ${now.naive.toFixed(0)}, emmett ${now.emmett.toFixed(0)} events/s`,
        )
        if (round === 0) continue
        rates.ours.push(now.ours)
        rates.hot.push(now.hot)
        rates.naive.push(now.naive)
        rates.emmett.push(now.emmett)
      }
    } finally {
      await eventLog.close()
      await pool.end()
      await emmett.close()
    }
    const row = (what: string, measured: number[], against: number[]): Row =>
      ratioRow(what, {
        measured: median(measured),
        against: median(against),
        ratio: median(measured.map((rate, i) => rate / (against[i] ?? Number.NaN))),
        unit: 'events/s',
        bound: { least: 10 },
      })
    return [
      row('append, many streams, against a transaction per event', rates.ours, rates.naive),
      row('append, many streams, against emmett-postgresql', rates.ours, rates.emmett),
      row('append, one ledger, against a transaction per event', rates.hot, rates.naive),
      row('append, one ledger, against emmett-postgresql', rates.hot, rates.emmett),
    ]
  })

const newEvent = (): NewEvent => ({
  id: randomUUID(),
  type,
  data: JSON.stringify(data),
  metadata: JSON.stringify(metadata),
})

const naiveSchema = async (pool: pg.Pool): Promise<void> => {
  await pool.query(`
    create table naive_head (position bigint not null);
    insert into naive_head values (0);
    create table naive_events (
      position bigint primary key, stream text not null, revision bigint not null, event_id uuid not null,
      recorded_at timestamptz not null default now(), type text not null, data json not null, metadata json not null,
      unique (stream, revision))`)
}

/** One round trip: a single statement, which is its own transaction, writes head and event. */
const naiveAppend = async (pool: pg.Pool, stream: string): Promise<void> => {
  const { id, data: json, metadata: envelope } = newEvent()
  await pool.query({
    name: 'naive',
    text: `with head as (update naive_head set position = position + 1 returning position)
           insert into naive_events (position, stream, revision, event_id, type, data, metadata)
           select head.position, $1, coalesce((select max(revision) from naive_events where stream = $1), -1) + 1, $2, $3, $4, $5
             from head`,
    values: [stream, id, type, json, envelope],
  })
}

/** Creates a separate database, because Emmett's tables might have the same names as ours. */
const emmettDatabase = async (url: string): Promise<string> => {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  await client.query('create database emmett')
  await client.end()
  const own = new URL(url)
  own.pathname = '/emmett'
  return own.href
}
