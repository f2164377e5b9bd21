import type pg from 'pg'
import { projections } from '../../projections/index.ts'
import type { Meters } from '../call/capability.ts'
import { remembered } from '../concurrency/remembered.ts'

/**
 * What is measured of the installation rather than of a process: what the event log says that was done, and what rows say that was
 * left undone. Every process tells the same, so that an alarm needs no certain one of them. What cannot be asked is told as it was last known, see `meters.ts`.
 */

/** Rows are looked at this often however many ask: what they say changes by the minute. */
const rememberedMs = 10_000

/** Something that is done again and again, so far as gauges tell it. */
type Done = {
  readonly name: string
  readonly help: string
  readonly doneMs: () => Promise<number | null>
  readonly dueAtOnce: boolean
  readonly found: {
    readonly what: string
    readonly help: string
    readonly labels: readonly string[]
    readonly count: () => Promise<{ value: number; labels?: Readonly<Record<string, string>> } | null>
  } | null
}

type Parts = {
  readonly proofs: readonly Done[]
  readonly begunMs: () => Promise<number | null>
  readonly pool: Pick<pg.Pool, 'query'>
}

export const meterInstallation = (meters: Meters, { proofs, begunMs, pool }: Parts): void => {
  for (const { name, help, doneMs, dueAtOnce, found } of proofs) {
    meters.gauge({ name: `${name}_age_seconds`, help }, async () => {
      const sinceMs = (await doneMs()) ?? (dueAtOnce ? await begunMs() : null)
      return sinceMs === null ? [] : [{ value: Math.max(0, (Date.now() - sinceMs) / 1_000) }]
    })
    if (found === null) continue
    meters.gauge({ name: `${name}_${found.what}`, help: found.help, labels: found.labels }, async () => {
      const count = await found.count()
      return count === null ? [] : [count]
    })
  }
  const parked = remembered(() => parkedCounts(pool), { keptMs: rememberedMs })
  meters.gauge(
    {
      name: 'parked_events',
      help: 'Events that a projection has set aside because it cannot take them, 1,000 at most; guards: whether its rows tell who may call',
      labels: ['projection', 'guards'],
    },
    async () => {
      const counts = await parked()
      return projections.map(({ name, guards = false }) => ({
        labels: { projection: name, guards: guards ? 'yes' : 'no' },
        value: counts.get(name) ?? 0,
      }))
    },
  )
}

/** More of them are a broken release, and as many say so. */
const countedMax = 1_000

/** How many events each projection has set aside and not been released from; projections without any are not among them. */
const parkedCounts = async (pool: Pick<pg.Pool, 'query'>): Promise<ReadonlyMap<string, number>> => {
  const { rows } = await pool.query<{ projection: string; count: number }>(
    `select c.projection, count(*)::int as count
       from (select name as projection from projection_checkpoints) c
      cross join lateral (select 1 from parked_events p
                           where p.projection = c.projection and p.released_at is null limit $1) p
      group by c.projection`,
    [countedMax],
  )
  return new Map(rows.map(({ projection, count }) => [projection, count]))
}
