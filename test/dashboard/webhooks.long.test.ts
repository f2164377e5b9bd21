/** An organization's webhooks on the dashboard, with a receiver on loopback. */
import { once } from 'node:events'
import { createServer, type IncomingHttpHeaders } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeEach, describe, expect, test } from 'vitest'
import { createWebhook } from '../../src/administration/webhooks/webhooks.ts'
import { decodeEvent } from '../../src/event-log/stored-event.ts'
import { operatorStream } from '../../src/events/streams.ts'
import { signedHeaders } from '../../src/webhooks/signature.ts'
import { openOrganization } from '../support/partners.ts'
import {
  type Browser,
  browserOf,
  openDashboardHost,
  signedIn,
  userWhoChose,
  waited,
} from './dashboard-host.ts'

let status = 204
const received: { readonly headers: IncomingHttpHeaders; readonly body: string }[] = []
const actor = 'cli:setup'
const environment = { EGRESS_ALLOW: '127.0.0.1' }

const receiver = createServer(async (request, response) => {
  const chunks: Buffer[] = []
  for await (const chunk of request) chunks.push(chunk)
  received.push({ headers: request.headers, body: Buffer.concat(chunks).toString() })
  response.writeHead(status).end('<b>said</b>')
})
receiver.listen(0, '127.0.0.1')
await once(receiver, 'listening')
const hooks = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/a-secret-path`
const room = await openDashboardHost({ environment, partnersAsOperator: true })
const ours = await openOrganization(room.foundation, 'Ours')
const theirs = await openOrganization(room.foundation, 'Theirs')
const forms = `/organizations/${ours}/webhook`
await room.caughtUp()
const pia = { name: 'pia', role: 'partner', organizationId: ours } as const
const ada = await browserOf(room, { name: 'ada', role: 'admin' })
const partner = await browserOf(room, pia)
afterAll(async () => {
  await room.close()
  receiver.closeAllConnections()
  receiver.close()
})
beforeEach(() => {
  status = 204
  received.length = 0
})

const made = (organizationId: string | null, url = hooks) =>
  createWebhook(room.foundation, { organizationId, url: new URL(url), events: ['checkpoint'], actor })

const recorded = async (webhookId: string) =>
  (await room.foundation.eventLog.read(operatorStream, { direction: 'forwards', from: 0, max: 500 }))
    .map(decodeEvent)
    .filter(({ data }) => 'webhook_id' in data && data.webhook_id === webhookId)
    .map(({ type, metadata }) => `${type} by ${metadata.actor}`)

/** Sends a test message and returns the page with its result. */
const tested = async (browser: Browser, webhook: string): Promise<string> =>
  (await waited(browser, await browser.submit(`${forms}/test`, { webhook }))).body

const messageTo = async (webhookId: string, state: 'dead' | 'pending' | 'delivered'): Promise<string> => {
  const id = `msg_${Math.random().toString(16).slice(2).padEnd(32, '0').slice(0, 32)}`
  await room.foundation.pool.query(
    `insert into webhook_deliveries (delivery_id, webhook_id, event, payload, state, attempts, created_at, next_attempt_at, last_attempt_at, last_result)
     values ($1, $2, 'checkpoint', '{}', $3, 3, now(), now(), now(), '500 <i>no</i>')`,
    [id, webhookId, state],
  )
  return id
}

test('a list of webhooks has their hosts without the paths, which can be secret, and no page has a signing secret', async () => {
  const { webhookId, secret } = await made(ours)
  const listed = (await partner.get(`${forms}/list`)).body
  expect(listed).toContain(`href="${forms}/show?webhook=${webhookId}"`)
  expect(listed).not.toContain('a-secret-path')
  const shown = (await partner.get(`${forms}/show?webhook=${webhookId}`)).body
  expect(shown).toContain('a-secret-path')
  expect(`${listed}${shown}`).not.toContain(secret)
})

test("another organization's webhook, the operator's webhook, and invalid ids are not found", async () => {
  const [another, own] = [await made(theirs), await made(null)]
  for (const browser of [partner, ada])
    for (const webhook of [another.webhookId, own.webhookId, 'wh_x', 'wh_\0', 'x'.repeat(90)]) {
      for (const page of ['show', 'deliveries']) {
        const { statusCode } = await browser.get(`${forms}/${page}?webhook=${encodeURIComponent(webhook)}`)
        expect([page, webhook, statusCode]).toEqual([page, webhook, 422])
      }
      for (const act of ['test', 'pause', 'resume', 'rotate-secret', 'delete']) {
        const { statusCode } = await browser.submit(`${forms}/${act}`, { webhook, confirmed: 'yes' })
        expect([act, webhook, statusCode]).toEqual([act, webhook, 422])
      }
    }
  expect((await partner.get(`/organizations/${theirs}/webhook/list`)).statusCode).toBe(404)
  // A message to another organization's webhook.
  const delivery = await messageTo(another.webhookId, 'dead')
  for (const bad of [delivery, 'msg_\u0000', ''])
    expect((await partner.submit(`${forms}/resend`, { delivery: bad })).statusCode).toBe(422)
  const { rows } = await room.foundation.pool.query(
    'select state from webhook_deliveries where delivery_id = $1',
    [delivery],
  )
  expect(rows).toEqual([{ state: 'dead' }])
  for (const { webhookId } of [another, own])
    expect(await recorded(webhookId)).toEqual(['WebhookCreated by cli:setup'])
})

describe('a test message', () => {
  test('shows the response, and resumes a disabled webhook', async () => {
    const { webhookId, secret } = await made(ours)
    status = 500
    const shown = await tested(partner, webhookId)
    expect(shown).toContain('<dt>Result</dt><dd>500</dd>')
    expect(shown).not.toContain('said')
    const { headers, body } = received[0] ?? { headers: {}, body: '' }
    const [id, atMs] = [String(headers['webhook-id']), Number(headers['webhook-timestamp']) * 1_000]
    expect(headers).toMatchObject(signedHeaders(secret, { id, atMs, body }))
    await room.foundation.pool.query(
      `update webhook_endpoints set disabled_at = now(), disabled_reason = 'the receiver answered 410 Gone' where webhook_id = $1`,
      [webhookId],
    )
    expect((await partner.get(`${forms}/show?webhook=${webhookId}`)).body).toContain(
      'Enable with a test message',
    )
    status = 204
    expect(await tested(partner, webhookId)).toContain('<dt>Enabled again</dt><dd>yes</dd>')
    expect(await recorded(webhookId)).toEqual(['WebhookCreated by cli:setup', 'WebhookResumed by user:pia'])
  })
})

describe('addresses exempted by EGRESS_ALLOW', () => {
  test.each([
    ['the partner', () => partner],
    ['an admin', () => ada],
  ])("are refused for an organization's webhook that %s created", async (_, browserOf) => {
    const urls = [hooks, hooks.replace('http:', 'https:'), 'https://127.0.0.1/x']
    for (const url of urls) {
      const { statusCode } = await browserOf().submit(`${forms}/create`, { url, events: ['checkpoint'] })
      expect([url, statusCode]).toEqual([url, 422])
    }
  })

  test("are never contacted for an organization's webhook, even if its name now leads there", async () => {
    const { webhookId } = await made(ours)
    const strict = await openDashboardHost({ environment, beside: room })
    try {
      const browser = await signedIn(strict, await userWhoChose(room, { ...pia, name: 'pim' }))
      expect(await tested(browser, webhookId)).toContain('<dt>Result</dt><dd>refused address</dd>')
      expect(received).toEqual([])
    } finally {
      await strict.close()
    }
  })
})

test("a partner's forms are limited, so that the operators' stream does not grow without bound, and another user is not affected", async () => {
  const { eventLog } = room.foundation
  const { webhookId } = await createWebhook(room.foundation, {
    organizationId: ours,
    url: new URL(hooks),
    events: ['balance.low'],
    actor,
  })
  const busy = await browserOf(room, { ...pia, name: 'pia-busy' })
  const revision = async () => (await eventLog.lastRevision(operatorStream)) ?? -1
  const before = await revision()
  const submit = async (verb: string) => busy.submit(`${forms}/${verb}`, { webhook: webhookId })
  const statuses = [(await submit('pause')).statusCode]
  // As if this minute were an hour, in which the person has already sent 58 forms.
  const { rowCount } = await room.foundation.pool.query(
    `update dashboard_attempts set points = 58, expire = expire + 3600000
      where key = (select key from dashboard_attempts where key like 'partner:%' order by expire desc limit 1)`,
  )
  expect(rowCount).toBe(1)
  for (const verb of ['resume', 'pause', 'resume', 'pause']) {
    const { statusCode, headers } = await submit(verb)
    statuses.push(statusCode)
    if (statusCode === 429) expect(headers['retry-after']).toMatch(/^\d+$/)
  }
  expect(statuses).toEqual([200, 200, 200, 429, 429])
  expect((await revision()) - before).toBe(3)
  expect((await partner.submit(`${forms}/resume`, { webhook: webhookId })).statusCode).toBe(200)
})
