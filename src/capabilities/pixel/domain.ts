import { domainToASCII } from 'node:url'
import { parse } from 'tldts'

/** RFC 1035 §2.3.4, without the trailing dot. */
const domainCharactersMax = 253
/** The input may be longer than the result: a character outside ASCII may be four bytes and vanish. Bounds the work. */
const submittedCharactersMax = 1_000
const urlCharactersMax = 8_192

/**
 * Characters of a domain as people write it. Others are refused before the conversion to ASCII, which would cut off a path,
 * decode `%70` and read brackets as an address: none of that is a domain.
 */
const submitted = /^[a-z0-9.\-\u{80}-\u{10ffff}]+$/iu
const labels = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)+$/

/**
 * The domain of a rule in its one spelling: ASCII, lower case, without a trailing dot. Null for anything that is not a domain
 * someone can own: addresses, single labels, unknown top-level domains, and public suffixes, including those of hosting providers
 * (`github.io`), because a rule on one would cover other people's domains. `www.` is kept.
 */
export const parseDomain = (text: string): string | null => {
  if (text.length > submittedCharactersMax || !submitted.test(text)) return null
  const ascii = withoutDot(domainToASCII(text))
  // After the conversion, which turns other scripts' full stops into dots, and wide underscores into underscores.
  if (ascii.length > domainCharactersMax || !labels.test(ascii)) return null
  const { domain, isIcann, isPrivate } = parse(ascii, {
    allowPrivateDomains: true,
    extractHostname: false,
    validateHostname: false,
  })
  return domain !== null && (isIcann === true || isPrivate === true) ? ascii : null
}

/**
 * The host of an http or https URL as a browser understands it, spelled like a rule's domain. Hosts that no rule can name
 * (addresses, single labels, `_dmarc.example.com`) are still hosts. Null for anything that is not such a URL.
 */
export const parseHost = (url: string): string | null => {
  if (url.length > urlCharactersMax || !/^https?:\/\//i.test(url)) return null
  const parsed = URL.parse(url)
  const host = withoutDot(parsed?.hostname ?? '')
  return host === '' || host.length > domainCharactersMax ? null : host
}

/** The host and every domain above it, nearest first, on label boundaries: the names of all rules that can cover it. */
export const coveringDomains = (host: string): string[] => {
  const domains = [host]
  for (let dot = host.indexOf('.'); dot !== -1; dot = host.indexOf('.', dot + 1))
    domains.push(host.slice(dot + 1))
  return domains
}

const withoutDot = (name: string): string => (name.endsWith('.') ? name.slice(0, -1) : name)
