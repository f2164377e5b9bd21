import { hash } from 'node:crypto'
import pg from 'pg'
import type { Logger } from 'pino'
import { z } from 'zod'
import { DatabaseClient } from '../../concurrency/database-client.ts'
import { within } from '../../concurrency/deadline.ts'
import { createGathering, type Gathering } from '../../concurrency/gathering.ts'
import { createOutage, type Outage } from '../../concurrency/outage.ts'
import { pixelPeriod } from '../../events/pixel.ts'
import type { MatchedRules } from './rules-state.ts'

/**
 * Counts pixel hits in PostgreSQL, in one row per organization, domain and period.
 *
 * A hit fires only if it was certainly counted, so a limit is never exceeded. Hits are not events: a hit increments a row, and the ledger
 * records the answer with the call.
 *
 * Hits are gathered into one statement at a time (group commit), so a domain with many hits costs one row version per batch. A row is locked
 * only during a statement, so a frozen process does not block other processes. migrations/0007_pixel.sql explains the order of locks.
 */

export type HitAsk = {
  readonly organizationId: string
  /** The host on which the pixel would fire, as returned by `parseHost`. */
  readonly host: string
  /** The caller's id for the hit on this host. Null if every call is a separate hit. */
  readonly hitId: string | null
  /** When the process received the call. The periods in `rules` contain this moment. */
  readonly atMs: number
  readonly rules: MatchedRules
}

/** The rules for a hit, whether the hit fires, and the usage of each limit after the hit. */
export type HitVerdict = {
  readonly rules: MatchedRules
  readonly fires: boolean
  readonly used: readonly number[]
}

type CounterWindow = Pick<MatchedRules['limits'][number], 'domain' | 'period' | 'periodStart'>

export type PixelCounters = {
  /**
   * Counts the hit against every limit, or against none if a limit is used up or the host is blocked. Exact for any number of concurrent hits
   * and processes.
   *
   * For 24 hours, a repeated hit id on a host gets its first verdict again and is not counted again, even if the rules have changed. Only a
   * current block overrides the stored verdict.
   *
   * Settles within `answerMaxMs`. Rejects if the counters cannot be reached or are late. The hit may then have been counted; another call
   * with the same hit id returns the verdict.
   */
  take(ask: HitAsk): Promise<HitVerdict>
  /** Returns the number of hits in each window. Settles and rejects like `take`. */
  used(organizationId: string, windows: readonly CounterWindow[]): Promise<number[]>
  close(): Promise<void>
}

export const answerMaxMs = 1_000
/** The maximum number of waiting hits in one process, equal to the maximum number of connections to a host. Further hits are refused. */
const waitingMax = 10_000
/** The time for which a hit id gets its first verdict again. */
const hitMemoryMs = 86_400_000

/** A current block of the host overrides a stored verdict. */
const verdictFor = ({ rules }: HitAsk, verdict: HitVerdict): HitVerdict =>
  rules.blockedBy !== null && verdict.fires ? { rules, fires: false, used: [] } : verdict

/** Thrown if the counters are late, unreachable or overloaded, so that the hit does not fire. */
export class CountersUnavailable extends Error {
  override name = 'CountersUnavailable'
}

/** Settles like `promise`, or rejects after `answerMaxMs`. The work itself continues. */
export const answeredInTime = <Value>(what: string, promise: Promise<Value>): Promise<Value> =>
  within(promise, { waitMs: answerMaxMs }, () => {
    throw new CountersUnavailable(`${what}: no answer within ${answerMaxMs} ms`)
  })

const hashCharacters = 22

/**
 * Returns the key of a stored verdict, from the host and the hit id. Without the host, a verdict for one domain could fire a pixel on
 * another. The key has 128 bits of SHA-256, because hit ids can contain any characters and do not have to be readable.
 */
export const hitHash = (host: string, hitId: string): string =>
  // Unlike UTF-8, UTF-16 keeps lone surrogates distinct. A host cannot contain a line break.
  hash('sha256', Buffer.from(`${host}\n${hitId}`, 'utf16le'), 'base64url').slice(0, hashCharacters)

const written = z.tuple([
  z.string().nullable(),
  z.array(z.tuple([z.string(), pixelPeriod, z.string(), z.int()])),
])

const writeRules = ({ blockedBy, limits }: MatchedRules): string =>
  JSON.stringify([
    blockedBy,
    limits.map(({ domain, period, periodStart, number }) => [domain, period, periodStart, number]),
  ])

const readRules = (text: string): MatchedRules => {
  const [blockedBy, limits] = written.parse(JSON.parse(text))
  return {
    blockedBy,
    limits: limits.map(([domain, period, periodStart, number]) => ({ domain, period, periodStart, number })),
  }
}

