import { BlockList, isIP } from 'node:net'
import { blocksOf, dottedOf, groupsOf, type ParsedAddress, parseAddress } from './address.ts'

/**
 * The addresses this process may connect to when a stranger named the target: in a domain, a URL, a DNS answer. It judges
 * addresses, never names: a name is resolved once, each of its addresses is judged here, and the address that passed
 * is dialled. A name that is resolved again afterwards has not been judged.
 */
export type EgressGuard = {
  /**
   * True for an address in allocated, global, unicast space that leads out of this network, and for an exempt address.
   * Mapped, NAT64 and 6to4 forms are judged by the IPv4 address inside, ISATAP forms by both. Any text that is not an
   * address, zone ids included, is false.
   */
  mayDial(address: string): boolean
  /** True for an address the operator exempted (`EGRESS_ALLOW`), even if it is private or reserved. */
  exempts(address: string): boolean
  /** The operator exempted some address. */
  readonly exemptsAny: boolean
}

/**
 * `allow` are CIDR blocks or single addresses that are exempt: tests, servers on the premises. Throws a TypeError naming
 * the first that is neither.
 *
 * An IPv4 block exempts the mapped form of its addresses too, because dialling `::ffff:10.0.0.1` reaches 10.0.0.1
 * itself. It does not exempt their NAT64 and 6to4 forms: those leave towards a translator, whose 10.0.0.1 is another
 * address. Mapped addresses count as IPv4 alone, so that no IPv6 block, `::/0` included, opens an IPv4 network.
 */
export const createEgressGuard = ({ allow }: { allow: readonly string[] }): EgressGuard => {
  // One list for both would check IPv4 addresses against IPv6 blocks in their mapped form.
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
 * Addresses of public space at which a cloud serves its own machines, including credentials and start scripts. All other
 * known ones (169.254.169.254 and those next to it, 100.100.100.200, 192.0.0.192, fd00:ec2::254, fd20:ce::254) are private
 * or reserved. These addresses can still be looked up: this list is only about dialling.
 */
const platforms = blocksOf(
  [
    // Azure: WireServer, from which a machine takes its certificates and extensions.
    '168.63.129.16/32',
    // IBM Cloud: infrastructure and service endpoints, routed inside only.
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
 * The IPv4 address in an ISATAP interface identifier, `0:5efe:a.b.c.d` or `200:5efe:a.b.c.d` (RFC 5214 §6.1), under any
 * prefix: a machine with such an interface sends the packet there. Null for other addresses. The bits for the meaning of the
 * IPv4 address are ignored.
 */
const tunnelledTo = (canonical: string): string | null => {
  if (isMapped(canonical)) return null
  const [, , , , flags = 0, mark = 0, high = 0, low = 0] = groupsOf(canonical)
  return (flags & 0xfcff) === 0 && mark === 0x5efe ? dottedOf(high, low) : null
}

/** The canonical text of a mapped address, and of no other address, has this prefix followed by a dotted quad. */
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
  if (isMapped(parsed.canonical)) throw new TypeError(`"${cidr}" has to be written as an IPv4 block`)
  const version = family === 4 ? 'ipv4' : 'ipv6'
  exempt[version].addSubnet(address, bits, version)
}
