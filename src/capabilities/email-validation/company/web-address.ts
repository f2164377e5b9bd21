import { domainToASCII } from 'node:url'
import { parse as parseHost } from 'tldts'

/** Parses web addresses as data sets write them, and finds the domain of each. */

export const urlCharactersMax = 500
/** Of a host in any notation; a domain in A-labels has at most 253. */
const hostCharactersMax = 1_024

/**
 * The registrable domain of a host, in A-labels and lower case; null for IP addresses, bare suffixes and names whose
 * suffix is unknown.
 *
 * Private suffixes count: `shop.github.io` belongs to its tenant and is a company of its own. Filed under `github.io`, one
 * tenant would answer for all the others.
 */
export const registrableDomainOf = (host: string): string | null => {
  if (host.length > hostCharactersMax) return null
  const bare = host.endsWith('.') ? host.slice(0, -1) : host
  // A-labels first: the suffix list holds some suffixes in both forms, and the lookup comes in A-labels.
  const ascii = /^[a-z0-9.-]*$/.test(bare) ? bare : domainToASCII(bare)
  if (ascii.length > 63 && (ascii.length > 253 || /[^.]{64}/.test(ascii))) return null
  const { domain, isIcann, isPrivate } = parseHost(ascii, {
    allowPrivateDomains: true,
    extractHostname: false,
    validateHostname: true,
  })
  return isIcann === true || isPrivate === true ? domain : null
}

/** A web address, with or without a scheme; null for other schemes and for anything that is not an address. */
export const webAddressOf = (value: unknown): URL | null => {
  if (typeof value !== 'string' || value.length > 2 * urlCharactersMax) return null
  const text = value.trim().replace(/^\/\//, '')
  const scheme = /^([a-z][a-z0-9+.-]*):(?!\d)/i.exec(text)?.[1]?.toLowerCase()
  if (scheme !== undefined && scheme !== 'http' && scheme !== 'https') return null
  // URL accepts `https:host` and odd slashes; in a data set they mean nothing special.
  if (scheme !== undefined && !/^https?:\/\/[^/\\]/i.test(text)) return null
  return URL.parse(scheme === undefined ? `https://${text}` : text)
}

/** Scheme, host, port and path: user names, queries and fragments are left out. */
export const addressText = ({ origin, pathname }: URL): string =>
  pathname === '/' ? origin : origin + pathname

/** A whole web address, including its query; null if it is not one. */
export const urlOf = (value: unknown): string | null => {
  const address = webAddressOf(value)
  if (address === null || registrableDomainOf(address.hostname) === null) return null
  address.username = ''
  address.password = ''
  address.hash = ''
  return address.href.length > urlCharactersMax ? null : address.href
}
