/** A key may be used only from the addresses on its allow-list. */
import { describe, expect, test } from 'vitest'
import { allowList } from '../../src/guard/allow-list.ts'
import { type DirectoryKey, mayCallFrom } from '../../src/guard/key-directory.ts'

const mayCall = (cidrs: string[], address: string): boolean => {
  const key = { allowed: cidrs.length === 0 ? null : allowList(cidrs) } as unknown as DirectoryKey
  return mayCallFrom(key, address)
}

test('without a list, from anywhere', () => {
  for (const address of ['203.0.113.9', '2001:db8::1', '::ffff:10.0.0.1'])
    expect(mayCall([], address)).toBe(true)
})

describe('with a list', () => {
  test.each<[string, string[], string, boolean]>([
    ['the first address of a block', ['203.0.113.0/24'], '203.0.113.0', true],
    ['the last address of a block', ['203.0.113.0/24'], '203.0.113.255', true],
    ['the address before a block', ['203.0.113.0/24'], '203.0.112.255', false],
    ['the address after a block', ['203.0.113.0/24'], '203.0.114.0', false],
    ['a single address', ['203.0.113.7'], '203.0.113.7', true],
    ['a block of one', ['203.0.113.7/32'], '203.0.113.8', false],
    ['a block that ends within an octet, outside', ['203.0.113.128/25'], '203.0.113.127', false],
    ['IPv6 under all of IPv4', ['0.0.0.0/0'], '2001:db8::1', false],
    ['mapped IPv4 under all of IPv4', ['0.0.0.0/0'], '::ffff:198.51.100.1', true],
    ['IPv4 under all of IPv6', ['::/0'], '198.51.100.1', false],
    ['mapped IPv4 under all of IPv6', ['::/0'], '::ffff:198.51.100.1', false],
    ['IPv4 under a block wider than the mapped one', ['::/80'], '198.51.100.1', false],
    ['IPv4 under the whole mapped block', ['::ffff:0:0/96'], '198.51.100.1', true],
    ['both families, each by its own block', ['0.0.0.0/0', '::/0'], '198.51.100.1', true],
    ['a single IPv6 address in another spelling', ['2001:db8::1'], '2001:0DB8:0:0:0:0:0:1', true],
    ['IPv4 under an IPv6 block', ['2001:db8::/32'], '203.0.113.1', false],
    ['IPv4 on a dual-stack socket, in hexadecimal', ['203.0.113.0/24'], '::ffff:cb00:7107', true],
    ['IPv4 as a deprecated compatible address', ['203.0.113.0/24'], '::203.0.113.7', false],
    ['a mapped block, and a mapped caller', ['::ffff:203.0.113.0/120'], '::ffff:203.0.113.7', true],
    ['the second of several blocks', ['10.0.0.0/8', '2001:db8::/32', '203.0.113.7'], '2001:db8::9', true],
    ['a link-local caller, whose address names an interface', ['fe80::/10'], 'fe80::1%eth0', true],
    ['no address at all', ['203.0.113.0/24'], '', false],
    ['a host name', ['0.0.0.0/0', '::/0'], 'localhost', false],
  ])('%s: %j, %s', (_, cidrs, address, allowed) => {
    expect(mayCall(cidrs, address)).toBe(allowed)
  })
})

describe('an invalid block is refused and quoted, and not read as a wider one', () => {
  test.each([
    '',
    '/24',
    'localhost',
    '203.0.113.0/',
    '203.0.113.0/33',
    '203.0.113.0/1e1',
    '203.0.113.0/24/8',
    '203.0.113.0/255.255.255.0',
    '203.0.113/24',
    '0203.0.113.0/24',
    '2001:db8::/129',
    '[2001:db8::]/32',
  ])('%j', (cidr) => {
    expect(() => allowList(['10.0.0.0/8', cidr])).toThrow(TypeError)
    expect(() => allowList([cidr])).toThrow(`"${cidr}"`)
  })
})
