import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

/**
 * The vendored lists of domains: one domain a line, ASCII, lower case; `#` begins a comment. Where each comes from, and
 * under which licence, is in `provenance.md`.
 */
export const listFileNames = {
  providers: 'providers.txt',
  relays: 'relays.txt',
  businesses: 'businesses.txt',
  disposable: 'disposable.txt',
  free: 'free.txt',
  disposableExchanges: 'disposable-exchanges.txt',
} as const
export type ListName = keyof typeof listFileNames

/** The folder of the lists that come with the source. */
export const vendoredListFolder = fileURLToPath(new URL('.', import.meta.url))

export const listPath = (folder: string, name: ListName): string => join(folder, listFileNames[name])

/** The domains of a list file, in its order; comments and empty lines are left out, nothing else is checked. */
export const listEntries = (text: string): string[] => {
  const entries: string[] = []
  for (const line of text.split('\n')) {
    const entry = line.trim()
    if (entry !== '' && !entry.startsWith('#')) entries.push(entry)
  }
  return entries
}

/** @throws the file system's error where the list is missing: without its lists a check would call everything fine. */
export const readList = (folder: string, name: ListName): string[] =>
  listEntries(readFileSync(listPath(folder, name), 'utf8'))

/** `a.b.c`, then `b.c`, then `c`: the first for which `visit` answers something ends the walk. */
export const firstOfParents = <T>(domain: string, visit: (name: string) => T | undefined): T | undefined => {
  let name = domain
  for (;;) {
    const found = visit(name)
    if (found !== undefined) return found
    const dot = name.indexOf('.')
    if (dot === -1) return undefined
    name = name.slice(dot + 1)
  }
}
