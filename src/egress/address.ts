/**
 * What an address is, from its text alone: its canonical form, its family, and whether it can have a place.
 *
 * It is not a general IP library. It accepts exactly what `node:net` `isIP` accepts, less zone ids, and judges on
 * the bits, because a textual check lets `::ffff:a00:1` through where it refuses `10.0.0.1`.
 * Hand-written for speed (it runs on every call); `test/ip-lookup/address.test.ts` holds it against `net.isIP`,
 * `net.BlockList` and the URL serialiser.
 */
import { ipv4SpecialPurpose, ipv6Allocated, ipv6SpecialPurpose, type RegistryBlock } from './iana.ts'

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

/** The longest IPv6 text, `ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255`. */
const ipv6TextLengthMax = 45

const digit0 = 48
const dot = 46
const colon = 58

/** Reused by every `parseAddress`: the function never awaits, so no two calls can hold it. */
const scratch = new Uint16Array(8)

const hexValues = new Int8Array(128).fill(-1)
for (const [value, digits] of [...'0123456789abcdef'].entries()) {
  hexValues[digits.charCodeAt(0)] = value
  hexValues[digits.toUpperCase().charCodeAt(0)] = value
}

/**
 * Parses and classifies one address. Null means malformed (the caller answers IP_001): whatever `net.isIP`
 * refuses, and any zone id. src/guides/partners.md, "POST /v1/ip/lookup".
 */
export const parseAddress = (text: string): ParsedAddress | null => {
  const ipv4 = parseIPv4(text, 0)
  // A strict dotted quad has one spelling, so the text is already canonical.
  if (ipv4 >= 0) {
    return { canonical: text, type: 'IPv4', lookup: { family: 4, text }, reachable: isReachableIPv4(ipv4) }
  }
  if (!parseIPv6(text, scratch)) return null

  const embedded = embeddedIPv4(scratch)
  if (embedded < 0) {
    const canonical = formatIPv6(scratch)
    const reachable = isReachableIPv6(scratch)
    return { canonical, type: 'IPv6', lookup: { family: 6, text: canonical }, reachable }
  }
  const dotted = formatIPv4(embedded)
  const canonical = scratch[5] === 0xffff && scratch[0] === 0 ? `::ffff:${dotted}` : formatIPv6(scratch)
  const lookup: LookupAddress = { family: 4, text: dotted }
  return { canonical, type: 'IPv6', lookup, reachable: isReachableIPv4(embedded) }
}

/**
 * The 32 bits of the strict dotted quad that fills `text` from `from` to its end, as an unsigned number; -1 when
 * it is not one. Leading zeros are refused: `010` is 8 to some parsers and 10 to others.
 */
export const parseIPv4 = (text: string, from: number): number => {
  const length = text.length
  if (length - from < 7 || length - from > 15) return -1
  let bits = 0
  let octet = -1
  let octets = 1
  for (let at = from; at < length; at++) {
    const code = text.charCodeAt(at)
    if (code === dot) {
      if (octet < 0 || ++octets > 4) return -1
      bits = bits * 256 + octet
      octet = -1
      continue
    }
    const digit = code - digit0
    if (digit < 0 || digit > 9 || octet === 0) return -1
    octet = octet < 0 ? digit : octet * 10 + digit
    if (octet > 255) return -1
  }
  return octet < 0 || octets !== 4 ? -1 : bits * 256 + octet
}

/** Writes the eight 16-bit words of an IPv6 text into `words` and returns true; false when it is not one. */
export const parseIPv6 = (text: string, words: Uint16Array): boolean => {
  const length = text.length
  if (length < 2 || length > ipv6TextLengthMax) return false
  let count = 0
  let gap = -1
  let at = 0
  if (text.charCodeAt(0) === colon) {
    if (text.charCodeAt(1) !== colon) return false
    gap = 0
    at = 2
  }
  while (at < length) {
    const start = at
    let value = 0
    let code = 0
    for (; at < length; at++) {
      code = text.charCodeAt(at)
      const digit = hexValues[code] ?? -1
      if (digit < 0) break
      if (at - start === 4) return false
      value = value * 16 + digit
    }
    if (at < length && code === dot) {
      const ipv4 = count > 6 ? -1 : parseIPv4(text, start)
      if (ipv4 < 0) return false
      words[count++] = ipv4 >>> 16
      words[count++] = ipv4 & 0xffff
      break
    }
    if (at === start || count === 8) return false
    words[count++] = value
    if (at === length) break
    if (code !== colon || ++at === length) return false
    if (text.charCodeAt(at) === colon) {
      if (gap >= 0) return false
      gap = count
      at++
    }
  }
  if (gap < 0) return count === 8
  // `::` stands for at least one group.
  if (count === 8) return false
  words.copyWithin(8 - (count - gap), gap, count)
  words.fill(0, gap, 8 - (count - gap))
  return true
}

