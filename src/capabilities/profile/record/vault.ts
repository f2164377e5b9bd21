import { createSecretKey, randomBytes, randomUUID } from 'node:crypto'
import type pg from 'pg'
import { unavailableWhenAway } from '../../../call/unavailable.ts'
import { inTransaction } from '../../../concurrency/transaction.ts'
import { type EpochSealer, sealerOf } from '../../../guard/secrets/secrets.ts'

/**
 * Stores the keys of sealed payloads, and the identifiers of people for whom there must be no key. A payload stays in the event log forever,
 * but cannot be opened without its key. Payload keys are sealed under the epoch's key. Once the epoch's key is destroyed, copies of payload
 * keys in free space, the write-ahead log and backups are also useless.
 *
 * Payload keys are not cached, so that data becomes unreadable in every process as soon as its key is destroyed.
 */
export type Vault = {
  /** Seals a payload under a new key. Null if one of the identifiers is suppressed. */
  seal(payload: { subjectId: string; hmacs: readonly string[]; text: string }): Promise<Sealed | null>
  /** Null if the payload's key or the epoch's key was destroyed. */
  open(payload: SealedPayload): Promise<string | null>
  /** Like `open`, but with a sealed key that was read together with the payload; null if no key was found. */
  openWith(sealedKey: string | null, payload: SealedPayload): string | null
  /**
   * Destroys a subject's keys. With `exceptKeyId`, destroys only keys at least a minute older than that key, because another fetch may be
   * running.
   */
  destroy(subjectId: string, exceptKeyId?: string): Promise<void>
  /** Destroys a subject's keys that were created before an instant. */
  destroyOlder(subjectId: string, at: Date): Promise<void>
  /** Whether a subject has a key that was created at an instant or later. */
  holdsNewer(subjectId: string, at: Date): Promise<boolean>
  suppressed(hmacs: readonly string[]): Promise<boolean>
  /**
   * In one transaction, suppresses identifiers and destroys the keys of the subjects, and of every payload sealed under one of the identifiers,
   * even if the payload is not recorded yet. Returns the subjects of these keys with their identifiers.
   */
  forget(request: {
    hmacs: readonly string[]
    subjectIds: readonly string[]
    at: Date
  }): Promise<readonly { readonly subjectId: string; readonly hmacs: readonly string[] }[]>
  olderThan(at: Date, max: number): Promise<string[]>
}

type SealedPayload = { readonly subjectId: string; readonly keyId: string; readonly sealed: string }

export type Sealed = { readonly keyId: string; readonly sealed: string }

const keyBytes = 32
/**
 * The maximum age difference of keys that `destroy` keeps. Two fetches of one person under different identifiers can overlap, and either can
 * be recorded last.
 */
const besideMaxMs = 60_000
/** The context in which a payload and its key are sealed. */
export const keySealContext = (subjectId: string, keyId: string): string => `${subjectId}/${keyId}`

/** `sealer` seals the keys, so that access to the database alone does not reveal them. */
export const createVault = ({
  pool,
  sealer,
  clock,
}: {
  pool: pg.Pool
  sealer: EpochSealer
  clock: { now(): number }
}): Vault => {
  const openWith: Vault['openWith'] = (sealedKey, { subjectId, keyId, sealed }) => {
    const context = keySealContext(subjectId, keyId)
    const key = sealedKey === null ? null : sealer.open(sealedKey, context)
    return key === null
      ? null
      : sealerOf(createSecretKey(Buffer.from(key, 'base64url'))).open(sealed, context)
  }

  return {
    seal: async ({ subjectId, hmacs, text }) => {
      const keyId = randomUUID()
      const key = randomBytes(keyBytes)
      const context = keySealContext(subjectId, keyId)
      // The key is sealed before the transaction, because sealing needs a second connection to the database at the beginning of an epoch.
      const sealedKey = await sealer.seal(key.toString('base64url'), context)
      return inTransaction(pool, async (client) => {
        // A concurrent `forget` either finds and destroys this key, or has already stored the suppression.
        await client.query('lock table profile_suppressions in share mode')
        if (await isSuppressed(client, hmacs)) return null
        await client.query(
          `insert into profile_keys (key_id, subject_id, sealed_key, created_at, hmacs) values ($1, $2, $3, $4, $5)`,
          [keyId, subjectId, sealedKey, new Date(clock.now()), hmacs],
        )
        return { keyId, sealed: sealerOf(createSecretKey(key)).seal(text, context) }
      }).catch(unavailableWhenAway)
    },
    open: async ({ subjectId, keyId, sealed }) => {
      const { rows } = await pool
        .query<{ sealed_key: string }>(
          'select sealed_key from profile_keys where key_id = $1 and subject_id = $2',
          [keyId, subjectId],
        )
        .catch(unavailableWhenAway)
      return openWith(rows[0]?.sealed_key ?? null, { subjectId, keyId, sealed })
    },
    openWith,
    destroy: async (subjectId, exceptKeyId) => {
      await pool
        .query(
          `delete from profile_keys where subject_id = $1 and ($2::text is null or created_at <
             (select created_at from profile_keys where key_id = $2) - $3 * interval '1 ms')`,
          [subjectId, exceptKeyId ?? null, besideMaxMs],
        )
        .catch(unavailableWhenAway)
    },
    destroyOlder: async (subjectId, at) => {
      await pool.query('delete from profile_keys where subject_id = $1 and created_at < $2', [subjectId, at])
    },
    holdsNewer: async (subjectId, at) => {
      const { rowCount } = await pool.query(
        'select from profile_keys where subject_id = $1 and created_at >= $2 limit 1',
        [subjectId, at],
      )
      return rowCount !== 0
    },
    suppressed: (hmacs) => isSuppressed(pool, hmacs).catch(unavailableWhenAway),
    forget: (people) => inTransaction(pool, (client) => forget(client, people)),
    olderThan: async (at, max) => {
      const { rows } = await pool.query<{ subject_id: string }>(
        `select subject_id from profile_keys where created_at < $1
          group by subject_id order by min(created_at) limit $2`,
        [at, max],
      )
      return rows.map(({ subject_id }) => subject_id)
    },
  }
}

const isSuppressed = async (
  queries: Pick<pg.ClientBase, 'query'>,
  hmacs: readonly string[],
): Promise<boolean> => {
  const { rowCount } = await queries.query(
    'select 1 from profile_suppressions where hmac = any($1::text[]) limit 1',
    [hmacs],
  )
  return rowCount !== 0
}

const forget = async (
  client: pg.PoolClient,
  { hmacs, subjectIds, at }: Parameters<Vault['forget']>[0],
): Promise<Awaited<ReturnType<Vault['forget']>>> => {
  await client.query(
    `insert into profile_suppressions (hmac, suppressed_at) select h, $2 from unnest($1::text[]) as u (h)
       on conflict do nothing`,
    [hmacs, at],
  )
  const { rows } = await client.query<{ subject_id: string; hmacs: string[] }>(
    'delete from profile_keys where subject_id = any($1::text[]) or hmacs && $2::text[] returning subject_id, hmacs',
    [subjectIds, hmacs],
  )
  return rows.map(({ subject_id: subjectId, hmacs: own }) => ({ subjectId, hmacs: own }))
}
