import type pg from 'pg'
import { unavailableWhenAway } from '../../../call/unavailable.ts'

/**
 * Records which process is fetching which person. A row with an expiry is used, because a database lock would occupy a connection during the
 * whole upstream request.
 */
export type FetchClaims = {
  take(claim: string, holder: string): Promise<boolean>
  release(claim: string, holder: string): Promise<void>
}

/** Longer than any fetch. After this time, the claim of a dead process can be taken over. */
const claimTtlSeconds = 15

export const createFetchClaims = (pool: pg.Pool): FetchClaims => ({
  take: async (claim, holder) => {
    const { rowCount } = await pool
      .query(
        `insert into profile_fetches as f (claim, holder, until) values ($1, $2, now() + $3 * interval '1 s')
           on conflict (claim) do update set holder = excluded.holder, until = excluded.until where f.until < now()`,
        [claim, holder, claimTtlSeconds],
      )
      .catch(unavailableWhenAway)
    return rowCount === 1
  },
  release: async (claim, holder) => {
    await pool.query('delete from profile_fetches where claim = $1 and holder = $2', [claim, holder])
  },
})
