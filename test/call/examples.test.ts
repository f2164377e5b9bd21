/** The examples in the OpenAPI document are real answers: the calls are made again, and only values such as ids and times may differ. */
import { readdir, readFile, writeFile } from 'node:fs/promises'
import { expect, test } from 'vitest'
import { errorCatalogue } from '../../src/call/errors.ts'
import { capabilities } from '../../src/capabilities/index.ts'
import { type RecordedExamples, recordExamples } from '../support/example-calls.ts'
import { houseForFile } from '../support/house.ts'

const sharedFile = new URL('../../src/call/examples.json', import.meta.url)
const folder = new URL('../../src/capabilities/', import.meta.url)

/** Every capability's file of examples, with the operations that it covers. */
const ownFiles = async () => {
  const entries = await readdir(folder, { withFileTypes: true })
  return Promise.all(
    entries
      .filter((entry) => entry.isDirectory())
      .map(async ({ name }) => {
        const { document } = await import(new URL(`${name}/document.ts`, folder).href)
        const calls: readonly { document: { operationId: string } }[] = document.calls
        return {
          file: new URL(`${name}/examples.json`, folder),
          operations: calls.map((call) => call.document.operationId),
        }
      }),
  )
}

const write = (file: URL, value: object): Promise<void> =>
  writeFile(file, `${JSON.stringify(value, null, 2)}\n`)

const writeExamples = async ({ answers, ...shared }: RecordedExamples): Promise<void> => {
  await write(sharedFile, shared)
  for (const { file, operations } of await ownFiles()) {
    const own = Object.entries(answers).filter(([operation]) => operations.includes(operation))
    await write(file, Object.fromEntries(own))
  }
}

const read = async (file: URL) => JSON.parse(await readFile(file, 'utf8'))

const house = await houseForFile()
const answered: RecordedExamples = await recordExamples(house)
if (process.env.EXAMPLES === 'write') await writeExamples(answered)
const own = await Promise.all((await ownFiles()).map(({ file }) => read(file)))
const examples: RecordedExamples = { ...(await read(sharedFile)), answers: Object.assign({}, ...own) }

/** Texts that differ in every answer, recognized by their form. */
const passing: readonly (readonly [RegExp, string])[] = [
  [/[0-7][0-9A-HJKMNP-TV-Z]{25}/g, 'ULID'],
  [/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, 'UUID'],
  [/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/g, 'INSTANT'],
  [/\d{4}-\d\d-\d\d/g, 'DAY'],
  [/[A-Za-z0-9+/_-]{43}=?/g, 'HASH'],
  [/(\\?"?t\\?"?[=:])\d+/g, '$1N'],
]
/** Members that differ in every answer, such as times, positions and signed texts. */
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

test('every documented answer equals the current answer', () => {
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
  const operations = capabilities.flatMap(({ document: { calls } }) =>
    calls.map(({ document }) => document.operationId),
  )
  expect(Object.keys(examples.answers).sort()).toEqual(operations.sort())
  const codes = Object.keys(examples.errors).map((name) => name.replace(/_4\d\d$/, ''))
  expect([...new Set(codes)].sort()).toEqual(Object.keys(errorCatalogue).sort())
  for (const [name, error] of Object.entries(examples.errors))
    expect(error).toMatchObject({ code: name.replace(/_4\d\d$/, '') })
})

test('every documented header was sent', () => {
  expect(Object.keys(examples.headers)).toEqual(Object.keys(answered.headers))
  expect(examples.headers.RateLimitPolicy).toBe(answered.headers.RateLimitPolicy)
  expect(examples.headers.RateLimit).toMatch(
    /^"second";r=\d+;t=\d+, "minute";r=\d+;t=\d+, "day";r=\d+;t=\d+$/,
  )
  expect(examples.headers.CreditsCharged).toBe(answered.headers.CreditsCharged)
})
