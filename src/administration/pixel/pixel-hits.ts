import type pg from 'pg'
import {
  type PixelDayPlace,
  type PixelDayRow,
  pixelDaysOf,
  pixelHitsSince,
} from '../../../projections/pixel-days.ts'

const dayMs = 86_400_000
/** The days in the sums, including today. */
export const figureDays = 30

type PixelHits = {
  /** Of the last `figureDays` UTC days, regardless of the filter. */
  readonly sums: { readonly fired: string; readonly refused: string }
  /** Newest first, and within a day by domain. */
  readonly days: readonly PixelDayRow[]
  /** The position after which the next page starts; null: this was the last page. */
  readonly until: PixelDayPlace | null
}

/** The hits of an organization by day and by the domain of the rule that decided, at most `max` rows. */
export const pixelHits = async (
  pool: Pick<pg.Pool, 'query'>,
  organizationId: string,
  asked: {
    readonly domain: string | null
    readonly after: PixelDayPlace | null
    readonly max: number
    readonly atMs: number
  },
): Promise<PixelHits> => {
  const since = new Date(asked.atMs - (figureDays - 1) * dayMs).toISOString().slice(0, 10)
  const [sums, days] = [
    pixelHitsSince(organizationId, since),
    pixelDaysOf(organizationId, { ...asked, max: asked.max + 1 }),
  ]
  const [[sum], { rows }] = await Promise.all([
    pool.query<PixelHits['sums']>(sums.text, [...sums.values]).then((found) => found.rows),
    pool.query<PixelDayRow>(days.text, [...days.values]),
  ])
  const last = rows.length > asked.max ? rows.at(asked.max - 1) : undefined
  return {
    sums: sum ?? { fired: '0', refused: '0' },
    days: rows.slice(0, asked.max),
    until: last === undefined ? null : { day: last.day, domain: last.domain },
  }
}

/** A search text for domains. Impossible texts are not queried, because PostgreSQL refuses a text with U+0000. */
export const searchedDomain = (text: string): string =>
  text
    .trim()
    .toLowerCase()
    .replaceAll(/[^a-z0-9.-]/g, '')
    .slice(0, 253)
