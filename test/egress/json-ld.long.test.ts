import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { jsonLdLimits, jsonLdTimeMaxMs, readJsonLd } from '../../src/egress/json-ld.ts'
import { type JsonObject, textOf, typesOf } from '../../src/egress/json-ld-nodes.ts'
import { readPage } from '../../src/egress/json-ld-page.ts'
import { takesAtMost } from '../support/takes-at-most.ts'

/** The parser finds valid data in hostile pages, skips the rest, and always ends soon. */

const soon = (): number => performance.now() + 60_000
const script = (json: string): string => `<script type="application/ld+json">${json}</script>`
const page = (body: string): Buffer =>
  Buffer.from(`<!doctype html><html><head>${body}</head><body></body></html>`)
const asTheyAre = { module: new URL('./nodes-as-they-are.ts', import.meta.url), input: null }
const extractJsonLd = (html: Buffer, options: { deadlineMs: number; charset?: string }) =>
  readJsonLd<readonly JsonObject[]>(html, { ...options, reader: asTheyAre })
const inThread = (html: Buffer | string) =>
  extractJsonLd(typeof html === 'string' ? page(html) : html, { deadlineMs: soon() })

const attemptsMax = 30
/** Reads a page again if its thread got too little processor time, as it can on a busy machine. */
const whenNotBusy = async <Answer extends { readonly kind: string }>(
  read: () => Promise<Answer>,
): Promise<Answer> => {
  for (let attempt = 1; ; attempt++) {
    const answer = await read()
    if (answer.kind !== 'too_slow' || attempt === attemptsMax) return answer
  }
}
/** Extracts in this thread, because starting another thread takes longer than most of these tests. */
const extract = (html: Buffer | string, charset: string | null = null) =>
  readPage(
    { html: new Uint8Array(typeof html === 'string' ? page(html) : html), charset },
    (nodes) => nodes,
  ) as Awaited<ReturnType<typeof inThread>>

test('a single node, lists of nodes and graphs become one list of nodes, in the order of the page', async () => {
  const html = [
    script('{"@type":"WebSite","name":"a"}'),
    script('[{"@type":"Person","name":"b"},{"@graph":[{"@type":"Organization","name":"c"},{"name":"d"}]}]'),
    '<script type="text/javascript">{"@type":"No"}</script>',
    '<script>{"@type":"No"}</script>',
    '<SCRIPT TYPE=" Application/LD+JSON; charset=utf-8">{"name":"e"}</SCRIPT>',
  ].join('\n')
  const found = await whenNotBusy(() => inThread(html))
  expect(found).toEqual({
    kind: 'found',
    answer: [
      { '@type': 'WebSite', name: 'a' },
      { '@type': 'Person', name: 'b' },
      { '@type': 'Organization', name: 'c' },
      { name: 'd' },
      { name: 'e' },
    ],
  })
})

test('a page without JSON-LD has no nodes; one whose blocks are not JSON is malformed', () => {
  expect(extract('<p>hello</p>')).toEqual({ kind: 'none' })
  expect(extract(Buffer.alloc(0))).toEqual({ kind: 'none' })
  expect(extract(Buffer.from([0, 1, 2, 0xff, 0xfe, 0x3c, 0x73]))).toEqual({ kind: 'none' })
  expect(extract(script('{"name":'))).toEqual({ kind: 'malformed' })
  expect(extract(script('"a text"'))).toEqual({ kind: 'malformed' })
  expect(extract(script(''))).toEqual({ kind: 'malformed' })
})

test('a broken block does not hide a valid one', () => {
  expect(extract(script('{nonsense') + script('{"name":"sound"}'))).toEqual({
    kind: 'found',
    answer: [{ name: 'sound' }],
  })
})

test('a block that the page does not close counts as cut off', () => {
  const html = Buffer.from('<script type="application/ld+json">{"name":"whole"}')
  expect(extract(html)).toEqual({ kind: 'none' })
})

test('raw line ends, CDATA marks and markup within texts are read; entities are not decoded', () => {
  const blocks = [
    script('{"name":"two\nlines"}'),
    script('//<![CDATA[\n{"name":"marked"}\n//]]>'),
    script('{"name":"<b>bold</b> &amp; bare"}'),
  ].join('')
  expect(extract(blocks)).toEqual({
    kind: 'found',
    answer: [{ name: 'two lines' }, { name: 'marked' }, { name: '<b>bold</b> &amp; bare' }],
  })
})

