/**
 * The lists of disposable and free domains that come with npm packages, unchanged: `sieve.ts` decides which entries are
 * believed. Sources and licences are in `provenance.md`.
 */
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'

/** When the newest of the packages was published, as provenance.md has it: they carry no date of their own. */
export const packagesPublished = '2026-09-21'

/** What other projects list, unjudged. */
export type RawLists = {
  readonly disposable: ReadonlySet<string>
  readonly free: ReadonlySet<string>
}

const require = createRequire(import.meta.url)

/** Read as a file instead of required: the module cache would keep the arrays in addition to the set. */
const entriesOf = (path: string): readonly string[] => {
  const text = readFileSync(require.resolve(path), 'utf8')
  return path.endsWith('.json') ? JSON.parse(text) : text.split('\n').filter((line) => /^[^#\s]/.test(line))
}

/** By package, each loaded when called. None of them has all domains: they overlap, but each lists some that others miss. */
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

/** Loads them when called: an import would cost every command a tenth of a second. */
export const packagedLists = (): RawLists => {
  const disposable = new Set<string>()
  for (const load of Object.values(disposableLists)) for (const domain of load()) disposable.add(domain)
  return { disposable, free: new Set(entriesOf('email-providers/all.json')) }
}
