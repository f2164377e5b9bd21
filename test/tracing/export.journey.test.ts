/** Real processes send spans to a receiver on a loopback port: their traces, and what they must not contain. */
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { parseConfig } from '../../src/config.ts'
import { houseForFile, places } from '../support/house.ts'
import { type OtlpReceiver, openOtlpReceiver, type ReceivedSpan } from '../support/otlp-receiver.ts'
import { eventually, lookup, type Service, startService } from '../support/service.ts'

const trace = '4bf92f3577b34da6a3ce929d0e0e4736'
const parent = '00f067aa0ba902b7'
/** The SDK rounds the start of each span to a millisecond, so the times of two spans can be compared only to a millisecond. */
const spanClockNs = 1_000_000n
const email = 'mary.shelley@geneva.example'

// The service's own projector folds events, so the house needs none.
const house = await houseForFile({ environment: { ROLES: 'api,dashboard' } })
const partner = await house.partner({ credits: '100' })

const start = (endpoint: string, more: Readonly<Record<string, string>> = {}): Promise<Service> => {
  const { DATABASE_URL = '', SECRET_KEY = '', DATABASE_MIGRATION_URL = '' } = house.config
  return startService({
    DATABASE_URL,
    DATABASE_MIGRATION_URL,
    SECRET_KEY,
    EMAIL_PROBE: 'off',
    ROLES: 'api',
    KEY_DIR: join(house.config.DATA_DIR, 'keys'),
    OTEL_EXPORTER_OTLP_ENDPOINT: endpoint,
    ...more,
  })
}

const attributesOf = ({ attributes }: ReceivedSpan): Record<string, unknown> =>
  Object.fromEntries(attributes.map(({ key, value }) => [key, Object.values(value)[0]]))

