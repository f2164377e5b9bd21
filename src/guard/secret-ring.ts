import { hash, hkdfSync } from 'node:crypto'
import { Unavailable } from '../event-log/port.ts'

/**
 * The keys that SECRET_KEY has been, as far as anything still depends on them. One is in use: everything new is made under it.
 * Which one that is the database says, not the order in which processes were given their keys, so that all of them
 * make what all the others can check.
 */
export type SecretRing = {
  /** Throws `Unavailable` where this process does not have the key in use. */
  current(): RingKey
  /** The key in use, then the others: 1 to `ringKeysMax`. Throws as `current`. */
  keys(): readonly RingKey[]
  /** The one that was in use first. Throws as `current`. */
  eldest(): RingKey
  /** The key in use is the first the installation had. Throws as `current`. */
  isFirst(): boolean
}

export type RingKey = {
  /** 12 hexadecimal digits that no one can find the key by: it names the key to people. */
  readonly id: string
  /** What the database keeps of the key, base64url: the same for the same key, under a purpose of its own. */
  readonly check: string
  /** A key of 32 bytes for one purpose. */
  derive(purpose: string): Buffer
}

/** Each is tried for every look-up and every wrong secret. */
export const ringKeysMax = 4

const purposeSalt = 'enrichment-ledger'

/** From what the database keeps of a key, so that a key of an earlier release has its id without being there. */
const keyIdOf = (check: string): string => hash('sha256', check, 'hex').slice(0, 12)

/** `secretKey` is at least 32 characters of high entropy. */
export const ringKeyOf = (secretKey: string): RingKey => {
  const derive = (purpose: string): Buffer =>
    Buffer.from(hkdfSync('sha256', secretKey, purposeSalt, purpose, 32))
  const check = derive('check').toString('base64url')
  return { id: keyIdOf(check), check, derive }
}

/** A ring that does not change. The first key is in use. */
export const ringOf = (secretKeys: readonly string[]): SecretRing =>
  createChangingRing(secretKeys.map(ringKeyOf))

/** A text is a ring of this one key. */
export const ringFrom = (source: string | SecretRing): SecretRing =>
  typeof source === 'string' ? ringOf([source]) : source

export type ChangingRing = SecretRing & {
  /** Every key this process was given, whether or not the one in use is among them. */
  given(): readonly RingKey[]
  /** What it was given is now this. */
  give(keys: readonly RingKey[]): void
  /**
   * The keys the installation knows, by id, in the order in which they came into use; the last one is in use. `firstId`: the first it
   * had, which may have left; default: the first of them. False: this process does not have the one in use, and makes and checks
   * nothing until it does.
   */
  use(keyIds: readonly string[], firstId?: string): boolean
}

/** The first key is in use, and those after it were, each before the one before it, until `use` tells. */
export const createChangingRing = (given: readonly RingKey[]): ChangingRing => {
  let all = given
  let used: readonly string[] = given.map(({ id }) => id).toReversed()
  let ordered: readonly RingKey[] = given
  let first = used[0]
  const order = (): boolean => {
    const current = all.find(({ id }) => id === used.at(-1))
    const others = all.filter((key) => key !== current)
    // One that was never in use comes before those that were: it is the newest.
    const rank = ({ id }: RingKey): number => (used.includes(id) ? used.indexOf(id) : used.length)
    ordered = current === undefined ? [] : [current, ...others.sort((a, b) => rank(b) - rank(a))]
    return current !== undefined
  }
  const keys = (): readonly RingKey[] => {
    if (ordered.length > 0) return ordered
    throw new Unavailable(`this process does not have the SECRET_KEY ${used.at(-1)}, which is in use`)
  }
  const one = (key: RingKey | undefined): RingKey => {
    if (key === undefined) throw new Unavailable('there is no SECRET_KEY')
    return key
  }
  return {
    keys,
    current: () => one(keys()[0]),
    eldest: () =>
      one(keys().find(({ id }) => id === used.find((known) => all.some((key) => key.id === known)))),
    given: () => all,
    give: (next) => {
      all = next
      order()
    },
    isFirst: () => one(keys()[0]).id === first,
    use: (keyIds, firstId = keyIds[0]) => {
      used = keyIds
      first = firstId
      return order()
    },
  }
}
