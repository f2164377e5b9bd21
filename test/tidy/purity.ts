import { basename } from 'node:path'
import { describe, expect, test } from 'vitest'
import { folderOf, importsOf, sources } from './source.ts'

/** What is pure: no async, no clock, no randomness, no I/O. */

const describeAll = (violations: readonly string[]): string[] => [...violations].sort()

describe('purity', () => {
  const pureName = /^(decide|tariff|contract|[a-z0-9-]+-state)\.ts$/
  const pureSources = sources.filter(
    ({ path }) =>
      pureName.test(basename(path)) || ['events', 'billing', 'keys', 'projections'].includes(folderOf(path)),
  )
  const impure: Record<string, RegExp> = {
    'is asynchronous': /\b(async|await|Promise)\b/,
    'reads the clock': /\bDate\.now\b|\bnew Date\(\s*\)|(?<!new )\bDate\(|\bperformance\b|\bTemporal\.Now\b/,
    'is random': /\bMath\.random\b|\brandom(Bytes|UUID|Int|FillSync)\b|\bgetRandomValues\b/,
    'touches the process': /\bprocess\b|\bglobalThis\b|\bset(Timeout|Interval|Immediate)\b|\bfetch\(/,
  }
  /** What can be imported for its value without doing anything: schemas, and functions of their arguments. */
  const harmless = ['zod', 'node:zlib']

  test('there are pure files', () => {
    expect(pureSources.length).toBeGreaterThan(20)
  })

  test.each(Object.entries(impure))('no pure file %s', (_, pattern) => {
    expect(pureSources.filter(({ bare }) => pattern.test(bare)).map(({ path }) => path)).toEqual([])
  })

  test('no pure file imports what does something', () => {
    const violations = pureSources.flatMap((source) =>
      importsOf(source.code)
        .filter(
          ({ specifier, typeOnly }) =>
            !typeOnly && !specifier.startsWith('.') && !harmless.includes(specifier),
        )
        .map(({ specifier }) => `${source.path} imports ${specifier}`),
    )
    expect(describeAll(violations)).toEqual([])
  })
})
