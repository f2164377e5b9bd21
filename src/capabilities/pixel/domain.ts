import { domainToASCII } from 'node:url'
import { parse } from 'tldts'

/** As in RFC 1035 §2.3.4, without the trailing dot. */
const domainCharactersMax = 253
/** The input can be longer than the result, because a character outside ASCII can have four bytes or be removed. */
const submittedCharactersMax = 1_000
export const urlCharactersMax = 8_192

/**
 * The characters of a domain as people write it. Others are refused, because the conversion to ASCII would cut off a path, decode `%70` and
 * parse brackets as an address.
 */
const submitted = /^[a-z0-9.\-\u{80}-\u{10ffff}]+$/iu
const labels = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)+$/

/**
 * Returns the normalized domain of a rule: ASCII, lower case, without a trailing dot, but with `www.`. Null for addresses, single labels, unknown
 * top-level domains, and public suffixes, including those of hosting providers (`github.io`), because a rule on a public suffix would cover other
 * people's domains.
 */
export const parseDomain = (text: string): string | null => {
  if (text.length > submittedCharactersMax || !submitted.test(text)) return null
  const ascii = withoutDot(domainToASCII(text))
  // Checked after the conversion, because it turns full stops of other scripts into dots and wide underscores into underscores.
  if (ascii.length > domainCharactersMax || !labels.test(ascii)) return null
  const { domain, isIcann, isPrivate } = parse(ascii, {
    allowPrivateDomains: true,
    extractHostname: false,
    validateHostname: false,
  })
  return domain !== null && (isIcann === true || isPrivate === true) ? ascii : null
}

/**
 * Returns the host of an http or https URL as a browser parses it, normalized like a rule's domain. Hosts that cannot have a rule (addresses,
 * single labels, `_dmarc.example.com`) are also returned. Null for any other text.
 */
export const parseHost = (url: string): string | null => {
  if (url.length > urlCharactersMax || !/^https?:\/\//i.test(url)) return null
  const parsed = URL.parse(url)
  const host = withoutDot(parsed?.hostname ?? '')
  return host === '' || host.length > domainCharactersMax ? null : host
}

/** Returns the domains of all rules that can cover the host: the host and its parent domains, nearest first. */
export const coveringDomains = (host: string): string[] => {
  const domains = [host]
  for (let dot = host.indexOf('.'); dot !== -1; dot = host.indexOf('.', dot + 1))
    domains.push(host.slice(dot + 1))
  return domains
}

const withoutDot = (name: string): string => (name.endsWith('.') ? name.slice(0, -1) : name)
