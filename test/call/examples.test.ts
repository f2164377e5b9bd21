/** The examples in the OpenAPI document are answers of this service: they are asked for again, and only what differs every time may differ. */
import { readFile, writeFile } from 'node:fs/promises'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { errorCatalogue } from '../../src/call/errors.ts'
import type { Examples } from '../../src/call/examples.ts'
import { capabilities } from '../../src/capabilities/index.ts'
import { recordExamples } from '../support/example-calls.ts'
import { type House, openHouse } from '../support/house.ts'

const file = new URL('../../src/call/examples.json', import.meta.url)

let house: House
let answered: Examples
let examples: Examples
beforeAll(async () => {
  house = await openHouse()
  answered = await recordExamples(house)
  if (process.env.EXAMPLES === 'write') await writeFile(file, `${JSON.stringify(answered, null, 2)}\n`)
  examples = JSON.parse(await readFile(file, 'utf8'))
})
afterAll(() => house?.close())

/** Texts that are different every time, by what they look like. */
const passing: readonly (readonly [RegExp, string])[] = [
  [/[0-7][0-9A-HJKMNP-TV-Z]{25}/g, 'ULID'],
  [/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, 'UUID'],
  [/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/g, 'INSTANT'],
  [/\d{4}-\d\d-\d\d/g, 'DAY'],
  [/[A-Za-z0-9+/_-]{43}=?/g, 'HASH'],
  [/(\\?"?t\\?"?[=:])\d+/g, '$1N'],
]
/** Members that are: times, places in a log that others write to, public ids of keys, sums over a day that goes on, signed texts. */
const passingMembers =
  /^(processing_time_ms|position|recorded_at|size|api_key_id|key_id|calls|answered|refused|failed|charged|name|proof|note|checkpoint|verifier_key|metadata|data|digest|previous_digest|retry_after_seconds|resets_in_seconds)$/

const lasting = (value: unknown, name = ''): unknown => {
  if (Array.isArray(value)) return value.map((one) => lasting(one))
  if (typeof value === 'object' && value !== null)
    return Object.fromEntries(Object.entries(value).map(([member, one]) => [member, lasting(one, member)]))
  if (passingMembers.test(name) && value !== null) return `a ${typeof value}`
  if (typeof value !== 'string') return value
  return passing.reduce((text, [pattern, word]) => text.replaceAll(pattern, word), value)
}

test('every answer that is shown is what is answered now', () => {
  expect(Object.keys(examples.answers).sort()).toEqual(Object.keys(answered.answers).sort())
  for (const [operation, byStatus] of Object.entries(answered.answers)) {
    if (operation === 'exportLedger') continue
    expect({ operation, ...(lasting(examples.answers[operation]) as object) }).toEqual({
      operation,
      ...(lasting(byStatus) as object),
    })
  }
  expect(lasting(examples.errors)).toEqual(lasting(answered.errors))
})

test('every operation has an answer, and every code an error', () => {
  const operations = capabilities.flatMap(({ calls }) => calls.map(({ document }) => document.operationId))
  expect(Object.keys(examples.answers).sort()).toEqual(operations.sort())
  const codes = Object.keys(examples.errors).map((name) => name.replace(/_4\d\d$/, ''))
  expect([...new Set(codes)].sort()).toEqual(Object.keys(errorCatalogue).sort())
  for (const [name, error] of Object.entries(examples.errors))
    expect(error).toMatchObject({ code: name.replace(/_4\d\d$/, '') })
})

test('every header that is shown is one that was sent', () => {
  expect(Object.keys(examples.headers)).toEqual(Object.keys(answered.headers))
  expect(examples.headers.RateLimitPolicy).toBe(answered.headers.RateLimitPolicy)
  expect(examples.headers.RateLimit).toMatch(
    /^"second";r=\d+;t=\d+, "minute";r=\d+;t=\d+, "day";r=\d+;t=\d+$/,
  )
  expect(examples.headers.CreditsCharged).toBe(answered.headers.CreditsCharged)
})
