import { describe, expect, test } from 'vitest'
import { expectNone } from './none.ts'
import { exportsOf, filesUnder, importsOf, readText, sources, targetOf } from './source.ts'

/** What is exported is imported by another file. */

/** A thread loads these files by their paths. */
const loadedByPath = /\bon-page\.ts#read$/

/** Exports that no source file imports, by `path#name`, and why they may be. */
const known: readonly { readonly which: RegExp; readonly why: string }[] = [
  { which: /\/contract\.ts#/, why: 'the wire: tests read answers by it' },
  { which: /#[a-z]\w*(?:Max|Min|Ms|Length|Seconds|Limits|Count)$/, why: 'a number: tests go to its edge' },
  { which: /#[A-Z]/, why: 'a type: tests build such a value, or get one' },
  {
    which: /ledger\/(?:decide|call-costs)\.ts#/,
    why: 'pure decisions and folds, which tests take one by one',
  },
  {
    which: /tree\/(?:merkle-tree|signed-note|checkpoints)\.ts#/,
    why: 'what strangers verify by: tests go by the published vectors',
  },
  { which: /#(?:openLink|openPeerListener)$/, why: 'what a process opens when it takes part' },
  {
    which:
      /#(?:actionOfRoute|tariff|catalogue|providerRows|callFacts|eventMetadata|writerTable|ipv6Embedding|listFileNames|listEntries|disposableLists|apiKeyPrefix|leftOutTables|rolePermissions|commandActions)$/,
    why: 'a table: tests go through all of it',
  },
  {
    which:
      /#(?:suggestDomain|slipsBetween|countryCodeOf|instantOf|plainAddress|shortHmac|uuidV5|boundsFor|loggedError|credentials|ruleFor|deliveriesOf|expiryNotice|guideOf|stillUnreadable)$/,
    why: 'a function of values with a table of cases of its own',
  },
]

const isKnown = (path: string, name: string): boolean =>
  [loadedByPath, ...known.map(({ which }) => which)].some((which) => which.test(`${path}#${name}`))

type Imported = { readonly target: string; readonly name: string }

const importedBy = (files: readonly { readonly path: string; readonly code: string }[]): Imported[] =>
  files.flatMap(({ path, code }) =>
    importsOf(code)
      .filter(({ specifier }) => specifier.startsWith('.'))
      .flatMap((one) => one.names.map((name) => ({ target: targetOf(path, one), name }))),
  )

const asKeys = (imported: readonly Imported[]): Set<string> =>
  new Set(imported.map(({ target, name }) => `${target}#${name}`))

const bySource = asKeys(importedBy(sources))
const byTests = asKeys(
  importedBy(
    filesUnder('test')
      .filter((path) => path.endsWith('.ts'))
      .map((path) => ({ path, code: readText(path) })),
  ),
)

const isImported = (keys: ReadonlySet<string>, path: string, name: string): boolean =>
  keys.has(`${path}#${name}`) || keys.has(`${path}#*`)

const unimported = (isUnwanted: (path: string, name: string) => boolean): Map<string, string[]> =>
  new Map(
    sources
      .map(({ path, code }) => [path, exportsOf(code).filter((name) => isUnwanted(path, name))] as const)
      .filter(([, names]) => names.length > 0),
  )

describe('exports', () => {
  test('exports are found', () => {
    expect(sources.flatMap(({ code }) => exportsOf(code)).length).toBeGreaterThan(500)
    expect(bySource.size).toBeGreaterThan(500)
  })

  test('every export is imported by another file, or by a test', () => {
    expectNone(
      'exports that nothing imports',
      unimported(
        (path, name) =>
          !isImported(bySource, path, name) &&
          !isImported(byTests, path, name) &&
          !loadedByPath.test(`${path}#${name}`),
      ),
    )
  })

  test('what tests alone import is known, with the reason', () => {
    expectNone(
      'exports that only tests import',
      unimported(
        (path, name) =>
          !isImported(bySource, path, name) && isImported(byTests, path, name) && !isKnown(path, name),
      ),
    )
    const exported = sources.flatMap(({ path, code }) => exportsOf(code).map((name) => `${path}#${name}`))
    const unused = known.filter(({ which }) => !exported.some((key) => which.test(key)))
    expect(unused).toEqual([])
  })
})
