import type pg from 'pg'
import type { CapabilityStorage } from '../../call/capability.ts'
import type { Counted, FormerKey, KeyedUse } from '../../guard/keyed-use.ts'
import { renewPortion, rowsUnder } from './dataset/renew.ts'
import { datasetSecretsOf } from './storage.ts'

/** What is kept of people under keys derived from SECRET_KEY, beside what the event log holds. */
export const keyedUses = (storage: CapabilityStorage): readonly KeyedUse[] => {
  const { pool, secrets } = storage
  const dataset = {
    pool,
    secrets: { ...datasetSecretsOf(storage), identifierUnder: secrets.identifierUnder },
  }
  return [
    {
      name: 'people of the data set',
      fate: 'renewed',
      under: () => rowsUnder(dataset),
      renew: (after) => renewPortion(dataset, after),
    },
    {
      name: 'suppressions',
      fate: 'kept',
      under: since(pool, 'select count(*)::int as count from profile_suppressions where suppressed_at >= $1'),
    },
    {
      // Until then an erasure finds by it whom a payload is about.
      name: 'keys of profiles',
      fate: 'ends',
      under: since(pool, 'select count(*)::int as count from profile_keys where created_at >= $1'),
      // A later one depends on the key only where events about people do, and those prevent it themselves.
      dependingOn: async ({ inUseFrom, inUseUntil }) => {
        const { rows } = await pool.query<{ count: number }>(
          'select count(*)::int as count from profile_keys where created_at between $1 and $2',
          [earlier(inUseFrom), inUseUntil === null ? 'infinity' : new Date(inUseUntil.getTime() + marginMs)],
        )
        const count = rows[0]?.count ?? 0
        return count === 0 ? [] : [{ name: 'keys of profiles', count, prevents: 'they end within a month' }]
      },
    },
  ]
}

/** Clocks of machines differ, and so does what is a moment later. */
const marginMs = 3_600_000

const earlier = (from: Date | null): Date | string =>
  from === null ? '-infinity' : new Date(from.getTime() - marginMs)

/**
 * Rows do not say under which key they are: all since the key came into use. Some of those are under a later one, and some name
 * a person by what an event of the key's time does.
 */
const since =
  (pool: Pick<pg.Pool, 'query'>, text: string): KeyedUse['under'] =>
  async (keys: readonly FormerKey[]) => {
    const found = new Map<string, Counted>()
    for (const { id, inUseFrom } of keys) {
      const { rows } = await pool.query<{ count: number }>(text, [earlier(inUseFrom)])
      found.set(id, { count: rows[0]?.count ?? 0, more: false })
    }
    return found
  }
