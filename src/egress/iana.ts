/**
 * The IANA registries that determine to which addresses connections are allowed, and which addresses can be looked up.
 *
 * Update them by hand when IANA changes a registry. The allocation table last changed when 2410::/12 was assigned to APNIC. If an allocated prefix
 * is missing here, calls about its addresses are answered with `success: false`. If a prefix were listed incorrectly, calls would return a wrong
 * city and be charged, so doubtful prefixes are not listed.
 */

/** One row of a registry. `lookedUp`: addresses in the block can be looked up. */
export type RegistryBlock = { prefix: string; name: string; reference: string; lookedUp: boolean }

/**
 * IANA IPv4 Special-Purpose Address Registry (RFC 6890, RFC 8190), with multicast (RFC 5771), from public copies of
 * iana.org/assignments/iana-ipv4-special-registry, 2026-11-21. 192.0.0.9/32 and 192.0.0.10/32 are registered as globally reachable anycast, but are
 * refused as a part of 192.0.0.0/24, because they lead to a service at the nearest router and therefore have no location.
 */
export const ipv4SpecialPurpose: readonly RegistryBlock[] = [
  { prefix: '0.0.0.0/8', name: 'This network', reference: 'RFC 791', lookedUp: false },
  { prefix: '10.0.0.0/8', name: 'Private-Use', reference: 'RFC 1918', lookedUp: false },
  { prefix: '100.64.0.0/10', name: 'Shared Address Space', reference: 'RFC 6598', lookedUp: false },
  { prefix: '127.0.0.0/8', name: 'Loopback', reference: 'RFC 1122', lookedUp: false },
  { prefix: '169.254.0.0/16', name: 'Link Local', reference: 'RFC 3927', lookedUp: false },
  { prefix: '172.16.0.0/12', name: 'Private-Use', reference: 'RFC 1918', lookedUp: false },
  { prefix: '192.0.0.0/24', name: 'IETF Protocol Assignments', reference: 'RFC 6890', lookedUp: false },
  { prefix: '192.0.2.0/24', name: 'Documentation (TEST-NET-1)', reference: 'RFC 5737', lookedUp: false },
  { prefix: '192.31.196.0/24', name: 'AS112-v4', reference: 'RFC 7535', lookedUp: true },
  { prefix: '192.52.193.0/24', name: 'AMT', reference: 'RFC 7450', lookedUp: true },
  { prefix: '192.88.99.0/24', name: 'Deprecated 6to4 Relay Anycast', reference: 'RFC 7526', lookedUp: false },
  { prefix: '192.168.0.0/16', name: 'Private-Use', reference: 'RFC 1918', lookedUp: false },
  { prefix: '192.175.48.0/24', name: 'Direct Delegation AS112', reference: 'RFC 7534', lookedUp: true },
  { prefix: '198.18.0.0/15', name: 'Benchmarking', reference: 'RFC 2544', lookedUp: false },
  { prefix: '198.51.100.0/24', name: 'Documentation (TEST-NET-2)', reference: 'RFC 5737', lookedUp: false },
  { prefix: '203.0.113.0/24', name: 'Documentation (TEST-NET-3)', reference: 'RFC 5737', lookedUp: false },
  { prefix: '224.0.0.0/4', name: 'Multicast', reference: 'RFC 5771', lookedUp: false },
  { prefix: '240.0.0.0/4', name: 'Reserved and Limited Broadcast', reference: 'RFC 1112', lookedUp: false },
]

/**
 * IANA IPv6 Special-Purpose Address Registry (RFC 6890, RFC 8190), with the deprecated and multicast blocks of RFC 4291, from public copies of
 * iana.org/assignments/iana-ipv6-special-registry, 2026-11-21. The newest row is 100:0:0:1::/64 (RFC 9780, 2025).
 *
 * `ipv6Embedding` lists the blocks that embed an IPv4 address. Rows outside 2000::/3 are refused anyway, but tests check the whole registry. Teredo
 * is refused although it embeds an IPv4 address, because database files map 2001::/32 to the Teredo *server* instead of the client.
 */
