import type pg from 'pg'
import { type ProfileAliasRow, profileBy } from '../../../../projections/profile-cache.ts'
import { unavailableWhenAway } from '../../../call/unavailable.ts'
import { createGathering } from '../../../concurrency/gathering.ts'
import { Unavailable } from '../../../event-log/port.ts'

/** The person an identifier leads to and the known data, read in one moment. */
type LookUp = {
  readonly suppressed: boolean
  readonly row: ProfileAliasRow | undefined
  /** Of the row's payload; null if it was destroyed. */
  readonly sealedKey: string | null
}

export type LookUps = {
  /** By the keyed HMAC of one identifier, as of some moment after the call. */
  of(hmac: string): Promise<LookUp>
}

/** Identifiers of one statement. */
const batchMax = 64
/** Statements under way: the second is for callers who arrive while the first runs. */
const underWayMax = 2
/** Identifiers that wait, 64 statements of them; a caller beyond that is asked to come back. */
const waitingMax = 64 * batchMax

type Row = Partial<ProfileAliasRow> & { suppressed: boolean; sealed_key: string | null }

/** The look-ups of the lateral query are by index. */
const text = `
  select exists (select 1 from profile_suppressions s where s.hmac = asked.hmac) as suppressed,
         p.*, k.sealed_key
    from unnest($1::text[]) with ordinality as asked (hmac, n)
    left join lateral (${profileBy('asked.hmac')}) p on true
    left join lateral (select sealed_key from profile_keys
                        where key_id = p.key_id and subject_id = p.subject_id limit 1) k on true
   order by asked.n`

/** Most calls end with a look-up, so they share statements. */
export const createLookUps = (pool: pg.Pool): LookUps => {
  const lookUps = createGathering<string, Row>({
    batchMax,
    underWayMax,
    waitingMax,
    refusal: () => new Unavailable('too many profile look-ups are waiting'),
    // A caller who waits for an unavailable database would only learn it later.
    failsAll: (error) => error instanceof Unavailable,
    // Prepared. The projection's columns are named, so that its switch to another table changes nothing.
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
