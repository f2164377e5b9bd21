/** Specification 2.1 and 7, with decisions 2 to 5 and 7: every faulty request gets the error object. */
import { describe, expect, test } from 'vitest'
import { errorCatalogue } from '../../src/call/errors.ts'
import { permission } from '../../src/events/capabilities.ts'
import { exhaustive } from '../support/exhaustive.ts'
import { type Answer, houseForFile, type Partner, places, send, sendRaw } from '../support/house.ts'
import {
  bare,
  expectErrorObject,
  expectNoCallHeaders,
  expectNotAuthenticated,
  expectRefusedCall,
  jsonType,
  refusalFact,
  ulid,
} from './wire.ts'

const json = { 'content-type': 'application/json' }
const bodyBytesMax = 16 * 1024

let partner: Partner

const house = await houseForFile()
partner = await house.partner()

const unreadable = (status: 400 | 413 | 415) => ({
  status,
  error: 'bad_request',
  code: 'REQ_001',
  details: {},
})

const only = (answers: readonly Answer[]): Answer => {
  const [answer, ...more] = answers
  if (answer === undefined || more.length > 0) throw new Error(`${answers.length} answers instead of one`)
  return answer
}

/** Expects an error object, and that no ledger got an event. */
const expectUncalled = async (
  refusal: Parameters<typeof expectErrorObject>[1],
  request: () => Promise<Answer>,
): Promise<Answer> => {
  const before = await house.eventsOf(partner.organizationId)
  const answer = await request()
  expectErrorObject(answer, refusal)
  expectNoCallHeaders(answer)
  expect(await house.eventsOf(partner.organizationId)).toEqual(before)
  return answer
}

describe('2.1 the error object', () => {
  test('every code of the catalogue has a category that matches its status', () => {
    const categories: Record<number, readonly string[]> = {
      400: ['bad_request', 'validation_error'],
      401: ['unauthorized'],
      402: ['payment_required'],
      403: ['forbidden'],
      404: ['not_found'],
      405: ['bad_request'],
      409: ['conflict'],
      422: ['validation_error'],
      429: ['rate_limited'],
      500: ['internal_error'],
      503: ['service_unavailable'],
      504: ['outcome_unknown'],
    }
    for (const [code, { status, error }] of Object.entries(errorCatalogue))
      expect({ code, known: categories[status]?.includes(error) }).toEqual({ code, known: true })
  })
})

test('decision 4: the service chooses the request id and ignores the caller’s', async () => {
  const answer = await house.lookup(partner, {}, { 'x-request-id': 'mine', 'request-id': 'mine' })
  expect(answer.body.request_id).toMatch(ulid)
  expect(answer.headers.get('x-request-id')).toBe(answer.body.request_id)
})

test('no answer can be cached, or interpreted as a type other than its own', async () => {
  const raw = (bytes: string) => async () => only(await sendRaw(house.apiUrl, bytes))
  const asked: [string, () => Promise<Answer>][] = [
    ['a result', () => house.lookup(partner, { ip: '10.0.0.1' })],
    ['whoami', () => house.whoami(partner)],
    ['a refusal', () => house.lookup(partner, {})],
    ['no key', () => send(`${house.apiUrl}/v1/ip/lookup`, {})],
    ['no route', () => send(`${house.apiUrl}/nothing`, {})],
    ['no method', () => send(`${house.apiUrl}/v1/ip/lookup`, { method: 'PUT' })],
    ['HEAD', () => send(`${house.dashboardUrl}/whoami`, { method: 'HEAD' })],
    ['liveness', () => send(`${house.apiUrl}/livez`, { method: 'GET' })],
    ['readiness', () => send(`${house.dashboardUrl}/readyz`, { method: 'GET' })],
    ['the sign-in page', () => send(`${house.dashboardUrl}/login`, { method: 'GET' })],
    ['a redirect', async () => only(await sendRaw(house.dashboardUrl, 'GET / HTTP/1.1\r\nHost: x\r\n\r\n'))],
    ['an invalid path', raw('GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n')],
    ['no HTTP', raw('hello\r\n\r\n')],
    ['large headers', raw(`GET / HTTP/1.1\r\nHost: x\r\nx-more: ${'x'.repeat(20_000)}\r\n\r\n`)],
    ['an unknown method', raw('BREW /v1/ip/lookup HTTP/1.1\r\nHost: x\r\n\r\n')],
    ['a tunnel', raw('CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n')],
    ['an expectation', raw('GET / HTTP/1.1\r\nHost: x\r\nExpect: miracles\r\n\r\n')],
    ['two hosts', raw('GET / HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n')],
  ]
  for (const [what, ask] of asked) {
    const { headers } = await ask()
    const kept = headers.get('cache-control')
    expect({ what, kept, sniffed: headers.get('x-content-type-options') }).toEqual({
      what,
      kept: 'no-store',
      sniffed: 'nosniff',
    })
  }
})

