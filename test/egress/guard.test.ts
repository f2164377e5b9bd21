import { describe, expect, test } from 'vitest'
import { createEgressGuard } from '../../src/egress/guard.ts'

const closed = createEgressGuard({ allow: [] })

describe('without exemptions', () => {
  test.each([
    '8.8.8.8',
    '192.175.48.1', // AS112: special-purpose, and globally reachable
    '2a00:1450:4001:81b::200e',
    '2620:4f:8000::1',
    '::ffff:8.8.8.8',
    '64:ff9b::808:808',
    '2002:808:808::1',
    '168.63.129.15',
    '168.63.129.17',
    '161.25.255.255',
    '166.12.0.0',
    '2a00:1450:4001:81b:0:5efe:8.8.8.8',
    '2a00:1450:4001:81b:0:5eff:10.0.0.1',
    '2a00:1450:4001:81b:400:5efe:10.0.0.1',
    '2002:808:808:0:0:5efe:808:808',
  ])('%s may be dialled', (address) => {
    expect(closed.mayDial(address)).toBe(true)
  })

  test.each([
    ['loopback', '127.0.0.1'],
    ['unspecified, which dials this machine', '0.0.0.0'],
    ['private', '10.0.0.1'],
    ['link-local metadata', '169.254.169.254'],
    ['metadata, IPv6', 'fd00:ec2::254'],
    ['mapped private', '::ffff:10.0.0.1'],
    ['NAT64 of a private address', '64:ff9b::a00:1'],
    ['6to4 of a private address', '2002:a00:1::'],
    ['Azure WireServer, in public space', '168.63.129.16'],
    ['the same, mapped', '::ffff:168.63.129.16'],
    ['the same, by NAT64', '64:ff9b::a83f:8110'],
    ['the same, by 6to4', '2002:a83f:8110::1'],
    ['IBM Cloud infrastructure', '161.26.0.10'],
    ['IBM Cloud service endpoints', '166.9.4.10'],
    ['ISATAP of a private address', '2a00:1450:4001:81b:0:5efe:10.0.0.1'],
    ['ISATAP of a private address, in hex', '2a00:1450:4001:81b:0:5efe:a00:1'],
    ['ISATAP of loopback, universal', '2a00:1450:4001:81b:200:5efe:7f00:1'],
    ['ISATAP of link-local metadata', '2a00:1450::5efe:169.254.169.254'],
    ['ISATAP of Azure WireServer', '2a00:1450:4001:81b:0:5efe:a83f:8110'],
    ['ISATAP of loopback, its group bit set', '2a00:1450:4001:81b:300:5efe:7f00:1'],
    ['ISATAP of a private address within 6to4', '2002:808:808:0:0:5efe:a00:1'],
    ['ISATAP link-local', 'fe80::5efe:8.8.8.8'],
    ['IPv4-translated', '::ffff:0:10.0.0.1'],
    ['IPv4-translated, public', '::ffff:0:8.8.8.8'],
  ])('%s (%s) may not be dialled', (_, address) => {
    expect(closed.mayDial(address)).toBe(false)
  })

  test.each(['', 'localhost', 'example.com', '[::1]'])(
    '%j, which is not an address, may not be dialled',
    (text) => {
      expect(closed.mayDial(text)).toBe(false)
      expect(closed.exempts(text)).toBe(false)
    },
  )

  test('nothing is exempt', () => {
    expect(closed.exempts('8.8.8.8')).toBe(false)
  })
})

describe('exemptions', () => {
  test('a block allows its own addresses and no other', () => {
    const guard = createEgressGuard({ allow: ['10.1.0.0/16', 'fd00:1::/32'] })
    expect(['10.1.0.0', '10.1.255.255', 'fd00:1::5'].map(guard.mayDial)).toEqual([true, true, true])
    expect(['10.0.255.255', '10.2.0.0', 'fd00:2::5', '127.0.0.1', '::1'].map(guard.mayDial)).toEqual(
      new Array(5).fill(false),
    )
    expect(guard.exempts('10.1.2.3')).toBe(true)
    expect(guard.exempts('8.8.8.8')).toBe(false)
  })

  test('the metadata addresses of a platform can be exempted', () => {
    const guard = createEgressGuard({ allow: ['168.63.129.16', '2a00:1450::/32'] })
    expect(['168.63.129.16', '2a00:1450::5efe:10.0.0.1'].map(guard.mayDial)).toEqual([true, true])
    expect(guard.mayDial('161.26.0.10')).toBe(false)
  })

  test('a single address is a block of one', () => {
    const guard = createEgressGuard({ allow: ['127.0.0.1', '::1'] })
    expect(['127.0.0.1', '::1', '127.0.0.2', '::2'].map(guard.mayDial)).toEqual([true, true, false, false])
  })

  test('an IPv4 block allows the mapped form, which dials the same address, in every spelling', () => {
    const guard = createEgressGuard({ allow: ['10.0.0.0/8'] })
    expect(guard.mayDial('::ffff:10.0.0.1')).toBe(true)
    expect(guard.mayDial('::ffff:a00:1')).toBe(true)
    expect(guard.mayDial('::ffff:127.0.0.1')).toBe(false)
  })

  test('an IPv4 block does not allow NAT64 and 6to4 forms, which go to a translator', () => {
    const guard = createEgressGuard({ allow: ['0.0.0.0/0'] })
    expect(guard.mayDial('64:ff9b::a00:1')).toBe(false)
    expect(guard.mayDial('2002:a00:1::')).toBe(false)
  })

  test('no IPv6 block allows an embedded IPv4 address', () => {
    const guard = createEgressGuard({ allow: ['::/0'] })
    expect(guard.mayDial('fd00::1')).toBe(true)
    expect(guard.mayDial('::ffff:10.0.0.1')).toBe(false)
    expect(guard.mayDial('10.0.0.1')).toBe(false)
  })

  test.each([
    'localhost',
    '10.0.0.0/33',
    '10.0.0.0/',
    '10.0.0.0/-1',
    '10.0.0.0/8/8',
    '10.0.0/8',
    '::/129',
    'fe80::%eth0/10',
    '::ffff:10.0.0.0/104',
    '',
  ])('%j, which is not a block, is refused and quoted', (cidr) => {
    expect(() => createEgressGuard({ allow: ['10.0.0.0/8', cidr] })).toThrow(TypeError)
    expect(() => createEgressGuard({ allow: [cidr] })).toThrow(`"${cidr}"`)
  })
})
