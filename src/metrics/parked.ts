import type pg from 'pg'

/** More of them are a broken release, and as many say so. */
const countedMax = 1_000

/** How many events each projection has set aside and not been released from; projections without any are not among them. */
export const parkedCounts = async (pool: Pick<pg.Pool, 'query'>): Promise<ReadonlyMap<string, number>> => {
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
