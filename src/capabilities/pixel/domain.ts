import { domainToASCII } from 'node:url'
import { parse } from 'tldts'

/** RFC 1035 §2.3.4, without the trailing dot. */
const domainCharactersMax = 253
/** More can be written than comes out: a character outside ASCII may be four bytes and vanish. Bounds the work. */
const submittedCharactersMax = 1_000
const urlCharactersMax = 8_192

/**
 * What can be part of a domain as people write it. Refused before the conversion to ASCII, which would cut a path off,
 * decode `%70` and take brackets for an address: none of that is a domain.
 */
const submitted = /^[a-z0-9.\-\u{80}-\u{10ffff}]+$/iu
const labels = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)+$/

/**
 * The domain of a rule in its one spelling: ASCII, lower case, without a trailing dot. Null for what is no domain
 * somebody can own: addresses, single labels, unknown top-level domains, and public suffixes, those of hosting providers
 * (`github.io`) included, because a rule on one would cover other people's domains. `www.` stays what it is.
 */
export const parseDomain = (text: string): string | null => {
  if (text.length > submittedCharactersMax || !submitted.test(text)) return null
  const ascii = withoutDot(domainToASCII(text))
  // After the conversion: it makes dots of other scripts' full stops, and underscores of wide ones.
  if (ascii.length > domainCharactersMax || !labels.test(ascii)) return null
  const { domain, isIcann, isPrivate } = parse(ascii, {
    allowPrivateDomains: true,
    extractHostname: false,
    validateHostname: false,
  })
  return domain !== null && (isIcann === true || isPrivate === true) ? ascii : null
}

/**
 * The host of an http or https URL as a browser understands it, spelled like a rule's domain. Hosts no rule can name
 * (addresses, single labels, `_dmarc.example.com`) are hosts all the same. Null for anything that is no such URL.
 */
export const parseHost = (url: string): string | null => {
  if (url.length > urlCharactersMax || !/^https?:\/\//i.test(url)) return null
  const parsed = URL.parse(url)
  const host = withoutDot(parsed?.hostname ?? '')
  return host === '' || host.length > domainCharactersMax ? null : host
}

/** The host and every domain above it, nearest first, on label boundaries: whatever a rule that covers it can name. */
export const coveringDomains = (host: string): string[] => {
  const domains = [host]
  for (let dot = host.indexOf('.'); dot !== -1; dot = host.indexOf('.', dot + 1))
    domains.push(host.slice(dot + 1))
  return domains
}

const withoutDot = (name: string): string => (name.endsWith('.') ? name.slice(0, -1) : name)
