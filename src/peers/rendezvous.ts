/**
 * Rendezvous hashing (highest random weight): everyone who knows the same contenders names the same first one of them for
 * a name, without asking anyone, and one that comes or goes moves only its share of the names. Pure.
 *
 * Processes of different releases work together, so these numbers are part of what they agree on.
 */
export type Contender = {
  readonly id: string
  /** `hashOf` its id, kept. */
  readonly hash: number
}

/** A 32-bit hash of a text, well mixed; not for secrets. */
export const hashOf = (text: string): number => {
  let hash = text.length
  for (let i = 0; i < text.length; i++) {
    hash = Math.imul(hash ^ text.charCodeAt(i), 0x5bd1e995)
    hash ^= hash >>> 15
  }
  return mixed(hash)
}

/** The finalizer of MurmurHash3: every bit of the input changes every bit of the output with probability one half. */
const mixed = (bits: number): number => {
  let hash = bits ^ (bits >>> 16)
  hash = Math.imul(hash, 0x85ebca6b)
  hash ^= hash >>> 13
  hash = Math.imul(hash, 0xc2b2ae35)
  return (hash ^ (hash >>> 16)) >>> 0
}

/** Undefined without contenders. Their order does not matter. */
export const firstFor = <One extends Contender>(
  name: string,
  contenders: readonly One[],
): One | undefined => {
  const hash = hashOf(name)
  let first: One | undefined
  let highest = -1
  for (const one of contenders) {
    const weight = mixed(hash ^ one.hash)
    if (weight < highest || (weight === highest && first !== undefined && first.id < one.id)) continue
    highest = weight
    first = one
  }
  return first
}
