/**
 * Parses an address: its canonical form, its family, and whether it can have a location.
 *
 * Accepts the same texts as `isIP` of `node:net`, except zone ids. `net.BlockList` classifies addresses, because a check of the text that refuses
 * `10.0.0.1` would still allow `::ffff:a00:1`.
 */
import { BlockList, isIP } from 'node:net'
import {
  ipv4SpecialPurpose,
  ipv6Allocated,
  ipv6Embedding,
  ipv6SpecialPurpose,
  type RegistryBlock,
} from './iana.ts'

/** An address to look up in a database, which is never a mapped, NAT64 or 6to4 form. */
export type LookupAddress = { family: 4 | 6; text: string }

export type ParsedAddress = {
  /** The RFC 5952 form. An IPv4-mapped address has the form `::ffff:8.8.8.8`. */
  canonical: string
  /** The family of the submitted text, even if an IPv4 address is embedded in it. */
  type: 'IPv4' | 'IPv6'
  /** The address to look up: the IPv4 address in a mapped, NAT64 or 6to4 form, and otherwise the address itself. */
  lookup: LookupAddress
  /** False for special-purpose and unallocated addresses, which must not be looked up. */
  reachable: boolean
}

/** Parses and classifies an address. Returns null if `net.isIP` refuses the text, or if it has a zone id. */
export function parseAddress(text: string): ParsedAddress | null {
  const family = isIP(text)
  if (family === 0 || text.includes('%')) return null
  // An IPv4 address has only one form, so the text is already canonical.
  if (family === 4)
    return { canonical: text, type: 'IPv4', lookup: { family, text }, reachable: isReachableIPv4(text) }
  const written = formatIPv6(text)
  const dotted = embeddedIPv4(written)
  if (dotted === null) {
    const reachable = isReachableIPv6(written)
    return { canonical: written, type: 'IPv6', lookup: { family: 6, text: written }, reachable }
  }
  const canonical = mapped.check(written, 'ipv6') ? `::ffff:${dotted}` : written
  const lookup: LookupAddress = { family: 4, text: dotted }
  return { canonical, type: 'IPv6', lookup, reachable: isReachableIPv4(dotted) }
}

/** Returns the RFC 5952 form of an IPv6 address, but never the dotted form of section 5. Throws a TypeError for any other text. */
export const formatIPv6 = (text: string): string => new URL(`http://[${text}]`).hostname.slice(1, -1)

/** Returns the eight 16-bit groups of an IPv6 address, which must be in the form that `formatIPv6` returns. */
export function groupsOf(written: string): number[] {
  const [head = [], tail = []] = written
    .split('::')
    .map((half) => (half === '' ? [] : half.split(':').map((group) => Number.parseInt(group, 16))))
  return [...head, ...new Array<number>(8 - head.length - tail.length).fill(0), ...tail]
}

export const dottedOf = (high: number, low: number): string =>
  [high >>> 8, high & 255, low >>> 8, low & 255].join('.')

/** CIDR blocks of one family. In a shared list, an IPv4 address would be checked as the mapped IPv6 address. */
export function blocksOf(prefixes: readonly string[], family: 'ipv4' | 'ipv6'): BlockList {
  const list = new BlockList()
  for (const prefix of prefixes) {
    const [address = '', length] = prefix.split('/')
    list.addSubnet(address, Number(length), family)
  }
  return list
}

const embeddings = ipv6Embedding.map(({ prefix, ipv4AtBit }) => ({
  blocks: blocksOf([prefix], 'ipv6'),
  group: ipv4AtBit / 16,
}))

const mapped = blocksOf(['::ffff:0:0/96'], 'ipv6')

/** Returns the IPv4 address in a mapped, NAT64 or 6to4 address, or null. */
function embeddedIPv4(written: string): string | null {
  const found = embeddings.find(({ blocks }) => blocks.check(written, 'ipv6'))
  if (found === undefined) return null
  const [high = 0, low = 0] = groupsOf(written).slice(found.group)
  return dottedOf(high, low)
}

const listed = (registry: readonly RegistryBlock[], family: 'ipv4' | 'ipv6', lookedUp: boolean): BlockList =>
  blocksOf(
    registry.filter((block) => block.lookedUp === lookedUp).map(({ prefix }) => prefix),
    family,
  )

const ipv4 = {
  refused: listed(ipv4SpecialPurpose, 'ipv4', false),
  lookedUp: listed(ipv4SpecialPurpose, 'ipv4', true),
}
const ipv6 = {
  allocated: blocksOf(ipv6Allocated, 'ipv6'),
  refused: listed(ipv6SpecialPurpose, 'ipv6', false),
  lookedUp: listed(ipv6SpecialPurpose, 'ipv6', true),
}

/** A block in the registry that can be looked up takes precedence over a wider block that cannot. */
const isReachableIPv4 = (text: string): boolean =>
  !ipv4.refused.check(text, 'ipv4') || ipv4.lookedUp.check(text, 'ipv4')

/** Refuses all addresses that are not assigned to a regional registry. */
const isReachableIPv6 = (text: string): boolean =>
  (ipv6.allocated.check(text, 'ipv6') && !ipv6.refused.check(text, 'ipv6')) ||
  ipv6.lookedUp.check(text, 'ipv6')
