/** The caller's address that counts for limits, and the address block that a network assigns to one customer. */
import { describe, expect, test } from 'vitest'
import {
  addressBlock,
  callerAddress,
  isLoopback,
  plainAddress,
  trustedProxies,
} from '../../src/guard/caller-address.ts'

test.each([
  ['203.0.113.7', '203.0.113.7'],
  ['203.0.113.7:51234', '203.0.113.7'],
  ['::ffff:203.0.113.7', '203.0.113.7'],
  ['::FFFF:cb00:7107', '203.0.113.7'],
  ['[::ffff:203.0.113.7]:51234', '203.0.113.7'],
  ['2001:DB8:0:0::1', '2001:db8::1'],
  ['[2001:db8::1]', '2001:db8::1'],
  ['[2001:db8::1]:443', '2001:db8::1'],
  ['fe80::1%eth0', 'fe80::1'],
  ['::203.0.113.7', '::203.0.113.7'],
])('%s is %s', (text, plain) => {
  expect(plainAddress(text)).toBe(plain)
})

test.each(['', 'unknown', 'unix:', '01.2.3.4', '1.2.3.4:x', ':443'])(
  '"%s" is not an address: it is on no list and appears as unknown',
  (text) => {
    expect(plainAddress(text)).toBeNull()
    expect(callerAddress({ ip: text })).toBe('unknown')
    expect(trustedProxies(['0.0.0.0/1', '::/1'])(text)).toBe(false)
  },
)

describe('trusted proxies', () => {
  test.each<[string[], string | undefined, boolean]>([
    [[], '127.0.0.1', false],
    [['10.1.0.4'], '10.1.0.4', true],
    [['10.1.0.4'], '10.1.0.5', false],
    [['10.1.0.4'], '::ffff:10.1.0.4', true],
    [['10.1.0.4'], '10.1.0.4:8080', true],
    [['10.1.0.0/28'], '10.1.0.15', true],
    [['10.1.0.0/28'], '10.1.0.16', false],
    [['::ffff:10.1.0.0/124'], '10.1.0.15', true],
    [['::ffff:10.1.0.0/124'], '10.1.0.16', false],
    [['::ffff:10.1.0.4'], '10.1.0.4', true],
    [['2001:db8::/64'], '2001:db8::9', true],
    [['2001:db8::/64'], '2001:db8:0:1::9', false],
    // The mapped address's bits are in this block, but it is an IPv4 address.
    [['::/8'], '10.1.0.4', false],
    [['::/8'], '::ffff:10.1.0.4', false],
    [['::1'], '::1', true],
    [['127.0.0.1'], undefined, false],
  ])('%s and %s: %s', (cidrs, address, trusted) => {
    expect(trustedProxies(cidrs)(address)).toBe(trusted)
  })
})

test.each([
  ['203.0.113.7', '203.0.113.7'],
  ['::ffff:203.0.113.7', '203.0.113.7'],
  ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2'],
  ['2001:db8:1:2::', '2001:db8:1:2'],
  ['2001:db8::6', '2001:db8:0:0'],
  ['::1', '0:0:0:0'],
  ['no address', 'unknown'],
])('%s counts with %s', (address, block) => {
  expect(addressBlock(address)).toBe(block)
})

test('addresses of one /64 count together, and of two /64s separately', () => {
  expect(addressBlock('2001:db8::1')).toBe(addressBlock('2001:db8::ffff:ffff:ffff:ffff'))
  expect(addressBlock('2001:db8::1')).not.toBe(addressBlock('2001:db8:0:1::1'))
})

test.each([
  ['127.0.0.1', true],
  ['127.255.0.9', true],
  ['::1', true],
  ['128.0.0.1', false],
  ['::2', false],
  ['unknown', false],
])('%s is on this machine: %s', (address, here) => {
  expect(isLoopback(address)).toBe(here)
})
