import { parse as parseHost } from 'tldts'
import type { ProfileIds, ProfileRef } from './sources/provider.ts'

/**
 * Parses a person's identifier, which is a URN, a profile URL or a profile id (lid), into its canonical form (Spec §4.3). The parser is
 * strict, because an accepted identifier is sent to another company's server and identifies a person in storage and erasure.
 *
 * The URL parser of Node.js is not used, because it repairs its input: it removes line ends, turns `\` into `/` and `%2e%2e` into the parent
 * folder, and maps full-width letters. With these repairs, two strings could identify one person, or one string two people.
 */
export type Identifiers = {
  /** Returns null if the text has none of the three forms. Never throws, and reads at most `idCharactersMax`. */
  readonly parse: (id: string) => ProfileRef | null
  /** Returns the profile's full URL, which is well-formed for any `lid`. */
  readonly urlOf: (lid: string) => string
}

/** `domain` is, for example, `profnet.com`; `urnPrefix` is, for example, `urn:profnet`. If a member is null, any domain or prefix is accepted. */
type ProfileNetwork = { readonly domain: string | null; readonly urnPrefix: string | null }

/** In UTF-16 code units. The longest real identifier is a URL with a percent-encoded lid, under 1,500. */
export const idCharactersMax = 2_048
const lidCodePointsMin = 3
const lidCodePointsMax = 100

/** The name of the network. If no domain is configured, this name under any public suffix is accepted. */
const networkName = 'profnet'
const domainByDefault = 'profnet.com'

/** Letters, marks, digits, hyphen, underscore and symbols, except symbols with a meaning in URLs and shells. */
const lidPattern = /^(?:[\p{L}\p{M}\p{Nd}\-_]|(?![$+<=>^])\p{S})+$/u
const numericIdPattern = /^[1-9]\d{0,18}$/
const anyPrefix = /^(?:urn:)?[a-z][a-z0-9-]{1,30}$/
const hostPattern = /^[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63})+$/
const subdomainPattern = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/
const localePattern = /^[a-z]{2}(?:[-_][a-z]{2})?$/i
/** Suffixes reserved for examples and tests (RFC 2606), which are not public suffixes. */
const reservedSuffixes = new Set(['example', 'test', 'localhost', 'invalid'])

export const createIdentifiers = ({ domain, urnPrefix }: ProfileNetwork): Identifiers => {
  const isOurHost = domain === null ? isNetworkHost : (host: string) => isHostOf(host, domain)
  const isOurPrefix =
    urnPrefix === null
      ? (prefix: string) => anyPrefix.test(prefix)
      : (prefix: string) => prefix === urnPrefix.toLowerCase()
  const origin = `https://${hostToPrint(domain ?? domainByDefault)}`
  return {
    parse: (id) => {
      if (id.length > idCharactersMax) return null
      return parseUrn(id, isOurPrefix) ?? parseUrl(id, isOurHost) ?? refOfLid(canonicalLid(id))
    },
    urlOf: (lid) => `${origin}/in/${encodeURIComponent(lid.toWellFormed())}`,
  }
}

/**
 * Returns the canonical form of a lid: percent-decoded once, NFC, lower case. Null if the text cannot be a lid. The canonical form
 * of a canonical lid is itself.
 */
export const canonicalLid = (text: string): string | null => {
  if (text.length > idCharactersMax) return null
  let decoded: string
  try {
    decoded = decodeURIComponent(text)
  } catch {
    return null
  }
  // Normalized twice, because the lower case of a string in NFC is not always in NFC.
  const lid = decoded.normalize('NFC').toLowerCase().normalize('NFC')
  if (!lidPattern.test(lid)) return null
  const codePoints = [...lid].length
  return codePoints >= lidCodePointsMin && codePoints <= lidCodePointsMax ? lid : null
}

