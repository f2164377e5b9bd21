import { isIP } from 'node:net'
import type pg from 'pg'
import type { PeerAddress } from './link.ts'
import type { ProcessId } from './peer.ts'

/**
 * The table of processes. Only the database's clock says who lives: the clocks of the machines are never compared.
 * Anyone who can write to the database can write anything here, so rows are addresses to try, and no more.
 */

export type ProcessRow = {
  readonly id: ProcessId
  /** Null while it does not listen, and for an address that is none. */
  readonly address: PeerAddress | null
  readonly roles: readonly string[]
  /** Where it counts rate limits: `redis`, or the id of the process whose counters they are. */
  readonly counters: string
  /** Commands it writes into ledgers, per second. */
  readonly written: number
  /** How many processes it finds should write. */
  readonly owners: number
  /** The name of its machine. */
  readonly host: string
  readonly pid: number
  /** Since its last heartbeat, by the database's clock. */
  readonly ageMs: number
  /** How far its clock was ahead of the database's at its last heartbeat; null: it is of a release that does not say. For people alone. */
  readonly clockAheadMs: number | null
}

export type OwnProcess = Pick<ProcessRow, 'id' | 'roles' | 'counters' | 'host' | 'pid'>

/** What a process tells of its work. */
export type OwnWork = Pick<ProcessRow, 'written' | 'owners'>

/** Five missed heartbeats: a process whose processors are busy is no dead one. */
const liveMs = 5_000
/** One that is ahead of the clock by more was written before the clock was set back. */
const aheadMs = 1_000
/** More than live at once anywhere; the last heard come first. */
const rowsMax = 256
/** A row that is dead for this long is deleted; until then a person may want to see it. */
const forgottenMs = 600_000
const forgottenAtOnceMax = 100

const live = `
  select process_id, address, roles, counters, written, owners, host, pid, clock_ahead_ms,
         greatest(0, extract(epoch from now() - heartbeat_at) * 1000)::float8 as age_ms
    from processes
   where heartbeat_at between now() - ${liveMs} * interval '1 ms' and now() + ${aheadMs} * interval '1 ms'
   order by heartbeat_at desc limit ${rowsMax}`

const heartbeat = `
  with own as (
    insert into processes as p (process_id, address, roles, counters, host, pid, written, owners, clock_ahead_ms)
    values ($1, $2, $3, $4, $5, $6, $7, $8, $9::float8 - extract(epoch from clock_timestamp()) * 1000)
    on conflict (process_id) do update
       set address = excluded.address, roles = excluded.roles, counters = excluded.counters,
           written = excluded.written, owners = excluded.owners, clock_ahead_ms = excluded.clock_ahead_ms, heartbeat_at = now()
     where p.host = excluded.host and p.pid = excluded.pid
    returning 1
  ), forgotten as (
    delete from processes where process_id in (
      select process_id from processes
       where process_id <> $1
         and heartbeat_at not between now() - ${forgottenMs} * interval '1 ms' and now() + ${forgottenMs} * interval '1 ms'
       limit ${forgottenAtOnceMax} for update skip locked)
  )
  select exists (select from own) as mine, live.*
    from (values (1)) as always left join (${live}) as live on process_id <> $1`

type Row = {
  process_id: string | null
  address: string | null
  roles: string[]
  counters: string
  written: number
  owners: number
  host: string
  pid: number
  age_ms: number
  clock_ahead_ms: number | null
}

/**
 * Writes that this process lives and where it listens, and reads who else does: one statement. `mine`: false where another
 * process has the id.
 */
export const writeHeartbeat = async (
  pool: pg.Pool,
  { id, roles, counters, host, pid }: OwnProcess,
  { address, written, owners }: OwnWork & { readonly address: PeerAddress | null },
): Promise<{ mine: boolean; others: ProcessRow[] }> => {
  const { rows } = await pool.query<Row & { mine: boolean }>(heartbeat, [
    ...[
      id,
      address === null ? null : addressText(address),
      roles,
      counters,
      host,
      pid,
      written,
      owners,
      Date.now(),
    ],
  ])
  return { mine: rows[0]?.mine === true, others: rows.flatMap(processOf) }
}

/** Everyone who lives, last heard first. Writes nothing. */
export const liveProcesses = async (pool: pg.Pool): Promise<ProcessRow[]> =>
  (await pool.query<Row>(live)).rows.flatMap(processOf)

/** Takes the own row away. */
export const deleteProcess = async (pool: pg.Pool, { id, host, pid }: OwnProcess): Promise<void> => {
  await pool.query('delete from processes where process_id = $1 and host = $2 and pid = $3', [id, host, pid])
}

const processOf = ({
  process_id: id,
  address,
  age_ms: ageMs,
  clock_ahead_ms: clockAheadMs,
  roles,
  counters,
  written,
  owners,
  host,
  pid,
}: Row): ProcessRow[] =>
  id === null
    ? []
    : [
        {
          id,
          address: address === null ? null : addressOf(address),
          ageMs,
          clockAheadMs,
          roles,
          counters,
          written,
          owners,
          host,
          pid,
        },
      ]

/** `192.0.2.1:7000`, `[2001:db8::1]:7000`, `api-1.internal:7000`. */
export const addressText = ({ host, port }: PeerAddress): string =>
  `${isIP(host) === 6 ? `[${host}]` : host}:${port}`

const addressOf = (text: string): PeerAddress | null => {
  const [, bracketed, plain, digits] =
    /^(?:\[([0-9a-fA-F:.]{2,45})\]|([A-Za-z0-9._-]{1,253})):(\d{1,5})$/.exec(text) ?? []
  const host = bracketed ?? plain
  const port = Number(digits)
  if (host === undefined || (bracketed !== undefined && isIP(bracketed) !== 6)) return null
  return port >= 1 && port <= 65_535 ? { host, port } : null
}