export const ipv6SpecialPurpose: readonly RegistryBlock[] = [
  { prefix: '::/96', name: 'Unspecified, loopback, IPv4-compatible', reference: 'RFC 4291', lookedUp: false },
  {
    prefix: '64:ff9b:1::/48',
    name: 'Local-use IPv4-IPv6 translation',
    reference: 'RFC 8215',
    lookedUp: false,
  },
  { prefix: '100::/64', name: 'Discard-Only', reference: 'RFC 6666', lookedUp: false },
  { prefix: '100:0:0:1::/64', name: 'Dummy IPv6 Prefix', reference: 'RFC 9780', lookedUp: false },
  { prefix: '2001::/23', name: 'IETF Protocol Assignments', reference: 'RFC 2928', lookedUp: false },
  { prefix: '2001::/32', name: 'Teredo', reference: 'RFC 4380', lookedUp: false },
  { prefix: '2001:2::/48', name: 'Benchmarking', reference: 'RFC 5180', lookedUp: false },
  { prefix: '2001:3::/32', name: 'AMT', reference: 'RFC 7450', lookedUp: true },
  { prefix: '2001:4:112::/48', name: 'AS112-v6', reference: 'RFC 7535', lookedUp: true },
  { prefix: '2001:10::/28', name: 'Deprecated ORCHID', reference: 'RFC 4843', lookedUp: false },
  { prefix: '2001:20::/28', name: 'ORCHIDv2', reference: 'RFC 7343', lookedUp: false },
  { prefix: '2001:30::/28', name: 'Drone Remote ID', reference: 'RFC 9374', lookedUp: false },
  { prefix: '2001:db8::/32', name: 'Documentation', reference: 'RFC 3849', lookedUp: false },
  { prefix: '2620:4f:8000::/48', name: 'Direct Delegation AS112', reference: 'RFC 7534', lookedUp: true },
  { prefix: '3fff::/20', name: 'Documentation', reference: 'RFC 9637', lookedUp: false },
  { prefix: '5f00::/16', name: 'Segment Routing SIDs', reference: 'RFC 9602', lookedUp: false },
  { prefix: 'fc00::/7', name: 'Unique-Local', reference: 'RFC 4193', lookedUp: false },
  { prefix: 'fe80::/10', name: 'Link-Local Unicast', reference: 'RFC 4291', lookedUp: false },
  { prefix: 'fec0::/10', name: 'Deprecated Site-Local', reference: 'RFC 3879', lookedUp: false },
  { prefix: 'ff00::/8', name: 'Multicast', reference: 'RFC 4291', lookedUp: false },
]

/** The blocks whose addresses contain an IPv4 address, and the bit at which it starts. */
export const ipv6Embedding = [
  { prefix: '::ffff:0:0/96', name: 'IPv4-mapped', reference: 'RFC 4291', ipv4AtBit: 96 },
  { prefix: '64:ff9b::/96', name: 'NAT64 well-known prefix', reference: 'RFC 6052', ipv4AtBit: 96 },
  { prefix: '2002::/16', name: '6to4', reference: 'RFC 3056', ipv4AtBit: 16 },
] as const

/**
 * IANA IPv6 Global Unicast Address Assignments: the blocks of 2000::/3 that are assigned to regional registries, from public copies of
 * iana.org/assignments/ipv6-unicast-address-assignments, 2026-11-21. The newest known row is 2410::/12 (2024-11-01). The rest of 2000::/3 is
 * unallocated. No prefix is longer than /23.
 */
export const ipv6Allocated: readonly string[] = [
  '2001:200::/23',
  '2001:400::/23',
  '2001:600::/23',
  '2001:800::/22',
  '2001:c00::/23',
  '2001:e00::/23',
  '2001:1200::/23',
  '2001:1400::/22',
  '2001:1800::/23',
  '2001:1a00::/23',
  '2001:1c00::/22',
  '2001:2000::/19',
  '2001:4000::/23',
  '2001:4200::/23',
  '2001:4400::/23',
  '2001:4600::/23',
  '2001:4800::/23',
  '2001:4a00::/23',
  '2001:4c00::/23',
  '2001:5000::/20',
  '2001:8000::/19',
  '2001:a000::/20',
  '2001:b000::/20',
  '2003::/18',
  '2400::/12',
  '2410::/12',
  '2600::/12',
  '2610::/23',
  '2620::/23',
  '2630::/12',
  '2800::/12',
  '2a00::/12',
  '2a10::/12',
  '2c00::/12',
]
