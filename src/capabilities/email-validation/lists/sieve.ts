/**
 * Decides which entries of other projects' lists are used. Those lists wrongly contain big providers, public suffixes, alias services and
 * shops, so every entry is checked, and the curated lists take precedence. Pure.
 */
import { parse } from 'tldts'
import { suggestionFor } from './did-you-mean.ts'
import type { DomainKind } from './listed-domains.ts'
import type { RawLists } from './packages.ts'
import { firstOfParents } from './parents.ts'

export type Curated = ReadonlyMap<string, DomainKind>

export type Sifted = {
  readonly entries: readonly string[]
  /** The number of entries that were not used, by reason. */
  readonly left: Readonly<Record<string, number>>
}

/** Returns the sorted lists, without names whose parent domain is also listed. */
export const siftLists = (
  raw: RawLists,
  curated: Curated,
): { readonly disposable: Sifted; readonly free: Sifted } => {
  const isListed = (name: string): true | undefined =>
    raw.disposable.has(name) && disposableFault(name, curated) === null ? true : undefined
  const disposable = sifted(raw.disposable, (domain) => {
    const parent = domain.slice(domain.indexOf('.') + 1)
    return disposableFault(domain, curated) ?? (firstOfParents(parent, isListed) ? 'parent_listed' : null)
  })
  const listed = new Set(disposable.entries)
  return {
    disposable,
    free: sifted(raw.free, (domain) => freeFault(domain, (name) => listed.has(name), curated)),
  }
}

const sifted = (entries: ReadonlySet<string>, fault: (domain: string) => string | null): Sifted => {
  const kept: string[] = []
  const left: Record<string, number> = {}
  for (const domain of entries) {
    const reason = fault(domain)
    if (reason === null) kept.push(domain)
    else left[reason] = (left[reason] ?? 0) + 1
  }
  return { entries: kept.sort(), left }
}

const suffixOptions = { allowPrivateDomains: true, extractHostname: false, validateHostname: false }
/** Schools, authorities and armies run no disposable-mail services, even if a list contains them. */
const institution = /(?:^|\.)(?:edu|ac|gov|gob|gouv|mil)(?:\.[a-z]{2})?$/

/**
 * Such short names under .com are too expensive for a disposable-mail service. The lists contain many of them, from sign-ups with invented
 * addresses.
 */
const costly = /^[a-z0-9]{1,3}\.com$/
/** Short names that are disposable domains according to a manually maintained list (disposable-email-domains). */
const costlyDisposable = new Set([
  '25u.com',
  '3l6.com',
  '4pu.com',
  '99.com',
  'nnh.com',
  'wg0.com',
  'x24.com',
  'zzz.com',
])

/** Returns the reason why a domain on a list of disposable domains is not treated as disposable; null if it is. */
export const disposableFault = (domain: string, curated: Curated): string | null => {
  const { domain: registrable, publicSuffix } = parse(domain, suffixOptions)
  if (registrable === null) return 'public_suffix'
  if (firstOfParents(domain, (name) => curated.get(name)) !== undefined) return 'curated'
  if (costly.test(domain) && !costlyDisposable.has(domain)) return 'costly'
  return institution.test(publicSuffix ?? '') ? 'institution' : null
}

/** Very cheap endings. A "free mail" domain with one of these endings is a disposable-mail service that is not listed yet. */
const cheapEndings = new Set([
  'cd',
  'tk',
  'ml',
  'ga',
  'cf',
  'gq',
  'cc',
  'pw',
  'ws',
  'to',
  'st',
  'id',
  'io',
  'me',
  'co',
  'tv',
  'gd',
])
const establishedEndings = new Set(['com', 'net', 'org'])

/**
 * The source also lists shops, airlines and newspapers, for which company data would then be missing. A name that contains "mail" is accepted
 * unless it belongs to a mailer (a service that sends mail for others) or a disposable-mail service. Any other name is accepted only from a
 * curated list.
 */
const namesMail = /^(?!.*(?:te?mp|trash|burn|bomb|gmail|mailers?\.)).*(?:mail|mbox|inbox)/

/** Returns the reason why a domain on a list of free domains is not treated as free; null if it is. */
export const freeFault = (
  domain: string,
  isDisposable: (name: string) => boolean,
  curated: Curated,
): string | null => {
  const { domain: registrable, publicSuffix } = parse(domain, suffixOptions)
  if (registrable !== domain) return 'not_registrable'
  if (curated.has(domain)) return 'curated'
  if (isDisposable(domain)) return 'disposable'
  if (institution.test(publicSuffix ?? '')) return 'institution'
  const topLevel = domain.slice(domain.lastIndexOf('.') + 1)
  if (cheapEndings.has(topLevel) || (topLevel.length > 2 && !establishedEndings.has(topLevel)))
    return 'ending'
  if (!namesMail.test(domain)) return 'not_named_mail'
  return suggestionFor(domain, (name) => curated.get(name)) === null ? null : 'mistyped_provider'
}
