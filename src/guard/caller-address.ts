import { BlockList, isIP, SocketAddress } from 'node:net'

/** Whether the forwarded headers from an address are trusted. */
export type TrustedProxies = (address: string | undefined) => boolean

/**
 * Replaces the address of a caller if the trusted proxy did not forward one. It is on no allow-list, and all such callers share one limit.
 */
const unknownAddress = 'unknown'

/** The prefix of an IPv4-mapped IPv6 address (RFC 4291, 2.5.5.2), which dual-stack sockets use. */
const mappedPrefix = '::ffff:'
const mappedBits = 96

/**
 * Returns the canonical text of an address, without the additions of some senders: brackets, a zone, the IPv6 form of an IPv4 address, or the
 * port that IIS and Azure append to every hop. Returns null if the text is not an address.
 */
export const plainAddress = (text: string): string | null => {
  const [, bracketed] = /^\[([^\]]*)\](?::\d{1,5})?$/.exec(text) ?? []
  const [, withPort] = /^([\d.]+):\d{1,5}$/.exec(text) ?? []
  const [address = ''] = (bracketed ?? withPort ?? text).split('%')
  const family = isIP(address)
  if (family !== 6) return family === 4 ? address : null
  const canonical = new SocketAddress({ address, family: 'ipv6' }).address
  return isMapped(canonical) ? canonical.slice(mappedPrefix.length) : canonical
}

const isMapped = (canonical: string): boolean =>
  canonical.startsWith(mappedPrefix) && isIP(canonical.slice(mappedPrefix.length)) === 4

/** `cidrs` must be valid blocks or addresses. A block of IPv6 addresses never matches an IPv4 address. */
export const trustedProxies = (cidrs: readonly string[]): TrustedProxies => {
  const lists = { 4: new BlockList(), 6: new BlockList() }
  for (const cidr of cidrs) {
    const [text = '', prefix] = cidr.split('/')
    const address = plainAddress(text) ?? text
    const family = isIP(address) === 4 ? 4 : 6
    const bits = prefix === undefined ? (family === 4 ? 32 : 128) : Number(prefix)
    // ::ffff:10.0.0.0/104 means 10.0.0.0/8.
    const mapped = family === 4 && isIP(text) === 6 && prefix !== undefined
    lists[family].addSubnet(address, mapped ? Math.max(0, bits - mappedBits) : bits, `ipv${family}`)
  }
  return (address) => {
    const plain = address === undefined ? null : plainAddress(address)
    if (plain === null) return false
    const family = isIP(plain) === 4 ? 4 : 6
    return lists[family].check(plain, `ipv${family}`)
  }
}

/** Returns the caller's address: the nearest hop that is not a trusted proxy. (Anyone else can send any `X-Forwarded-For`.) */
export const callerAddress = ({ ip }: { readonly ip: string }): string => plainAddress(ip) ?? unknownAddress

/**
 * Returns the range that limits count as one caller: an IPv4 address, or the first 64 bits of an IPv6 address, because providers give each
 * customer at least 2^64 IPv6 addresses.
 */
export const addressBlock = (address: string): string => {
  const plain = plainAddress(address)
  if (plain === null) return unknownAddress
  if (isIP(plain) === 4) return plain
  const [head = '', tail = ''] = plain.split('::')
  const groups = head === '' ? [] : head.split(':')
  const missing = plain.includes('::') ? 8 - groups.length - (tail === '' ? 0 : tail.split(':').length) : 0
  return [...groups, ...Array.from({ length: missing }, () => '0'), ...tail.split(':')].slice(0, 4).join(':')
}

export const isLoopback = (address: string): boolean =>
  address === '::1' || (isIP(address) === 4 && address.startsWith('127.'))
