import { randomBytes, randomInt } from 'node:crypto'
import pg from 'pg'
import { ulid } from 'ulid'
import { projections } from '../../projections/index.ts'
import { parseCredits } from '../../src/billing/money.ts'
import { defaultPriceBook, priceBookOf } from '../../src/billing/price-book.ts'
import { createRequestIds } from '../../src/call/request-id.ts'
import type { CallFacts } from '../../src/events/calls.ts'
import type { Foundation } from '../../src/foundation/foundation.ts'
import type { CallToRecord } from '../../src/ledger/command.ts'
import { createLedger, type Ledger } from '../../src/ledger/write/commit.ts'
import { snapshotFrom } from '../../src/ledger/write/snapshot.ts'
import { createProjector } from '../../src/projector/run.ts'
import { type BenchOptions, figureRow, type Row } from './row.ts'
import { withFoundation } from './store.ts'

/**
 * Measures the disk space per call. The ledger writes IP lookups and e-mail validations to the PostgreSQL log, 30 per append,
 * with a live projector. Reports the bytes of each table and index after a vacuum, and the bytes of write-ahead log.
 */

const organizations = 4
const callsPerAppend = 30
const keysPerOrganization = 3
const callsMax = 120_000
/** The target for the log and the statement with their indexes. */
const bytesPerCallMost = 600

export const growth = ({ events, begin, report }: BenchOptions): Promise<Row[]> =>
  withFoundation(async ({ foundation, logger }) => {
    const { url, migrationUrl, eventLog, pool, secrets } = foundation
    const client = new pg.Client({ connectionString: migrationUrl })
    await client.connect()
    const ledger = createLedger({
      eventLog,
      snapshot: snapshotFrom(pool, secrets.rowSeal),
      logger,
      clock: Date,
    })
    const projector = createProjector({
      ...{ url, eventLog, projections, seal: secrets.rowSeal, logger },
      owner: 'bench',
    })
    const running = projector.run()
    try {
      const calls = Math.min(callsMax, Math.round(events / 2))
      const ids = Array.from({ length: organizations }, () => `org_${ulid()}`)
      for (const id of ids) await openOrganization(ledger, id)
      await caughtUp(foundation)
      const before = await sizesOf(client)
      await client.query('checkpoint')
      const wal = await walFrom(client)
      begin()
      await Promise.all(ids.map((id) => writeCalls(ledger, id, calls / organizations)))
      await caughtUp(foundation)
      const walBytes = await wal()
      const checkpointWal = await walFrom(client)
      await foundation.checkpoints.make()
      const treeWalBytes = await checkpointWal()
      await client.query('vacuum')
      const after = await sizesOf(client)
      const grown = [...after]
        .map(([name, bytes]) => ({ name, bytes: (bytes - (before.get(name) ?? 0)) / calls }))
        .filter(({ bytes }) => bytes >= 0.5)
        .sort((one, other) => other.bytes - one.bytes)
      for (const { name, bytes } of grown) report(`growth: ${bytes.toFixed(1).padStart(7)} B a call  ${name}`)
      const ofTables = (prefix: string): number =>
        grown.filter(({ name }) => name.startsWith(prefix)).reduce((sum, { bytes }) => sum + bytes, 0)
      const { rows } = await client.query<{ mean: number }>(
        `select avg(count)::float as mean from log_segments where family = 'ledger'`,
      )
      report(`growth: ${calls} calls, ${rows[0]?.mean.toFixed(1)} events an append`)
      const log = ofTables('log_segments')
      const statement = ofTables('ledger_lines')
      const figure = (what: string, value: number) => figureRow(`${what}, a call`, value, 'B', null)
      return [
        figureRow('event log and statement with their indexes, a call', log + statement, 'B', {
          most: bytesPerCallMost,
        }),
        figure('event log', log),
        figure('statement row', statement),
        figure('tree over the log', ofTables('log_tree')),
        figure('all tables', ofTables('')),
        figure('write-ahead log of calls and projections', walBytes / calls),
        figure('write-ahead log of the tree', treeWalBytes / calls),
      ]
    } finally {
      await projector.stop()
      await running
      await client.end()
    }
  })

const openOrganization = async (ledger: Ledger, organizationId: string): Promise<void> => {
  const at = { atMs: Date.now(), actor: 'system' } as const
  await ledger.submit(organizationId, {
    ...{ ...at, key: 'register', kind: 'register', name: 'Bench', overdraftLimit: 0n },
  })
  await ledger.submit(organizationId, {
    ...{ ...at, key: 'grant', kind: 'grant', amount: parseCredits('1000000000') },
    ...{ priority: 100, expiresAt: null, reason: 'benchmark' },
  })
}

