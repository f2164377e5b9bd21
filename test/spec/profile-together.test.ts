/** Many callers ask for one person together (Specification 4.3, decisions 11 and 13): the source is asked once, each call is charged. */
import { Agent, createServer, request, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import pino from 'pino'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Foundation, openFoundation } from '../../src/foundation/foundation.ts'
import type { App } from '../../src/start/app.ts'
import { type House, openHouse } from '../support/house.ts'

const callers = 400
/** No process refuses any of its first 256 calls in progress, even on a busy machine. */
const processes = 2
/** If the callers need longer than this, the upstream answers before all of them have asked. */
const upstreamPatienceMs = 2_000

let upstream: Server
let house: House
const others: { readonly foundation: Foundation; readonly app: App }[] = []
let asked = 0
const everybodyAsked = Promise.withResolvers<void>()

beforeAll(async () => {
  upstream = createServer((_, response) => {
    asked++
    const late = setTimeout(everybodyAsked.resolve, upstreamPatienceMs)
    void everybodyAsked.promise.then(() => {
      clearTimeout(late)
      response.writeHead(200, { 'content-type': 'application/json' })
      response.end(JSON.stringify({ lid: 'zorvina', firstname: 'Zorvina', lastname: 'Quillfeather' }))
    })
  })
  await new Promise<void>((resolve) => upstream.listen(0, '127.0.0.1', resolve))
  const { port } = upstream.address() as AddressInfo
  house = await openHouse({
    environment: {
      PROFILE_PROVIDER: 'http',
      PROFILE_HTTP_URL: `http://127.0.0.1:${port}/{lid}`,
      EGRESS_ALLOW: '127.0.0.0/8',
    },
  })
  const logger = pino({ level: 'silent' })
  while (others.length < processes - 1) {
    const foundation = await openFoundation(house.config, { logger })
    others.push({ foundation, app: await house.another({ foundation }) })
  }
})
afterAll(async () => {
  for (const { foundation, app } of others) {
    await app.close()
    await foundation.close()
  }
  await house?.close()
  upstream?.closeAllConnections()
  await new Promise((resolve) => upstream?.close(resolve))
})

type Told = { readonly status: number; readonly charged: unknown; readonly body: Record<string, unknown> }

const agent = new Agent({ maxSockets: callers })

/** `sent` is called when the request has been sent. */
const ask = (url: string, apiKey: string, sent: () => void): Promise<Told> =>
  new Promise((resolve, reject) => {
    const question = request(`${url}/v1/profnet/profile`, {
      agent,
      method: 'POST',
      headers: { 'x-api-key': apiKey, 'content-type': 'application/json' },
    })
    question.on('error', reject)
    question.on('finish', sent)
    question.on('response', (response) => {
      let text = ''
      response.setEncoding('utf8')
      response.on('data', (chunk: string) => {
        text += chunk
      })
      response.on('end', () =>
        resolve({
          status: response.statusCode ?? 0,
          charged: response.headers['credits-charged'],
          body: JSON.parse(text) as Record<string, unknown>,
        }),
      )
    })
    question.end('{"id":"zorvina","cached":false}')
  })

test(`${callers} simultaneous calls for fresh data of one person, through ${processes} processes: asked once, answered and charged ${callers} times`, async () => {
  const partner = await house.partner({
    credits: String(5 * callers),
    permissions: ['profnet_scraping'],
    limits: { requests_per_minute: 10 * callers, requests_per_day: 100 * callers },
  })
  const urls = [house.apiUrl, ...others.map(({ app }) => app.apiUrl ?? '')]
  let left = callers
  const told = await Promise.all(
    Array.from({ length: callers }, (_, n) =>
      ask(urls[n % urls.length] ?? '', partner.apiKey, () => {
        left--
        if (left === 0) everybodyAsked.resolve()
      }),
    ),
  )
  agent.destroy()

  const kinds = new Set(told.map(({ status, charged }) => `${status}, charged ${charged}`))
  expect([...kinds]).toEqual(['200, charged 5'])
  for (const { body } of told) {
    expect(Object.keys(body)).toEqual(['result', 'processing_time_ms', 'request_id'])
    expect(body.result).toMatchObject({ lid: 'zorvina', lastname: 'Quillfeather' })
  }
  expect(asked).toBe(1)

  const ledger = await house.eventsOf(partner.organizationId)
  const calls = ledger.filter(({ type }) => type === 'KeyUsed')
  const charges = ledger.filter(({ type }) => type === 'CreditCharged')
  expect(new Set(calls.map(({ metadata }) => metadata.request_id))).toEqual(
    new Set(told.map(({ body }) => body.request_id)),
  )
  expect({ calls: calls.length, charges: charges.length }).toEqual({ calls: callers, charges: callers })
  expect(new Set(charges.map(({ data }) => `${data.rule} ${data.amount}`))).toEqual(
    new Set(['profile.fresh 5']),
  )
  for (const { id, revision } of calls) {
    const charge = ledger[revision + 1]
    expect({ type: charge?.type, cause: charge?.metadata.causation_id }).toEqual({
      type: 'CreditCharged',
      cause: id,
    })
  }
  const fetched = await house.query(
    "select sum(count)::int as events from log_segments where family = 'profile'",
  )
  expect(fetched).toEqual([{ events: 1 }])
})