describe('a service with a collector endpoint', () => {
  let receiver: OtlpReceiver
  let service: Service

  beforeAll(async () => {
    receiver = await openOtlpReceiver()
    // People often write the URL with a slash at the end.
    service = await start(`${receiver.url}/`, {
      ROLES: 'api,projector',
      OTEL_EXPORTER_OTLP_HEADERS: 'x-tenant=a%20b,x-other=c',
    })
  })
  afterAll(async () => {
    await service?.end('SIGTERM')
    await receiver?.close()
  })

  const spansOf = (traceId: string, count: number): Promise<ReceivedSpan[]> =>
    eventually(async () => {
      const found = receiver.spans().filter((span) => span.traceId === traceId)
      return found.length >= count ? found : undefined
    })

  test("sends the spans of a call as part of the partner's trace", async () => {
    const answer = await lookup(service.apiUrl, partner.apiKey, places.london, {
      traceparent: `00-${trace}-${parent}-01`,
    })
    expect(answer.status).toBe(200)
    const spans = await spansOf(trace, 3)
    const named = new Map(spans.map((span) => [span.name, span]))
    expect([...named.keys()].sort()).toEqual(['append', 'gather', 'ip_lookup'])
    const call = named.get('ip_lookup')
    // Kind 2 is a server's span.
    expect(call).toMatchObject({ parentSpanId: parent, kind: 2 })
    expect(call === undefined ? {} : attributesOf(call)).toEqual({
      'http.request.method': 'POST',
      'http.route': '/v1/ip/lookup',
      'http.response.status_code': 200,
      'enrichment.request_id': answer.body.request_id,
      'enrichment.capability': 'ip_lookup',
    })
    for (const name of ['gather', 'append']) {
      const inner = named.get(name)
      expect(inner).toMatchObject({ parentSpanId: call?.spanId, attributes: [] })
      expect(BigInt(inner?.startTimeUnixNano ?? 0)).toBeGreaterThanOrEqual(
        BigInt(call?.startTimeUnixNano ?? 0),
      )
      expect(BigInt(inner?.endTimeUnixNano ?? 0)).toBeLessThan(
        BigInt(call?.endTimeUnixNano ?? 0) + spanClockNs,
      )
    }
    const events = await house.eventsOf(partner.organizationId)
    expect(events.at(-1)?.metadata).toMatchObject({ trace_id: trace, request_id: answer.body.request_id })
  })

  test('sends no span of a call if the partner does not record its trace', async () => {
    const silent = trace.replace('4b', '5b')
    const recordedTrace = trace.replace('4b', '6b')
    for (const [id, flags] of [
      [silent, '00'],
      [recordedTrace, '01'],
    ])
      await lookup(service.apiUrl, partner.apiKey, places.munich, {
        traceparent: `00-${id}-${parent}-${flags}`,
      })
    await spansOf(recordedTrace, 3)
    expect(receiver.spans().filter(({ traceId }) => traceId === silent)).toEqual([])
  })

  test('includes the error code of a refusal, and starts a new trace for a call without one', async () => {
    const { body } = await lookup(service.apiUrl, partner.apiKey, 'nonsense')
    const refused = await eventually(async () =>
      receiver.spans().find((span) => attributesOf(span)['enrichment.request_id'] === body.request_id),
    )
    expect(attributesOf(refused)).toMatchObject({
      'http.response.status_code': 400,
      'enrichment.code': 'IP_001',
    })
    expect(refused.parentSpanId ?? '').toBe('')
    expect(refused.status.code ?? 0).toBe(0)
    const batch = await eventually(async () =>
      receiver.spans().find(({ name }) => name === 'projector batch'),
    )
    expect(batch.parentSpanId ?? '').toBe('')
    expect(Number(attributesOf(batch)['enrichment.events'])).toBeGreaterThan(0)
  })

  test('includes no person, address, key or organization', async () => {
    const validated = await fetch(`${service.apiUrl}/v1/email/validate`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-api-key': partner.apiKey, 'user-agent': 'a-partner' },
      body: JSON.stringify({ email }),
    })
    const { request_id: requestId } = (await validated.json()) as { request_id: string }
    await eventually(async () => (receiver.text().includes(requestId) ? true : undefined))
    for (const word of [
      email,
      'geneva.example',
      places.london,
      places.munich,
      '127.0.0.1',
      'nonsense',
      'a-partner',
    ])
      expect([word, receiver.text().includes(word)]).toEqual([word, false])
    for (const word of [partner.apiKey, partner.keyId, partner.organizationId])
      expect([word, receiver.text().includes(word)]).toEqual([word, false])
  })

  test('sends them to the configured endpoint with the configured headers', () => {
    expect(new Set(receiver.requests.map(({ path }) => path))).toEqual(new Set(['/v1/traces']))
    expect(receiver.requests[0]?.headers).toMatchObject({ 'x-tenant': 'a b', 'x-other': 'c' })
    expect(receiver.text()).toContain('enrichment-ledger')
  })
})

test('spans that wait at the end are sent, and a receiver that hangs does not keep the process from ending', async () => {
  const receiver = await openOtlpReceiver()
  try {
    const first = await start(receiver.url)
    const { body } = await lookup(first.apiUrl, partner.apiKey, places.london)
    expect(await first.end('SIGTERM')).toBe(0)
    expect(receiver.text()).toContain(String(body.request_id))
    receiver.hang()
    const second = await start(receiver.url)
    expect((await lookup(second.apiUrl, partner.apiKey, places.london)).status).toBe(200)
    const asked = performance.now()
    expect(await second.end('SIGTERM')).toBe(0)
    expect(performance.now() - asked).toBeLessThan(15_000)
  } finally {
    await receiver.close()
  }
})

test('an unreachable receiver is logged, and calls continue', async () => {
  const receiver = await openOtlpReceiver()
  await receiver.close()
  const service = await start(receiver.url)
  try {
    for (let n = 0; n < 20; n++)
      expect((await lookup(service.apiUrl, partner.apiKey, places.london)).status).toBe(200)
    await eventually(async () => (service.output().includes('tracing: sending spans') ? true : undefined))
  } finally {
    expect(await service.end('SIGTERM')).toBe(0)
  }
})

test.each(['localhost:4318', 'ftp://x', 'http://collector/?x=1'])(
  '%s is not a valid collector endpoint',
  (endpoint) => {
    expect(() => parseConfig({ OTEL_EXPORTER_OTLP_ENDPOINT: endpoint })).toThrow(
      'OTEL_EXPORTER_OTLP_ENDPOINT: the URL of a collector',
    )
  },
)
