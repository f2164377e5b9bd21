import { BlockList, isIP } from 'node:net'
import { blocksOf, dottedOf, groupsOf, type ParsedAddress, parseAddress } from './address.ts'

/**
 * Decides to which addresses this process can connect if a stranger chose the target. The guard checks addresses, never names. A name is resolved
 * once, each of its addresses is checked, and the connection is made to an allowed address. Resolving the name again could return other addresses.
 */
export type EgressGuard = {
  /**
   * True for an exempt address, and for an allocated global unicast address outside this network. For mapped, NAT64 and 6to4 forms, the embedded
   * IPv4 address is checked, and for ISATAP forms, both addresses. False for text that is not an address, and for zone ids.
   */
  mayDial(address: string): boolean
  /** True for an address that the operator exempted (`EGRESS_ALLOW`), even if it is private or reserved. */
  exempts(address: string): boolean
  /** Whether the operator exempted any address. */
  readonly exemptsAny: boolean
}

/**
 * `allow` lists the exempt CIDR blocks or addresses, for tests and internal servers. Throws a TypeError that quotes the first invalid item.
 *
 * An IPv4 block also exempts the mapped forms of its addresses, because a connection to `::ffff:10.0.0.1` reaches 10.0.0.1. It does not exempt their
 * NAT64 and 6to4 forms, which lead to a translator, where 10.0.0.1 is a different host. Mapped addresses are checked only as IPv4, so that no IPv6
 * block, not even `::/0`, exempts an IPv4 network.
 */
export const createEgressGuard = ({ allow }: { allow: readonly string[] }): EgressGuard => {
  // In a shared list, IPv4 addresses would be checked against IPv6 blocks in their mapped form.
  const exempt = { ipv4: new BlockList(), ipv6: new BlockList() }
  for (const cidr of allow) addBlock(exempt, cidr)

  const exempts = (address: string): boolean => {
    const parsed = parseAddress(address)
    if (parsed === null) return false
    const { canonical, type, lookup } = parsed
    if (type === 'IPv4' || isMapped(canonical)) return exempt.ipv4.check(lookup.text, 'ipv4')
    return exempt.ipv6.check(canonical, 'ipv6')
  }
  return {
    exempts,
    exemptsAny: allow.length > 0,
    mayDial: (address) => leadsOut(parseAddress(address)) || exempts(address),
  }
}

/**
 * Public addresses at which cloud providers offer services to their own machines, such as credentials and start scripts. All other known addresses
 * of this kind (169.254.169.254 and nearby, 100.100.100.200, 192.0.0.192, fd00:ec2::254, fd20:ce::254) are private or reserved. Connections to the
 * addresses in this list are refused, but they can be looked up.
 */
const platforms = blocksOf(
  [
    // Azure WireServer, which gives certificates and extensions to machines.
    '168.63.129.16/32',
    // IBM Cloud infrastructure and service endpoints, which are routed only within IBM Cloud.
    '161.26.0.0/16',
    '166.8.0.0/14',
  ],
  'ipv4',
)

const leadsOut = (parsed: ParsedAddress | null): boolean => {
  if (parsed === null || !parsed.reachable) return false
  const { lookup, canonical, type } = parsed
  if (lookup.family === 4 && platforms.check(lookup.text, 'ipv4')) return false
  const inner = type === 'IPv6' ? tunnelledTo(canonical) : null
  return inner === null || leadsOut(parseAddress(inner))
}

/**
 * Returns the IPv4 address in an ISATAP interface identifier, `0:5efe:a.b.c.d` or `200:5efe:a.b.c.d` (RFC 5214 §6.1), with any prefix, or null for
 * other addresses. A machine with an ISATAP interface sends the packet to that IPv4 address. The bit that classifies the IPv4 address is ignored.
 */
const tunnelledTo = (canonical: string): string | null => {
  if (isMapped(canonical)) return null
  const [, , , , flags = 0, mark = 0, high = 0, low = 0] = groupsOf(canonical)
  return (flags & 0xfcff) === 0 && mark === 0x5efe ? dottedOf(high, low) : null
}

/** Whether the canonical text is that of a mapped address: this prefix followed by an IPv4 address. */
const isMapped = (canonical: string): boolean => canonical.startsWith('::ffff:') && canonical.includes('.')

const addBlock = (exempt: { ipv4: BlockList; ipv6: BlockList }, cidr: string): void => {
  const [address = '', prefix, ...rest] = cidr.split('/')
  const family = isIP(address)
  const bitsMax = family === 4 ? 32 : 128
  const bits = prefix === undefined ? bitsMax : Number(prefix)
  const parsed = parseAddress(address)
  const wellFormed =
    parsed !== null && rest.length === 0 && /^\d{1,3}$/.test(prefix ?? '0') && bits <= bitsMax
  if (!wellFormed) throw new TypeError(`"${cidr}" is not an address or a CIDR block such as 10.0.0.0/8`)
  if (isMapped(parsed.canonical)) throw new TypeError(`"${cidr}" must be written as an IPv4 block`)
  const version = family === 4 ? 'ipv4' : 'ipv6'
  exempt[version].addSubnet(address, bits, version)
}
