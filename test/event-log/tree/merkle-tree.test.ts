import { hash } from 'node:crypto'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import {
  consistencyRanges,
  emptyRoot,
  inclusionRanges,
  isConsistent,
  type LeafRange,
  leafHash,
  rootFromInclusion,
  rootOf,
  writeLeafHash,
} from '../../../src/event-log/tree/merkle-tree.ts'
import {
  inclusionProof,
  rangeRoot,
  type Tile,
  TileStack,
  tileName,
  tilesOf,
} from '../../../src/event-log/tree/tiles.ts'
import { randomCases } from '../../support/exhaustive.ts'

/** The tree, tested with the vectors of Certificate Transparency and with the literal definition in RFC 6962. */

const bytes = (hex: string): Buffer => Buffer.from(hex, 'hex')
const leaves = [
  '',
  '00',
  '10',
  '2021',
  '3031',
  '40414243',
  '5051525354555657',
  '606162636465666768696a6b6c6d6e6f',
].map(bytes)
const roots = [
  '6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d',
  'fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125',
  'aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77',
  'd37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7',
  '4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4',
  '76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef',
  'ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c',
  '5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328',
]

/** MTH from RFC 6962 §2.1, over leaf hashes. */
const definedRoot = (hashes: readonly Buffer[]): Buffer => {
  const [first] = hashes
  if (first === undefined) return emptyRoot
  if (hashes.length === 1) return first
  let split = 1
  while (split * 2 < hashes.length) split *= 2
  return bytes(
    hash(
      'sha256',
      Buffer.concat([Buffer.of(1), definedRoot(hashes.slice(0, split)), definedRoot(hashes.slice(split))]),
      'hex',
    ),
  )
}

const hashesOf = (count: number): Buffer[] => leaves.slice(0, count).map(leafHash)

/** A tree's tiles, as a store contains them. */
const tilesOfTree = (hashes: readonly Buffer[]): { stack: TileStack; tiles: Map<string, Buffer> } => {
  const tiles = new Map<string, Buffer>()
  const keep = (tile: Tile): void => void tiles.set(tileName(tile), tile.hashes)
  const stack = new TileStack()
  for (const one of hashes) stack.add((target, at) => one.copy(target, at), keep)
  stack.partial().forEach(keep)
  return { stack, tiles }
}

const fromDefinition = (hashes: readonly Buffer[], ranges: readonly LeafRange[]): Buffer[] =>
  ranges.map(({ from, to }) => definedRoot(hashes.slice(from, to)))

describe('the vectors of Certificate Transparency', () => {
  test('the empty tree', () => {
    expect(emptyRoot.toString('hex')).toBe('e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855')
    expect(new TileStack().root()).toEqual(emptyRoot)
    expect(rootOf(Buffer.alloc(0))).toEqual(emptyRoot)
  })

  test.each(roots.map((root, i) => [i + 1, root] as const))('%i leaves', (count, root) => {
    expect(rootOf(Buffer.concat(hashesOf(count))).toString('hex')).toBe(root)
    expect(tilesOfTree(hashesOf(count)).stack.root().toString('hex')).toBe(root)
    expect(definedRoot(hashesOf(count)).toString('hex')).toBe(root)
  })

  test.each([
    [
      0,
      8,
      [
        '96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7',
        '5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e',
        '6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4',
      ],
    ],
    [
      5,
      8,
      [
        'bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b',
        'ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0',
        'd37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7',
      ],
    ],
    [2, 3, ['fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125']],
    [
      1,
      5,
      [
        '6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d',
        '5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e',
        'bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b',
      ],
    ],
  ])('leaf %i of %i has the expected proof', (index, size, proof) => {
    const hashes = hashesOf(size)
    const found = inclusionProof(index, size, tilesOfTree(hashes).tiles)
    expect(found?.map((one) => one.toString('hex'))).toEqual(proof)
    const root = rootFromInclusion(hashes[index] ?? emptyRoot, proof.map(bytes), { index, size })
    expect(root?.toString('hex')).toBe(roots[size - 1])
  })

  test.each([
    [
      1,
      8,
      [
        '96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7',
        '5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e',
        '6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4',
      ],
    ],
    [
      6,
      8,
      [
        '0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a',
        'ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0',
        'd37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7',
      ],
    ],
    [
      2,
      5,
      [
        '5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e',
        'bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b',
      ],
    ],
  ])('the proof that %i leaves are a prefix of %i is as expected', (before, size, proof) => {
    expect(
      fromDefinition(hashesOf(size), consistencyRanges(before, size)).map((one) => one.toString('hex')),
    ).toEqual(proof)
    const heads = [before, size].map((count) => ({ size: count, root: bytes(roots[count - 1] ?? '') }))
    const [older, newer] = heads as [(typeof heads)[0], (typeof heads)[0]]
    expect(isConsistent(older, newer, proof.map(bytes))).toBe(true)
    expect(isConsistent({ ...older, root: newer.root }, newer, proof.map(bytes))).toBe(false)
    expect(isConsistent(older, { ...newer, root: older.root }, proof.map(bytes))).toBe(false)
  })
})

