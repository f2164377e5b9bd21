/** The webhooks of an organization on the dashboard, with a receiver on the loopback. */
import { once } from 'node:events'
import { createServer, type IncomingHttpHeaders, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { createOrganization } from '../../src/administration/organizations/organizations.ts'
import { createWebhook } from '../../src/administration/webhooks/webhooks.ts'
import { decodeEvent } from '../../src/event-log/stored-event.ts'
import { operatorStream } from '../../src/events/streams.ts'
import { signedHeaders } from '../../src/webhooks/signature.ts'
import {
  type Browser,
  type DashboardHost,
  openDashboardHost,
  signedIn,
  userWhoChose,
} from './dashboard-host.ts'

let room: DashboardHost
let receiver: Server
let hooks = ''
let status = 204
const received: { readonly headers: IncomingHttpHeaders; readonly body: string }[] = []
let [ours, theirs, base] = ['', '', '']
let partner: Browser
let pia: Parameters<typeof userWhoChose>[1]
let ada: Browser
const actor = 'cli:setup'
const environment = { EGRESS_ALLOW: '127.0.0.1' }

beforeAll(async () => {
  receiver = createServer(async (request, response) => {
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(chunk)
    received.push({ headers: request.headers, body: Buffer.concat(chunks).toString() })
    response.writeHead(status).end('<b>said</b>')
  })
  receiver.listen(0, '127.0.0.1')
  await once(receiver, 'listening')
  hooks = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/a-secret-path`
  room = await openDashboardHost({ environment, partnersAsOperator: true })
  const organization = (name: string) =>
    createOrganization(room.foundation, { name, overdraftLimit: 0n, actor })
  ours = (await organization('Ours')).organizationId
  theirs = (await organization('Theirs')).organizationId
  base = `/organizations/${ours}/webhooks`
  await room.caughtUp()
  pia = { name: 'pia', role: 'partner', organizationId: ours, actor }
  ada = await signedIn(
    room,
    await userWhoChose(room, { name: 'ada', role: 'admin', organizationId: null, actor }),
  )
  partner = await signedIn(room, await userWhoChose(room, pia))
})
afterAll(async () => {
  await room?.close()
  receiver?.closeAllConnections()
  receiver?.close()
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

const secretIn = (body: string): string => /<code id="secret">([^<]+)</.exec(body)?.[1] ?? ''
const idIn = (body: string): string => /wh_[0-9A-Z]{26}/.exec(body)?.[0] ?? ''

/** Sends a test message from the page and returns the page that says what came of it. */
const tested = async (browser: Browser, page: string): Promise<string> => {
  const { statusCode, headers } = await browser.submit(page, {}, `${page}/test`)
  expect(statusCode).toBe(303)
  for (;;) {
    const shown = await browser.get(String(headers.location))
    if (!shown.body.includes('/progress')) return shown.body
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}

const messageTo = async (webhookId: string, state: 'dead' | 'pending' | 'delivered'): Promise<string> => {
  const id = `msg_${Math.random().toString(16).slice(2).padEnd(32, '0').slice(0, 32)}`
  await room.foundation.pool.query(
    `insert into webhook_deliveries (delivery_id, webhook_id, event, payload, state, attempts, created_at, next_attempt_at, last_attempt_at, last_result)
     values ($1, $2, 'checkpoint', '{}', $3, 3, now(), now(), now(), '500 <i>no</i>')`,
    [id, webhookId, state],
  )
  return id
}

describe('adding a webhook', () => {
  test('shows its secret once, is put down with who did it, and lists its host without the path', async () => {
    const url = 'https://hooks.example.com/a-secret-path'
    const added = await partner.submit(base, { url, events: ['balance.low', 'key.expiring'] })
    expect(added.statusCode).toBe(200)
    const [id, secret] = [idIn(added.body), secretIn(added.body)]
    expect(secret).toMatch(/^whsec_[A-Za-z0-9+/=]{44}$/)
    expect(await recorded(id)).toEqual(['WebhookCreated by user:pia'])
    const listed = (await partner.get(base)).body
    expect(listed).toContain(`href="${base}/${id}"`)
    expect(listed).toContain('balance.low, key.expiring')
    expect(listed).not.toContain('a-secret-path')
    const shown = (await partner.get(`${base}/${id}`)).body
    expect(shown).toContain('a-secret-path')
    expect(`${listed}${shown}`).not.toContain(secret)
  })

  test.each([
    ['no URL', { url: '', events: ['balance.low'] }, 'whole URL'],
    ['an address inside', { url: 'https://10.0.0.1/x', events: ['balance.low'] }, 'not an address of the'],
    ['the metadata service', { url: 'https://169.254.169.254/', events: ['checkpoint'] }, 'not an address'],
    ['another scheme', { url: 'file:///etc/passwd', events: ['checkpoint'] }, 'must begin with https'],
    ['a password', { url: 'https://a:b@example.com/', events: ['checkpoint'] }, 'must not hold'],
    [
      'a domain of 300 characters',
      { url: `https://${'a'.repeat(296)}.com/`, events: ['checkpoint'] },
      'whole',
    ],
    [
      'a path that grows',
      { url: `https://example.com/${'é'.repeat(1_500)}`, events: ['checkpoint'] },
      'whole',
    ],
    ['NUL in its host', { url: 'https://exam\u0000ple.com/', events: ['checkpoint'] }, 'whole URL'],
    ['no event', { url: 'https://example.com/', events: [] }, 'Name at least one'],
    ['an event that is none', { url: 'https://example.com/', events: ['x\u0000<b>'] }, 'There is no'],
  ])('%s is refused, with what was typed kept', async (_, fields, said) => {
    const before = (await room.foundation.pool.query('select from webhook_endpoints')).rowCount
    const { statusCode, body } = await partner.submit(base, fields)
    expect(statusCode).toBe(422)
    expect(body).toContain('role="alert"')
    expect(body).toContain(said)
    if (fields.url === 'https://10.0.0.1/x') expect(body).toContain('value="https://10.0.0.1/x"')
    expect((await room.foundation.pool.query('select from webhook_endpoints')).rowCount).toBe(before)
  })
})

