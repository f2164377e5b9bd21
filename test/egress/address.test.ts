import { BlockList } from 'node:net'
import { describe, expect, it } from 'vitest'
import { parseAddress } from '../../src/egress/address.ts'
import {
  ipv4SpecialPurpose,
  ipv6Allocated,
  ipv6Embedding,
  ipv6SpecialPurpose,
} from '../../src/egress/iana.ts'

describe('malformed addresses are refused', () => {
  it.each([
    '',
    ' 8.8.8.8',
    '8.8.8.8\n',
    '8.8.8.8/32',
    '[::1]',
    '8.8.8',
    '010.8.8.8',
    '0x8.8.8.8',
    '256.8.8.8',
    '\uff18.\uff18.\uff18.\uff18',
    '8.8.8.8:80',
    'fe80::1%eth0',
    '1::2::3',
    '::8.8.8.256',
    'example.com',
    '\u0000',
    '1'.repeat(100_000),
  ])('%j', (text) => {
    expect(parseAddress(text)).toBeNull()
  })
})

describe('well-formed addresses are canonical and name the address to look up', () => {
  it.each([
    ['8.8.8.8', '8.8.8.8', 'IPv4', 4, '8.8.8.8', true],
    ['10.0.0.1', '10.0.0.1', 'IPv4', 4, '10.0.0.1', false],
    ['172.31.255.255', '172.31.255.255', 'IPv4', 4, '172.31.255.255', false],
    ['192.168.1.1', '192.168.1.1', 'IPv4', 4, '192.168.1.1', false],
    ['2A00:1450:0000:0000:0000:0000:0000:200E', '2a00:1450::200e', 'IPv6', 6, '2a00:1450::200e', true],
    ['2a00:0:0:1:0:0:0:1', '2a00:0:0:1::1', 'IPv6', 6, '2a00:0:0:1::1', true],
    ['2a00:0:1:1:1:1:1:1', '2a00:0:1:1:1:1:1:1', 'IPv6', 6, '2a00:0:1:1:1:1:1:1', true],
    ['2a00::1:0:0:1', '2a00::1:0:0:1', 'IPv6', 6, '2a00::1:0:0:1', true],
    ['::', '::', 'IPv6', 6, '::', false],
    ['0:0:0:0:0:0:0:1', '::1', 'IPv6', 6, '::1', false],
    ['::8.8.8.8', '::808:808', 'IPv6', 6, '::808:808', false],
    ['::ffff:8.8.8.8', '::ffff:8.8.8.8', 'IPv6', 4, '8.8.8.8', true],
    ['::FFFF:808:808', '::ffff:8.8.8.8', 'IPv6', 4, '8.8.8.8', true],
    ['::ffff:10.0.0.1', '::ffff:10.0.0.1', 'IPv6', 4, '10.0.0.1', false],
    ['::ffff:a00:1', '::ffff:10.0.0.1', 'IPv6', 4, '10.0.0.1', false],
    ['::ffff:0:8.8.8.8', '::ffff:0:808:808', 'IPv6', 6, '::ffff:0:808:808', false],
    ['64:ff9b::8.8.8.8', '64:ff9b::808:808', 'IPv6', 4, '8.8.8.8', true],
    ['64:ff9b::192.168.0.1', '64:ff9b::c0a8:1', 'IPv6', 4, '192.168.0.1', false],
    ['64:ff9b::1:8.8.8.8', '64:ff9b::1:808:808', 'IPv6', 6, '64:ff9b::1:808:808', false],
    ['64:ff9b:1::8.8.8.8', '64:ff9b:1::808:808', 'IPv6', 6, '64:ff9b:1::808:808', false],
    ['2002:808:808::1', '2002:808:808::1', 'IPv6', 4, '8.8.8.8', true],
    ['2002:7f00:1::', '2002:7f00:1::', 'IPv6', 4, '127.0.0.1', false],
    ['2001:0:808:808::1', '2001:0:808:808::1', 'IPv6', 6, '2001:0:808:808::1', false],
  ] as const)('%s', (text, canonical, type, family, lookup, reachable) => {
    expect(parseAddress(text)).toEqual({ canonical, type, lookup: { family, text: lookup }, reachable })
  })
})

