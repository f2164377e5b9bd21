/** The one rule for text that people write: accepted text can be stored, and is displayed as it was written. */
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { labelFault, labelMax, textFault } from '../../src/events/text.ts'

const point = (code: number): string => String.fromCodePoint(code)
const range = (from: number, to: number): string[] =>
  Array.from({ length: to - from + 1 }, (_, i) => point(from + i))

const refused = [
  ...range(0x00, 0x1f),
  ...range(0x7f, 0x9f),
  ...[0x061c, 0x200e, 0x200f, 0x2028, 0x2029].map(point),
  ...range(0x202a, 0x202e),
  ...range(0x2066, 0x2069),
  '\ud800',
  '\udfff',
]

test('controls, line breaks, direction controls and half characters are refused at any position', () => {
  for (const one of refused)
    for (const text of [one, `${one}a`, `a${one}`, `a${one}b`])
      expect([text, labelFault(text)]).not.toEqual([text, null])
})

test('nothing else is refused, except blank or too long text', () => {
  for (const text of ['a', 'é', 'Ωμέγα', '返金', '👩‍👩‍👧', 'می‌خواهم', ' a b ', 'a'.repeat(labelMax)])
    expect(labelFault(text)).toBeNull()
  for (const blank of ['', ' ', '\u00a0', '\u3000', '\u200b', '\ufeff', ' \u00ad\u2060'])
    expect(labelFault(blank)).toBe('it contains only white space')
  expect(labelFault('a'.repeat(labelMax + 1))).toBe('at most 200 characters; it has 201')
  expect(labelFault('👍'.repeat(33), 64)).toBe('at most 64 characters; it has 66')
})

test('every accepted label is UTF-8 and has one line', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary', maxLength: 300 }), (text) => {
      if (labelFault(text) !== null) return
      expect(text.isWellFormed()).toBe(true)
      expect(text.split(/[\n\r\v\f\u0085\u2028\u2029]/)).toHaveLength(1)
      expect(text).not.toContain('\0')
      expect(text.length).toBeLessThanOrEqual(labelMax)
      expect(textFault(text)).toBeNull()
    }),
  )
})
