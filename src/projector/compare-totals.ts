import type pg from 'pg'
import type { Projection, TableName } from '../../projections/projection.ts'

/** A figure of an organization's money that two sets of rows at one position do not agree in; null: one of them has none. */
export type TotalDifference = {
  readonly projection: string
  readonly organization_id: string
  readonly figure: string
  readonly live: string | null
  readonly rebuilt: string | null
}

/** Of one projection; more than these are not told one by one. */
const differencesMax = 1_000

/** What the rows of money come to, compared in the caller's transaction. Nothing for a projection that has no figures. */
export const compareTotals = async (
  client: pg.ClientBase,
  projection: Projection,
  { live, rebuilt }: { readonly live: TableName; readonly rebuilt: TableName },
): Promise<TotalDifference[]> => {
  const { name, totals } = projection
  if (totals === undefined) return []
  const { rows } = await client.query<Omit<TotalDifference, 'projection'>>(
    `select organization_id, figure, l.amount as live, r.amount as rebuilt
       from (${totals(live).text}) l full join (${totals(rebuilt).text}) r using (organization_id, figure)
      where l.amount::numeric is distinct from r.amount::numeric
      order by organization_id, figure limit ${differencesMax}`,
  )
  return rows.map((row) => ({ projection: name, ...row }))
}