/** Reads a person's numeric id from a URN with any prefix, a string of digits, or a number small enough to be exact. */
export const numericIdOf = (value: unknown): string | null => {
  if (typeof value === 'number') return Number.isSafeInteger(value) && value > 0 ? String(value) : null
  if (typeof value !== 'string' || value.length > idCharactersMax) return null
  const digits = value.slice(value.lastIndexOf(':') + 1)
  const prefix = value.slice(0, -digits.length)
  const isPerson = prefix === '' || /^[a-z0-9:-]+:(?:person|member):$/i.test(prefix)
  return isPerson && numericIdPattern.test(digits) ? digits : null
}

/** A person's identifiers as strings, lid first. Only keyed HMACs of these are stored permanently. */
export const aliasTexts = ({ lid, urn }: ProfileIds): readonly string[] =>
  urn === null ? [`lid:${lid}`] : [`lid:${lid}`, `urn:${urn}`]

const parseUrn = (id: string, isOurPrefix: (prefix: string) => boolean): ProfileRef | null => {
  const separator = ':person:'
  const at = id.lastIndexOf(separator)
  if (at < 0) return null
  // Only `urn` and the namespace are case-insensitive (RFC 8141 §3.1).
  const prefix = id.slice(0, at).toLowerCase()
  const value = id.slice(at + separator.length)
  return isOurPrefix(prefix) && numericIdPattern.test(value) ? { kind: 'urn', value } : null
}

const parseUrl = (id: string, isOurHost: (host: string) => boolean): ProfileRef | null => {
  // These characters are not allowed in a URL, but URL parsers silently remove or change them.
  if (/[\s\\\p{Cc}]/u.test(id)) return null
  const address = /^(?:(?:(https?):)?\/\/)?([^/?#]*)(\/[^?#]*)/i.exec(id)
  if (address === null) return null
  const [, scheme = '', authority = '', path = ''] = address
  const host = hostIn(authority.toLowerCase(), scheme.toLowerCase())
  if (host === null || !isOurHost(host)) return null
  return refOfLid(lidInPath(path))
}

/** Returns the host; null if the text also has a user name or a port other than the scheme's default. */
const hostIn = (authority: string, scheme: string): string | null => {
  const [host = '', port, ...rest] = authority.split(':')
  if (rest.length > 0 || !hostPattern.test(host)) return null
  const ports = scheme === 'http' ? ['80'] : scheme === 'https' ? ['443'] : ['80', '443']
  return port === undefined || ports.includes(port) ? host : null
}

/** Accepts `/in/<lid>`, optionally after `/comm`, and optionally followed by a locale or a part of the page. */
const lidInPath = (path: string): string | null => {
  if (/\/(?:\.|%2e){1,2}(?:\/|$)/i.test(path)) return null
  const segments = path.slice(1).split('/')
  if (segments.at(-1) === '') segments.pop()
  if (segments[0] === 'comm') segments.shift()
  const [room, lid, tail, ...rest] = segments
  if (room !== 'in' || lid === undefined) return null
  const isPart = tail === 'details' || tail === 'overlay'
  const isWhole = tail === undefined || (localePattern.test(tail) && rest.length === 0)
  return isPart || isWhole ? canonicalLid(lid) : null
}

const refOfLid = (lid: string | null): ProfileRef | null =>
  lid === null ? null : { kind: 'lid', value: lid }

/** Accepts the domain and its direct subdomains, such as `www` and those of countries and languages. */
const isHostOf = (host: string, domain: string): boolean => {
  if (host === domain) return true
  const below = host.endsWith(`.${domain}`) ? host.slice(0, -domain.length - 1) : ''
  return subdomainPattern.test(below)
}

const isNetworkHost = (host: string): boolean => {
  const { domain, domainWithoutSuffix, isIcann, publicSuffix } = parseHost(host)
  const isPublic = isIcann === true || reservedSuffixes.has(publicSuffix ?? '')
  return domain !== null && domainWithoutSuffix === networkName && isPublic && isHostOf(host, domain)
}

/** Profiles of a registrable domain are at `www`. A configured subdomain is used unchanged. */
const hostToPrint = (domain: string): string =>
  parseHost(domain).subdomain === '' ? `www.${domain}` : domain
