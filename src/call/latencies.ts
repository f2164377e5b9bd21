import type pg from 'pg'
import type { Logger } from 'pino'
import type { Capability } from '../events/capabilities.ts'
import { bucketCount, bucketOf } from './latency-buckets.ts'

/**
 * How long calls took, by organization, capability and hour: counted in memory, and added to the rows of `call_latency` once a minute.
 *
 * Figures of operation and no record. What could not be written is lost and said so, a killed process loses its last minute, and no call
 * ever waits or fails for it.
 */
export type Latencies = {
  /** A call was answered. `atMs`: when it arrived. Costs two look-ups and an addition. */
  add(organizationId: string, capability: Capability, call: { atMs: number; ms: number }): void
  /** Writes what was counted so far and stops the clock; for the end of the process. */
  close(): Promise<void>
  /** Calls whose figures were lost: too many at a time, or they could not be written. */
  lost(): number
}

const flushMs = 60_000
/** Of one hour, organization and capability each; between two writes. Five megabytes. */
export const entriesMax = 20_000
/** Written by one statement. */
const rowsMax = 1_000
const hourMs = 3_600_000
const latencyKeptDays = 35

type Entry = {
  readonly organizationId: string
  readonly capability: Capability
  readonly hourMs: number
  readonly counts: Uint32Array
}

type OfOrganization = Partial<Record<Capability, Entry>>

type Parts = {
  readonly pool: Pick<pg.Pool, 'query'>
  readonly logger: Pick<Logger, 'warn'>
}

export const createLatencies = ({ pool, logger }: Parts): Latencies => {
  const tally = createTally()
  let refused = 0
  let lost = 0
  let writing: Promise<void> | null = null

  const write = async (): Promise<void> => {
    const [due, tooMany] = [tally.take(), refused]
    refused = 0
    let gone = tooMany
    let cause: unknown
    for (let from = 0; from < due.length; from += rowsMax) {
      const some = due.slice(from, from + rowsMax)
      try {
        await addRows(pool, some)
      } catch (error) {
        // It may have been written nevertheless: written again it would count twice.
        cause = error
        gone += some.reduce((sum, { counts }) => sum + counts.reduce((all, count) => all + count, 0), 0)
      }
    }
    if (gone === 0) return
    lost += gone
    logger.warn({ err: cause, calls: gone, tooMany }, 'the latency of calls could not be written down')
  }

  /** One at a time: what comes meanwhile is of the next. */
  const flush = async (): Promise<void> => {
    writing ??= write().finally(() => {
      writing = null
    })
    await writing
  }
  const timer = setInterval(() => void flush(), flushMs).unref()

  return {
    add: (organizationId, capability, { atMs, ms }) => {
      const entry = tally.entry(organizationId, capability, atMs)
      if (entry === null) refused++
      else {
        const bucket = bucketOf(ms)
        entry.counts[bucket] = (entry.counts[bucket] ?? 0) + 1
      }
    },
    close: async () => {
      clearInterval(timer)
      await writing
      await flush()
    },
    lost: () => lost,
  }
}

/** What was counted since it was taken last. */
const createTally = () => {
  let hours = new Map<number, Map<string, OfOrganization>>()
  let entries: Entry[] = []
  return {
    /** Null: there are too many. */
    entry: (organizationId: string, capability: Capability, atMs: number): Entry | null => {
      const hour = Math.floor(atMs / hourMs)
      let organizations = hours.get(hour)
      if (organizations === undefined) {
        organizations = new Map()
        hours.set(hour, organizations)
      }
      const known = organizations.get(organizationId)
      const there = known?.[capability]
      if (there !== undefined) return there
      if (entries.length >= entriesMax) return null
      const own: OfOrganization = known ?? {}
      if (known === undefined) organizations.set(organizationId, own)
      const counts = new Uint32Array(bucketCount)
      const entry = { organizationId, capability, hourMs: hour * hourMs, counts }
      own[capability] = entry
      entries.push(entry)
      return entry
    },
    take: (): Entry[] => {
      const taken = entries
      ;[hours, entries] = [new Map(), []]
      return taken
    },
  }
}

/** In one order, so that two processes that add to the same rows never wait for each other in a circle. */
const addRows = async (pool: Pick<pg.Pool, 'query'>, entries: readonly Entry[]): Promise<void> => {
  await pool.query(
    `insert into call_latency as t (organization_id, hour, capability, counts)
     select organization_id, hour, capability, counts::int[]
       from unnest($1::text[], $2::timestamptz[], $3::text[], $4::text[]) as u (organization_id, hour, capability, counts)
      order by organization_id collate "C", hour, capability collate "C"
     on conflict (organization_id, hour, capability) do update
        set counts = (select array_agg(coalesce(was, 0) + coalesce(more, 0) order by bucket)
                        from unnest(t.counts, excluded.counts) with ordinality as b (was, more, bucket))`,
    [
      entries.map(({ organizationId }) => organizationId),
      entries.map((entry) => new Date(entry.hourMs)),
      entries.map(({ capability }) => capability),
      entries.map(({ counts }) => `{${counts.join(',')}}`),
    ],
  )
}

export const forgottenLatenciesAtOnceMax = 10_000

/** Forgets what is older than is kept. Returns how many rows; call again while it returns the maximum. */
export const forgetLatencies = async (pool: Pick<pg.Pool, 'query'>): Promise<number> => {
  const { rowCount } = await pool.query(
    `delete from call_latency where (organization_id, hour, capability) in (
       select organization_id, hour, capability from call_latency
        where hour < now() - $1 * interval '1 day' order by hour limit $2)`,
    [latencyKeptDays, forgottenLatenciesAtOnceMax],
  )
  return rowCount ?? 0
}
