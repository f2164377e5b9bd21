import { keyIds } from '../../projections/api-keys.ts'
import {
  type AccountRow,
  accountSnapshots,
  sealedState,
  sealedText,
} from '../../projections/sealed-account.ts'
import type { Foundation } from '../foundation/foundation.ts'
import type { KnownSecretKey } from '../foundation/secret-ring.ts'
import { readKeyStream } from '../guard/key-stream-reader.ts'
import { type KeyedUse, tally } from '../guard/keyed-use.ts'
import { endsAtMs } from '../keys/key-state.ts'
import { isInDoubt } from '../keys/key-stream.ts'
import { webhookSealPurpose } from '../webhooks/send.ts'
import { tokensUnderKeys } from './operator-tokens.ts'
import { secondFactorProofs } from './second-factor-uses.ts'
import { recordedFacts } from './secret-facts.ts'

/**
 * Everything that is kept under keys derived from SECRET_KEY, beside what capabilities keep (`KeyedUse`). What lives for a day or
 * less is not here: kept answers, claims of Idempotency-Keys, look-ups of mailboxes, pixel hits, cookies, connections.
 */
export const ownKeyedUses = (
  foundation: Foundation,
  known: readonly KnownSecretKey[],
): readonly KeyedUse[] => [
  {
    name: 'API keys',
    fate: 'when_used',
    under: async (keys) => tally(await keysOfApiKeys(foundation), keys),
  },
  {
    name: 'tokens of operators',
    fate: 'when_used',
    under: async (keys) => tally(await tokensUnderKeys(foundation), keys),
  },
  webhookSecrets(foundation),
  secondFactorProofs(foundation),
  accountSeals(foundation),
  {
    name: 'epoch keys',
    fate: 'ends',
    under: async (keys) =>
      tally(
        (await foundation.epochKeys.list()).flatMap(({ secretKey }) =>
          secretKey === null ? [] : [secretKey],
        ),
        keys,
      ),
  },
  recordedFacts(foundation, known),
]

/** Streams read at a time. */
const readsMax = 16

/** The SECRET_KEY of every API key that still opens something. */
const keysOfApiKeys = async ({ pool, eventLog }: Foundation): Promise<(string | null)[]> => {
  const { text, values } = keyIds()
  const ids = (await pool.query<{ key_id: string }>(text, [...values])).rows.map(({ key_id }) => key_id)
  const found: (string | null)[] = []
  const nowMs = Date.now()
  for (let from = 0; from < ids.length; from += readsMax) {
    const streams = await Promise.all(
      ids.slice(from, from + readsMax).map((keyId) => readKeyStream(eventLog, keyId)),
    )
    for (const stream of streams) {
      // One in doubt opens nothing, and may again with another release.
      const ended = stream.state === undefined || (!isInDoubt(stream) && endsAtMs(stream.state) <= nowMs)
      if (!ended) found.push(stream.state?.secretKey ?? null)
    }
  }
  return found
}

const portionMax = 200

const webhookSecrets = ({ pool, secrets }: Foundation): KeyedUse => {
  const sealer = secrets.sealer(webhookSealPurpose)
  const portion = async (after: string) => {
    const { rows } = await pool.query<{
      webhook_id: string
      sealed_secret: string
      former_sealed_secret: string | null
    }>(
      `select webhook_id, sealed_secret, former_sealed_secret from webhook_endpoints
        where webhook_id > $1 order by webhook_id limit $2`,
      [after, portionMax],
    )
    return { rows, next: rows.length < portionMax ? null : (rows.at(-1)?.webhook_id ?? null) }
  }
  const renewed = async (
    column: 'sealed_secret' | 'former_sealed_secret',
    { id, before }: { readonly id: string; readonly before: string | null },
  ): Promise<number> => {
    const secret = before === null ? null : sealer.open(before, id)
    if (before === null || secret === null || sealer.under(before, id) === secrets.keyId()) return 0
    const { rowCount } = await pool.query(
      `update webhook_endpoints set ${column} = $3 where webhook_id = $1 and ${column} = $2`,
      [id, before, sealer.seal(secret, id)],
    )
    return rowCount ?? 0
  }
  return {
    name: 'webhook secrets',
    fate: 'renewed',
    under: async (keys) => {
      const under: string[] = []
      for (let after: string | null = ''; after !== null; ) {
        const { rows, next } = await portion(after)
        for (const { webhook_id: id, sealed_secret, former_sealed_secret: former } of rows) {
          under.push(sealer.under(sealed_secret, id) ?? '')
          if (former !== null) under.push(sealer.under(former, id) ?? '')
        }
        after = next
      }
      return tally(under, keys)
    },
    renew: async (after) => {
      const { rows, next } = await portion(after)
      let count = 0
      for (const { webhook_id: id, sealed_secret, former_sealed_secret } of rows) {
        count += await renewed('sealed_secret', { id, before: sealed_secret })
        count += await renewed('former_sealed_secret', { id, before: former_sealed_secret })
      }
      return { renewed: count, next }
    },
  }
}

/**
 * Seals of accounts' rows. A row whose seal is under no key of the ring is not believed, and costs the reading of its ledger. The
 * projector seals anew what it writes; here those of ledgers in which nothing happens.
 */
const accountSeals = ({ pool, secrets }: Foundation): KeyedUse => {
  const portion = async (after: string) => {
    const ids = await pool.query<{ organization_id: string }>(
      'select organization_id from accounts where organization_id > $1 order by organization_id limit $2',
      [after, portionMax],
    )
    const { text, values } = accountSnapshots(ids.rows.map((row) => row.organization_id))
    const { rows } = await pool.query<AccountRow>(text, [...values])
    const sealed = rows.flatMap((row) => {
      const state = sealedState(row, secrets.rowSeal)
      const sealedAs = state === null ? null : sealedText(state)
      const under = sealedAs === null ? null : secrets.rowSealUnder(sealedAs, row.seal)
      return sealedAs === null || under === null ? [] : [{ row, text: sealedAs, under }]
    })
    return { sealed, next: ids.rows.length < portionMax ? null : (ids.rows.at(-1)?.organization_id ?? null) }
  }
  return {
    name: 'seals of accounts',
    fate: 'renewed',
    under: async (keys) => {
      const under: string[] = []
      for (let after: string | null = ''; after !== null; ) {
        const { sealed, next } = await portion(after)
        under.push(...sealed.map((one) => one.under))
        after = next
      }
      return tally(under, keys)
    },
    renew: async (after) => {
      const { sealed, next } = await portion(after)
      const stale = sealed.filter(({ under }) => under !== secrets.keyId())
      // Where the projector has written the row since, its seal is another one, and stays.
      const { rowCount } = await pool.query(
        `update accounts a set seal = u.after
           from unnest($1::text[], $2::text[], $3::text[]) as u (id, before, after)
          where a.organization_id = u.id and a.seal = u.before`,
        [
          stale.map(({ row }) => row.organization_id),
          stale.map(({ row }) => row.seal),
          stale.map((one) => secrets.rowSeal.of(one.text)),
        ],
      )
      return { renewed: rowCount ?? 0, next }
    },
  }
}
