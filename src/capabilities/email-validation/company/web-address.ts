import { domainToASCII } from 'node:url'
import { parse as parseHost } from 'tldts'

export const urlCharactersMax = 500
const hostCharactersMax = 1_024

/**
 * Returns the registrable domain of a host, in A-labels and lower case; null for IP addresses, bare suffixes and unknown suffixes.
 *
 * Private suffixes count, because `shop.github.io` belongs to its tenant. If `github.io` were the domain, one tenant's data would be returned
 * for all tenants.
 */
export const registrableDomainOf = (host: string): string | null => {
  if (host.length > hostCharactersMax) return null
  const bare = host.endsWith('.') ? host.slice(0, -1) : host
  // Converts to A-labels first, because the suffix list is searched by A-labels.
  const ascii = /^[a-z0-9.-]*$/.test(bare) ? bare : domainToASCII(bare)
  if (ascii.length > 63 && (ascii.length > 253 || /[^.]{64}/.test(ascii))) return null
  const { domain, isIcann, isPrivate } = parseHost(ascii, {
    allowPrivateDomains: true,
    extractHostname: false,
    validateHostname: true,
  })
  return isIcann === true || isPrivate === true ? domain : null
}

/** Parses a web address with or without a scheme; null for other schemes and for text that is not an address. */
export const webAddressOf = (value: unknown): URL | null => {
  if (typeof value !== 'string' || value.length > 2 * urlCharactersMax) return null
  const text = value.trim().replace(/^\/\//, '')
  const scheme = /^([a-z][a-z0-9+.-]*):(?!\d)/i.exec(text)?.[1]?.toLowerCase()
  if (scheme !== undefined && scheme !== 'http' && scheme !== 'https') return null
  // `URL` accepts `https:host` and backslashes, but in data sets these are mistakes.
  if (scheme !== undefined && !/^https?:\/\/[^/\\]/i.test(text)) return null
  return URL.parse(scheme === undefined ? `https://${text}` : text)
}

/** Returns scheme, host, port and path, without user name, query and fragment. */
export const addressText = ({ origin, pathname }: URL): string =>
  pathname === '/' ? origin : origin + pathname

/** Returns a complete web address including its query; null if the value is not one. */
export const urlOf = (value: unknown): string | null => {
  const address = webAddressOf(value)
  if (address === null || registrableDomainOf(address.hostname) === null) return null
  address.username = ''
  address.password = ''
  address.hash = ''
  return address.href.length > urlCharactersMax ? null : address.href
}
