/** The OpenAPI document is valid and complete, and describes every answer correctly. */
import { execFile } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js'
import addFormats from 'ajv-formats'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { errorCatalogue } from '../../src/call/errors.ts'
import { capabilities } from '../../src/capabilities/index.ts'
import { createMetrics } from '../../src/metrics/metrics.ts'
import { openCapabilities } from '../../src/start/capabilities.ts'
import { exhaustive, randomCases } from '../support/exhaustive.ts'
import { type Answer, houseForFile, places, send } from '../support/house.ts'
import { logger } from './quiet.ts'

type Parameter = { readonly name?: string; readonly in?: string; readonly $ref?: string }
type Operation = {
  readonly operationId: string
  readonly parameters: readonly Parameter[]
  readonly requestBody?: {
    readonly content: Record<string, { schema: { properties: Record<string, unknown> } }>
  }
  readonly responses: Readonly<
    Record<
      string,
      {
        readonly content: Readonly<Record<string, unknown>>
        readonly headers: Readonly<Record<string, unknown>>
      }
    >
  >
  readonly servers?: unknown
}
type Document = { readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>> }

const house = await houseForFile({ environment: { EMAIL_PROBE: 'off', DNS_SERVERS: '127.0.0.1:1' } })
const limits = {
  requests_per_minute: 1_000_000,
  requests_per_day: 1_000_000,
  email_validations_per_second: 10_000,
}
const permissions = [
  'email_validation',
  'ip_lookup',
  'profnet_scraping',
  'pixel_control',
  'ledger_read',
] as const
const partner = await house.partner({ credits: '100000', limits, permissions })
const document = (await (await fetch(`${house.apiUrl}/openapi.json`)).json()) as Document
const ajv = new Ajv2020({ strict: false, allErrors: false })
addFormats.default(ajv)
ajv.addSchema({ $id: 'openapi', ...document })
const answerSchema = (path: string, method: string, status: number): ValidateFunction | undefined => {
  const content = document.paths[path]?.[method]?.responses[status]?.content
  if (content?.['application/json'] === undefined) return undefined
  const pointer = [path, method, 'responses', String(status), 'content', 'application/json', 'schema']
    .map((part) => encodeURIComponent(part.replaceAll('~', '~0').replaceAll('/', '~1')))
    .join('/')
  return ajv.getSchema(`openapi#/paths/${pointer}`)
}

describe('the document', () => {
  // Each run of the linter costs seconds of processor time, mostly for its start.
  test.runIf(exhaustive)('is valid OpenAPI 3.1, and so is the document of the admin API', async () => {
    const dir = await mkdtemp(join(tmpdir(), 'openapi-'))
    const admin = await (await fetch(`${house.dashboardUrl}/admin/openapi.json`)).text()
    await writeFile(join(dir, 'openapi.json'), JSON.stringify(document))
    await writeFile(join(dir, 'admin.json'), admin)
    const redocly = fileURLToPath(new URL('../../node_modules/@redocly/cli/bin/cli.js', import.meta.url))
    const linted = promisify(execFile)(process.execPath, [redocly, 'lint', 'openapi.json', 'admin.json'], {
      cwd: dir,
      env: { ...process.env, REDOCLY_TELEMETRY: 'off', REDOCLY_SUPPRESS_UPDATE_NOTICE: 'true' },
    })
    await expect(linted).resolves.toBeDefined()
    await rm(dir, { recursive: true, force: true })
  })

  test('sets no Idempotency-Key: otherwise people would send the same key with another body', async () => {
    const { components } = JSON.parse(JSON.stringify(document))
    const { schema, ...parameter } = components.parameters.IdempotencyKey
    for (const member of ['example', 'examples', 'default'])
      expect({ ...schema, ...parameter }).not.toHaveProperty(member)
  })

  test('is the same from both hosts', async () => {
    expect(await (await fetch(`${house.dashboardUrl}/openapi.json`)).json()).toEqual(document)
  })

  test('describes every call that is answered, and no other', async () => {
    const open = await openCapabilities(capabilities, {
      foundation: house.foundation,
      config: house.config,
      logger,
      metrics: createMetrics(),
    })
    const answered = open.formsOn('api')
    await open.close()
    const named = (calls: readonly { method: string; path: string; permission: string | null }[]): string[] =>
      calls.map(({ method, path, permission }) => `${method} ${path} ${permission}`).sort()
    expect(named(answered)).toEqual(named(capabilities.flatMap(({ document: { calls } }) => calls)))
  })

  test('names every error of the catalogue', () => {
    const text = JSON.stringify(document)
    expect(
      Object.keys(errorCatalogue).filter((code) => !text.includes(`"#/components/schemas/${code}"`)),
    ).toEqual([
      // These errors answer requests for paths or methods that do not exist.
      'REQ_004',
      'REQ_005',
    ])
    expect(Object.keys(errorCatalogue).filter((code) => !text.includes(`"${code}":`))).toEqual([])
  })
})

