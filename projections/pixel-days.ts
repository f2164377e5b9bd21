import type { Query, StatelessProjection } from './projection.ts'
import { type RowOf, type Table, upsert } from './rows.ts'

const daysTable = {
  name: 'pixel_days',
  columns: {
    organization_id: 'text not null',
    day: 'date not null',
    // The domain of the rule that decided. Empty: no rule applied.
    domain: 'text not null',
    fired: 'bigint not null',
    refused: 'bigint not null',
  },
  key: ['organization_id', 'day', 'domain'],
} as const satisfies Table

/**
 * The number of pixel hits that fired or were refused, by UTC day and by the domain of the rule that decided. Pixel limits do not use
 * these numbers.
 */
export const pixelDays: StatelessProjection = {
  name: 'pixel_days',
  version: 1,
  prefixes: ['ledger-'],
  money: false,
  tables: [daysTable],
  fold: (events) => {
    const days = new Map<string, RowOf<typeof daysTable> & { fired: number; refused: number }>()
    for (const event of events) {
      if (event.type !== 'KeyUsed') continue
      const { facts } = event.data
      if (facts.kind !== 'pixel' || facts.action !== 'decided') continue
      const organization_id = event.stream.slice('ledger-'.length)
      const [day, domain] = [event.metadata.effective_at.slice(0, 10), facts.domain ?? '']
      const cell = `${organization_id} ${day} ${domain}`
      const row = days.get(cell) ?? { organization_id, day, domain, fired: 0, refused: 0 }
      if (facts.fire === true) row.fired++
      else row.refused++
      days.set(cell, row)
    }
    return [
      upsert(daysTable, [...days.values()], {
        fired: 't.fired + excluded.fired',
        refused: 't.refused + excluded.refused',
      }),
    ]
  },
}

export type PixelDayRow = {
  readonly day: string
  readonly domain: string
  readonly fired: string
  readonly refused: string
}

/** An organization's hits by day, newest first, and by domain. `domain` limits them to a single domain. */
export const pixelDaysOf = (
  organizationId: string,
  { domain, max }: { readonly domain: string | null; readonly max: number },
): Query<PixelDayRow> => ({
  text: `select day::text as day, domain, fired::text as fired, refused::text as refused from pixel_days
          where organization_id = $1 and ($2::text is null or domain = $2)
          order by pixel_days.day desc, domain desc limit $3`,
  values: [organizationId, domain, max],
})

/** The number of hits that fired, and of those that were refused, since a day. Returns one row. */
export const pixelHitsSince = (
  organizationId: string,
  day: string,
): Query<{ readonly fired: string; readonly refused: string }> => ({
  text: `select coalesce(sum(fired), 0)::text as fired, coalesce(sum(refused), 0)::text as refused
           from pixel_days where organization_id = $1 and day >= $2::date`,
  values: [organizationId, day],
})