const batchAsksMax = 256
/**
 * A hit waits at most `queuedMaxMs` for its batch to start, and a batch waits `serverTimeoutMs` for the server. Together, they are shorter
 * than the caller's wait, so a hit that was answered with "unavailable" is not counted afterwards, unless the server's reply was lost.
 */
const queuedMaxMs = 500
const serverTimeoutMs = 450
/** Hits stay in the queue while their batch waits for a connection. */
const connectTimeoutMs = 450
const usedWindowsMax = 20_000

const takeStatement = `
  select ask, repeated, fired, rules, used
    from pixel_take($1::text[], $2::text[], $3::text[], $4::boolean[], $5::timestamptz[], $6::integer[], $7::integer[], $8::integer[],
                    $9::text[], $10::text[], $11::text[], $12::date[])`

/** With a subquery, every plan uses the primary key, even if the table has grown since the plan was made. */
const usedStatement = `
  select coalesce((select c.used from pixel_counters c
                    where c.organization_id = $1 and c.domain = w.domain and c.period = w.period
                      and c.period_start = w.period_start), 0) as used
    from unnest($2::text[], $3::text[], $4::date[]) with ordinality as w (domain, period, period_start, n)
   order by w.n`

type Queued = HitAsk & { readonly hash: string | null }

type TakenRow = {
  ask: number
  repeated: boolean
  fired: boolean
  rules: string | null
  used: number[]
}

/** Connects on first use. The database must have been migrated. */
export const openPixelCounters = ({ url, logger }: { url: string; logger: Logger }): PixelCounters => {
  // There are two pools, because hits must not wait for a list of many limits.
  const batches = openPool(url, logger, serverTimeoutMs)
  // A late read changes nothing, so it has as much time as its caller.
  const reads = openPool(url, logger, answerMaxMs)
  const hits = gatherHits(batches, createOutage({ logger, what: 'pixel counters: counting hits' }))
  /** Hits with an id that are in progress. A repeated call gets the same answer. */
  const asked = new Map<string, Promise<HitVerdict>>()
  let closed = false

  const enqueue = (ask: HitAsk, hash: string | null): Promise<HitVerdict> =>
    closed
      ? Promise.reject(new CountersUnavailable('the pixel counters are closed'))
      : hits.ask({ ...ask, hash })

  const counted = (ask: HitAsk): Promise<HitVerdict> => {
    if (ask.hitId === null) return enqueue(ask, null)
    const hash = hitHash(ask.host, ask.hitId)
    const key = `${ask.organizationId}/${hash}`
    const before = asked.get(key)
    if (before !== undefined) return before
    const counting = enqueue(ask, hash)
    asked.set(key, counting)
    const forget = (): void => void asked.delete(key)
    counting.then(forget, forget)
    return counting
  }

  return {
    take: async (ask) => verdictFor(ask, await answeredInTime('pixel counters', counted(ask))),
    used: (organizationId, windows) => usedIn(reads, organizationId, windows),
    close: async () => {
      closed = true
      await hits.settled()
      await Promise.all([batches.end(), reads.end()])
    },
  }
}

/** While batches fail, no limited pixel fires. */
const gatherHits = (batches: pg.Pool, counting: Outage): Gathering<Queued, HitVerdict> =>
  createGathering<Queued, HitVerdict>({
    batchMax: batchAsksMax,
    underWayMax: 1,
    waitingMax,
    waitMaxMs: queuedMaxMs,
    // A caller who has waited too long gets "unavailable", so the hit must not be counted afterwards.
    refusal: (why) =>
      new CountersUnavailable(
        why === 'full' ? `${waitingMax} pixel hits are waiting` : 'the pixel counters are late',
      ),
    run: async (take) => {
      try {
        const verdicts = await onConnection(batches, async (client) => {
          // Hits leave the queue only here, so that their time in the queue includes the wait for a connection.
          const asks = take()
          if (asks.length === 0) return []
          const { rows } = await client.query<TakenRow>({ name: 'pixel-take', ...batchOf(asks) })
          return verdictsOf(asks, rows)
        })
        counting.works()
        return verdicts
      } catch (error) {
        counting.failed(error)
        throw new CountersUnavailable('the pixel counters failed', { cause: error })
      }
    },
  })

const usedIn = async (
  reads: pg.Pool,
  organizationId: string,
  windows: readonly CounterWindow[],
): Promise<number[]> => {
  if (windows.length > usedWindowsMax) throw new RangeError(`${windows.length} windows in one request`)
  const values = [
    organizationId,
    windows.map(({ domain }) => domain),
    windows.map(({ period }) => period),
    windows.map(({ periodStart }) => periodStart),
  ]
  const query = reads.query<{ used: number }>(usedStatement, values)
  const { rows } = await answeredInTime('pixel counters', query)
  return rows.map((row) => row.used)
}

