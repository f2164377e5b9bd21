import { LRUCache } from 'lru-cache'
import { getDomain } from 'tldts'
import type { EmailAddress, ListEvidence } from '../evidence.ts'
import { correctedDomain } from './did-you-mean.ts'
import { type ListedDomains, rereadVendoredDomains, vendoredDomains } from './listed-domains.ts'
import { firstOfParents } from './parents.ts'
import { isRoleName } from './roles.ts'

/**
 * What lists say about an address, without asking any network: disposable, free or relayed domain, a role instead of a
 * person, a subaddress, a mistyped provider, a domain that cannot exist. A list only knows its own entries, so a false
 * means "not listed" and nothing more.
 */

/**
 * Checks an address against the lists that come with the source. Listed parents count (`mx.mailinator.com`); the nearest listed name
 * decides. A microsecond or two, and a fraction of that for a domain seen lately; the first call reads the lists.
 */
export const inspectLists = (address: EmailAddress): ListEvidence => {
  const { asciiDomain } = address
  let domain = seen.get(asciiDomain)
  if (domain === undefined) {
    domain = inspectDomain(vendoredDomains(), address)
    seen.set(asciiDomain, domain)
  }
  return evidenceOf(domain, address)
}

/** Reads the lists that come with the source again, and returns how many domains they name. Throws as opening them does. */
export const rereadLists = (): { readonly domains: number } => {
  const { curated, raw } = rereadVendoredDomains()
  seen.clear()
  return { domains: curated.size + raw.disposable.size + raw.free.size }
}

/** The findings that depend on the domain alone. */
type DomainEvidence = Pick<
  ListEvidence,
  'disposable' | 'freeProvider' | 'privacyRelay' | 'registrableDomain' | 'routable'
> & { readonly provider: boolean; readonly corrected: string | null }

/** Most addresses are at a few domains, and the findings for a domain change only when the lists are read again. */
const seenMax = 20_000
const seen = new LRUCache<string, DomainEvidence>({ max: seenMax })

const inspectDomain = (
  { kindOf }: ListedDomains,
  { asciiDomain, domainLiteral }: EmailAddress,
): DomainEvidence => {
  const exact = kindOf(asciiDomain)
  const routable = exact !== undefined || (!domainLiteral && isRoutableDomain(asciiDomain))
  const kind = exact ?? firstOfParents(asciiDomain, kindOf)
  return {
    disposable: kind === 'disposable',
    freeProvider: kind === 'provider' || kind === 'free',
    privacyRelay: kind === 'relay',
    provider: exact === 'provider',
    corrected:
      domainLiteral || (kind !== undefined && kind !== 'disposable') ? null : correctedDomain(asciiDomain),
    registrableDomain: routable ? registrableDomain(asciiDomain, exact !== undefined) : null,
    routable,
  }
}

const evidenceOf = (
  domain: DomainEvidence,
  { normalized, localPart, asciiDomain }: EmailAddress,
): ListEvidence => ({
  disposable: domain.disposable,
  roleBased: isRoleName(localPart),
  freeProvider: domain.freeProvider,
  privacyRelay: domain.privacyRelay,
  subaddress: subaddressTag({ localPart, asciiDomain, provider: domain.provider }),
  didYouMean:
    domain.corrected === null
      ? null
      : `${normalized.slice(0, normalized.lastIndexOf('@'))}@${domain.corrected}`,
  registrableDomain: domain.registrableDomain,
  routable: domain.routable,
})

/**
 * Whether a mail exchanger belongs to a throw-away service: those change their domains daily but seldom their servers.
 * Only the curated list of such servers is used, parents included; a final dot and letter case do not matter.
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
 * The public suffix plus one label. The suffix list's private section counts: `acme.uk.com` is Acme's, not the
 * registry's that sells names under `uk.com`, and company data of GitHub does not describe `acme.github.io`. A domain
 * that is itself such a private suffix (`uk.com`) is its own registrable domain.
 */
const registrableDomain = (asciiDomain: string, listed: boolean): string | null => {
  const dot = asciiDomain.indexOf('.')
  // No list holds a public suffix, so a listed name of two labels is registrable, without asking the suffix list.
  const twoLabels = dot === asciiDomain.lastIndexOf('.')
  if (twoLabels && (listed || flatTopLevels.has(asciiDomain.slice(dot + 1)))) return asciiDomain
  return getDomain(asciiDomain, withPrivate) ?? getDomain(asciiDomain, withoutPrivate)
}

/** Big top-level domains under which no registry has suffixes of its own: any two labels there are registrable. */
const flatTopLevels: ReadonlySet<string> = new Set(['com', 'net', 'org', 'de', 'nl', 'ch', 'eu'])

/**
 * Names that the public DNS never delegates for mail. All other names, reserved or not, are left to the DNS: `example.com` exists
 * and answers with a null MX; `.corp` and `.home` do not exist, and the DNS answers so.
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
 * Whether the public DNS can know a mail host for the domain. False for a domain literal, a single label, a
 * special-use name and a last label of digits (RFC 3696 §2: no top-level domain is, so `1.2.3.4` is a bare address).
 * `asciiDomain` is in lower case.
 */
const isRoutableDomain = (asciiDomain: string): boolean => {
  if (asciiDomain.startsWith('[')) return false
  const dot = asciiDomain.lastIndexOf('.')
  if (dot === -1) return false
  const topLevel = asciiDomain.slice(dot + 1)
  return !specialUseTopLevel.has(topLevel) && !digitsOnly.test(topLevel)
}

/**
 * Subaddresses (RFC 5233): `user+tag@` reaches `user@` if the host supports it. Only hosts that document it are here; for
 * all others a plus is an ordinary character (RFC 5321 §2.3.11: only the host interprets its local parts).
 *
 * Yahoo's `base-keyword@` is left out: the base is a name of its own, not the account's, and an ordinary local part may
 * hold a hyphen, so the two cannot be distinguished.
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
/** Microsoft's and Posteo's country domains share one mail system each. */
const plusFamilies = /^(?:outlook|hotmail|live|posteo)\.[a-z.]{2,6}$/

/**
 * The tag of a subaddress, such as `news` of `user+news@gmail.com`; null if the host is not known to support tags or
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
