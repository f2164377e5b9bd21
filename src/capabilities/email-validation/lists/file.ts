import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

/**
 * A list file has one domain per line, in ASCII and lower case; `#` begins a comment. The curated lists are part of the source. The generated
 * lists exist after an operator has refreshed them; until then, the lists of npm packages are used.
 */
export const listFileNames = {
  providers: 'providers.txt',
  relays: 'relays.txt',
  businesses: 'businesses.txt',
  freeAdditions: 'free-additions.txt',
  disposableExchanges: 'disposable-exchanges.txt',
} as const
const refreshedFileNames = { disposable: 'disposable.txt', free: 'free.txt' } as const

export type ListName = keyof typeof listFileNames
type RefreshedName = keyof typeof refreshedFileNames

export const vendoredListFolder = fileURLToPath(new URL('.', import.meta.url))

export const listPath = (folder: string, name: ListName | RefreshedName): string =>
  join(folder, { ...listFileNames, ...refreshedFileNames }[name])

const listEntries = (text: string): string[] => {
  const entries: string[] = []
  for (const line of text.split('\n')) {
    const entry = line.trim()
    if (entry !== '' && !entry.startsWith('#')) entries.push(entry)
  }
  return entries
}

/** @throws if the list is missing or empty, because a check without its lists would accept everything. */
export const readList = (folder: string, name: ListName | RefreshedName): string[] => {
  const path = listPath(folder, name)
  const entries = listEntries(readFileSync(path, 'utf8'))
  if (entries.length === 0) throw new Error(`the list ${path} is empty`)
  return entries
}

/** Null if the list was never refreshed. Throws like `readList` if the file exists. */
export const readRefreshed = (folder: string, name: RefreshedName): ReadonlySet<string> | null =>
  existsSync(listPath(folder, name)) ? new Set(readList(folder, name)) : null
