/** `traceparent` according to W3C Trace Context §3.2: which headers name a trace, and which are ignored. */
import { describe, expect, test } from 'vitest'
import { traceContextOf } from '../../src/tracing/spans.ts'

const trace = '4bf92f3577b34da6a3ce929d0e0e4736'
const span = '00f067aa0ba902b7'
const whole = `00-${trace}-${span}-01`

test('names the trace, the span, and whether the partner records it', () => {
  const named = { traceId: trace, spanId: span }
  expect(traceContextOf(whole)).toEqual({ ...named, sampled: true })
  expect(traceContextOf(`00-${trace}-${span}-00`)).toEqual({ ...named, sampled: false })
  // Only the lowest flag means `sampled`; the other flags are for later versions.
  expect(traceContextOf(`00-${trace}-${span}-fe`)).toEqual({ ...named, sampled: false })
  expect(traceContextOf(`00-${trace}-${span}-ff`)).toEqual({ ...named, sampled: true })
})

test('the known part of a later version is read', () => {
  const named = { traceId: trace, spanId: span, sampled: true }
  expect(traceContextOf(`01-${trace}-${span}-01`)).toEqual(named)
  expect(traceContextOf(`cc-${trace}-${span}-01-what-will-be`)).toEqual(named)
  expect(traceContextOf(`cc-${trace}-${span}-01what-will-be`)).toBeNull()
  expect(traceContextOf(`cc-${trace}-${span}-01-${'x'.repeat(1_000)}`)).toBeNull()
})

describe('is ignored', () => {
  test.each([
    undefined,
    '',
    'nonsense',
    `ff-${trace}-${span}-01`,
    `00-${trace}-${span}-01-more`,
    `00-${trace}-${span}-01-`,
    `00-${trace}-${span}-1`,
    `00-${trace}-${span}`,
    `00-${trace.toUpperCase()}-${span}-01`,
    `0-${trace}-${span}-01`,
    `00-${'0'.repeat(32)}-${span}-01`,
    `00-${trace}-${'0'.repeat(16)}-01`,
    `00-${trace.slice(1)}-${span}-01`,
    `00-${trace}${span}-01`,
    ` ${whole}`,
    `${whole}\n`,
    `${whole}\0`,
    // Node.js joins two headers in this form.
    `${whole}, ${whole}`,
    `00-${trace.slice(1)}"-${span}-01`,
  ])('%j', (header) => {
    expect(traceContextOf(header)).toBeNull()
  })

  test('a header that occurs twice', () => {
    expect(traceContextOf([whole, whole])).toBeNull()
  })
})