/** After an error, the state of the connection is unknown, so the connection is not used again. */
const onConnection = async <Result>(
  pool: pg.Pool,
  work: (client: pg.PoolClient) => Promise<Result>,
): Promise<Result> => {
  const client = await pool.connect()
  // A lost connection also fails the query, but the process would end without a listener.
  const lost = (): void => undefined
  client.on('error', lost)
  try {
    const result = await work(client)
    client.off('error', lost)
    client.release()
    return result
  } catch (error) {
    client.release(true)
    throw error
  }
}

const openPool = (url: string, logger: Logger, statementMaxMs: number): pg.Pool => {
  const pool = new pg.Pool({
    Client: DatabaseClient,
    connectionString: url,
    max: 1,
    connectionTimeoutMillis: connectTimeoutMs,
    statement_timeout: statementMaxMs,
    query_timeout: answerMaxMs,
    application_name: 'pixel-counters',
  })
  pool.on('error', (error) => {
    // The server may end a connection that is being closed.
    if (!pool.ending) logger.warn({ err: error }, 'pixel counters: idle connection lost')
  })
  return pool
}

/** Arranges the batch in columns. Each window is listed once, in the order in which every process locks windows. */
const batchOf = (asks: readonly Queued[]): { text: string; values: unknown[] } => {
  const windows = new Map<string, CounterWindow & { organizationId: string }>()
  const keysOf = asks.map(({ organizationId, rules }) =>
    rules.limits.map(({ domain, period, periodStart }) => {
      const key = `${organizationId}/${domain}/${period}/${periodStart}`
      if (!windows.has(key)) windows.set(key, { organizationId, domain, period, periodStart })
      return key
    }),
  )
  const order = [...windows.keys()].sort()
  const places = new Map(order.map((key, i) => [key, i + 1]))
  const sorted = order.flatMap((key) => windows.get(key) ?? [])
  return {
    text: takeStatement,
    values: [
      asks.map(({ organizationId }) => organizationId),
      asks.map(({ hash }) => hash),
      asks.map(({ hash, rules }) => (hash === null ? null : writeRules(rules))),
      asks.map(({ rules }) => rules.blockedBy !== null),
      asks.map(({ atMs }) => new Date(atMs + hitMemoryMs).toISOString()),
      asks.map(({ rules }) => rules.limits.length),
      keysOf.flat().map((key) => places.get(key)),
      asks.flatMap(({ rules }) => rules.limits.map(({ number }) => number)),
      sorted.map(({ organizationId }) => organizationId),
      sorted.map(({ domain }) => domain),
      sorted.map(({ period }) => period),
      sorted.map(({ periodStart }) => periodStart),
    ],
  }
}

const verdictsOf = (asks: readonly Queued[], rows: readonly TakenRow[]): readonly HitVerdict[] => {
  const byAsk = new Map(rows.map((row) => [row.ask, row]))
  return asks.map((own, at) => {
    const row = byAsk.get(at + 1)
    if (row === undefined) throw new Error(`no answer to pixel hit ${at + 1} of ${asks.length}`)
    const { repeated, fired, rules, used } = row
    return { rules: repeated && rules !== null ? readRules(rules) : own.rules, fires: fired, used }
  })
}

/** The maximum number of rows deleted by one statement; more rows would be locked for too long. */
export const forgottenAtOnceMax = 10_000
/** The time for which counters are kept: longer than any month, with a margin for wrong clocks. */
const countersKeptDays = 62

/** Deletes expired hit ids and returns their number. Must be called again while the number is the maximum. */
export const forgetHits = async (pool: pg.Pool): Promise<number> => {
  const { rowCount } = await pool.query(
    `delete from pixel_hits where (organization_id, hit_hash) in (
       select organization_id, hit_hash from pixel_hits
        where expires_at < now() order by expires_at limit $1 for update skip locked)`,
    [forgottenAtOnceMax],
  )
  return rowCount ?? 0
}

/** Deletes counters of past periods and returns their number. Must be called again while the number is the maximum. */
export const forgetPastPeriods = async (pool: pg.Pool): Promise<number> => {
  const { rowCount } = await pool.query(
    `delete from pixel_counters where (organization_id, domain, period, period_start) in (
       select organization_id, domain, period, period_start from pixel_counters
        where period_start < current_date - $1::integer order by period_start limit $2 for update skip locked)`,
    [countersKeptDays, forgottenAtOnceMax],
  )
  return rowCount ?? 0
}
