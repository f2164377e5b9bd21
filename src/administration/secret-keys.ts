import type { Foundation } from '../foundation/foundation.ts'
import { type KnownSecretKey, knownSecretKeys, liveHolders } from '../foundation/secret-ring.ts'
import type { Counted, FormerKey, KeyedUse } from '../guard/keyed-use.ts'

/** The keys that SECRET_KEY has been, and what still depends on each. */

type UnderKey = Counted & { readonly use: string; readonly fate: KeyedUse['fate'] }

export type SecretKeyStatus = {
  readonly id: string
  /** `next`: given to this process and not in use yet. `unknown`: the same, behind the first. */
  readonly state: KnownSecretKey['state'] | 'next' | 'unknown'
  readonly inUseFrom: Date | null
  /** This process has it. */
  readonly given: boolean
  /** Of a key that was in use; empty for others. */
  readonly under: readonly UnderKey[]
}

/** `uses` is every use there is. */
export const secretKeyStatus = async (
  foundation: Foundation,
  uses: (known: readonly KnownSecretKey[]) => readonly KeyedUse[],
): Promise<{
  readonly keys: readonly SecretKeyStatus[]
  readonly processes: Awaited<ReturnType<typeof liveHolders>>
}> => {
  const { pool, secretRing } = foundation
  const known = await knownSecretKeys(pool)
  const former = known.filter(({ state }) => state === 'needed')
  const under = await underKeys(uses(known), known, former)
  const given = secretRing.ring.given()
  const [newest] = given
  const fresh = given.filter(({ id }) => !known.some((key) => key.id === id))
  const processes = (await liveHolders(pool)).filter(({ holder }) => holder !== secretRing.holder)
  return {
    processes,
    keys: [
      ...fresh.map(
        ({ id }): SecretKeyStatus => ({
          ...{ id, inUseFrom: null, given: true, under: [] },
          state: id === newest?.id ? 'next' : 'unknown',
        }),
      ),
      ...known.toReversed().map(
        ({ id, state, inUseFrom }): SecretKeyStatus => ({
          ...{ id, state, inUseFrom },
          given: given.some((key) => key.id === id),
          under: under.get(id) ?? [],
        }),
      ),
    ],
  }
}

/** A key as uses are asked about it. */
export const formerKeyOf = (
  { id, number, inUseFrom }: KnownSecretKey,
  known: readonly KnownSecretKey[],
): FormerKey => ({
  ...{ id, inUseFrom, first: id === known[0]?.id },
  inUseUntil: known.find((other) => other.number > number)?.inUseFrom ?? null,
})

/** What is under each of some keys; uses with nothing under a key are left out. */
export const underKeys = async (
  uses: readonly KeyedUse[],
  known: readonly KnownSecretKey[],
  keys: readonly KnownSecretKey[],
): Promise<ReadonlyMap<string, readonly UnderKey[]>> => {
  const asked = keys.map((key) => formerKeyOf(key, known))
  const found = new Map<string, UnderKey[]>(keys.map(({ id }) => [id, []]))
  if (asked.length === 0) return found
  for (const { name, fate, under } of uses)
    for (const [id, counted] of await under(asked))
      if (counted.count > 0) found.get(id)?.push({ use: name, fate, ...counted })
  return found
}

/** `12 suppressions`, `1000 or more facts of the event log`. */
export const underText = ({ use, count, more }: Pick<UnderKey, 'use' | 'count' | 'more'>): string =>
  `${count}${more ? ' or more' : ''} ${use}`
