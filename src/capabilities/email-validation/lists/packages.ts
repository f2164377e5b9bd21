/**
 * The lists of disposable and free domains that come with npm packages, as they are: `sieve.ts` says which entries are
 * believed. Sources and licences are in `provenance.md`.
 */
import { createRequire } from 'node:module'

/** What other projects list, unjudged. */
export type RawLists = {
  readonly disposable: ReadonlySet<string>
  readonly free: ReadonlySet<string>
}

/** Loads them at the call: an import would cost every command 40 ms. */
export const packagedLists = (): RawLists => {
  const require = createRequire(import.meta.url)
  const { blacklist }: typeof import('mailchecker') = require('mailchecker')
  const { disposableEmailBlocklist }: typeof import('disposable-email-domains-js') =
    require('disposable-email-domains-js')
  const free: readonly string[] = require('email-providers/all.json')
  // The package's own set, with more in it: a copy would cost as much again.
  const disposable = blacklist()
  for (const domain of disposableEmailBlocklist()) disposable.add(domain)
  return { disposable, free: new Set(free) }
}
