import { readList, readRefreshed, vendoredListFolder } from './file.ts'
import { packagedLists, type RawLists } from './packages.ts'
import { type Curated, disposableFault, freeFault } from './sieve.ts'

export type DomainKind = 'provider' | 'relay' | 'business' | 'free' | 'disposable'

export type ListedDomains = {
  /** Looks up exactly this domain; the caller tries the parent domains. */
  readonly kindOf: (domain: string) => DomainKind | undefined
  readonly disposableExchanges: ReadonlySet<string>
  readonly curated: Curated
  /** The lists of other projects, including entries that are not used. */
  readonly raw: RawLists
}

/**
 * Reads the lists of a folder. A generated list that was never refreshed is taken from the npm packages. Entries of the packages are checked
 * on lookup, because checking all of them takes longer than reading them. The curated lists take precedence, because a wrong verdict about a
 * big provider does more harm than a missed disposable domain.
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

const curatedKinds = (folder: string): Curated => {
  const kinds = new Map<string, DomainKind>()
  for (const domain of readList(folder, 'businesses')) kinds.set(domain, 'business')
  for (const domain of readList(folder, 'providers')) kinds.set(domain, 'provider')
  for (const domain of readList(folder, 'relays')) kinds.set(domain, 'relay')
  return kinds
}

let vendored: ListedDomains | null = null

/** The lists in use, read at the first call (about 50 ms), so that commands that check no address do not wait for them. */
export const vendoredDomains = (): ListedDomains => {
  vendored ??= openListedDomains(vendoredListFolder)
  return vendored
}

/** Reads the lists again. Throws if a list is missing or empty; the previous lists then stay in use. */
export const rereadVendoredDomains = (): ListedDomains => {
  vendored = openListedDomains(vendoredListFolder)
  return vendored
}
