import type pg from 'pg'
import { type ProfileAliasRow, profileBy } from '../../../../projections/profile-cache.ts'
import { unavailableWhenAway } from '../../../call/unavailable.ts'
import { createGathering } from '../../../concurrency/gathering.ts'
import { Unavailable } from '../../../event-log/port.ts'

/** The person to whom an identifier leads, and that person's data, read in one statement. */
type LookUp = {
  readonly suppressed: boolean
  readonly row: ProfileAliasRow | undefined
  readonly sealedKey: string | null
}

export type LookUps = {
  /** Looks up the keyed HMAC of an identifier. The result contains every change committed to the database before the call. */
  of(hmac: string): Promise<LookUp>
}

const batchMax = 64
/** The maximum number of concurrent statements. The second statement is for callers who arrive while the first one runs. */
const underWayMax = 2
/** The maximum number of identifiers that can wait (64 statements); further callers must try again later. */
const waitingMax = 64 * batchMax

type Row = Partial<ProfileAliasRow> & { suppressed: boolean; sealed_key: string | null }

/** Each lateral query uses an index. */
const text = `
  select exists (select 1 from profile_suppressions s where s.hmac = asked.hmac) as suppressed,
         p.*, k.sealed_key
    from unnest($1::text[]) with ordinality as asked (hmac, n)
    left join lateral (${profileBy('asked.hmac')}) p on true
    left join lateral (select sealed_key from profile_keys
                        where key_id = p.key_id and subject_id = p.subject_id limit 1) k on true
   order by asked.n`

/** Looks up identifiers with shared statements, because most calls need a look-up. */
export const createLookUps = (pool: pg.Pool): LookUps => {
  const lookUps = createGathering<string, Row>({
    batchMax,
    underWayMax,
    waitingMax,
    refusal: () => new Unavailable('too many profile look-ups are waiting'),
    // If the database is unavailable, waiting callers fail immediately, because a longer wait would not help.
    failsAll: (error) => error instanceof Unavailable,
    // The statement is prepared. The columns are listed, so that the statement stays valid when the projection switches to another table.
    run: async (take) => {
      const query = { name: 'profile-look-ups', text, values: [take()] }
      const { rows } = await pool.query<Row>(query).catch(unavailableWhenAway)
      return rows
    },
  })
  return {
    of: async (hmac) => {
      const row = await lookUps.ask(hmac)
      return {
        suppressed: row.suppressed,
        row: row.subject_id ? (row as ProfileAliasRow) : undefined,
        sealedKey: row.sealed_key,
      }
    },
  }
}