describe('REQ_001: a body that is not a JSON object is a refused call, recorded and free', () => {
  test.each([
    ['empty', ''],
    ['no JSON', 'ip=81.2.69.142'],
    ['an array', '[{"ip":"81.2.69.142"}]'],
    ['null', 'null'],
    ['deeply nested', '['.repeat(8_000)],
    ['with a member twice', '{"ip":"81.2.69.142","ip":"8.8.8.8"}'],
  ])('%s', async (_, body) => {
    expectRefusedCall(await house.ask(partner, { headers: json, body }), partner, unreadable(400))
  })

  test.each(['text/plain', 'application/x-www-form-urlencoded'])(
    'the content type %s is refused with 415',
    async (type) => {
      const answer = await house.ask(partner, {
        headers: { 'content-type': type },
        body: { ip: places.london },
      })
      expectRefusedCall(answer, partner, unreadable(415))
    },
  )

  test('a body without a content type is refused with 415', async () => {
    expectRefusedCall(await house.ask(partner, { body: { ip: places.london } }), partner, unreadable(415))
  })

  test.each(['application/json; charset=utf-16'])(
    'a charset other than UTF-8, %s, is refused with 415',
    async (type) => {
      const answer = await house.ask(partner, {
        headers: { 'content-type': type },
        body: { ip: places.london },
      })
      expectRefusedCall(answer, partner, unreadable(415))
    },
  )

  test.each(['gzip'])('a body compressed by %s is refused with 415', async (coding) => {
    const answer = await house.lookup(partner, { ip: places.london }, { 'content-encoding': coding })
    expectRefusedCall(answer, partner, unreadable(415))
  })

  test.each([
    ['a byte that begins no character', [0x80]],
    ['an overlong slash', [0xc0, 0xaf]],
  ])('a body with %s is not UTF-8: refused, and not decoded as something else', async (_, bytes) => {
    const body = Buffer.concat([
      Buffer.from(`{"ip":"${places.london}","note":"`),
      Buffer.from(bytes),
      Buffer.from('"}'),
    ])
    const before = (await house.eventsOf(partner.organizationId)).length
    const response = await fetch(`${house.apiUrl}/v1/ip/lookup`, {
      method: 'POST',
      headers: { ...json, 'x-api-key': partner.apiKey },
      body,
    })
    const text = await response.text()
    const answer = { status: response.status, headers: response.headers, text, body: JSON.parse(text) }
    const events = (await house.eventsOf(partner.organizationId)).slice(before)
    expectRefusedCall({ ...answer, events }, partner, unreadable(400))
  })

  test('multi-byte characters arrive intact, however they are split into chunks', async () => {
    const bytes = Buffer.from('{"ip":"10.0.0.1","note":"€ü𝄞"}')
    const chunks = [...bytes].map((byte) => `1\r\n${String.fromCharCode(byte)}\r\n`)
    const head = `POST /v1/ip/lookup HTTP/1.1\r\nHost: x\r\nx-api-key: ${partner.apiKey}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n`
    const answer = only(
      await sendRaw(house.apiUrl, Buffer.from(`${head}${chunks.join('')}0\r\n\r\n`, 'latin1')),
    )
    expect(answer.status).toBe(200)
  })

  test.each(['application/json; charset=utf-8'])('the content type %s is JSON', async (type) => {
    const answer = await house.ask(partner, {
      headers: { 'content-type': type },
      body: { ip: places.london },
    })
    expect(answer.status).toBe(200)
  })
})

