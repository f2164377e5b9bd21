/** Recognizes JSON texts in which an object contains a member twice. */
import { expect, test } from 'vitest'
import { hasRepeatedMember, parseJson } from '../../src/call/json-text.ts'

const repeats = (text: string): boolean => hasRepeatedMember(text, JSON.parse(text))

test.each([
  '{}',
  '{"a":1,"b":[{"a":1},{"a":1}],"c":{"a":{"a":null}}}',
  '{"a":":","b":"\\":\\"","c:":"\\\\","d":"\\\\\\":"}',
  '{ "a" : "{\\"x\\":1,\\"x\\":2}" , "__proto__" : { "a" : 1 } }',
  '{"":"","1":1,"01":2,"a":-1.5e+3}',
])('no repeated member: %s', (text) => expect(repeats(text)).toBe(false))

test.each([
  '{"a":1,"a":1}',
  '{"a":1,"\\u0061":1}',
  '{"":1,"":2}',
  '{"1":1,"1":2}',
  '{"__proto__":1,"__proto__":2}',
  '{"a":[[[{"b":{"c":1,"c":[]}}]]]}',
  '{"a":{"x":1,"y":":"},"a":null}',
])('a repeated member: %s', (text) => expect(repeats(text)).toBe(true))

test('a text may be as deeply nested as the size of a body allows', () => {
  expect(repeats(`{"a":${'['.repeat(8_000)}${']'.repeat(8_000)}}`)).toBe(false)
})

test('a document may be nested 100 levels deep, and no deeper', () => {
  const nested = (levels: number): string => `${'['.repeat(levels)}1${']'.repeat(levels)}`
  expect(JSON.stringify(parseJson(nested(100)))).toBe(nested(100))
  expect(() => parseJson(nested(101))).toThrow('it is nested more than 100 levels deep')
  expect(() => parseJson(nested(200_000))).toThrow('it is nested more than 100 levels deep')
})