type Content = { readonly examples?: Readonly<Record<string, { value?: unknown; $ref?: string }>> }

test('every example fits its schema', async () => {
  const { components } = document as unknown as {
    components: { examples: Readonly<Record<string, { value: unknown }>> }
  }
  const wrong: string[] = []
  let shown = 0
  for (const { path, method, operation } of operations())
    for (const [status, { content }] of Object.entries(operation.responses)) {
      const { examples = {} } = (content['application/json'] ?? {}) as Content
      for (const [name, { value, $ref }] of Object.entries(examples)) {
        shown++
        const answer = $ref === undefined ? value : components.examples[$ref.split('/').at(-1) ?? '']?.value
        const validate = answerSchema(path, method, Number(status))
        if (validate?.(answer) !== true)
          wrong.push(`${method} ${path} ${status} ${name}: ${JSON.stringify(validate?.errors)}`)
      }
    }
  expect(wrong).toEqual([])
  expect(shown).toBeGreaterThan(150)
})

test('the example calls for a new key are complete', async () => {
  const firstCalls = capabilities.flatMap(({ document: { firstCall } }) => firstCall ?? [])
  expect(firstCalls.length).toBeGreaterThan(2)
  for (const { call, body } of firstCalls) {
    const answer =
      body === null
        ? await house.ask(partner, { method: 'GET', path: call.path })
        : await house.post(partner, call.path, body)
    expect([200, 404], `${call.path}: ${answer.text}`).toContain(answer.status)
  }
})

const membersValue = (name: string): fc.Arbitrary<unknown> => {
  const known: Readonly<Record<string, readonly unknown[]>> = {
    ip: [places.london, '10.0.0.1', '::1', '2001:db8::1', '8.8.8', ''],
    email: ['ann@example.com', 'info@gmail.com', 'not an address', 'x'.repeat(400)],
    include_company_data: [true, false],
    id: ['ada-lovelace', 'https://www.profnet.com/in/somebody', 'urn:profnet:person:17', '!!'],
    cached: [true, false],
    domain: ['example.com', 'a.example.co.uk', 'com', 'http://x'],
    period: ['day', 'month', 'year'],
    number: [1, 10, 0, 1.5, 10 ** 12],
    url: ['https://example.com/x', 'ftp://x', 'x'],
    hit_id: ['h1', '', 'x'.repeat(200)],
    from: ['2026-01-01', '2026-02-30', '20260101'],
    to: ['2026-01-31', '2030-01-01'],
    group_by: ['day', 'capability', 'key', 'nothing'],
    request_id: ['01M7YKBR1318CPB17F0R6929Z4', 'zzz'],
    from_revision: ['0', '5', '-1', '9'.repeat(20)],
    max: ['1', '10000', '0'],
  }
  return fc.oneof(
    { weight: 4, arbitrary: fc.constantFrom(...(known[name] ?? ['x'])) },
    { weight: 1, arbitrary: fc.jsonValue({ maxDepth: 2 }) },
  )
}

const operations = (): { path: string; method: string; operation: Operation }[] =>
  Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).flatMap(([method, operation]) =>
      method === 'servers' ? [] : [{ path, method, operation }],
    ),
  )

const textOf = (value: unknown): string => (typeof value === 'string' ? value : JSON.stringify(value))

const askAs = (
  path: string,
  method: string,
  operation: Operation,
  values: Record<string, unknown>,
): Promise<Answer> => {
  const filled = path.replaceAll(/\{(\w+)\}/g, (_, name: string) =>
    encodeURIComponent(textOf(values[name] ?? 'x') || 'x'),
  )
  const headers: Record<string, string> = { 'x-api-key': partner.apiKey }
  if (operation.requestBody !== undefined)
    return send(`${house.apiUrl}${filled}`, {
      method: method.toUpperCase(),
      headers: { ...headers, 'content-type': 'application/json' },
      body: values,
    })
  const query = new URLSearchParams(
    operation.parameters.flatMap(({ name = '', in: place }) =>
      place === 'query' && values[name] !== undefined
        ? [[name, textOf(values[name])] as [string, string]]
        : [],
    ),
  )
  return send(`${house.apiUrl}${filled}${query.size === 0 ? '' : `?${query}`}`, {
    method: method.toUpperCase(),
    headers,
  })
}

