/**
 * The facts about an address from its text alone: its canonical form, its family, and whether it can have a place.
 *
 * It accepts exactly what `node:net` `isIP` accepts, less zone ids, and judges by `net.BlockList`, because a textual check lets
 * `::ffff:a00:1` through but refuses `10.0.0.1`.
 */
import { BlockList, isIP } from 'node:net'
import {
  ipv4SpecialPurpose,
  ipv6Allocated,
  ipv6Embedding,
  ipv6SpecialPurpose,
  type RegistryBlock,
} from './iana.ts'

/** An address a database can be asked for: never a mapped, NAT64 or 6to4 form. */
export type LookupAddress = { family: 4 | 6; text: string }

export type ParsedAddress = {
  /** RFC 5952 form; IPv4-mapped addresses print as `::ffff:8.8.8.8`. */
  canonical: string
  /** The family of the submitted text, also when an IPv4 address is embedded in it. */
  type: 'IPv4' | 'IPv6'
  /** The address to look up: the embedded IPv4 address of a mapped, NAT64 or 6to4 form, otherwise itself. */
  lookup: LookupAddress
  /** False for special-purpose and unallocated addresses, which no database may answer for. */
  reachable: boolean
}

/**
 * Parses and classifies one address. Null means malformed (the caller answers IP_001): any text that `net.isIP`
 * refuses, and any zone id. src/guides/partners.md, "How do I look up an IP address?".
 */
export function parseAddress(text: string): ParsedAddress | null {
  const family = isIP(text)
  if (family === 0 || text.includes('%')) return null
  // A strict dotted quad has one spelling, so the text is already canonical.
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

/** RFC 5952 text of an IPv6 address, without the dotted form of section 5. @throws TypeError for any other text. */
export const formatIPv6 = (text: string): string => new URL(`http://[${text}]`).hostname.slice(1, -1)

/** The eight 16-bit groups of an IPv6 text that `formatIPv6` wrote. */
export function groupsOf(written: string): number[] {
  const [head = [], tail = []] = written
    .split('::')
    .map((half) => (half === '' ? [] : half.split(':').map((group) => Number.parseInt(group, 16))))
  return [...head, ...new Array<number>(8 - head.length - tail.length).fill(0), ...tail]
}

/** The IPv4 address of two groups, the high and the low one. */
export const dottedOf = (high: number, low: number): string =>
  [high >>> 8, high & 255, low >>> 8, low & 255].join('.')

/** The CIDR blocks of one family. Each family needs its own list: in a shared list an IPv4 address is checked as the mapped IPv6 one. */
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

/** The IPv4 address inside a mapped, NAT64 or 6to4 address; null when there is none. */
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

/** An exception outranks the wider block around it. */
const isReachableIPv4 = (text: string): boolean =>
  !ipv4.refused.check(text, 'ipv4') || ipv4.lookedUp.check(text, 'ipv4')

/** Everything that no registry was assigned is refused. */
const isReachableIPv6 = (text: string): boolean =>
  (ipv6.allocated.check(text, 'ipv6') && !ipv6.refused.check(text, 'ipv6')) ||
  ipv6.lookedUp.check(text, 'ipv6')