describe('the IANA registries decide what may be looked up', () => {
  // The blocks are listed a second time, because the tests below walk the tables and would not notice a lost row.
  it('the tables contain every block that the profile names', () => {
    const prefixes = (blocks: readonly { prefix: string; lookedUp: boolean }[], lookedUp: boolean) =>
      blocks.filter((block) => block.lookedUp === lookedUp).map(({ prefix }) => prefix)
    expect(prefixes(ipv4SpecialPurpose, false)).toEqual(
      (
        '0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24 ' +
        '192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4'
      ).split(' '),
    )
    expect(prefixes(ipv4SpecialPurpose, true)).toEqual([
      '192.31.196.0/24',
      '192.52.193.0/24',
      '192.175.48.0/24',
    ])
    expect(prefixes(ipv6SpecialPurpose, false)).toEqual(
      (
        '::/96 64:ff9b:1::/48 100::/64 100:0:0:1::/64 2001::/23 2001::/32 2001:2::/48 2001:10::/28 2001:20::/28 ' +
        '2001:30::/28 2001:db8::/32 3fff::/20 5f00::/16 fc00::/7 fe80::/10 fec0::/10 ff00::/8'
      ).split(' '),
    )
    expect(prefixes(ipv6SpecialPurpose, true)).toEqual([
      '2001:3::/32',
      '2001:4:112::/48',
      '2620:4f:8000::/48',
    ])
    expect(ipv6Embedding.map(({ prefix }) => prefix)).toEqual(['::ffff:0:0/96', '64:ff9b::/96', '2002::/16'])
    expect(ipv6Allocated).toHaveLength(34)
    // Only 2000::/3 contains unicast addresses.
    for (const prefix of ipv6Allocated) expect(prefix).toMatch(/^[23][0-9a-f]{3}:/)
  })

  const ipv4Edges = ipv4SpecialPurpose.flatMap(({ prefix, lookedUp }) => {
    const { first, last } = ipv4Range(prefix)
    return [first, last].map((value) => ({ prefix, address: ipv4Text(value), lookedUp }))
  })
  it.each(ipv4Edges)('$address at an edge of $prefix: $lookedUp', ({ address, lookedUp }) => {
    expect(parseAddress(address)?.reachable).toBe(lookedUp)
    expect(parseAddress(`::ffff:${address}`)?.reachable).toBe(lookedUp)
    expect(parseAddress(`64:ff9b::${address}`)?.reachable).toBe(lookedUp)
  })

  it('the IPv4 addresses next to every block are judged by their own block', () => {
    const refused = blockList(
      ipv4SpecialPurpose.filter((block) => !block.lookedUp).map(({ prefix }) => prefix),
    )
    const neighbours = ipv4SpecialPurpose.flatMap(({ prefix }) => {
      const { first, last } = ipv4Range(prefix)
      return [first - 1, last + 1].filter((value) => value >= 0 && value < 2 ** 32).map(ipv4Text)
    })
    expect(neighbours).toHaveLength(2 * ipv4SpecialPurpose.length - 2)
    for (const address of neighbours) {
      expect(parseAddress(address)?.reachable, address).toBe(!refused.check(address, 'ipv4'))
    }
  })

  it.each(ipv6SpecialPurpose)('both edges of $prefix ($name): $lookedUp', ({ prefix, lookedUp }) => {
    const { first, last } = ipv6Range(prefix)
    for (const value of [first, last]) expect(parseAddress(ipv6Text(value))?.reachable).toBe(lookedUp)
  })

  it.each(ipv6Allocated)(
    'both edges of the allocated %s, and the addresses next to it by node:net',
    (prefix) => {
      const { first, last } = ipv6Range(prefix)
      expect(parseAddress(ipv6Text(first))?.reachable).toBe(true)
      expect(parseAddress(ipv6Text(last))?.reachable).toBe(true)
      for (const neighbour of [first - 1n, last + 1n].map(ipv6Text)) {
        // An address in 6to4 space is judged by the IPv4 address in it. The first address of 2002::/16 contains 0.0.0.0.
        const expected = !neighbour.startsWith('2002:') && oracleIPv6(neighbour)
        expect(parseAddress(neighbour)?.reachable, neighbour).toBe(expected)
      }
    },
  )

  it.each(ipv6Embedding)('$prefix ($name) is judged by its IPv4 address', ({ prefix, ipv4AtBit }) => {
    const { first } = ipv6Range(prefix)
    const embed = (ipv4: bigint) => ipv6Text(first | (ipv4 << BigInt(96 - ipv4AtBit)))
    expect(parseAddress(embed(0x08080808n))).toMatchObject({
      lookup: { family: 4, text: '8.8.8.8' },
      reachable: true,
    })
    expect(parseAddress(embed(0x0a000001n))).toMatchObject({
      lookup: { family: 4, text: '10.0.0.1' },
      reachable: false,
    })
  })
})

const oracleRefused = blockList(
  ipv6SpecialPurpose.filter((block) => !block.lookedUp).map(({ prefix }) => prefix),
)
const oracleAllowed = blockList(
  ipv6SpecialPurpose.filter((block) => block.lookedUp).map(({ prefix }) => prefix),
)
const oracleAllocated = blockList(ipv6Allocated)

function oracleIPv6(address: string): boolean {
  if (oracleAllowed.check(address, 'ipv6')) return true
  return oracleAllocated.check(address, 'ipv6') && !oracleRefused.check(address, 'ipv6')
}

function blockList(prefixes: readonly string[]): BlockList {
  const list = new BlockList()
  for (const prefix of prefixes) {
    const [address = '', length = ''] = prefix.split('/')
    list.addSubnet(address, Number(length), address.includes(':') ? 'ipv6' : 'ipv4')
  }
  return list
}

function ipv4Range(prefix: string): { first: number; last: number } {
  const [address = '', length = ''] = prefix.split('/')
  const first = address.split('.').reduce((value, octet) => value * 256 + Number(octet), 0)
  return { first, last: first + 2 ** (32 - Number(length)) - 1 }
}

function ipv4Text(value: number): string {
  return [24, 16, 8, 0].map((shift) => (value >>> shift) & 255).join('.')
}

function ipv6Range(prefix: string): { first: bigint; last: bigint } {
  const [address = '', length = ''] = prefix.split('/')
  const expanded = new URL(`http://[${address}]/`).hostname.slice(1, -1)
  const [head = '', tail = ''] = expanded.split('::')
  const groups = (text: string) => (text === '' ? [] : text.split(':'))
  const missing = 8 - groups(head).length - groups(tail).length
  const words = [...groups(head), ...new Array<string>(missing).fill('0'), ...groups(tail)]
  const first = words.reduce((value, word) => (value << 16n) | BigInt(`0x${word}`), 0n)
  return { first, last: first + (1n << BigInt(128 - Number(length))) - 1n }
}

/** Writes all eight groups without compression, independently of the code under test. */
function ipv6Text(value: bigint): string {
  const hex = value.toString(16).padStart(32, '0')
  return (hex.match(/.{4}/g) ?? []).join(':')
}