describe('REQ_001: a body of more than 16 KiB is a refused call, recorded and free', () => {
  const bodyOf = (bytes: number): string => {
    const bare = JSON.stringify({ ip: places.london, more: '' })
    return JSON.stringify({ ip: places.london, more: 'x'.repeat(bytes - bare.length) })
  }

  test('16,384 bytes are accepted', async () => {
    const answer = await house.ask(partner, { headers: json, body: bodyOf(bodyBytesMax) })
    expect(answer.status).toBe(200)
  })

  test('16,385 bytes are refused with 413', async () => {
    const answer = await house.ask(partner, { headers: json, body: bodyOf(bodyBytesMax + 1) })
    expectRefusedCall(answer, partner, unreadable(413))
  })

  test('bytes count, not characters', async () => {
    const body = JSON.stringify({ ip: places.london, more: 'ü'.repeat(bodyBytesMax / 2) })
    expect(body.length).toBeLessThan(bodyBytesMax)
    const answer = await house.ask(partner, { headers: json, body })
    expectRefusedCall(answer, partner, unreadable(413))
  })

  const head = (key: string): string =>
    `POST /v1/ip/lookup HTTP/1.1\r\nHost: x\r\nx-api-key: ${key}\r\nContent-Type: application/json\r\n`
  const chunk = `1000\r\n${'x'.repeat(4096)}\r\n`

  test('a Content-Length that is too large is refused before the body arrives', async () => {
    const before = (await house.eventsOf(partner.organizationId)).length
    const answer = only(
      await sendRaw(house.apiUrl, `${head(partner.apiKey)}Content-Length: 1000000000\r\n\r\n{`),
    )
    const events = (await house.eventsOf(partner.organizationId)).slice(before)
    expectRefusedCall({ ...answer, events }, partner, unreadable(413))
  })

  test('chunks are refused when their total is too large', async () => {
    const before = (await house.eventsOf(partner.organizationId)).length
    const bytes = `${head(partner.apiKey)}Transfer-Encoding: chunked\r\n\r\n${chunk.repeat(5)}0\r\n\r\n`
    const answer = only(await sendRaw(house.apiUrl, bytes))
    const events = (await house.eventsOf(partner.organizationId)).slice(before)
    expectRefusedCall({ ...answer, events }, partner, unreadable(413))
  })

  test('without a valid key both get AUTH_001', async () => {
    const answers = [
      await send(`${house.apiUrl}/v1/ip/lookup`, { headers: json, body: bodyOf(bodyBytesMax + 1) }),
      ...(await sendRaw(
        house.apiUrl,
        `${head('nobody')}Transfer-Encoding: chunked\r\n\r\n${chunk.repeat(5)}0\r\n\r\n`,
      )),
    ]
    expect(answers).toHaveLength(2)
    for (const answer of answers) expectNotAuthenticated(answer)
  })
})

describe('REQ_004: a path without a route gets the same answer for every client, and is not a call', () => {
  test.each([
    ['api', 'POST', '/v1/ip/lookup/'],
    ['api', 'POST', '/V1/IP/LOOKUP'],
    ['api', 'GET', '/..%2f..%2fetc/passwd'],
    ['dashboard', 'POST', '/v1/ip/lookup'],
    ['dashboard', 'GET', '/whoami/'],
    ['dashboard', 'GET', '/v1/whoami'],
  ] as const)('on the %s host: %s %s', async (on, method, path) => {
    const refusal = { status: 404, error: 'not_found', code: 'REQ_004', details: { method, path } }
    await expectUncalled(refusal, () => house.ask(partner, { on, method, path }))
    const url = on === 'api' ? house.apiUrl : house.dashboardUrl
    expectErrorObject(await send(`${url}${path}`, { method }), refusal)
  })

  test('the answer repeats the path without its query, cut to 64 characters', async () => {
    const path = `/${'x'.repeat(200)}`
    await expectUncalled(
      {
        status: 404,
        error: 'not_found',
        code: 'REQ_004',
        details: { method: 'GET', path: path.slice(0, 64) },
      },
      () => send(`${house.apiUrl}${path}?secret=1`, { method: 'GET' }),
    )
  })

  test.each(['/%zz', '/v1/ip/%c0%af'])('an invalid path, %s, gets the error object', async (path) => {
    for (const url of [house.apiUrl, house.dashboardUrl]) {
      const answer = only(await sendRaw(url, `GET ${path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`))
      expect([400, 404]).toContain(answer.status)
      expect(Object.keys(answer.body)).toEqual(['error', 'message', 'code', 'request_id', 'details'])
      expect(answer.headers.get('content-type')).toBe(jsonType)
      expect(answer.headers.get('x-request-id')).toMatch(ulid)
    }
  })
})

