import { hostname } from 'node:os'
import type pg from 'pg'
import { ulid } from 'ulid'
import { z } from 'zod'
import type { LaneReport } from './lane-report.ts'
import { laneOutcomes } from './lane-report.ts'

/**
 * What the processes know of mail servers, put down by each for people: breakers and sessions are in the memory of the process that asks.
 * No check reads it. What is more than a minute old is of a process that ended, and is forgotten.
 */

const everyMs = 5_000
/** Of one process: those in trouble first. */
const reportedMax = 200
const keptMs = 60_000
const forgottenAtOnceMax = 1_000

const write = `
  with gone as (
    delete from mailbox_servers where reporter = $1 and address <> all ($2::text[])
  ), forgotten as (
    delete from mailbox_servers where (reporter, address) in (
      select reporter, address from mailbox_servers
       where reporter <> $1 and reported_at < now() - ${keptMs} * interval '1 ms' limit ${forgottenAtOnceMax} for update skip locked)
  )
  insert into mailbox_servers as m (reporter, address, exchange, domains, host, pid, report)
  select $1, address, exchange, array(select json_array_elements_text(domains)), $5, $6, report
    from unnest($2::text[], $3::text[], $4::json[], $7::json[]) as g (address, exchange, domains, report)
  on conflict (reporter, address) do update
     set exchange = excluded.exchange, domains = excluded.domains, report = excluded.report, reported_at = now()`

/** What a name in a DNS answer may hold goes to people as plain characters. */
const plain = (name: string): string => name.replaceAll(/[^!-~]/g, '?').slice(0, 253)

const troubleOf = ({ breaker, waiting, sessions }: LaneReport): number =>
  (breaker === 'closed' ? 0 : 1_000_000) + waiting * 100 + sessions

type Reporting = {
  readonly pool: pg.Pool
  /** Those that are not idle for long, at this moment. */
  readonly lanes: () => readonly LaneReport[]
  /** Before each report: what people asked this process to do. */
  readonly before?: () => Promise<void>
  readonly logger: { warn(fields: object, message: string): void }
}

/** Puts down what is known now; `reporter` is one run of one process. */
const reportMailServers = async (
  pool: pg.Pool,
  reporter: string,
  lanes: readonly LaneReport[],
): Promise<void> => {
  const shown = lanes
    .toSorted((a, b) => troubleOf(b) - troubleOf(a))
    .slice(0, reportedMax)
    .map((lane) => ({ ...lane, exchange: plain(lane.exchange), domains: lane.domains.map(plain) }))
  await pool.query(write, [
    reporter,
    shown.map(({ address }) => address),
    shown.map(({ exchange }) => exchange),
    shown.map(({ domains }) => JSON.stringify(domains)),
    hostname().slice(0, 255),
    process.pid,
    shown.map((lane) => JSON.stringify(lane)),
  ])
}

/** Reports until it is closed; then takes its rows away. A database that is away is told once, and asked again. */
export const startReporting = ({
  pool,
  lanes,
  before,
  logger,
}: Reporting): { report(): Promise<void>; close(): Promise<void> } => {
  const reporter = ulid()
  let failing = false
  let reported = 0
  let running: Promise<void> = Promise.resolve()
  const report = async (): Promise<void> => {
    try {
      await before?.()
      const now = lanes()
      if (now.length === 0 && reported === 0) return
      await reportMailServers(pool, reporter, now)
      reported = now.length
      failing = false
    } catch (error) {
      if (!failing) logger.warn({ err: error }, 'mail servers: what is known of them cannot be put down')
      failing = true
    }
  }
  let busy = false
  const timer = setInterval(() => {
    if (busy) return
    busy = true
    running = report().finally(() => {
      busy = false
    })
  }, everyMs)
  timer.unref()
  return {
    /** At once. */
    report,
    close: async () => {
      clearInterval(timer)
      await running
      if (reported > 0)
        await pool.query('delete from mailbox_servers where reporter = $1', [reporter]).catch(() => undefined)
    },
  }
}

const count = z.int().min(0)
const reportText = z.object({
  sessions: count,
  idle: count,
  waiting: count,
  breaker: z.enum(['closed', 'open', 'half_open']),
  openForMs: z.number().nullable(),
  why: z.string().max(200).nullable(),
  openings: count,
  sessionsMax: count,
  plain: z.boolean(),
  counts: z.record(z.enum(laneOutcomes), count),
})

/** One address as one process knows it. */
export type MailServer = z.infer<typeof reportText> & {
  readonly address: string
  readonly exchange: string
  readonly domains: readonly string[]
  /** `host:pid`. */
  readonly process: string
  readonly reportedAt: Date
}

type Row = {
  readonly address: string
  readonly exchange: string
  readonly domains: readonly string[]
  readonly host: string
  readonly pid: number
  readonly report: unknown
  readonly reported_at: Date
}

/**
 * What the processes that live have put down, open breakers first, at most `max`. `search`: a part of the server's name, or of a
 * domain it was asked about lately. A row that no process of this release wrote is left out.
 */
export const mailServers = async (
  pool: pg.Pool,
  { search, max }: { readonly search: string; readonly max: number },
): Promise<readonly MailServer[]> => {
  const { rows } = await pool.query<Row>(
    `${shown}
        and ($1 = '' or strpos(lower(exchange), $1) > 0
             or exists (select from unnest(domains) d where strpos(lower(d), $1) > 0))
      order by (report ->> 'breaker') = 'closed', exchange, address, reporter limit $2`,
    [search, max],
  )
  return serversOf(rows)
}

/** Of one name or address, in lower case. As `mailServers`. */
export const serversNamed = async (pool: pg.Pool, name: string): Promise<readonly MailServer[]> => {
  // PostgreSQL refuses a text with U+0000.
  if (!/^[!-~]{1,253}$/.test(name)) return []
  const { rows } = await pool.query<Row>(
    `${shown} and (lower(exchange) = $1 or address = $1)
      order by (report ->> 'breaker') = 'closed', address, reporter limit ${reportedMax}`,
    [name],
  )
  return serversOf(rows)
}

const shown = `select address, exchange, domains, host, pid, report, reported_at from mailbox_servers
      where reported_at > now() - ${keptMs} * interval '1 ms'`

const serversOf = (rows: readonly Row[]): MailServer[] =>
  rows.flatMap(({ report, host, pid, reported_at: reportedAt, ...row }) => {
    const read = reportText.safeParse(report)
    return read.success ? [{ ...read.data, ...row, process: `${host}:${pid}`, reportedAt }] : []
  })