/** The headers of an answer that a partner's program reads, except those of HTTP itself. */
const ownHeaders = (headers: Headers): string[] =>
  [...headers.keys()].filter((name) =>
    /^(x-request-id|credits-.*|ratelimit.*|retry-after|idempotent-replayed|link)$/.test(name),
  )

test('the parameters of a DELETE can be in its query instead of its body', async () => {
  const removals = operations().filter(({ method }) => method === 'delete')
  expect(removals).toHaveLength(2)
  for (const { path, operation } of removals) {
    const members = Object.keys(operation.requestBody?.content['application/json']?.schema.properties ?? {})
    expect(operation.parameters).toEqual(
      members.map((name) => expect.objectContaining({ name, in: 'query', required: false })),
    )
    expect(operation.requestBody).toMatchObject({ required: false })
    const values = { domain: 'example.com', period: 'day' }
    const query = new URLSearchParams(Object.entries(values).filter(([name]) => members.includes(name)))
    const removed = await house.ask(partner, { method: 'DELETE', path: `${path}?${query}` })
    expect(removed.status).toBe(200)
  }
})

test('a replayed refusal and the page of an export have only documented headers', async () => {
  const headersIn = (path: string, method: string, status: number): string[] =>
    Object.keys(document.paths[path]?.[method]?.responses[status]?.headers ?? {}).map((name) =>
      name.toLowerCase(),
    )
  const lookUp = (): Promise<Answer> =>
    house.post(partner, '/v1/ip/lookup', { ip: '8.8.8' }, { 'idempotency-key': 'documented' })
  await lookUp()
  const replayed = await lookUp()
  expect(replayed.headers.get('idempotent-replayed')).toBe('true')
  expect(headersIn('/v1/ip/lookup', 'post', 400)).toEqual(
    expect.arrayContaining(ownHeaders(replayed.headers)),
  )
  const exported = await house.ask(partner, { method: 'GET', path: '/v1/ledger/export?max=1' })
  expect(exported.headers.get('link')).toMatch(/rel="next"$/)
  expect(headersIn('/v1/ledger/export', 'get', 200)).toEqual(
    expect.arrayContaining(ownHeaders(exported.headers)),
  )
})

test('the status, headers, members and types of every answer are documented, for any request', async () => {
  for (const { path, method, operation } of operations()) {
    const schema = operation.requestBody?.content['application/json']?.schema
    const names = [
      ...Object.keys(schema?.properties ?? {}),
      ...operation.parameters.flatMap(({ name, in: place }) =>
        place === 'header' || name === undefined ? [] : [name],
      ),
    ]
    const members = Object.fromEntries(names.map((name) => [name, membersValue(name)]))
    const request = fc.record(members, { requiredKeys: [] })
    const checked = fc.asyncProperty(request, async (values) => {
      const { status, text, headers } = await askAs(
        path,
        method,
        operation,
        values as Record<string, unknown>,
      )
      const documented = Object.keys(operation.responses[status]?.headers ?? {})
      expect(
        documented.map((name) => name.toLowerCase()),
        `${method} ${path} ${status}`,
      ).toEqual(expect.arrayContaining(ownHeaders(headers)))
      const type = headers.get('content-type') ?? ''
      if (type.split(';')[0] !== 'application/json') {
        expect(Object.keys(operation.responses[status]?.content ?? {})).toContain(type.split(';')[0])
        return
      }
      const validate = answerSchema(path, method, status)
      expect(validate, `${method} ${path} answers ${status}: ${text.slice(0, 200)}`).toBeDefined()
      const fits = validate?.(JSON.parse(text)) === true
      expect(
        fits,
        `${method} ${path} ${status}: ${JSON.stringify(validate?.errors)} in ${text.slice(0, 300)}`,
      ).toBe(true)
    })
    await fc.assert(checked, { numRuns: randomCases(10), seed: 7 })
  }
})
