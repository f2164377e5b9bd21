/**
 * Derives facts about an address from its text alone: the canonical form, the family, and whether the address can have a location.
 *
 * Accepts what `isIP` of `node:net` accepts, except zone ids. `net.BlockList` classifies addresses, because a textual check that refuses
 * `10.0.0.1` would allow `::ffff:a00:1`.
 */
import { BlockList, isIP } from 'node:net'
import {
  ipv4SpecialPurpose,
  ipv6Allocated,
  ipv6Embedding,
  ipv6SpecialPurpose,
  type RegistryBlock,
} from './iana.ts'

/** An address to look up in a database: never a mapped, NAT64 or 6to4 form. */
export type LookupAddress = { family: 4 | 6; text: string }

export type ParsedAddress = {
  /** The RFC 5952 form; an IPv4-mapped address has the form `::ffff:8.8.8.8`. */
  canonical: string
  /** The family of the submitted text, even if an IPv4 address is embedded in it. */
  type: 'IPv4' | 'IPv6'
  /** The address to look up: the IPv4 address inside a mapped, NAT64 or 6to4 form, otherwise the address itself. */
  lookup: LookupAddress
  /** False for special-purpose and unallocated addresses. They must not be looked up. */
  reachable: boolean
}

/** Parses and classifies an address. Null: `net.isIP` refuses the text, or it has a zone id (the caller answers IP_001). */
export function parseAddress(text: string): ParsedAddress | null {
  const family = isIP(text)
  if (family === 0 || text.includes('%')) return null
  // A strict dotted quad has only one form, so the text is already canonical.
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

/** Returns the RFC 5952 form of an IPv6 address, without the dotted form of section 5. Throws a TypeError for any other text. */
export const formatIPv6 = (text: string): string => new URL(`http://[${text}]`).hostname.slice(1, -1)

/** Returns the eight 16-bit groups of an IPv6 address in the form that `formatIPv6` returns. */
export function groupsOf(written: string): number[] {
  const [head = [], tail = []] = written
    .split('::')
    .map((half) => (half === '' ? [] : half.split(':').map((group) => Number.parseInt(group, 16))))
  return [...head, ...new Array<number>(8 - head.length - tail.length).fill(0), ...tail]
}

export const dottedOf = (high: number, low: number): string =>
  [high >>> 8, high & 255, low >>> 8, low & 255].join('.')

/** CIDR blocks of one family. A shared list would check an IPv4 address as the mapped IPv6 address. */
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

/** Returns the IPv4 address inside a mapped, NAT64 or 6to4 address; null: there is none. */
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

/** A block of the registry that can be looked up takes precedence over a wider block that cannot. */
const isReachableIPv4 = (text: string): boolean =>
  !ipv4.refused.check(text, 'ipv4') || ipv4.lookedUp.check(text, 'ipv4')

/** Refuses all space that is not assigned to a registry. */
const isReachableIPv6 = (text: string): boolean =>
  (ipv6.allocated.check(text, 'ipv6') && !ipv6.refused.check(text, 'ipv6')) ||
  ipv6.lookedUp.check(text, 'ipv6')
