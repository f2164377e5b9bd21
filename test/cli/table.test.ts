import { stripVTControlCharacters } from 'node:util'
import { expect, test } from 'vitest'
import { cut, members, plainJson, type Row, sectionLines, table } from '../../src/cli/table.ts'

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

test('a table can have more rows than a function can have arguments', () => {
  const rows = Array.from({ length: 200_000 }, (_, id) => ({ id }))
  expect(plain(rows).at(-1)).toBe('199999')
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

test('neither do characters that change the direction of text, nor other line breaks', () => {
  expect(members({ name: 'a\u202e\u2066b\u2028c\u2029\u009b' })).toEqual([
    'name: a\u{fffd}\u{fffd}b\u{fffd}c\u{fffd}\u{fffd}',
  ])
  expect(sectionLines(['\u001b[8m heading'])).toEqual(['\u{fffd}[8m heading'])
})

test('JSON keeps its values, and contains no such character', () => {
  const value = { text: 'a\u001b[2J\u009b\u007f\u202e\u2028\n', list: ['é'] }
  const json = plainJson(JSON.stringify(value, null, 2))
  expect(JSON.parse(json)).toEqual(value)
  expect(json.replaceAll('\n', '')).not.toMatch(/[\p{Cc}\p{Bidi_Control}\p{Zl}\p{Zp}]/u)
})

test('a long value is cut between characters, and the cut is visible', () => {
  expect(cut('x'.repeat(40), 40)).toBe('x'.repeat(40))
  expect(cut('x'.repeat(41), 40)).toBe(`${'x'.repeat(39)}…`)
  expect(cut('𝄞'.repeat(41), 40)).toBe(`${'𝄞'.repeat(39)}…`)
})
