import { hostname } from 'node:os'
import type pg from 'pg'
import { ulid } from 'ulid'
import { createOutage, type OutageLogger } from '../concurrency/outage.ts'
import type { Config } from '../config.ts'

/**
 * The table of the installation's api processes. Each process updates its row every second. Only the database's clock determines which processes
 * are live. The table is only for information, such as that processes count rate limits separately, or that their clocks differ.
 */

export type Process = {
  /** A ULID, new for every start of a process. */
  readonly id: string
  readonly roles: readonly string[]
  /** `redis`, or the process's own id if it counts rate limits on its own. */
  readonly counters: string
  readonly host: string
  readonly pid: number
  /** How far the process's clock was ahead of the database's clock at the last heartbeat. */
  readonly clockAheadMs: number
}

const heartbeatMs = 1_000
/** A process counts as live until it misses five heartbeats, because a busy process can miss some. */
const liveMs = 5_000
/** A row from further in the future was written before the database's clock was set back. */
const aheadMs = 1_000
const rowsMax = 256
const forgottenMs = 600_000
const hostLengthMax = 255

const live = `
  select process_id as id, roles, counters, host, pid, clock_ahead_ms as "clockAheadMs"
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

/** Returns the api processes with a recent heartbeat. */
export async function liveProcesses(pool: Pick<pg.Pool, 'query'>): Promise<Process[]> {
  return (await pool.query<Process>(live)).rows
}

export type OwnProcess = {
  /** Returns the live api processes, including this one, as last read. */
  known(): readonly Process[]
  leave(): Promise<void>
}

type JoinOptions = {
  readonly pool: Pick<pg.Pool, 'query'>
  readonly config: Pick<Config, 'REDIS_URL' | 'ROLES'>
  readonly logger: OutageLogger
}

/** Adds this process to the table, and keeps its row up to date. Never fails, and never waits for an unavailable database. */
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