test('the charset is the server’s, otherwise the page’s, otherwise UTF-8', async () => {
  const latin1 = Buffer.from(`<meta charset="iso-8859-1">${script('{"name":"Müller"}')}`, 'latin1')
  const bare = Buffer.from(script('{"name":"Müller"}'), 'latin1')
  const named = { kind: 'found', answer: [{ name: 'Müller' }] }
  expect(extract(latin1)).toEqual(named)
  const inWindows1252 = () => extractJsonLd(bare, { deadlineMs: soon(), charset: 'windows-1252' })
  expect(await whenNotBusy(inWindows1252)).toEqual(named)
  expect(extract(script('{"name":"Müller"}'))).toEqual(named)
  expect(extract(bare)).toEqual({ kind: 'found', answer: [{ name: 'M\ufffdller' }] })
  expect(extract(script('{"a":1}'), 'no-such')).toEqual({
    kind: 'found',
    answer: [{ a: 1 }],
  })
})

test('only the first five blocks, 512 Ki characters, 32 levels and 500 nodes count', async () => {
  const six = Array.from({ length: 6 }, (_, i) => script(`{"n":${i}}`)).join('')
  const many = extract(six)
  expect(many.kind === 'found' && many.answer).toEqual([0, 1, 2, 3, 4].map((n) => ({ n })))

  const large = script(`{"n":"${'x'.repeat(jsonLdLimits.blockCharactersMax)}"}`)
  expect(extract(large + script('{"n":1}'))).toEqual({ kind: 'found', answer: [{ n: 1 }] })

  const three = [1, 2, 3].map((n) => script(`{"n":${n},"x":"${'x'.repeat(200_000)}"}`)).join('')
  const two = extract(three)
  expect(two.kind === 'found' && two.answer.map(({ n }) => n)).toEqual([1, 2])

  const nested = (depth: number): string => `${'{"n":'.repeat(depth)}1${'}'.repeat(depth)}`
  expect(extract(script(nested(jsonLdLimits.depthMax))).kind).toBe('found')
  expect(extract(script(nested(jsonLdLimits.depthMax + 1)))).toEqual({ kind: 'malformed' })
  expect(await whenNotBusy(() => inThread(script(nested(60_000))))).toEqual({ kind: 'malformed' })

  const crowd = extract(script(`[${'{},'.repeat(999)}{}]`))
  expect(crowd.kind === 'found' && crowd.answer.length).toBe(jsonLdLimits.nodesMax)
})

test('a page of more than two megabytes is read as if it ended there', async () => {
  const html = page(script('{"n":1}') + ' '.repeat(jsonLdLimits.htmlBytesMax) + script('{"n":2}'))
  expect(await whenNotBusy(() => inThread(html))).toEqual({ kind: 'found', answer: [{ n: 1 }] })
})

/** Processor time is measured, because a busy machine takes longer. */
const processorMs = (work: () => void): number => {
  const before = process.threadCpuUsage()
  work()
  return process.threadCpuUsage(before).user / 1_000
}

test('odd markup does no harm', () => {
  // A slow machine also takes long for a plain page of this size.
  const plain = Buffer.from('<p>hello</p>'.repeat(175_000))
  const plainMs = processorMs(() => expect(extract(plain)).toEqual({ kind: 'none' }))
  for (const html of [
    '<a '.repeat(700_000),
    '<'.repeat(2_000_000),
    '<script type="application/ld+json">'.repeat(50_000),
  ]) {
    const oddMs = processorMs(() => expect(['none', 'malformed']).toContain(extract(Buffer.from(html)).kind))
    expect(oddMs).toBeLessThan(5 * plainMs)
  }
})

