import { readList, readRefreshed, vendoredListFolder } from './file.ts'
import { packagedLists, type RawLists } from './packages.ts'
import { type Curated, disposableFault, freeFault } from './sieve.ts'

export type DomainKind = 'provider' | 'relay' | 'business' | 'free' | 'disposable'

/** Everything the lists know, in memory. */
export type ListedDomains = {
  /** The entry for exactly this domain; the caller walks the parents. */
  readonly kindOf: (domain: string) => DomainKind | undefined
  readonly disposableExchanges: ReadonlySet<string>
  /** Only the curated lists. */
  readonly curated: Curated
  /** Other projects' lists, believed or not. */
  readonly raw: RawLists
}

/**
 * The lists of a folder. A generated list is used as an operator last refreshed it, or otherwise as the packages supply it. Its
 * entries are judged on lookup: few are ever looked up, and judging all of them takes longer than reading them.
 * A curated list wins: being wrong about a provider with a million users costs more than missing one throw-away domain.
 * @throws if a curated list is missing, or any list is empty.
 */
export const openListedDomains = (
  folder: string,
  packaged: () => RawLists = packagedLists,
): ListedDomains => {
  const curated = curatedKinds(folder)
  const additions = new Set(readList(folder, 'freeAdditions'))
  const [disposable, free] = [readRefreshed(folder, 'disposable'), readRefreshed(folder, 'free')]
  const raw: RawLists =
    disposable !== null && free !== null
      ? { disposable, free }
      : { disposable: disposable ?? packaged().disposable, free: free ?? packaged().free }
  const isDisposable = (domain: string): boolean =>
    raw.disposable.has(domain) && disposableFault(domain, curated) === null
  return {
    kindOf: (domain) => {
      const kind = curated.get(domain)
      if (kind !== undefined) return kind
      if (isDisposable(domain)) return 'disposable'
      const isFree =
        additions.has(domain) || (raw.free.has(domain) && freeFault(domain, isDisposable, curated) === null)
      return isFree ? 'free' : undefined
    },
    disposableExchanges: new Set(readList(folder, 'disposableExchanges')),
    curated,
    raw,
  }
}

/** Domains that were decided here. Other lists are ignored for them. */
const curatedKinds = (folder: string): Curated => {
  const kinds = new Map<string, DomainKind>()
  for (const domain of readList(folder, 'businesses')) kinds.set(domain, 'business')
  for (const domain of readList(folder, 'providers')) kinds.set(domain, 'provider')
  for (const domain of readList(folder, 'relays')) kinds.set(domain, 'relay')
  return kinds
}

let vendored: ListedDomains | null = null

/**
 * The lists this installation uses, read at the first call (about 50 ms) and kept: commands that never check an
 * address do not pay for them. Call it at start to spare the first request the wait.
 */
export const vendoredDomains = (): ListedDomains => {
  vendored ??= openListedDomains(vendoredListFolder)
  return vendored
}

/** Reads the lists again. Throws if a list is missing or empty; the old lists then stay in use. */
export const rereadVendoredDomains = (): ListedDomains => {
  vendored = openListedDomains(vendoredListFolder)
  return vendored
}
