/**
 * The check in `npm run lint` for regular expressions that a text could use to block the process: which expressions the check
 * finds, and which it refuses.
 */
import { expect, test } from 'vitest'
import { exhaustive } from '../support/exhaustive.ts'
import { expressionsIn } from './expressions.ts'
import { faultOf } from './regular-expressions.ts'

const faultsIn = async (source: string): Promise<(string | null)[]> =>
  Promise.all(expressionsIn(source).map(faultOf))

test('every literal is found, with its line, in any context', () => {
  const source = [
    'type Unseen = { readonly text: string } // /not one/',
    "const a: RegExp = /a+/g, path = '/no/', half = 4 / 2 / 1",
    'export const f = (text: string): string => `${'.concat('text.replace(/b/, "")}`'),
    '',
    'class C { readonly one = /c/v }',
  ].join('\n')
  expect(expressionsIn(source).map(({ line, text }) => [line, text])).toEqual([
    [2, '/a+/g'],
    [3, '/b/'],
    [5, '/c/v'],
  ])
})

test('the expression that once froze the process is refused, like every other that is not linear', {
  skip: !exhaustive,
}, async () => {
  expect(await faultsIn('/^\\s*(null)?\\s*$/i')).toEqual([expect.stringMatching(/^2nd degree polynomial, /)])
  expect(await faultsIn('/^(a|a)*$/; /x*y/; /^[a-z]{1,40}$/')).toEqual([
    expect.stringMatching(/^exponential, /),
    expect.stringMatching(/^2nd degree polynomial, /),
    null,
  ])
})

test('an expression built from constants of its file is checked; one built from other values is refused', async () => {
  const source = [
    'const space = String.raw`\\s`',
    "const spaces = [space, '*'].join('')",
    "const quadratic = new RegExp(['^', 'a?', '$'].join(spaces))",
    "const linear = RegExp('^' + space + '$', 'u')",
    'const asked = (name: string) => new RegExp(name)',
    "const searched = 'text'.search('a.*b')",
  ].join('\n')
  expect(await faultsIn(source)).toEqual([
    expect.stringMatching(/^2nd degree polynomial, /),
    null,
    'built at run time: build it from constants of the file',
    'made from a text: write an expression',
  ])
})

test('set notation is checked as the code points it matches', async () => {
  const digits = '[[\\p{ASCII}&&\\p{Nd}]--[5-9]]'
  const [expression] = expressionsIn(`/^${digits}+x\\[${digits}$/gv`)
  expect(expression?.checked).toEqual({ pattern: '^[\\u{30}-\\u{34}]+x\\[[\\u{30}-\\u{34}]$', flags: 'gu' })
  expect(await faultsIn(`/${digits}+$/v`)).toEqual([expect.stringMatching(/^2nd degree polynomial, /)])
})

test('an excuse counts only if it names the limit', async () => {
  expect(await faultsIn('// recheck: of at most 6 digits\nconst a = /0+$/')).toEqual([null])
  expect(await faultsIn('const a = /0+$/ // recheck: of 6 digits')).toEqual([null])
  expect(await faultsIn('const a = /0+$/ // recheck: it is short')).toEqual(['its excuse names no bound'])
  expect(await faultsIn('// recheck: of 6 digits\n\nconst a = /0+$/')).toEqual([
    expect.stringMatching(/^2nd/),
  ])
})
