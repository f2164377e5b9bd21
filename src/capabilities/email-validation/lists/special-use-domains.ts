/**
 * Names that the public DNS never delegates for mail. The rest, reserved or not, is left to the DNS: `example.com` exists
 * and answers with a null MX, `.corp` and `.home` do not exist and say so.
 */
const specialUseTopLevel: ReadonlySet<string> = new Set([
  // RFC 6761 (and RFC 2606): never to be looked up, or for documentation and tests.
  'example',
  'invalid',
  'localhost',
  'test',
  // RFC 6762: multicast DNS; RFC 7686: Tor; RFC 9476: not the DNS at all.
  'local',
  'onion',
  'alt',
  // ICANN board resolution 2024.07.29.06: private use for good, never delegated.
  'internal',
  // RFC 3172: infrastructure only; among its names `home.arpa` (RFC 8375) is for residential networks.
  'arpa',
])

const digitsOnly = /^\d+$/

/**
 * Whether the public DNS can know a mail host for the domain at all. False for a domain literal, a single label, a
 * special-use name and a last label of digits (RFC 3696 §2: no top-level domain is, so `1.2.3.4` is a bare address).
 * `asciiDomain` is in lower case.
 */
export const isRoutableDomain = (asciiDomain: string): boolean => {
  if (asciiDomain.startsWith('[')) return false
  const dot = asciiDomain.lastIndexOf('.')
  if (dot === -1) return false
  const topLevel = asciiDomain.slice(dot + 1)
  return !specialUseTopLevel.has(topLevel) && !digitsOnly.test(topLevel)
}
