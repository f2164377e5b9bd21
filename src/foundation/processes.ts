import { hostname } from 'node:os'
import type pg from 'pg'
import { ulid } from 'ulid'
import type { Config } from '../config.ts'
import { createOutage, type OutageLogger } from '../event-log/outage.ts'

/**
 * The api processes of the installation, in a table to which each live process writes every second. Only the database's clock
 * decides which are alive. It is for people: it shows that processes count rate limits separately, and that their clocks disagree.
 */

export type Process = {
  /** One run of one process: a ULID. */
  readonly id: string
  readonly roles: readonly string[]
  /** Where it counts rate limits: `redis`, or its own id. */
  readonly counters: string
  readonly host: string
  readonly pid: number
  /** How far its clock was ahead of the database's at its last heartbeat. */
  readonly clockAheadMs: number
}

const heartbeatMs = 1_000
/** Five missed heartbeats: a process whose processors are busy is not dead. */
const liveMs = 5_000
/** A row further in the future was written before the clock was set back. */
const aheadMs = 1_000
const rowsMax = 256
/** A row this old is deleted. */
const forgottenMs = 600_000
const hostLengthMax = 255

const live = `
  select process_id, roles, counters, host, pid, clock_ahead_ms
    from processes
   where heartbeat_at between now() - ${liveMs} * interval '1 ms' and now() + ${aheadMs} * interval '1 ms'
   order by process_id limit ${rowsMax}`

const heartbeat = `
  with forgotten as (
    delete from processes
     where process_id in (
       select process_id from processes
        where process_id <> $1
          and heartbeat_at not between now() - ${forgottenMs} * interval '1 ms' and now() + ${forgottenMs} * interval '1 ms'
        limit 100 for update skip locked)
  )
  insert into processes (process_id, roles, counters, host, pid, clock_ahead_ms)
  values ($1, $2, $3, $4, $5, $6::float8 - extract(epoch from clock_timestamp()) * 1000)
  on conflict (process_id) do update set heartbeat_at = now(), clock_ahead_ms = excluded.clock_ahead_ms`

type Row = {
  process_id: string
  roles: string[]
  counters: string
  host: string
  pid: number
  clock_ahead_ms: number
}

/** The api processes that live. */
export async function liveProcesses(pool: Pick<pg.Pool, 'query'>): Promise<Process[]> {
  const { rows } = await pool.query<Row>(live)
  return rows.map(({ process_id: id, clock_ahead_ms: clockAheadMs, ...row }) => ({
    id,
    clockAheadMs,
    ...row,
  }))
}

export type OwnProcess = {
  /** The api processes that live, this one among them, as the table had them last. */
  known(): readonly Process[]
  /** Deletes its row. */
  leave(): Promise<void>
}

type JoinOptions = {
  readonly pool: Pick<pg.Pool, 'query'>
  readonly config: Pick<Config, 'REDIS_URL' | 'ROLES'>
  readonly logger: OutageLogger
}

/** Writes this process into the table from now on. If the database does not answer, nothing is delayed. */
export async function joinProcesses({ pool, config, logger }: JoinOptions): Promise<OwnProcess> {
  const id = ulid()
  const counters = config.REDIS_URL === undefined ? id : 'redis'
  const row = [id, config.ROLES, counters, hostname().slice(0, hostLengthMax), process.pid]
  const table = createOutage({ logger, what: 'the table of processes' })
  let known: readonly Process[] = []
  let ended = false
  let timer: NodeJS.Timeout | undefined
  const beat = async (): Promise<void> => {
    try {
      await pool.query(heartbeat, [...row, Date.now()])
      known = await liveProcesses(pool)
      table.works()
    } catch (error) {
      table.failed(error)
    }
    if (ended) return
    timer = setTimeout(() => (beating = beat()), heartbeatMs)
    timer.unref()
  }
  let beating = beat()
  await beating
  return {
    known: () => known,
    leave: async () => {
      ended = true
      clearTimeout(timer)
      await beating
      await pool.query('delete from processes where process_id = $1', [id]).catch(() => undefined)
    },
  }
}