test("a leaf made from a digest's text equals a leaf made from its 32 bytes", () => {
  const digest = hash('sha256', 'an event', 'base64url')
  const target = Buffer.alloc(40)
  writeLeafHash(digest, target, 8)
  expect(target.subarray(8)).toEqual(leafHash(Buffer.from(digest, 'base64url')))
})

/** Sizes around the borders of tiles, where errors are most likely. */
const treeSize = fc.oneof(fc.integer({ min: 1, max: 40 }), fc.integer({ min: 250, max: 520 }))
const many = Array.from({ length: 70_000 }, (_, i) => leafHash(Buffer.from(String(i))))

describe('for every size', () => {
  test('tiles give the root of the definition, proofs of both kinds are valid, and no other leaf, size or root is accepted', () => {
    fc.assert(
      fc.property(treeSize, fc.nat(), fc.nat(), (size, a, b) => {
        const hashes = many.slice(0, size)
        const { stack, tiles } = tilesOfTree(hashes)
        const root = definedRoot(hashes)
        expect(stack.root()).toEqual(root)
        const index = a % size
        const proof = inclusionProof(index, size, tiles)
        expect(proof).toEqual(fromDefinition(hashes, inclusionRanges(index, size)))
        const leaf = hashes[index] ?? emptyRoot
        expect(rootFromInclusion(leaf, proof ?? [], { index, size })).toEqual(root)
        expect(rootFromInclusion(leaf, [...(proof ?? []), root], { index, size })).not.toEqual(root)
        if (size > 1) {
          expect(rootFromInclusion(leaf, (proof ?? []).slice(1), { index, size })).not.toEqual(root)
          expect(rootFromInclusion(leaf, proof ?? [], { index: (index + 1) % size, size })).not.toEqual(root)
        }
        const before = { size: b % (size + 1), root: definedRoot(hashes.slice(0, b % (size + 1))) }
        const way = fromDefinition(hashes, consistencyRanges(before.size, size))
        expect(isConsistent(before, { size, root }, way)).toBe(true)
        if (before.size > 0 && before.size < size)
          expect(isConsistent({ ...before, root: leaf }, { size, root }, way)).toBe(before.root.equals(leaf))
      }),
      { numRuns: randomCases(60) },
    )
  })

  test('a stack continues from its last tiles as if it had never stopped', () => {
    fc.assert(
      fc.property(treeSize, fc.integer({ min: 0, max: 300 }), (size, more) => {
        const { tiles } = tilesOfTree(many.slice(0, size))
        const resumed = TileStack.at(size, (level, index) => tiles.get(tileName({ level, index })))
        for (const one of many.slice(size, size + more))
          resumed?.add(
            (target, at) => one.copy(target, at),
            () => undefined,
          )
        expect(resumed?.root()).toEqual(tilesOfTree(many.slice(0, size + more)).stack.root())
      }),
      { numRuns: randomCases(30) },
    )
  })

  test('a tree with three levels and 70,000 leaves is correct', () => {
    const { stack, tiles } = tilesOfTree(many)
    const root = definedRoot(many)
    expect(stack.root()).toEqual(root)
    const [index, size] = [65_535, many.length]
    const needed = new Map(
      tilesOf(inclusionRanges(index, size)).map((tile) => [
        tileName(tile),
        tiles.get(tileName(tile)) ?? emptyRoot,
      ]),
    )
    const proof = inclusionProof(index, size, needed) ?? []
    expect(rootFromInclusion(many[index] ?? emptyRoot, proof, { index, size })).toEqual(root)
    const earlier = { from: 0, to: 66_000 }
    expect(rangeRoot(earlier, tiles)).toEqual(definedRoot(many.slice(0, 66_000)))
    expect(inclusionProof(index, size, new Map())).toBeNull()
  })
})
