/**
 * The search tree of a MaxMind DB file, walked from bits instead of text.
 *
 * mmdb-lib walks it too, but parses the address text with regular expressions and allocates at every step. This
 * walk starts 16 bits down through a table and returns the record's pointer, which is the natural key of a cache:
 * a file has far fewer records than addresses. Decoding stays with mmdb-lib.
 * Format: maxmind.github.io/MaxMind-DB, "Binary Search Tree Section".
 */

/** The part of mmdb-lib's metadata that locates the tree: sizes in bytes, `recordSize` in bits. */
type TreeLayout = { nodeCount: number; recordSize: number; searchTreeSize: number; ipVersion: number }

/** Finds the record of an address: a pointer above zero, equal for addresses that share a record; 0 for none. */
export type AddressTree = {
  findIPv4(bits: number): number
  findIPv6(words: Uint16Array): number
  /** Whether the branch of the first `from` bits of `words` has a record. An IPv4 address is two words. */
  reaches(words: Uint16Array, from: number): boolean
  /**
   * Sets the bits of `words` from bit `from` on to an address that has a record, chosen at random among the branches
   * that have one; false when the branch above `from` has none. An IPv4 address is two words.
   */
  descend(words: Uint16Array, from: number, random: () => number): boolean
}

const jumpBits = 16
const jumpEntries = 1 << jumpBits
/** Zero bytes between the tree and the data section; pointers count them. */
const separatorBytes = 16

/** One child of a node: `right` 0 or 1. */
type ChildOf = (node: number, right: number) => number

/** A tree over `file`. @throws RangeError when the file ends inside its tree. */
export const openTree = (file: Buffer, layout: TreeLayout): AddressTree => {
  const child = childReader(file, layout.recordSize)
  const { nodeCount } = layout
  const leads = leadingNodes(child, nodeCount)
  const ipv6Jumps = layout.ipVersion === 6 ? jumpTable(child, 0, nodeCount) : null
  const ipv4Start = ipv4Root(child, layout)
  const ipv4Jumps = jumpTable(child, ipv4Start, nodeCount)
  return {
    findIPv4(bits) {
      let node = ipv4Jumps[bits >>> jumpBits] ?? nodeCount
      for (let depth = jumpBits; depth < 32 && node < nodeCount; depth++) {
        node = child(node, (bits >>> (31 - depth)) & 1)
      }
      return node > nodeCount ? node : 0
    },
    findIPv6(words) {
      if (ipv6Jumps === null) return 0
      let node = ipv6Jumps[words[0] ?? 0] ?? nodeCount
      for (let depth = jumpBits; depth < 128 && node < nodeCount; depth++) {
        node = child(node, ((words[depth >> 4] ?? 0) >>> (15 - (depth & 15))) & 1)
      }
      return node > nodeCount ? node : 0
    },
    reaches(words, from) {
      let node = words.length === 2 ? ipv4Start : 0
      for (let depth = 0; depth < from && node < nodeCount; depth++)
        node = child(node, ((words[depth >> 4] ?? 0) >>> (15 - (depth & 15))) & 1)
      return leads(node)
    },
    descend(words, from, random) {
      let node = words.length === 2 ? ipv4Start : 0
      for (let depth = 0; depth < words.length * 16; depth++) {
        const mask = 0x8000 >>> (depth & 15)
        let word = words[depth >> 4] ?? 0
        if (depth >= from) {
          const coin = random() < 0.5 ? 0 : 1
          const barren = node < nodeCount && !leads(child(node, coin))
          word = (barren ? 1 - coin : coin) === 1 ? word | mask : word & ~mask
          words[depth >> 4] = word
        }
        if (node < nodeCount) node = child(node, (word & mask) === 0 ? 0 : 1)
        if (node === nodeCount) return false
      }
      return node > nodeCount
    },
  }
}

/** No path is longer in a sound tree. */
const depthMax = 128

