import type pg from 'pg'
import type { EpochSealer } from '../../../guard/secrets/secrets.ts'
import { cachedAgeMaxMs } from './freshness.ts'
import { keySealContext } from './vault.ts'

/**
 * Stores of sealed data about people that is kept for longer than an epoch: the keys of payloads that can still be returned, and the data
 * set.
 */

type Queries = Pick<pg.Pool, 'query'>

/** The maximum number of values in one portion, which is read, sealed and written back within a second. */
const portionMax = 500

type Sealed = { readonly id: string; readonly context: string; readonly sealed: string }

/**
 * Reads values in portions, in the order of their ids. Replaces only unchanged values, so that rows that were deleted in between stay
 * deleted.
 */
const resealing =
  ({
    sealer,
    portionAfter,
    replace,
  }: {
    sealer: EpochSealer
    portionAfter: (keyId: string, id: string) => Promise<readonly Sealed[]>
    replace: (ids: readonly string[], before: readonly string[], after: readonly string[]) => Promise<number>
  }) =>
  async (keyId: string): Promise<number> => {
    let resealed = 0
    for (let id = ''; ; ) {
      const portion = await portionAfter(keyId, id)
      const renewed: (Sealed & { readonly after: string })[] = []
      for (const one of portion) {
        const text = sealer.open(one.sealed, one.context)
        // A value that cannot be opened with an existing key is damaged, so deleting the key loses nothing.
        if (text !== null) renewed.push({ ...one, after: await sealer.seal(text, one.context) })
      }
      if (renewed.length > 0)
        resealed += await replace(
          renewed.map((one) => one.id),
          renewed.map(({ sealed }) => sealed),
          renewed.map(({ after }) => after),
        )
      const last = portion.at(-1)
      if (last === undefined || portion.length < portionMax) return resealed
      id = last.id
    }
  }

/** Keys older than 30 days are not resealed, because their data is no longer returned, and the retention job will delete the keys. */
export const profileKeyStore = ({
  pool,
  sealer,
  clock,
}: {
  pool: Queries
  sealer: EpochSealer
  clock: { now(): number }
}) => ({
  name: 'profile keys',
  reseal: resealing({
    sealer,
    portionAfter: async (keyId, id) => {
      const { rows } = await pool.query<{ key_id: string; subject_id: string; sealed_key: string }>(
        `select key_id, subject_id, sealed_key from profile_keys
          where split_part(sealed_key, '.', 1) = $1 and created_at >= $2 and key_id > $3 order by key_id limit $4`,
        [keyId, new Date(clock.now() - cachedAgeMaxMs), id, portionMax],
      )
      return rows.map((row) => ({
        id: row.key_id,
        context: keySealContext(row.subject_id, row.key_id),
        sealed: row.sealed_key,
      }))
    },
    replace: async (ids, before, after) => {
      const { rowCount } = await pool.query(
        `update profile_keys k set sealed_key = u.after
           from unnest($1::text[], $2::text[], $3::text[]) as u (id, before, after)
          where k.key_id = u.id and k.sealed_key = u.before`,
        [ids, before, after],
      )
      return rowCount ?? 0
    },
  }),
  // Rows with unreadable keys stay until they expire, because an erasure uses them to find the subject of a payload.
  drop: async () => 0,
})

export const datasetStore = ({ pool, sealer }: { pool: Queries; sealer: EpochSealer }) => ({
  name: 'profile data set',
  reseal: resealing({
    sealer,
    portionAfter: async (keyId, id) => {
      const { rows } = await pool.query<{ lid_hmac: string; sealed: string }>(
        `select lid_hmac, sealed from profile_dataset
          where split_part(sealed, '.', 1) = $1 and lid_hmac > $2 order by lid_hmac limit $3`,
        [keyId, id, portionMax],
      )
      return rows.map(({ lid_hmac, sealed }) => ({ id: lid_hmac, context: lid_hmac, sealed }))
    },
    replace: async (ids, before, after) => {
      const { rowCount } = await pool.query(
        `update profile_dataset d set sealed = u.after
           from unnest($1::text[], $2::text[], $3::text[]) as u (id, before, after)
          where d.lid_hmac = u.id and d.sealed = u.before`,
        [ids, before, after],
      )
      return rowCount ?? 0
    },
  }),
  drop: async (keyId: string) => {
    const { rowCount } = await pool.query(
      `delete from profile_dataset where split_part(sealed, '.', 1) = $1`,
      [keyId],
    )
    return rowCount ?? 0
  },
})
