import { getDomain } from 'tldts'
import type { EmailAddress, ListEvidence } from '../evidence.ts'
import { correctedDomain } from './did-you-mean.ts'
import { rereadVendoredDomains, vendoredDomains } from './listed-domains.ts'
import { firstOfParents } from './parents.ts'
import { isRoleName } from './roles.ts'

/**
 * Checks an address against the lists, without network access; false means only "not listed". Parent domains count (`mx.mailinator.com`), and
 * the nearest listed name decides. The first call reads the lists.
 */
export const inspectLists = ({
  normalized,
  localPart,
  asciiDomain,
  domainLiteral,
}: EmailAddress): ListEvidence => {
  const { kindOf } = vendoredDomains()
  const exact = kindOf(asciiDomain)
  const routable = exact !== undefined || (!domainLiteral && isRoutableDomain(asciiDomain))
  const kind = exact ?? firstOfParents(asciiDomain, kindOf)
  const corrected =
    domainLiteral || (kind !== undefined && kind !== 'disposable') ? null : correctedDomain(asciiDomain)
  return {
    disposable: kind === 'disposable',
    roleBased: isRoleName(localPart),
    freeProvider: kind === 'provider' || kind === 'free',
    privacyRelay: kind === 'relay',
    subaddress: subaddressTag({ localPart, asciiDomain, provider: exact === 'provider' }),
    didYouMean:
      corrected === null ? null : `${normalized.slice(0, normalized.lastIndexOf('@'))}@${corrected}`,
    registrableDomain: routable ? registrableDomain(asciiDomain) : null,
    routable,
  }
}

/** Reads the lists again, and returns the number of domains in them. Throws if they cannot be read. */
export const rereadLists = (): { readonly domains: number } => {
  const { curated, raw } = rereadVendoredDomains()
  return { domains: curated.size + raw.disposable.size + raw.free.size }
}

/**
 * Whether a mail exchanger or its parent domain is on the curated list of disposable-mail services. These services change their domains daily
 * but rarely change their servers. A final dot and letter case are ignored.
 */
export const isDisposableExchange = (exchange: string): boolean => {
  const { disposableExchanges } = vendoredDomains()
  const host = exchange.toLowerCase()
  const name = host.endsWith('.') ? host.slice(0, -1) : host
  return firstOfParents(name, (parent) => (disposableExchanges.has(parent) ? true : undefined)) ?? false
}

const withPrivate = {
  allowPrivateDomains: true,
  extractHostname: false,
  validateHostname: false,
  detectIp: false,
}
const withoutPrivate = { ...withPrivate, allowPrivateDomains: false }

/**
 * Returns the public suffix plus one label. Private suffixes count: `acme.uk.com` belongs to Acme and not to the registry of
 * `uk.com`, and data about GitHub does not describe `acme.github.io`. A domain that is itself a private suffix (`uk.com`) is its
 * own registrable domain.
 */
const registrableDomain = (asciiDomain: string): string | null =>
  getDomain(asciiDomain, withPrivate) ?? getDomain(asciiDomain, withoutPrivate)

/**
 * Names that the public DNS never delegates for mail. All other names are resolved: `example.com` has a null MX, and `.corp` and `.home` do
 * not exist.
 */
const specialUseTopLevel: ReadonlySet<string> = new Set([
  // RFC 6761 and RFC 2606: special-use names, and names for documentation and tests.
  'example',
  'invalid',
  'localhost',
  'test',
  // RFC 6762: multicast DNS; RFC 7686: Tor; RFC 9476: not DNS at all.
  'local',
  'onion',
  'alt',
  // ICANN board resolution 2024.07.29.06: reserved for private use, never delegated.
  'internal',
  // RFC 3172: infrastructure only. It includes `home.arpa` for residential networks (RFC 8375).
  'arpa',
])

const digitsOnly = /^\d+$/

/**
 * Whether the public DNS can have a mail host for the domain. False for a domain literal, a single label, a special-use name, and a numeric
 * top-level domain, because none exists (RFC 3696 §2). `asciiDomain` must be in lower case.
 */
const isRoutableDomain = (asciiDomain: string): boolean => {
  if (asciiDomain.startsWith('[')) return false
  const dot = asciiDomain.lastIndexOf('.')
  if (dot === -1) return false
  const topLevel = asciiDomain.slice(dot + 1)
  return !specialUseTopLevel.has(topLevel) && !digitsOnly.test(topLevel)
}

/**
 * Hosts that document subaddresses (RFC 5233): mail to `user+tag@` reaches `user@`. At all other hosts, a plus is an ordinary character,
 * because only a host can interpret its local parts (RFC 5321 §2.3.11).
 *
 * Yahoo's `base-keyword@` is not included, because the base is not the account's name and ordinary local parts can contain hyphens.
 */
const plusHosts: ReadonlySet<string> = new Set(
  [
    'gmail.com googlemail.com',
    'outlook.com hotmail.com live.com msn.com',
    'icloud.com me.com mac.com',
    'fastmail.com fastmail.fm sent.com',
    'proton.me protonmail.com protonmail.ch pm.me',
    'zoho.com zoho.eu zoho.in zohomail.com zohomail.eu zohomail.in',
    'yandex.ru yandex.com ya.ru mailbox.org posteo.de posteo.net hey.com',
  ].flatMap((line) => line.split(' ')),
)
/** All country domains of Microsoft share one mail system, and all those of Posteo share another. */
const plusFamilies = /^(?:outlook|hotmail|live|posteo)\.[a-z.]{2,6}$/

/**
 * Returns the tag of a subaddress, such as `news` for `user+news@gmail.com`; null if the host is not known to support tags, or
 * either side of the plus is empty. `provider` is true if the domain is a curated provider's.
 */
const subaddressTag = (address: {
  readonly localPart: string
  readonly asciiDomain: string
  readonly provider: boolean
}): string | null => {
  const plus = address.localPart.indexOf('+')
  if (plus < 1 || plus === address.localPart.length - 1 || address.localPart.startsWith('"')) return null
  const known =
    plusHosts.has(address.asciiDomain) || (address.provider && plusFamilies.test(address.asciiDomain))
  return known ? address.localPart.slice(plus + 1) : null
}