/**
 * Whether a record lies below a node. Writers leave branches that end in nothing, node under node, so only looking tells;
 * which nodes lead nowhere is remembered, one bit each, so that all of it together costs no more than a walk of the tree.
 */
const leadingNodes = (child: ChildOf, nodeCount: number): ((node: number) => boolean) => {
  const barren = new Uint8Array((nodeCount + 7) >> 3)
  const leads = (node: number, depth: number): boolean => {
    if (node >= nodeCount) return node > nodeCount
    if (depth >= depthMax || (((barren[node >> 3] ?? 0) >> (node & 7)) & 1) === 1) return false
    if (leads(child(node, 0), depth + 1) || leads(child(node, 1), depth + 1)) return true
    barren[node >> 3] = (barren[node >> 3] ?? 0) | (1 << (node & 7))
    return false
  }
  return (node) => leads(node, 0)
}

/**
 * The first fault among the nodes `from` to `to` (exclusive) as a sentence, or null. Callers check in slices so
 * that a 70 MB file never holds the event loop. `dataEnd` is the offset at which the data section ends.
 *
 * A child must be a node, the "no data" mark, or lie in the data section. It is never node 0: nothing points back
 * at the root, so zeroes mean a hole in the file, which every other check would let through.
 */
export const treeFault = (
  file: Buffer,
  layout: TreeLayout,
  slice: { from: number; to: number; dataEnd: number },
): string | null => {
  const child = childReader(file, layout.recordSize)
  const { nodeCount } = layout
  const pointerMax = nodeCount + slice.dataEnd - layout.searchTreeSize
  for (let node = slice.from; node < slice.to; node++) {
    for (let right = 0; right < 2; right++) {
      const value = child(node, right)
      if (value === 0) return `node ${node} points at the root, as a hole in the file would`
      if (value >= pointerMax) return `node ${node} points past the data`
      if (value > nodeCount && value < nodeCount + separatorBytes)
        return `node ${node} points between sections`
    }
  }
  return null
}

/**
 * The node below which the IPv4 addresses lie: the root of an IPv4 file, `::/96` of an IPv6 one. It is not a node
 * when the file has no IPv4 addresses, or the same record for all of them.
 */
const ipv4Root = (child: ChildOf, { ipVersion, nodeCount }: TreeLayout): number => {
  let node = 0
  if (ipVersion === 4) return node
  for (let depth = 0; depth < 96 && node < nodeCount; depth++) node = child(node, 0)
  return node
}

/** Where each value of the next 16 bits leads from `root`. */
const jumpTable = (child: ChildOf, root: number, nodeCount: number): Uint32Array => {
  const table = new Uint32Array(jumpEntries)
  for (let bits = 0; bits < jumpEntries; bits++) {
    let node = root
    let depth = 0
    for (; depth < jumpBits && node < nodeCount; depth++) {
      node = child(node, (bits >>> (jumpBits - 1 - depth)) & 1)
    }
    // A short prefix fills every entry it covers, so an empty tree is not walked 65,536 times.
    const span = 1 << (jumpBits - depth)
    table.fill(node, bits, bits + span)
    bits += span - 1
  }
  return table
}

/** Reads past the file throw RangeError. Most files have 28-bit records, whose halves share the middle byte. */
const childReader = (file: Buffer, recordSize: number): ChildOf => {
  const view = new DataView(file.buffer, file.byteOffset, file.byteLength)
  if (recordSize === 28) {
    return (node, right) => {
      const at = node * 7
      if (right === 1) return view.getUint32(at + 3) & 0x0fffffff
      const left = view.getUint32(at)
      return (left >>> 8) | ((left & 0xf0) << 20)
    }
  }
  if (recordSize === 24) {
    return (node, right) =>
      right === 1 ? view.getUint32(node * 6 + 2) & 0xffffff : view.getUint32(node * 6) >>> 8
  }
  return (node, right) => view.getUint32(node * 8 + right * 4)
}
