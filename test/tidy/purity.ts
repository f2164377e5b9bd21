import { basename } from 'node:path'
import { describe, expect, test } from 'vitest'
import { expectNone } from './none.ts'
import {
  folderOf,
  type Import,
  importsOf,
  type Source,
  type Syntax,
  sources,
  targetOf,
  walk,
} from './source.ts'

/** Pure code has no async functions, clock, randomness, input or output. */

const pureFolders = ['events', 'billing', 'keys', 'projections']
const pureName = /^(decide|document|state|tariff|contract|[a-z0-9-]+-state)\.ts$/
/**
 * Matches the comment at the top of a file, which describes the file. A comment directly above a declaration describes only the
 * declaration.
 */
const header = /\/\*\*(?:(?!\*\/)[\s\S])*\*\/(?=\n(?:\n|import ))/

const claimsPurity = ({ text }: Source): boolean => /\bPure\b/.test(header.exec(text)?.[0] ?? '')

const isPure = (source: Source): boolean =>
  pureName.test(basename(source.path)) || pureFolders.includes(folderOf(source.path)) || claimsPurity(source)

const pureSources = sources.filter(isPure)

/** Imports without side effects: schemas, lists, and functions that depend only on their arguments. */
const harmless: Readonly<Record<string, readonly string[]>> = {
  zod: ['*'],
  tldts: ['*'],
  'dns-packet': ['*'],
  'iso-3166': ['*'],
  'countries-list': ['*'],
  'iso-639-1': ['*'],
  'libphonenumber-js': ['*'],
  'libphonenumber-js/max': ['*'],
  'node:net': ['isIP', 'BlockList'],
  'node:zlib': ['crc32'],
  'node:url': ['domainToASCII', 'domainToUnicode'],
  'node:crypto': ['createHash', 'createHmac', 'hash'],
}

const memberText = (node: Syntax): string =>
  node.type === 'MemberExpression' && node.computed !== true
    ? `${node.object?.name ?? ''}.${node.property?.name ?? ''}`
    : ''

const forbiddenMembers = new Set([
  'Date.now',
  'Math.random',
  'Temporal.Now',
  'performance.now',
  'crypto.getRandomValues',
])
const forbiddenNames = new Set([
  'process',
  'globalThis',
  'performance',
  'crypto',
  'console',
  'fetch',
  'Promise',
  'setTimeout',
  'setInterval',
  'setImmediate',
  'queueMicrotask',
])

/** The reason why a node is impure; null for most nodes. */
const impurityOf = (node: Syntax): string | null => {
  if (node.async === true) return 'an async function'
  if (node.type === 'AwaitExpression') return 'await'
  if (node.type === 'ImportExpression') return 'a dynamic import'
  if (forbiddenMembers.has(memberText(node))) return memberText(node)
  const ofDate = node.callee?.type === 'Identifier' && node.callee.name === 'Date'
  if (ofDate && (node.type === 'CallExpression' || node.arguments?.length === 0)) return 'the current time'
  return null
}

/** Forbidden names that are used as values. A member or a key with such a name is allowed. */
const forbiddenUses = (source: Source): string[] => {
  const elsewhere = new Set<Syntax>()
  const found: string[] = []
  walk(source.program, (node) => {
    if (node.property !== undefined && node.computed !== true) elsewhere.add(node.property)
    if (node.key !== undefined && node.computed !== true) elsewhere.add(node.key)
    const impurity = impurityOf(node)
    if (impurity !== null) found.push(impurity)
    if (node.type === 'Identifier' && forbiddenNames.has(node.name ?? '') && !elsewhere.has(node))
      found.push(node.name ?? '')
  })
  if (/\bPromise</.test(source.bare)) found.push('a type of promises')
  return found
}

const isOutside = (specifier: string): boolean => !specifier.startsWith('.')

const isHarmless = ({ specifier, names }: Import): boolean => {
  const known = harmless[specifier] ?? []
  return known.includes('*') || (names.length > 0 && names.every((name) => known.includes(name)))
}

const valueImports = ({ code }: Source): Import[] => importsOf(code).filter(({ typeOnly }) => !typeOnly)

const doingImports = (source: Source): string[] =>
  valueImports(source)
    .filter((one) => isOutside(one.specifier) && !isHarmless(one))
    .map(({ specifier }) => `imports ${specifier}`)

const byPath = new Map(sources.map((source) => [source.path, source]))

/** Packages with effects that a file imports, directly or through other files. */
const reached = (source: Source, seen: Set<string> = new Set()): string[] =>
  valueImports(source)
    .filter(({ specifier }) => !isOutside(specifier))
    .map((one) => byPath.get(targetOf(source.path, one)))
    .flatMap((next) => {
      if (next === undefined || seen.has(next.path)) return []
      seen.add(next.path)
      const does = doingImports(next).map((found) => `${next.path} ${found}`)
      return [...does, ...reached(next, seen)]
    })

describe('purity', () => {
  test('there are pure files, some by their folder, some by their name, some by their comment', () => {
    expect(pureSources.filter(({ path }) => pureFolders.includes(folderOf(path))).length).toBeGreaterThan(20)
    expect(pureSources.filter(({ path }) => pureName.test(basename(path))).length).toBeGreaterThan(5)
    expect(sources.filter(claimsPurity).length).toBeGreaterThan(4)
  })

  test('a pure file does nothing but compute', () => {
    expectNone(
      'impurities of a pure file',
      new Map(
        pureSources
          .map(
            (source) =>
              [source.path, [...forbiddenUses(source), ...doingImports(source), ...reached(source)]] as const,
          )
          .filter(([, found]) => found.length > 0),
      ),
    )
  })

  test('events import only zod; the other pure folders import no package', () => {
    const found = sources.flatMap(({ path, code }) => {
      const folder = folderOf(path)
      if (!pureFolders.includes(folder)) return []
      return importsOf(code)
        .filter(({ specifier }) => isOutside(specifier) && !specifier.startsWith('node:'))
        .filter(({ specifier }) => folder !== 'events' || specifier !== 'zod')
        .map(({ specifier }) => `${path} imports ${specifier}`)
    })
    expect(found).toEqual([])
  })
})