const book = priceBookOf(defaultPriceBook)
const requestIds = createRequestIds()
/** The clock advances between calls, because ids from one millisecond would share most of their letters. */
let clockMs = Date.now() - 3_600_000

const writeCalls = async (ledger: Ledger, organizationId: string, calls: number): Promise<void> => {
  const keys = Array.from({ length: keysPerOrganization }, () => randomBytes(12).toString('base64url'))
  for (let left = calls; left > 0; left -= callsPerAppend)
    await Promise.all(
      Array.from({ length: Math.min(callsPerAppend, left) }, () => {
        const atMs = ++clockMs
        const requestId = requestIds(atMs)
        const call = callOf(pick(keys))
        const actor = `key:${call.keyId}`
        return ledger.submit(organizationId, {
          ...{ key: requestId, requestId, atMs, actor, kind: 'record', call, book },
        })
      }),
    )
}

const pick = <T>(some: readonly T[]): T => {
  const one = some[randomInt(some.length)]
  if (one === undefined) throw new Error('nothing to pick from')
  return one
}

const countries = ['DE', 'US', 'GB', 'FR', 'NL', 'PL', 'IN', 'BR', 'JP', 'CA', 'ES', 'IT'] as const
const domains = Array.from({ length: 2_000 }, () => `${randomBytes(5).toString('hex')}.com`)
const verdicts = [
  { status: 'valid', sub_status: 'mailbox_exists', decision_row: 17, company_status: 'not_requested' },
  { status: 'valid', sub_status: 'mailbox_exists', decision_row: 17, company_status: 'found' },
  { status: 'valid', sub_status: 'mailbox_exists', decision_row: 17, company_status: 'not_found' },
  { status: 'invalid', sub_status: 'no_mail_server', decision_row: 5, company_status: 'not_applicable' },
  { status: 'unknown', sub_status: 'timeout', decision_row: 12, company_status: 'not_applicable' },
] as const

/** Every second call is an e-mail validation; seven of eight lookups find a location. */
const callOf = (keyId: string): CallToRecord => {
  const address_hmac = randomBytes(32).toString('base64url')
  const located = randomInt(8) > 0
  const facts: CallFacts =
    randomInt(2) === 0
      ? { kind: 'ip_lookup', success: located, country_code: located ? pick(countries) : null, address_hmac }
      : { kind: 'email_validation', ...pick(verdicts), domain: pick(domains), address_hmac }
  return { keyId, capability: facts.kind, outcome: 'answered', facts }
}

const caughtUp = async ({ pool }: Foundation): Promise<void> => {
  for (;;) {
    const { rows } = await pool.query<{ behind: boolean }>(
      `select bool_or(c.position < h.position) as behind from projection_checkpoints c, log_head h`,
    )
    if (rows[0]?.behind === false) return
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}

/** Bytes by table and index. A table's figure includes its visibility map, free space map and TOAST. */
const sizesOf = async (client: pg.Client): Promise<ReadonlyMap<string, number>> => {
  const { rows } = await client.query<{ name: string; bytes: string }>(
    `select c.relname as name, pg_table_size(c.oid)::text as bytes from pg_class c join pg_namespace n on n.oid = c.relnamespace
      where c.relkind = 'r' and n.nspname not in ('pg_catalog', 'information_schema')
     union all
     select t.relname || ' ' || i.relname, pg_relation_size(i.oid)::text
       from pg_index x join pg_class i on i.oid = x.indexrelid join pg_class t on t.oid = x.indrelid
       join pg_namespace n on n.oid = t.relnamespace
      where t.relkind = 'r' and n.nspname not in ('pg_catalog', 'information_schema')`,
  )
  return new Map(rows.map(({ name, bytes }) => [name, Number(bytes)]))
}

/** Starts a measurement. The returned function resolves with the bytes of write-ahead log since then. */
const walFrom = async (client: pg.Client): Promise<() => Promise<number>> => {
  const { rows } = await client.query<{ lsn: string }>('select pg_current_wal_insert_lsn()::text as lsn')
  return async () => {
    const since = await client.query<{ bytes: string }>(
      'select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), $1::pg_lsn)::text as bytes',
      [rows[0]?.lsn],
    )
    return Number(since.rows[0]?.bytes)
  }
}