test("another organization's webhook, the operator's, and what is no id are not found", async () => {
  const [another, own, mine] = [await made(theirs), await made(null), await made(ours)]
  const delivery = await messageTo(another.webhookId, 'dead')
  for (const browser of [partner, ada])
    for (const id of [another.webhookId, own.webhookId, 'wh_x', 'wh_%00', 'x'.repeat(300)]) {
      expect([id, (await browser.get(`${base}/${id}`)).statusCode]).toEqual([id, 404])
      expect((await browser.get(`${base}/${id}/delete`)).statusCode).toBe(404)
      // The router itself refuses a POST to what is too long for an id.
      if (id.length > 100) continue
      for (const act of ['test', 'pause', 'resume', 'resend', 'rotate', 'delete'])
        expect((await browser.submit(base, {}, `${base}/${id}/${act}`)).statusCode).toBe(404)
    }
  expect((await partner.get(`/organizations/${theirs}/webhooks`)).statusCode).toBe(404)
  // A message of another's webhook, under one's own.
  const page = `${base}/${mine.webhookId}`
  for (const bad of [delivery, 'msg_\u0000', ''])
    expect((await partner.submit(page, { delivery: bad }, `${page}/resend`)).statusCode).toBe(422)
  const { rows } = await room.foundation.pool.query(
    'select state from webhook_deliveries where delivery_id = $1',
    [delivery],
  )
  expect(rows).toEqual([{ state: 'dead' }])
  expect(await recorded(another.webhookId)).toEqual(['WebhookCreated by cli:setup'])
})

describe('a test message', () => {
  test('says what came back, and takes up a webhook that was disabled', async () => {
    const { webhookId, secret } = await made(ours)
    const page = `${base}/${webhookId}`
    status = 500
    const shown = await tested(partner, page)
    expect(shown).toMatch(/gave, after \d+ ms: 500</)
    expect(shown).not.toContain('said')
    const { headers, body } = received[0] ?? { headers: {}, body: '' }
    const [id, atMs] = [String(headers['webhook-id']), Number(headers['webhook-timestamp']) * 1_000]
    expect(headers).toMatchObject(signedHeaders(secret, { id, atMs, body }))
    await room.foundation.pool.query(
      `update webhook_endpoints set disabled_at = now(), disabled_reason = 'it answered 410 Gone' where webhook_id = $1`,
      [webhookId],
    )
    expect((await partner.get(page)).body).toContain('A test message that succeeds takes it up again')
    status = 204
    expect(await tested(partner, page)).toContain('is in use again')
    expect(await recorded(webhookId)).toEqual(['WebhookCreated by cli:setup', 'WebhookResumed by user:pia'])
  })

  test('goes nowhere inside, whatever the address it was made with has become', async () => {
    // Made when its name led elsewhere.
    const { webhookId } = await made(ours, 'https://[::1]:9/x')
    expect(await tested(partner, `${base}/${webhookId}`)).toContain('was not delivered')
    expect(received).toEqual([])
  })
})