test('markup built to be slow ends with its thread when its time is over, and the event loop keeps running', async () => {
  // Each end tag searches all open tags for its start tag, which takes quadratic time.
  const html = Buffer.from('<div>'.repeat(200_000) + '</x>'.repeat(200_000))
  const before = process.threadCpuUsage()
  // The limit includes the start of a thread.
  const { kind } = await takesAtMost(jsonLdTimeMaxMs + 6_000, inThread(html))
  expect(kind).toBe('too_slow')
  // The event loop is free while its thread uses no processor time.
  expect(process.threadCpuUsage(before).user / 1_000).toBeLessThan(jsonLdTimeMaxMs / 2)
})

test('JSON that takes too much memory ends the thread, not the process', async () => {
  const lists = `[${'[],'.repeat(170_000)}[]]`
  expect(['malformed', 'too_slow']).toContain((await inThread(script(lists))).kind)
})

test('a deadline that passes before or during the wait for other pages answers too_slow', async () => {
  expect(await extractJsonLd(page(script('{"n":1}')), { deadlineMs: performance.now() - 1 })).toEqual({
    kind: 'too_slow',
  })
  expect(await extractJsonLd(page(script('{"n":1}')), { deadlineMs: performance.now() + 1 })).toEqual({
    kind: 'too_slow',
  })
  // Two pages are read, 32 wait, and the other 26 are refused immediately.
  const settled: string[] = []
  const crowd = Array.from({ length: 60 }, async () => {
    const { kind } = await extractJsonLd(page(script('{"n":1}')), { deadlineMs: performance.now() + 5_000 })
    settled.push(kind)
  })
  await new Promise(setImmediate)
  expect(settled).toEqual(Array.from({ length: 60 - 34 }, () => 'too_slow'))
  await Promise.all(crowd)
  expect((await whenNotBusy(() => inThread(script('{"n":1}')))).kind).toBe('found')
})

test('buffers keep their bytes: a copy is sent to the thread', async () => {
  const html = page(script('{"n":1}'))
  const before = Buffer.from(html)
  await inThread(html)
  expect(html.equals(before)).toBe(true)
  expect(html.length).toBeGreaterThan(0)
})

test('words of the vocabulary lose their prefix, and texts their wrapping', () => {
  expect(typesOf({ '@type': ['https://schema.org/Person', 'schema:Thing', 'Organization', 7] })).toEqual([
    'Person',
    'Thing',
    'Organization',
  ])
  expect(typesOf({})).toEqual([])
  expect(textOf([null, {}, { '@value': 'a' }, 'b'])).toBe('a')
  expect(textOf(12)).toBe('12')
  expect(textOf({ name: 'x' })).toBeNull()
  expect(textOf(undefined)).toBeNull()
})

test('the thread gets no environment variables', () => {
  // The thread's environment cannot be observed from outside, so the test reads the source.
  expect(readFileSync(new URL('../../src/egress/json-ld.ts', import.meta.url), 'utf8')).toContain('env: {}')
})

test('a text longer than the maximum is cut before a reader gets it', () => {
  const found = extract(script(JSON.stringify({ long: ' '.repeat(120_000), list: ['x'.repeat(16_385)] })))
  const cut = jsonLdLimits.textCharactersMax
  expect(found).toEqual({ kind: 'found', answer: [{ long: ' '.repeat(cut), list: ['x'.repeat(cut)] }] })
})

test('a reader that never ends is stopped with the page, and delays no other page', async () => {
  const before = process.threadCpuUsage()
  const endless = { module: new URL('./reader-without-end.ts', import.meta.url), input: 'what for' }
  expect(await readJsonLd(page(script('{"a":1}')), { deadlineMs: soon(), reader: endless })).toEqual({
    kind: 'too_slow',
  })
  expect(process.threadCpuUsage(before).user / 1_000).toBeLessThan(jsonLdTimeMaxMs / 2)
})

test('a reader that throws makes the page malformed; a missing reader is our own fault', async () => {
  const failing = { module: new URL('./reader-without-end.ts', import.meta.url), input: null }
  const readBy = (reader: typeof failing) =>
    whenNotBusy(() => readJsonLd(page(script('{"a":1}')), { deadlineMs: soon(), reader }))
  expect(await readBy(failing)).toEqual({ kind: 'malformed' })
  const missing = { module: new URL('./no-such-reader.ts', import.meta.url), input: null }
  await expect(readBy(missing)).rejects.toThrow('a thread that reads JSON-LD failed')
})
