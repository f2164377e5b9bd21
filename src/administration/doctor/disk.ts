import { stat } from 'node:fs/promises'
import { dirname } from 'node:path'
import type pg from 'pg'
import type { Config } from '../../config.ts'
import type { EventLog } from '../../event-log/port.ts'
import { keyDirOf } from '../../foundation/data-dir.ts'
import { writtenDirs } from '../../foundation/embedded/cluster.ts'
import { bytesText, type DiskSpace, diskStateOf, scarcestOf, spaceText } from '../../guard/disk-space.ts'
import { type Check, fault, ok, type Told, warning } from './finding.ts'

/** Room on the disks, what is taken of it every day, and when there is none left. */

const makeRoom =
  'Make room, or move DATA_DIR to a larger disk while the service is stopped. Nothing in postgres/ is to be deleted by hand.'

/** The disks that can be seen from here: of DATA_DIR where PostgreSQL is the embedded one, and of KEY_DIR where that is another one. */
export const diskChecks = (config: Config): readonly Check[] => {
  const keyDir = keyDirOf(config)
  const embedded = config.DATABASE_URL === undefined
  return [
    ...(embedded
      ? [{ about: 'disk of DATA_DIR', look: () => room(config.DATA_DIR, writtenDirs(config.DATA_DIR)) }]
      : []),
    {
      about: 'disk of KEY_DIR',
      look: async () => (embedded && (await sameDisk(keyDir, config.DATA_DIR)) ? [] : room(keyDir, [keyDir])),
    },
  ]
}

const room = async (path: string, dirs: readonly string[]): Promise<Told> => {
  const space = await spaceAbove(path, dirs)
  const figures = { free_bytes: space.freeBytes, total_bytes: space.totalBytes, free_ratio: space.freeRatio }
  const says = `${spaceText(space)}, at ${path}`
  switch (diskStateOf(space)) {
    case 'full':
      return fault(`${says}: new calls are refused`, makeRoom, figures)
    case 'low':
      return warning(says, makeRoom, figures)
    case 'ok':
      return ok(says, figures)
  }
}

/** Of the directories, or of the one above the first that exists: it may not have been made yet. */
const spaceAbove = async (path: string, dirs: readonly string[]): Promise<DiskSpace> => {
  try {
    return await scarcestOf(dirs)
  } catch (error) {
    const above = dirname(path)
    if (above === path || !(error instanceof Error && 'code' in error && error.code === 'ENOENT')) throw error
    return spaceAbove(above, [above])
  }
}

const sameDisk = async (one: string, other: string): Promise<boolean> => {
  const [first, second] = await Promise.all([one, other].map((path) => stat(path).catch(() => null)))
  // One that is not there yet will be made where the other is.
  return first?.dev === undefined || second?.dev === undefined || first.dev === second.dev
}

type Growing = {
  readonly pool: Pick<pg.Pool, 'query'>
  readonly eventLog: Pick<EventLog, 'head' | 'at'>
  readonly config: Config
}

const dayMs = 86_400_000
/** The pace of the last week; of less where the log is younger. */
const windowMs = 7 * dayMs
/** A pace taken from less says nothing of a day. */
const windowMinMs = 3_600_000
const eventsMin = 1_000
const daysFew = 30

/** What the database takes, and what of it is new every day. */
export const growthCheck = ({ pool, eventLog, config }: Growing): Check => ({
  about: 'growth',
  look: async () => {
    const sizes = await sizesOf(pool)
    const figures = {
      database_bytes: sizes.database,
      event_log_bytes: sizes.log,
      read_model_bytes: sizes.rows,
    }
    const taken = `the database takes ${bytesText(sizes.database)} (event log ${bytesText(sizes.log)}, read models ${bytesText(sizes.rows)})`
    if (config.EVENT_LOG_URL !== undefined)
      return ok(`${taken}; how fast EventStoreDB grows, its own metrics tell`, figures)
    const pace = await paceOf(eventLog)
    if (pace === null) return ok(`${taken}; there are too few events to tell how fast it grows`, figures)
    const bytesPerDay = Math.round(((sizes.log + sizes.rows + sizes.keyed) / pace.events) * pace.eventsPerDay)
    const told = `${taken} and ${bytesText(bytesPerDay)} more a day, at ${Math.round(pace.eventsPerDay)} events a day`
    const all = { ...figures, events_per_day: Math.round(pace.eventsPerDay), bytes_per_day: bytesPerDay }
    if (config.DATABASE_URL !== undefined)
      return ok(`${told}; its disk cannot be seen from here: watch it there`, {
        ...all,
        days_until_full: null,
      })
    const { freeBytes } = await scarcestOf(writtenDirs(config.DATA_DIR))
    const days = Math.floor(freeBytes / Math.max(1, bytesPerDay))
    const full = `${told}; at this pace the disk is full in ${days > 3_650 ? 'more than ten years' : `${days} days`}`
    return days < daysFew
      ? warning(full, makeRoom, { ...all, days_until_full: days })
      : ok(full, { ...all, days_until_full: days })
  },
})

const sizesOf = async (
  pool: Pick<pg.Pool, 'query'>,
): Promise<Readonly<Record<'database' | 'log' | 'rows' | 'keyed', number>>> => {
  const { rows } = await pool.query<Record<'database' | 'log' | 'rows' | 'keyed', string>>(
    `select pg_database_size(current_database()) as database,
            coalesce(sum(pg_total_relation_size(c.oid)) filter (where c.relname like 'log\\_%'), 0) as log,
            coalesce(sum(pg_total_relation_size(c.oid)) filter (where n.nspname = 'projections'), 0) as rows,
            coalesce(sum(pg_total_relation_size(c.oid)) filter (where c.relname = 'idempotent_calls'), 0) as keyed
       from pg_class c join pg_namespace n on n.oid = c.relnamespace
      where c.relkind in ('r', 'm')
        and (n.nspname = 'projections'
             or n.oid = (select relnamespace from pg_class where oid = to_regclass('log_head'))
                and (c.relname like 'log\\_%' or c.relname = 'idempotent_calls'))`,
  )
  const [row] = rows
  return {
    database: Number(row?.database ?? 0),
    log: Number(row?.log ?? 0),
    rows: Number(row?.rows ?? 0),
    keyed: Number(row?.keyed ?? 0),
  }
}

/**
 * How many events there are, and how many came a day of late. The log is asked for a few dozen single events: the one a week back is
 * found by halving, since positions are in the order of time. Null: too few to tell.
 */
const paceOf = async (
  eventLog: Pick<EventLog, 'head' | 'at'>,
): Promise<{ readonly events: number; readonly eventsPerDay: number } | null> => {
  const head = await eventLog.head()
  const [first, last] = await Promise.all([eventLog.at(1n), eventLog.at(head)])
  if (head < BigInt(eventsMin) || first === null || last === null) return null
  const nowMs = Math.max(Date.now(), last.recordedAtMs)
  const sinceMs = Math.max(first.recordedAtMs, nowMs - windowMs)
  if (nowMs - sinceMs < windowMinMs) return null
  let before = 0n
  let after = head
  while (after - before > 1n) {
    const middle = (before + after) / 2n
    const event = await eventLog.at(middle)
    // Positions of this log have no holes. Where one cannot be opened the pace is not to be had.
    if (event === null) return null
    if (event.recordedAtMs < sinceMs) before = middle
    else after = middle
  }
  return { events: Number(head), eventsPerDay: (Number(head - before) / (nowMs - sinceMs)) * dayMs }
}
