import { existsSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { expect } from 'vitest'
import { readText, root } from './source.ts'

/**
 * What breaks a rule today is in `violators.json`: by rule and file, with how much. That table may only shrink. A test
 * fails when a file is worse than its number, and also when it is better and the table was not brought up to date, which
 * `TIDY_SHRINK=1 npm test -- test/tidy.test.ts` does; it follows files that were moved, and never raises a number.
 */

const file = 'test/tidy/violators.json'
const remedy = 'run it with TIDY_SHRINK=1 in the environment, and commit the table'

export type Rule =
  | 'lines of a file'
  | 'lines of a function'
  | 'top-level functions that are no const arrows'
  | 'exports that nothing imports'
  | 'exports that only tests import'
  | 'imports of what a folder may not know'
  | 'impurities of a pure file'
  | 'loose files on the top of src'

const table: Record<Rule, Record<string, number>> = JSON.parse(readText(file))

type Found = ReadonlyMap<string, readonly string[] | number>

const numberOf = (what: readonly string[] | number): number => (typeof what === 'number' ? what : what.length)

/** What a file is allowed: its own number, or that of a file of its name that is no longer where it was. */
const allowedFor = (listed: Readonly<Record<string, number>>, path: string): number | undefined => {
  if (listed[path] !== undefined) return listed[path]
  const moved = Object.keys(listed).filter(
    (one) => basename(one) === basename(path) && !existsSync(join(root, one)),
  )
  return moved[0] === undefined ? undefined : listed[moved[0]]
}

const shrink = (rule: Rule, found: Found): void => {
  const kept: Record<string, number> = {}
  for (const [path, what] of [...found].sort(([a], [b]) => (a < b ? -1 : 1))) {
    const most = allowedFor(table[rule], path)
    if (most !== undefined) kept[path] = Math.min(most, numberOf(what))
  }
  table[rule] = kept
  writeFileSync(join(root, file), `${JSON.stringify(table, null, 2)}\n`)
}

/** Compares what a rule found with the table. Files that keep the rule are not in `found`. */
export const expectNoneButListed = (rule: Rule, found: Found): void => {
  if (process.env.TIDY_SHRINK === '1') shrink(rule, found)
  const listed = table[rule]
  const worse = [...found]
    .filter(([path, what]) => numberOf(what) > (listed[path] ?? 0))
    .map(([path, what]) => {
      const details = typeof what === 'number' ? '' : `: ${what.join(', ')}`
      return `${path}: ${numberOf(what)}, allowed ${listed[path] ?? 'none'}${details}`
    })
  expect(worse, `${rule}; if a file only moved, ${remedy}`).toEqual([])
  const better = Object.entries(listed)
    .filter(([path, most]) => numberOf(found.get(path) ?? 0) < most)
    .map(([path]) => path)
  expect(better, `${rule}: better than ${file} says; ${remedy}`).toEqual([])
}
