import { stripVTControlCharacters } from 'node:util'
import { expect, test } from 'vitest'
import { cut, members, type Row, table } from '../../src/cli/table.ts'

/** Headings are bold if the tests' environment requests colours. */
const plain = (rows: readonly Row[]): string[] => table(rows).map(stripVTControlCharacters)

test('columns are as wide as their widest value, below their headings', () => {
  expect(
    plain([
      { id: 1, name: 'a' },
      { id: 100, name: null },
    ]),
  ).toEqual(['id   name', '1    a', '100  -'])
})

test('an empty list is reported as empty', () => {
  expect(plain([])).toEqual(['none'])
})

test('members are aligned; lists and objects are written out', () => {
  expect(members({ a: 1, list: ['x', 'y'], empty: [], limits: { a_day: 5, a_minute: 2 } })).toEqual([
    'a:      1',
    'list:   x, y',
    'empty:  -',
    'limits: a_day 5, a_minute 2',
  ])
})

test('control characters reach no terminal', () => {
  expect(plain([{ name: 'a\u001b[2Jb\r\n' }])).toEqual(['name', 'a\u{fffd}[2Jb\u{fffd}\u{fffd}'])
})

test('a long value is cut between characters, and the cut is visible', () => {
  expect(cut('x'.repeat(40), 40)).toBe('x'.repeat(40))
  expect(cut('x'.repeat(41), 40)).toBe(`${'x'.repeat(39)}…`)
  expect(cut('𝄞'.repeat(41), 40)).toBe(`${'𝄞'.repeat(39)}…`)
})
