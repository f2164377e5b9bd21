/** Only templates produce markup. All values inserted into them are text. */
import { expect, test } from 'vitest'
import { count, credits, movement, sentence } from '../../src/dashboard/format.ts'
import { documentOf, html } from '../../src/dashboard/html.ts'

const text = (page: ReturnType<typeof html>): string =>
  documentOf(page).replace('<!doctype html>\n', '').trimEnd()

test('values are escaped in text and in attributes', () => {
  const hostile = `<b>"&'`
  expect(text(html`<p title="${hostile}">${hostile}</p>`)).toBe(
    '<p title="&lt;b&gt;&quot;&amp;&#39;">&lt;b&gt;&quot;&amp;&#39;</p>',
  )
})

test('markup inside markup is unchanged, lists are joined, and empty values produce nothing', () => {
  const items = ['a', '<'].map((item) => html`<li>${item}</li>`)
  expect(text(html`<ul>${items}</ul>${null}${undefined}${false}${0}${5n}${[]}${''}`)).toBe(
    '<ul><li>a</li><li>&lt;</li></ul>05',
  )
})

test('an object that looks like markup is escaped', () => {
  const forged = JSON.parse('{"markup":"<script>"}')
  expect(() => text(html`${forged}`)).toThrow(TypeError)
})

test.each([
  ['0', '0'],
  ['1', '0.000001'],
  ['-1500000', '-1.5'],
  ['999000000', '999'],
  ['1000000000', '1,000'],
  ['-1234567000001', '-1,234,567.000001'],
  ['9007199254740993000001', '9,007,199,254,740,993.000001'],
])('%s micro-credits are %s credits', (micro, shown) => {
  expect(credits(micro)).toBe(shown)
})

test('times in a sentence are shown as on other pages, except those that a person typed', () => {
  const shown = text(
    html`<p>${sentence('<b> until 2026-12-31T23:59:59.999Z, by 2027-01-01T00:00:00.000Z.')}</p>`,
  )
  expect(shown).toBe(
    '<p>&lt;b&gt; until <time datetime="2026-12-31T23:59:59.999Z">2026-12-31 23:59:59</time> UTC, by <time datetime="2027-01-01T00:00:00.000Z">2027-01-01 00:00:00</time> UTC.</p>',
  )
  for (const typed of [
    'an instant such as 2027-01-31T00:00:00Z',
    '"2027-01-31T00:00:00.000Z" is in the past',
  ])
    expect(text(html`${sentence(typed)}`).replaceAll('&quot;', '"')).toBe(typed)
})

test('movements have a sign', () => {
  expect([movement('1000000'), movement('-1000000'), movement('0')]).toEqual(['+1', '-1', '0'])
  expect(count(1_234_567n)).toBe('1,234,567')
})
