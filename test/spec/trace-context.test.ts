/** A partner's `traceparent` is stored with the call's events and shown again, but never used for a decision. */
import { expect, test } from 'vitest'
import { explainCall } from '../../src/administration/ledgers/explain.ts'
import { verifyLedger } from '../../src/ledger/check/verify.ts'
import { houseForFile, places, sendRaw } from '../support/house.ts'

const trace = '4bf92f3577b34da6a3ce929d0e0e4736'
const traceparent = `00-${trace}-00f067aa0ba902b7-01`

const house = await houseForFile()
const partner = await house.partner({ credits: '100' })

const traces = (events: readonly { readonly metadata: object }[]) =>
  events.map(({ metadata }) => ('trace_id' in metadata ? metadata.trace_id : null))

test('every event of the call names the trace, charged or refused', async () => {
  const charged = await house.lookup(partner, { ip: places.london }, { traceparent })
  expect(charged.events.map(({ type }) => type)).toEqual(['KeyUsed', 'CreditCharged'])
  expect(traces(charged.events)).toEqual([trace, trace])
  const refused = await house.lookup(partner, { ip: 'nonsense' }, { traceparent })
  expect(refused.status).toBe(400)
  expect(traces(refused.events)).toEqual([trace])
  expect([...charged.headers.keys()]).not.toContain('traceresponse')
})

test('a replay has the trace of its own request', async () => {
  const key = { 'idempotency-key': 'once' }
  const other = trace.replaceAll('4', '5')
  const first = await house.lookup(partner, { ip: places.london }, { ...key, traceparent })
  const again = await house.lookup(
    partner,
    { ip: places.london },
    { ...key, traceparent: traceparent.replace(trace, other) },
  )
  expect(again.headers.get('idempotent-replayed')).toBe('true')
  expect([traces(first.events), traces(again.events)]).toEqual([[trace, trace], [other]])
})

test('an invalid header is ignored, and the answer is the same as without a header', async () => {
  for (const broken of ['nonsense', `${traceparent}-more`, `00-${'0'.repeat(32)}-00f067aa0ba902b7-01`, '"']) {
    const answer = await house.lookup(partner, { ip: places.london }, { traceparent: broken })
    expect([answer.status, traces(answer.events)]).toEqual([200, [null, null]])
    // Without a `traceparent` the member is absent, so the event has the same bytes as in earlier releases.
    for (const { metadata } of answer.events) expect(Object.keys(metadata)).not.toContain('trace_id')
  }
})

test('two headers count as none', async () => {
  const body = JSON.stringify({ ip: places.london })
  const before = await house.eventsOf(partner.organizationId)
  const [answer] = await sendRaw(
    house.apiUrl,
    `POST /v1/ip/lookup HTTP/1.1\r\nhost: x\r\nx-api-key: ${partner.apiKey}\r\ntraceparent: ${traceparent}\r\n` +
      `traceparent: ${traceparent}\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
  )
  expect(answer?.status).toBe(200)
  const events = await house.eventsOf(partner.organizationId)
  expect(traces(events.slice(before.length))).toEqual([null, null])
})

test('the call’s details and its explanation show it', async () => {
  const { body } = await house.lookup(partner, { ip: places.london }, { traceparent })
  const told = await house.ask(partner, { method: 'GET', path: `/v1/calls/${body.request_id}` })
  expect(told.body.result).toMatchObject({ request_id: body.request_id, trace_id: trace })
  const requestId = String(body.request_id)
  expect(await explainCall(house.foundation, { requestId })).toMatchObject({ trace_id: trace })
})

test('the digests of the ledger cover it', async () => {
  expect((await verifyLedger(house.foundation.eventLog, partner.organizationId)).fault).toBeNull()
})