describe('REQ_005: a method that a route does not accept gets 405 with Allow, and is not a call', () => {
  test.each([
    ['api', '/v1/ip/lookup', 'POST', ['GET', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']],
    ['dashboard', '/whoami', 'GET', ['POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']],
  ] as const)('on the %s host: %s takes only %s', async (on, path, allowed, others) => {
    for (const method of others) {
      const answer = await expectUncalled(
        { status: 405, error: 'bad_request', code: 'REQ_005', details: { method, allowed: [allowed] } },
        () => house.ask(partner, { on, method, path }),
      )
      expect(answer.headers.get('allow')).toBe(allowed)
    }
  })

  test.each([
    ['api', '/v1/ip/lookup', 'POST'],
    ['dashboard', '/whoami', 'GET'],
  ] as const)('HEAD on the %s host gets the same headers and no body', async (on, path, allowed) => {
    const answer = await house.ask(partner, { on, path, method: 'HEAD' })
    expect({ status: answer.status, text: answer.text }).toEqual({ status: 405, text: '' })
    expect(answer.headers.get('allow')).toBe(allowed)
    expect(answer.headers.get('content-type')).toBe(jsonType)
    expect(answer.headers.get('x-request-id')).toMatch(ulid)
    expect(answer.events).toEqual([])
  })

  test('CONNECT, which opens a tunnel, is accepted nowhere', async () => {
    for (const url of [house.apiUrl, house.dashboardUrl]) {
      const answer = only(await sendRaw(url, 'CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n'))
      expectErrorObject(answer, {
        status: 405,
        error: 'bad_request',
        code: 'REQ_005',
        details: { method: 'CONNECT', allowed: [] },
      })
      expect(answer.headers.get('allow')).toBe('')
    }
  })

  test('the body of a request that no route accepts is not read: neither its size nor its type matters', async () => {
    for (const [method, path, code] of [
      ['PUT', '/v1/ip/lookup', 'REQ_005'],
      ['QUERY', '/v1/ip/lookup', 'REQ_005'],
      ['POST', '/nothing', 'REQ_004'],
      ['QUERY', '/nothing', 'REQ_004'],
    ] as const)
      for (const length of [5, 1_000_000_000]) {
        const head = `${method} ${path} HTTP/1.1\r\nHost: x\r\nContent-Length: ${length}\r\n\r\n`
        expect(only(await sendRaw(house.apiUrl, `${head}hello`)).body).toMatchObject({ code })
      }
  })

  test.each([
    // Node.js parses the first method although Fastify does not route it. It does not parse the others.
    'QUERY',
    'BREW',
    'X-_~!',
  ])('%s is treated as a method too', async (method) => {
    const answer = only(
      await sendRaw(
        house.apiUrl,
        `${method} http://x/v1/ip/lookup?a=b HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n`,
      ),
    )
    expectErrorObject(answer, {
      status: 405,
      error: 'bad_request',
      code: 'REQ_005',
      details: { method, allowed: ['POST'] },
    })
    expect(answer.headers.get('allow')).toBe('POST')
  })
})

describe('bytes that are not HTTP get the error object, and leave no event', () => {
  test.each([
    ['a line that is not a request', 'hello\r\n\r\n'],
    ['an unknown version', 'GET /whoami HTTP/9.9\r\nHost: x\r\n\r\n'],
    ['a control character in a header', 'GET /whoami HTTP/1.1\r\nHost: x\r\nx-api-key: a\0b\r\n\r\n'],
    [
      'both a length and chunks',
      'POST /v1/ip/lookup HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
    ],
    ['a TLS handshake', '\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03'],
  ])('%s', async (_, bytes) => {
    for (const url of [house.apiUrl, house.dashboardUrl])
      await expectUncalled(unreadable(400), async () => only(await sendRaw(url, bytes)))
  })

  test('a chunk whose size is not a number, in a request of a known key, causes at most a free fact', async () => {
    const own = await house.partner()
    const answer = only(
      await sendRaw(
        house.apiUrl,
        `POST /v1/ip/lookup HTTP/1.1\r\nHost: x\r\nx-api-key: ${own.apiKey}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n{}\r\n0\r\n\r\n`,
      ),
    )
    expectErrorObject(answer, unreadable(400))
    // The fact may be recorded after the answer. Once a later call is answered, the fact is in the log.
    expect((await house.whoami(own)).headers.get('credits-remaining')).toBe('1000')
    const events = await house.eventsOf(own.organizationId)
    expect(events.filter(({ type }) => type === 'CreditCharged')).toEqual([])
  })

  test.each([20])('%s KB of headers are 431', async (kilobytes) => {
    const bytes = `GET /whoami HTTP/1.1\r\nHost: x\r\nx-more: ${'x'.repeat(kilobytes * 1024)}\r\n\r\n`
    for (const url of [house.apiUrl, house.dashboardUrl])
      await expectUncalled({ ...unreadable(400), status: 431 }, async () => only(await sendRaw(url, bytes)))
  })

  const post = (headers: string, body: string, version = '1.1'): string =>
    `POST /v1/ip/lookup HTTP/${version}\r\nx-api-key: KEY\r\n${headers}\r\n${body}`
  const lookup = JSON.stringify({ ip: places.london })
  const typed = 'Content-Type: application/json\r\n'
  const chunked = `${lookup.length.toString(16)}\r\n${lookup}\r\n0\r\n\r\n`
  const sized = `Content-Length: ${lookup.length}\r\n`

  test.each([
    ['two Host headers', post(`Host: a\r\nhost: b\r\n${typed}${sized}`, lookup)],
    ['an invalid Host', post(`Host: a b/c\r\n${typed}${sized}`, lookup)],
    ['two content types', post(`Host: x\r\n${typed}content-type: text/plain\r\n${sized}`, lookup)],
    [
      'another transfer coding in addition to chunked',
      post(`Host: x\r\n${typed}Transfer-Encoding: gzip, chunked\r\n`, chunked),
    ],
    ['an unknown transfer coding', post(`Host: x\r\n${typed}Transfer-Encoding: xchunked\r\n`, chunked)],
    ['chunks in HTTP/1.0', post(`Host: x\r\n${typed}Transfer-Encoding: chunked\r\n`, chunked, '1.0')],
  ])('%s, in an otherwise valid call: refused, and the connection is closed', async (_, bytes) => {
    const answer = await expectUncalled(unreadable(400), async () =>
      only(await sendRaw(house.apiUrl, bytes.replaceAll('KEY', partner.apiKey), 2)),
    )
    expect(answer.headers.get('connection')).toBe('close')
  })

  test.each([
    ['garbage', `${post(`Host: x\r\n${typed}${sized}`, lookup)}garbage\r\n\r\n`, 'REQ_001'],
    ['more body than announced', post(`Host: x\r\n${typed}${sized}`, `${lookup}}`), 'REQ_001'],
  ])('a call followed by %s gets its answer, which was charged, before the error', async (_, bytes, code) => {
    const own = await house.partner({ credits: '5' })
    const answers = await sendRaw(house.apiUrl, bytes.replaceAll('KEY', own.apiKey), 2)
    expect(answers.map(({ status, body }) => [status, body.code])).toEqual([
      [200, undefined],
      [code === 'REQ_001' ? 400 : 405, code],
    ])
    expect(answers[0]?.headers.get('credits-charged')).toBe('1')
    expect(answers[1]?.headers.get('connection')).toBe('close')
    const events = await house.eventsOf(own.organizationId)
    expect(events.filter(({ type }) => type === 'CreditCharged')).toHaveLength(1)
  })

  test('HTTP/1.1 without a Host', async () => {
    await expectUncalled(unreadable(400), async () =>
      only(await sendRaw(house.dashboardUrl, 'GET /whoami HTTP/1.1\r\nConnection: close\r\n\r\n')),
    )
  })
})

describe('SYS_001: when the service itself fails, nothing is charged and no internals are exposed', () => {
  const broken = async <T>(during: () => Promise<T>): Promise<T> => {
    await house.query('alter table idempotent_calls rename to idempotent_calls_away')
    try {
      return await during()
    } finally {
      await house.query('alter table idempotent_calls_away rename to idempotent_calls')
    }
  }
  const lookupWith = (key: string) => house.lookup(partner, { ip: places.london }, { 'idempotency-key': key })

  test('the answer is the error object without a result; the same Idempotency-Key works afterwards', async () => {
    const answer = await broken(() => lookupWith('broken-1'))
    expectErrorObject(answer, { status: 500, error: 'internal_error', code: 'SYS_001', details: {} })
    expect(answer.text).not.toContain('London')
    expect(answer.events.filter(({ type }) => type === 'CreditCharged')).toEqual([])
    const again = await lookupWith('broken-1')
    expect(again.status).toBe(200)
    expect(again.headers.get('credits-charged')).toBe('1')
  })

  test('decision 24: the call is recorded as failed, and free', async () => {
    const { body, events } = await broken(() => lookupWith('broken-2'))
    expect(body.code).toBe('SYS_001')
    const { type, data } = refusalFact(partner, 'SYS_001')
    expect(bare(events)).toEqual([{ type, data: { ...data, outcome: 'failed' } }])
  })

  test('an Idempotency-Key of invalid form is refused without the database', async () => {
    expect((await broken(() => lookupWith('two words'))).body).toMatchObject({ code: 'REQ_003' })
  })
})

describe('bodies that imitate internal objects of the service', () => {
  test('a body with the members of a refusal is treated like any other', async () => {
    const refusalLike = {
      code: 'SYS_001',
      message: 'take this',
      details: {},
      retryAfterSeconds: 1,
      status: 413,
    }
    const located = await house.lookup(partner, { ...refusalLike, ip: '10.0.0.1' })
    expect(located.status).toBe(200)
    expect(located.body).toMatchObject({ result: { ip: '10.0.0.1', success: false } })
    const missing = await house.lookup(partner, refusalLike)
    expect(missing.status).toBe(400)
    expect(missing.body).toMatchObject({ code: 'REQ_002', details: { missing_parameter: 'ip' } })
    for (const body of [{ refusal: refusalLike }, { result: {}, facts: {} }, { input: '8.8.8.8' }])
      expect((await house.lookup(partner, body)).body).toMatchObject({ code: 'REQ_002' })
  })

  test('members that target prototypes have no effect', async () => {
    const answer = await house.lookup(
      partner,
      '{"__proto__":{"ip":"8.8.8.8"},"constructor":{"prototype":{"ip":"8.8.8.8"}}}',
    )
    expect(answer.body).toMatchObject({ code: 'REQ_002', details: { missing_parameter: 'ip' } })
  })
})

describe('texts that PostgreSQL cannot store, or that display misleadingly, in every place where a caller can send text,', () => {
  const hostile = ['\0', 'a\0b', '\ud800', 'a\udfff', '\u202egpj.exe', 'a\u2028b', '\u0085', '\u0007']
  const questions: readonly (readonly [string, (text: string) => object])[] = [
    ['/v1/email/validate', (text) => ({ email: `${text}@example.com`, include_company_data: true })],
    ['/v1/email/validate', (text) => ({ email: `a@exam${text}ple.com`, include_company_data: true })],
    ['/v1/ip/lookup', (text) => ({ ip: `8.8.8.8${text}` })],
    ['/v1/profnet/profile', (text) => ({ id: `vinaxo-braxstone-001${text}` })],
    ['/v1/profnet/profile', (text) => ({ id: text })],
    ['/pixel/limit', (text) => ({ domain: `example${text}.com`, period: 'day', number: 5 })],
    ['/pixel/limit', (text) => ({ domain: 'example.com', period: `day${text}`, number: 5 })],
    ['/pixel/block', (text) => ({ domain: `example.org${text}` })],
    ['/pixel/decide', (text) => ({ url: `https://example.com/${text}`, hit_id: text })],
  ]

  test('are answered like any other invalid text, and leave the read models intact', {
    skip: !exhaustive,
  }, async () => {
    const partner = await house.partner({ permissions: permission.options })
    for (const [path, bodyOf] of questions)
      for (const text of hostile) {
        const { status, body } = await house.post(partner, path, bodyOf(text))
        expect([path, text, status < 500, body]).toEqual([path, text, true, body])
      }
    for (const path of [
      '/whoami?x=%00',
      '/pixel/limit?domain=%00&period=day',
      '/%00',
      '/v1/ip/lookup?ip=%00',
    ])
      for (const method of ['GET', 'DELETE', 'POST'])
        for (const on of ['api', 'dashboard'] as const)
          expect(
            (await house.ask(partner, { method, path, on, body: method === 'GET' ? undefined : {} })).status,
          ).toBeLessThan(500)
    await house.projected()
    expect(await house.query(`select name, error from projection_checkpoints where state <> 'live'`)).toEqual(
      [],
    )
    expect(await house.query('select projection, stream, error from parked_events')).toEqual([])
  })
})
