import { readList, readRefreshed, vendoredListFolder } from './file.ts'
import { packagedLists, type RawLists } from './packages.ts'
import { type Curated, disposableFault, freeFault } from './sieve.ts'

export type DomainKind = 'provider' | 'relay' | 'business' | 'free' | 'disposable'

/** Everything the lists know, in memory. */
export type ListedDomains = {
  /** What is said about exactly this domain; parents are the caller's walk. */
  readonly kindOf: (domain: string) => DomainKind | undefined
  readonly disposableExchanges: ReadonlySet<string>
  /** What is curated here alone. */
  readonly curated: Curated
  /** What other projects list, believed or not. */
  readonly raw: RawLists
}

/**
 * The lists of a folder. A generated list counts as an operator refreshed it, or else as the packages have it. Its
 * entries are judged when they are asked for: few ever are, and judging all of them takes longer than reading them.
 * A curated list wins: being wrong about a provider with a million users costs more than missing one throw-away domain.
 * @throws where a curated list is missing, or any list has no entry.
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

/** What was decided here. Other lists have no say in it. */
const curatedKinds = (folder: string): Curated => {
  const kinds = new Map<string, DomainKind>()
  for (const domain of readList(folder, 'businesses')) kinds.set(domain, 'business')
  for (const domain of readList(folder, 'providers')) kinds.set(domain, 'provider')
  for (const domain of readList(folder, 'relays')) kinds.set(domain, 'relay')
  return kinds
}

let vendored: ListedDomains | null = null

/**
 * The lists this installation goes by, read at the first call (about 50 ms) and kept: commands that never look at an
 * address do not pay for them. Call it while starting to spare the first request the wait.
 */
export const vendoredDomains = (): ListedDomains => {
  vendored ??= openListedDomains(vendoredListFolder)
  return vendored
}

/** Reads the lists again. Throws where one is missing or empty; the old ones then stay. */
export const rereadVendoredDomains = (): ListedDomains => {
  vendored = openListedDomains(vendoredListFolder)
  return vendored
}
