import { hash } from 'node:crypto'

/**
 * The Merkle tree of RFC 6962 with SHA-256. It can prove that a leaf is in a tree, and that a tree is the beginning of a larger one. Pure. Sizes
 * and indexes are integers below 2^53.
 */

export const hashBytes = 32

/** The root of an empty tree (RFC 6962 §2.1). */
export const emptyRoot: Buffer = Buffer.from(hash('sha256', '', 'hex'), 'hex')

const leafInput = Buffer.alloc(1 + hashBytes)
const nodeInput = Buffer.alloc(1 + 2 * hashBytes)
nodeInput[0] = 1

/** The digest as text with one character per byte, which is the fastest output of `hash`. */
const digestText = (input: Buffer): string => hash('sha256', input, 'binary')

/** The hash of a leaf. */
export const leafHash = (leaf: Buffer): Buffer =>
  Buffer.from(digestText(Buffer.concat([Buffer.of(0), leaf])), 'binary')

/** Writes the hash of a leaf that is given as a base64url digest of 32 bytes. */
export const writeLeafHash = (digest: string, target: Buffer, at: number): void => {
  leafInput.write(digest, 1, 'base64url')
  target.write(digestText(leafInput), at, 'binary')
}

export const nodeHash = (left: Buffer, right: Buffer): Buffer => {
  left.copy(nodeInput, 1)
  right.copy(nodeInput, 1 + hashBytes)
  return Buffer.from(digestText(nodeInput), 'binary')
}

/**
 * The root over consecutive hashes of leaves, or of complete subtrees of the same height. Pairs are hashed level by level, and an unpaired hash
 * moves up unchanged. The result is the root in the recursive definition of the RFC.
 */
export const rootOf = (hashes: Buffer): Buffer => {
  let count = hashes.length / hashBytes
  if (count === 0) return emptyRoot
  const work = Buffer.from(hashes)
  for (; count > 1; count = (count + 1) >> 1) {
    const pairs = count >> 1
    for (let pair = 0; pair < pairs; pair++) {
      work.copy(nodeInput, 1, pair * 2 * hashBytes, (pair + 1) * 2 * hashBytes)
      work.write(digestText(nodeInput), pair * hashBytes, 'binary')
    }
    if (count % 2 === 1) work.copy(work, pairs * hashBytes, (count - 1) * hashBytes, count * hashBytes)
  }
  return work.subarray(0, hashBytes)
}

/** `to` is exclusive. */
export type LeafRange = { readonly from: number; readonly to: number }

/** The largest power of two below a number above 1. */
export const splitOf = (size: number): number => {
  let split = 1
  while (split * 2 < size) split *= 2
  return split
}

/** The ranges whose roots prove a leaf, from the leaf upwards (PATH of RFC 6962 §2.1.1). */
export const inclusionRanges = (index: number, size: number): LeafRange[] => {
  const ranges: LeafRange[] = []
  for (let from = 0, to = size; to - from > 1; ) {
    const middle = from + splitOf(to - from)
    const left = index < middle
    ranges.push(left ? { from: middle, to } : { from, to: middle })
    if (left) to = middle
    else from = middle
  }
  return ranges.reverse()
}

/** The ranges whose roots prove that a tree of `before` leaves is the beginning of one of `size` (PROOF of RFC 6962 §2.1.2). */
export const consistencyRanges = (before: number, size: number): LeafRange[] => {
  if (before === 0 || before === size) return []
  const ranges: LeafRange[] = []
  let [from, to] = [0, size]
  while (before < to) {
    const middle = from + splitOf(to - from)
    const left = before <= middle
    ranges.push(left ? { from: middle, to } : { from, to: middle })
    if (left) to = middle
    else from = middle
  }
  // A range from 0 is the earlier tree itself, whose root the verifier already has.
  if (from > 0) ranges.push({ from, to })
  return ranges.reverse()
}

/** Calculates the root from a leaf's hash and a proof, or returns null if the proof has the wrong length (RFC 9162 §2.1.3.2). */
export const rootFromInclusion = (
  leaf: Buffer,
  proof: readonly Buffer[],
  { index, size }: { readonly index: number; readonly size: number },
): Buffer | null => {
  if (index < 0 || index >= size) return null
  let at = index
  let last = size - 1
  let root = leaf
  for (const other of proof) {
    if (last === 0) return null
    if (at % 2 === 1 || at === last) {
      root = nodeHash(other, root)
      while (at % 2 === 0 && at !== 0) [at, last] = [at / 2, Math.floor(last / 2)]
    } else root = nodeHash(root, other)
    at = Math.floor(at / 2)
    last = Math.floor(last / 2)
  }
  return last === 0 ? root : null
}

type TreeHead = { readonly size: number; readonly root: Buffer }

/** Whether the proof shows that the tree `before` is the beginning of the tree `after` (RFC 9162 §2.1.4.2). */
export const isConsistent = (before: TreeHead, after: TreeHead, proof: readonly Buffer[]): boolean => {
  if (before.size > after.size) return false
  if (before.size === after.size) return proof.length === 0 && before.root.equals(after.root)
  if (before.size === 0) return proof.length === 0
  let at = before.size - 1
  let last = after.size - 1
  while (at % 2 === 1) [at, last] = [Math.floor(at / 2), Math.floor(last / 2)]
  const [first, ...rest] = at === 0 ? [before.root, ...proof] : proof
  if (first === undefined) return false
  let [older, newer] = [first, first]
  for (const other of rest) {
    if (last === 0) return false
    if (at % 2 === 1 || at === last) {
      older = nodeHash(other, older)
      newer = nodeHash(other, newer)
      while (at % 2 === 0 && at !== 0) [at, last] = [at / 2, Math.floor(last / 2)]
    } else newer = nodeHash(newer, other)
    at = Math.floor(at / 2)
    last = Math.floor(last / 2)
  }
  return last === 0 && older.equals(before.root) && newer.equals(after.root)
}
