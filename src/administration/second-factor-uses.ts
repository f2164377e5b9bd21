import type { Foundation } from '../foundation/foundation.ts'
import { type KeyedUse, tally } from '../guard/keyed-use.ts'
import { codesContext, factorSealPurpose, secretContext } from './second-factors.ts'

const portionMax = 200

type Row = {
  readonly user_name: string
  readonly factor_id: string
  readonly sealed_secret: string
  readonly codes_id: string
  readonly sealed_codes: string
}

/** What proves second factors: the secrets of authenticators and the hashes of recovery codes. */
export const secondFactorProofs = ({ pool, secrets }: Pick<Foundation, 'pool' | 'secrets'>): KeyedUse => {
  const sealer = secrets.sealer(factorSealPurpose)
  const portion = async (after: string) => {
    const { rows } = await pool.query<Row>(
      `select user_name, factor_id, sealed_secret, codes_id, sealed_codes from user_second_factors
        where user_name > $1 order by user_name limit $2`,
      [after, portionMax],
    )
    return { rows, next: rows.length < portionMax ? null : (rows.at(-1)?.user_name ?? null) }
  }
  const sealsOf = (row: Row) => {
    const [ofSecret, ofCodes] = [secretContext(row.factor_id), codesContext(row.factor_id, row.codes_id)]
    return [
      { sealed: row.sealed_secret, context: ofSecret },
      { sealed: row.sealed_codes, context: ofCodes },
    ] as const
  }
  const underOf = (row: Row): Set<string> =>
    new Set(sealsOf(row).flatMap(({ sealed, context }) => sealer.under(sealed, context) ?? []))
  /** What cannot be opened stays as it is: it proves nothing, under whatever key. */
  const anew = ({ sealed, context }: { sealed: string; context: string }): string => {
    const text = sealer.open(sealed, context)
    return text === null ? sealed : sealer.seal(text, context)
  }
  return {
    name: 'second factors',
    fate: 'renewed',
    under: async (keys) => {
      const under: string[] = []
      for (let after: string | null = ''; after !== null; ) {
        const { rows, next } = await portion(after)
        under.push(...rows.flatMap((row) => [...underOf(row)]))
        after = next
      }
      return tally(under, keys)
    },
    renew: async (after) => {
      const { rows, next } = await portion(after)
      let renewed = 0
      for (const row of rows) {
        if ([...underOf(row)].every((id) => id === secrets.keyId())) continue
        const [secret, codes] = sealsOf(row)
        const { rowCount } = await pool.query(
          `update user_second_factors set sealed_secret = $4, sealed_codes = $5
            where user_name = $1 and sealed_secret = $2 and sealed_codes = $3`,
          [row.user_name, row.sealed_secret, row.sealed_codes, anew(secret), anew(codes)],
        )
        renewed += rowCount ?? 0
      }
      return { renewed, next }
    },
  }
}
