/**
 * The unchanged lists of disposable and free domains from npm packages. `sieve.ts` decides which entries are used. Their sources and licences
 * are in `provenance.md`.
 */
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'

/** The publication date of the newest package, from provenance.md, because the packages contain no date. */
export const packagesPublished = '2026-09-21'

export type RawLists = {
  readonly disposable: ReadonlySet<string>
  readonly free: ReadonlySet<string>
}

const require = createRequire(import.meta.url)

/** Reads the list as a file, because `require` would keep the array in the module cache as well. */
const entriesOf = (path: string): readonly string[] => {
  const text = readFileSync(require.resolve(path), 'utf8')
  return path.endsWith('.json') ? JSON.parse(text) : text.split('\n').filter((line) => /^[^#\s]/.test(line))
}

/** The lists by package, each loaded when called. The lists overlap, but each contains domains that no other list contains. */
export const disposableLists: Readonly<Record<string, () => Iterable<string>>> = {
  mailchecker: () => {
    const { blacklist }: typeof import('mailchecker') = require('mailchecker')
    return blacklist()
  },
  'disposable-email-domains-js': () => {
    const { disposableEmailBlocklist }: typeof import('disposable-email-domains-js') =
      require('disposable-email-domains-js')
    return disposableEmailBlocklist()
  },
  'disposable-domains': () => entriesOf('disposable-domains/index.json'),
  '@dahoom/disposable-email': () => entriesOf('@dahoom/disposable-email/domains.json'),
  fakefilter: () => entriesOf('fakefilter/txt/data.txt'),
}

/** Loads the packages only when called, because importing them would delay every command by a tenth of a second. */
export const packagedLists = (): RawLists => {
  const disposable = new Set<string>()
  for (const load of Object.values(disposableLists)) for (const domain of load()) disposable.add(domain)
  return { disposable, free: new Set(entriesOf('email-providers/all.json')) }
}