/** RFC 5952 text of eight 16-bit words, without the dotted form of section 5. */
export const formatIPv6 = (words: Uint16Array): string => {
  let gapStart = -1
  let gapLength = 1
  for (let at = 0; at < 8; at++) {
    if (words[at] !== 0) continue
    const start = at
    while (at < 8 && words[at] === 0) at++
    if (at - start > gapLength) {
      gapStart = start
      gapLength = at - start
    }
  }
  let text = ''
  for (let at = 0; at < 8; at++) {
    if (at === gapStart) {
      text += '::'
      at += gapLength - 1
      continue
    }
    if (at > 0 && at !== gapStart + gapLength) text += ':'
    text += (words[at] ?? 0).toString(16)
  }
  return text
}

const formatIPv4 = (bits: number): string =>
  `${bits >>> 24}.${(bits >>> 16) & 255}.${(bits >>> 8) & 255}.${bits & 255}`

/** The IPv4 address inside a mapped, NAT64 or 6to4 address (`ipv6Embedding`); -1 when there is none. */
const embeddedIPv4 = (words: Uint16Array): number => {
  const [a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0] = words
  if (a === 0x2002) return b * 0x10000 + c
  if ((c | d | e) !== 0) return -1
  const mapped = (a | b) === 0 && f === 0xffff
  const nat64 = a === 0x64 && b === 0xff9b && f === 0
  return mapped || nat64 ? g * 0x10000 + h : -1
}

// --- Reachability: the registries compiled to sorted, disjoint intervals. ---

/** Half-open numeric interval `[from, to)`. */
type Interval = { from: number; to: number }

/** True when `value` lies in an interval: `bounds` alternates starts (even index) and ends (odd), ascending. */
const covers = (bounds: Float64Array, value: number): boolean => {
  let low = 0
  let high = bounds.length
  while (low < high) {
    const middle = (low + high) >>> 1
    if ((bounds[middle] ?? 0) <= value) low = middle + 1
    else high = middle
  }
  return (low & 1) === 1
}

/**
 * The bounds of `base` less the refused blocks plus the looked-up ones. An exception outranks the wider block
 * around it, so it is tested first.
 */
const compile = (
  base: readonly Interval[],
  registry: readonly RegistryBlock[],
  interval: (prefix: string) => Interval,
): Float64Array => {
  const refused = registry.filter((block) => !block.lookedUp).map((block) => interval(block.prefix))
  const allowed = registry.filter((block) => block.lookedUp).map((block) => interval(block.prefix))
  const within = (ranges: readonly Interval[], value: number) =>
    ranges.some((range) => range.from <= value && value < range.to)
  const reachable = (value: number) =>
    within(allowed, value) || (within(base, value) && !within(refused, value))

  const edges = [...base, ...refused, ...allowed].flatMap((range) => [range.from, range.to])
  const bounds: number[] = []
  for (const edge of edges.sort((left, right) => left - right)) {
    if (reachable(edge) !== (bounds.length % 2 === 1)) bounds.push(edge)
  }
  return Float64Array.from(bounds)
}

const ipv4Interval = (prefix: string): Interval => {
  const { address, length } = splitPrefix(prefix)
  const from = parseIPv4(address, 0)
  return { from, to: from + 2 ** (32 - length) }
}

/** Prefixes longer than 48 bits widen to their /48; all of those lie outside 2000::/3. */
const ipv6Interval = (prefix: string): Interval => {
  const { address, length } = splitPrefix(prefix)
  const words = new Uint16Array(8)
  parseIPv6(address, words)
  const [a = 0, b = 0, c = 0] = words
  const from = a * 0x100000000 + b * 0x10000 + c
  return { from, to: from + 2 ** Math.max(0, 48 - length) }
}

const splitPrefix = (prefix: string): { address: string; length: number } => {
  const slash = prefix.lastIndexOf('/')
  return { address: prefix.slice(0, slash), length: Number(prefix.slice(slash + 1)) }
}

const ipv4Reachable = compile([{ from: 0, to: 2 ** 32 }], ipv4SpecialPurpose, ipv4Interval)

/**
 * Over the first 48 bits: every registered prefix inside 2000::/3 that changes the answer is /48 or shorter, and
 * everything outside 2000::/3 is refused because no allocation covers it.
 */
const ipv6Reachable = compile(ipv6Allocated.map(ipv6Interval), ipv6SpecialPurpose, ipv6Interval)

const isReachableIPv4 = (bits: number): boolean => covers(ipv4Reachable, bits)

const isReachableIPv6 = (words: Uint16Array): boolean => {
  const [a = 0, b = 0, c = 0] = words
  return covers(ipv6Reachable, a * 0x100000000 + b * 0x10000 + c)
}
