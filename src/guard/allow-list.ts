import { BlockList, isIP } from 'node:net'

/**
 * The addresses from which a key can be used. Each family has its own list. In a shared list, Node.js would treat an IPv4 address as the
 * mapped IPv6 address, so `::/0` would also allow every IPv4 address.
 */
export type AllowList = { readonly ipv4: BlockList; readonly ipv6: BlockList }

const mapped = new BlockList()
const mappedBits = 96
mapped.addSubnet('::ffff:0:0', mappedBits, 'ipv6')

/** Creates a list from CIDR blocks or single addresses. Throws a TypeError that quotes an invalid block. */
export const allowList = (cidrs: readonly string[]): AllowList => {
  const list: AllowList = { ipv4: new BlockList(), ipv6: new BlockList() }
  for (const cidr of cidrs) {
    const [address = '', prefix, ...rest] = cidr.split('/')
    const family = isIP(address)
    const bits = prefix === undefined ? (family === 4 ? 32 : 128) : Number(prefix)
    if (family === 0 || rest.length > 0 || !/^\d+$/.test(prefix ?? '0') || bits > (family === 4 ? 32 : 128))
      throw new TypeError(`"${cidr}" is not an address or a CIDR block such as 203.0.113.0/24`)
    if (family === 4) list.ipv4.addSubnet(address, bits, 'ipv4')
    // A block of mapped addresses means IPv4 addresses. A wider block applies only to IPv6 addresses.
    else (bits >= mappedBits && isMapped(address) ? list.ipv4 : list.ipv6).addSubnet(address, bits, 'ipv6')
  }
  return list
}

/** Whether an address is on the list. A dual-stack socket reports IPv4 callers as ::ffff:a.b.c.d. */
export const isAllowed = ({ ipv4, ipv6 }: AllowList, address: string): boolean => {
  const family = isIP(address)
  if (family === 4) return ipv4.check(address, 'ipv4')
  if (family === 0) return false
  return (isMapped(address) ? ipv4 : ipv6).check(address, 'ipv6')
}

const isMapped = (address: string): boolean => mapped.check(address, 'ipv6')