describe('what EGRESS_ALLOW exempts', () => {
  test.each([
    ['the partner', () => partner],
    ['an admin', () => ada],
  ])('no webhook of an organization can be made for by %s', async (_, browserOf) => {
    const urls = [hooks, hooks.replace('http:', 'https:'), 'https://127.0.0.1/x']
    for (const url of urls) {
      const { statusCode } = await browserOf().submit(base, { url, events: ['checkpoint'] })
      expect([url, statusCode]).toEqual([url, 422])
    }
  })

  test('is dialled for no webhook of an organization, whatever its name leads to by now', async () => {
    const { webhookId } = await made(ours)
    const strict = await openDashboardHost({ environment, beside: room })
    try {
      const browser = await signedIn(strict, await userWhoChose(room, { ...pia, name: 'pim' }))
      const shown = await tested(browser, `${base}/${webhookId}`)
      expect(shown).toMatch(/gave, after \d+ ms: refused address</)
      expect(received).toEqual([])
    } finally {
      await strict.close()
    }
  })
})

describe('a webhook that there is', () => {
  test('is paused and resumed once each', async () => {
    const { webhookId } = await made(ours)
    const page = `${base}/${webhookId}`
    expect((await partner.submit(page, {}, `${page}/resume`)).statusCode).toBe(422)
    expect((await partner.submit(page, {}, `${page}/pause`)).headers.location).toBe(page)
    expect((await partner.get(page)).body).toContain('<span class="mark">paused</span>')
    expect((await partner.submit(page, {}, `${page}/pause`)).statusCode).toBe(422)
    expect((await partner.submit(page, {}, `${page}/resume`)).statusCode).toBe(303)
    expect((await partner.get(page)).body).not.toContain('<span class="mark">paused</span>')
    expect(await recorded(webhookId)).toEqual([
      'WebhookCreated by cli:setup',
      'WebhookPaused by user:pia',
      'WebhookResumed by user:pia',
    ])
  })

  test('gets a new secret, and is signed with both for a while', async () => {
    const { webhookId, secret: former } = await made(ours)
    const page = `${base}/${webhookId}`
    expect((await partner.submit(page, { grace: 'for ever' }, `${page}/rotate`)).statusCode).toBe(422)
    const secret = secretIn((await partner.submit(page, { grace: '1h' }, `${page}/rotate`)).body)
    expect(secret).toMatch(/^whsec_/)
    await tested(partner, page)
    const last = async (secrets: readonly string[]) => {
      const { headers, body } = received.at(-1) ?? { headers: {}, body: '' }
      const [id, atMs] = [String(headers['webhook-id']), Number(headers['webhook-timestamp']) * 1_000]
      expect(headers).toMatchObject(signedHeaders(secrets, { id, atMs, body }))
    }
    await last([secret, former])
    const next = secretIn((await partner.submit(page, { grace: '0s' }, `${page}/rotate`)).body)
    await tested(partner, page)
    await last([next])
    expect(await recorded(webhookId)).toEqual([
      'WebhookCreated by cli:setup',
      'WebhookSecretRotated by user:pia',
      'WebhookSecretRotated by user:pia',
    ])
  })

  test('lists its messages with what came back, and sends one again', async () => {
    const { webhookId } = await made(ours)
    const page = `${base}/${webhookId}`
    const delivery = await messageTo(webhookId, 'dead')
    const { body } = await partner.get(page)
    expect(body).toContain('500 &lt;i&gt;no&lt;/i&gt;')
    expect(body).toContain('given up')
    expect((await partner.submit(page, { delivery }, `${page}/resend`)).statusCode).toBe(303)
    const { rows } = await room.foundation.pool.query(
      'select state, attempts from webhook_deliveries where delivery_id = $1',
      [delivery],
    )
    expect(rows).toEqual([{ state: 'pending', attempts: 0 }])
  })

  test('is removed after a page that says what that means', async () => {
    const { webhookId } = await made(ours)
    await messageTo(webhookId, 'pending')
    const asked = `${base}/${webhookId}/delete`
    expect((await partner.get(asked)).body).toContain('1 message that waits is dropped')
    expect((await partner.submit(asked, {})).headers.location).toBe(base)
    expect((await partner.get(`${base}/${webhookId}`)).statusCode).toBe(404)
    expect(await recorded(webhookId)).toEqual(['WebhookCreated by cli:setup', 'WebhookDeleted by user:pia'])
  })
})
