import { listPath, readList, vendoredListFolder } from './file.ts'

export type DomainKind = 'provider' | 'relay' | 'business' | 'free' | 'disposable'

/** Everything the lists know, in memory. */
export type ListedDomains = {
  /** What is said about exactly this domain; parents are the caller's walk. */
  readonly kinds: ReadonlyMap<string, DomainKind>
  readonly disposableExchanges: ReadonlySet<string>
}

/**
 * Reads the lists of a folder. Where two lists name one domain the curated one wins: being wrong about a provider with
 * a million users costs more than missing one throw-away domain.
 * @throws where a list is missing, or has no entry.
 */
export const openListedDomains = (folder: string): ListedDomains => {
  const read = (name: Parameters<typeof readList>[1]): string[] => {
    const entries = readList(folder, name)
    if (entries.length === 0) throw new Error(`the list ${listPath(folder, name)} is empty`)
    return entries
  }
  const kinds = new Map<string, DomainKind>()
  for (const domain of read('disposable')) kinds.set(domain, 'disposable')
  for (const domain of read('free')) kinds.set(domain, 'free')
  for (const domain of read('businesses')) kinds.set(domain, 'business')
  for (const domain of read('providers')) kinds.set(domain, 'provider')
  for (const domain of read('relays')) kinds.set(domain, 'relay')
  return { kinds, disposableExchanges: new Set(read('disposableExchanges')) }
}

let vendored: ListedDomains | null = null

/**
 * The lists that come with the source, read at the first call (about 20 ms) and kept: commands that never look at an
 * address do not pay for them. Call it while starting to spare the first request the wait.
 */
export const vendoredDomains = (): ListedDomains => {
  vendored ??= openListedDomains(vendoredListFolder)
  return vendored
}

/** Reads the lists that come with the source again. Throws where one is missing or empty; the old ones then stay. */
export const rereadVendoredDomains = (): ListedDomains => {
  vendored = openListedDomains(vendoredListFolder)
  return vendored
}
