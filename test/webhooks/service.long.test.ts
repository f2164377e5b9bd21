/**
 * The whole path through the running service: a webhook is created, an event happens, and a receiver on loopback gets the
 * message. A second receiver never answers. Partners' webhooks are never sent to loopback, so the webhooks in this test belong to
 * the operator, whose messages may be sent to addresses in `EGRESS_ALLOW`.
 */
import { once } from 'node:events'
import { createServer, type IncomingHttpHeaders } from 'node:http'
import type { AddressInfo } from 'node:net'
import pg from 'pg'
import { afterAll, describe, expect, test, vi } from 'vitest'
import { webhookEventsOf, webhookUrlOf } from '../../src/administration/webhooks/webhook-request.ts'
import {
  createWebhook,
  deleteWebhook,
  listDeliveries,
  listWebhooks,
  resendDelivery,
  testWebhook,
} from '../../src/administration/webhooks/webhooks.ts'
import { parseCredits } from '../../src/billing/money.ts'
import { createEgressGuard } from '../../src/egress/guard.ts'
import { decodeEvent } from '../../src/event-log/stored-event.ts'
import { operatorStream } from '../../src/events/streams.ts'
import type { WebhookEvent } from '../../src/events/webhooks.ts'
import { openOutside } from '../../src/start/capabilities.ts'
import { tellOfExpiringKeys } from '../../src/webhooks/expiring-keys.ts'
import { signedHeaders } from '../../src/webhooks/signature.ts'
import { houseForFile, places, until } from '../support/house.ts'
import { eventually } from '../support/service.ts'

vi.mock(import('../../src/start/capabilities.ts'), async (importOriginal) => {
  const original = await importOriginal()
  const openOutside: typeof original.openOutside = (config) => {
    const outside = original.openOutside(config)
    return { ...outside, post: outside.postOwn }
  }
  return { ...original, openOutside }
})

type Received = { readonly headers: IncomingHttpHeaders; readonly body: string }

const deadlineMs = 60_000
const received: Received[] = []

const make = (path: string, events: readonly WebhookEvent[], organizationId: string | null) =>
  createWebhook(house.foundation, { organizationId, url: new URL(path, base), events, actor: 'cli' })

const receiver = createServer(async (request, response) => {
  if (request.url === '/silent') return
  const chunks: Buffer[] = []
  for await (const chunk of request) chunks.push(chunk)
  received.push({ headers: request.headers, body: Buffer.concat(chunks).toString() })
  response.writeHead(204).end()
})
receiver.listen(0, '127.0.0.1')
await once(receiver, 'listening')
const base = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}`
// No scheduled jobs run, because they would send messages and warn about keys between two steps of a test.
const house = await houseForFile({ environment: { EGRESS_ALLOW: '127.0.0.1' } })
const partner = await house.partner({ credits: '100' })
const silent = await make('/silent', ['price.changed'], partner.organizationId)
const good = await make('/a-secret-path', ['price.changed', 'balance.low'], partner.organizationId)
await make('/outside', ['checkpoint'], null)
afterAll(async () => {
  receiver?.closeAllConnections()
  receiver?.close()
})

const publish = async (hours: number): Promise<void> => {
  const [book] = (await house.recorded())
    .map(decodeEvent)
    .flatMap(({ type, data }) => (type === 'PriceBookPublished' ? [data] : []))
  if (book === undefined) throw new Error('there is no price book')
  const effective_from = new Date(Date.now() + hours * 3_600_000).toISOString()
  await house.publishPriceBook({ rules: book.rules, effective_from })
}

type Message = { readonly type: string; readonly data: Readonly<Record<string, unknown>> }

const receivedSoon = (isAwaited: (message: Message) => boolean): Promise<Received & { message: Message }> =>
  eventually(
    async () =>
      received
        .map((one) => ({ ...one, message: JSON.parse(one.body) as Message }))
        .find(({ message }) => isAwaited(message)),
    deadlineMs,
  )

describe('a webhook', { shuffle: false }, () => {
  test('gets events, signed, while another one never answers', async () => {
    const { organizationId } = partner
    const { foundation } = house
    const worker = await house.another({ config: { ROLES: ['jobs'] } })
    try {
      await foundation.ledger.submit(organizationId, {
        key: 'threshold',
        atMs: Date.now(),
        actor: 'cli',
        kind: 'set_threshold',
        amount: parseCredits('100'),
      })
      await publish(24)
      expect(await house.lookup(partner, { ip: places.london })).toMatchObject({ status: 200 })
      const { size } = await foundation.checkpoints.make()
      const [changed, low, signed] = await Promise.all([
        receivedSoon(({ type }) => type === 'price.changed'),
        receivedSoon(({ type }) => type === 'balance.low'),
        // At seven minutes past the hour, the worker makes another checkpoint.
        receivedSoon(({ type, data }) => type === 'checkpoint' && data.size === size),
      ])
      expect(changed.message.data).toMatchObject({
        organization_id: organizationId,
        change: 'price_book',
        price_book_version: 2,
      })
      expect(low.message.data).toEqual({
        organization_id: organizationId,
        balance: '99',
        threshold: '100',
      })
      // The message contains the checkpoint exactly as in the event log, so that it can be stored elsewhere.
      const checkpoints = await foundation.eventLog.read('checkpoint', { max: 100 })
      const notes = checkpoints.map(({ data }) => JSON.parse(data)).filter((one) => one.size === size)
      expect(notes.map(({ note }) => ({ organization_id: null, size, note }))).toEqual([signed.message.data])
      const { headers, body } = low
      const id = String(headers['webhook-id'])
      const atMs = Number(headers['webhook-timestamp']) * 1_000
      expect(headers).toMatchObject(signedHeaders(good.secret, { id, atMs, body }))
      const statesOf = async (webhookId: string) =>
        (await listDeliveries(foundation, { webhookId, state: null })).map(({ state }) => state)
      // The delivery's state is stored after the receiver has got the message.
      await eventually(async () =>
        (await statesOf(good.webhookId)).join() === 'delivered,delivered' ? true : undefined,
      )
      expect(await statesOf(silent.webhookId)).toEqual(['pending'])
    } finally {
      await worker.close()
    }
  })

  test('gets one message about an expiring key', async () => {
    const { foundation } = house
    const { organizationId } = partner
    const { webhookId } = await make('/other', ['key.expiring'], organizationId)
    const expiresAt = new Date(Date.now() + 3 * 24 * 3_600_000).toISOString()
    const { keyId } = await house.key(organizationId, { expiresAt })
    const receivers = await eventually(async () => {
      const ids = await tellOfExpiringKeys(foundation.pool, Date.now())
      return ids.length > 0 ? ids : undefined
    })
    expect(receivers).toEqual([webhookId])
    expect(await tellOfExpiringKeys(foundation.pool, Date.now())).toEqual([])
    const rows = await house.query('select payload from webhook_deliveries where webhook_id = $1', [
      webhookId,
    ])
    expect(rows.map(({ payload }) => JSON.parse(String(payload)).data)).toEqual([
      {
        organization_id: organizationId,
        api_key_id: keyId,
        expires_at: expiresAt,
        days_before: 7,
        successor_api_key_id: null,
      },
    ])
    await deleteWebhook(foundation, { webhookId, actor: 'cli' })
  })

  test('with too many waiting messages gets the one about an expiring key later, and drops nothing', async () => {
    const { foundation } = house
    const { organizationId } = partner
    const { webhookId } = await make('/full', ['key.expiring'], organizationId)
    await house.query('update webhook_endpoints set paused_at = now() where webhook_id = $1', [webhookId])
    await house.query(
      `insert into webhook_deliveries (delivery_id, webhook_id, event, payload, created_at, next_attempt_at)
       select 'msg_' || n, $1, 'key.expiring', '{}', now(), now() from generate_series(1, 1000) n`,
      [webhookId],
    )
    const { keyId } = await house.key(organizationId, {
      expiresAt: new Date(Date.now() + 3 * 24 * 3_600_000).toISOString(),
    })
    await until('the key is listed', async () => {
      const rows = await house.query('select from api_keys where key_id = $1', [keyId])
      return rows.length > 0
    })
    for (let n = 0; n < 2; n++) expect(await tellOfExpiringKeys(foundation.pool, Date.now())).toEqual([])
    const dropped = 'select dropped::int from webhook_endpoints where webhook_id = $1'
    expect(await house.query(dropped, [webhookId])).toEqual([{ dropped: 0 }])
    await house.query(`delete from webhook_deliveries where delivery_id = 'msg_1'`)
    expect(await tellOfExpiringKeys(foundation.pool, Date.now())).toEqual([webhookId])
    await deleteWebhook(foundation, { webhookId, actor: 'cli' })
  })

  test('gets its message about an expiring key although another organization has ten thousand that expire sooner', async () => {
    const { foundation } = house
    const [many, one] = [await house.partner(), await house.partner()]
    const webhooks = await Promise.all(
      [many, one].map(({ organizationId }) => make('/keys', ['key.expiring'], organizationId)),
    )
    const [ofMany, ofOne] = webhooks.map(({ webhookId }) => webhookId)
    await house.query(`update webhook_endpoints set paused_at = now() where events = array['key.expiring']`)
    const keys = `insert into api_keys (key_id, organization_id, organization_name, name, secret_hmac, last4, permissions, limits,
                                        allowed_cidrs, created_at, expires_at)
                  select $1 || n, $2, 'o', 'k', 'x', 'last', '{}', '{}', '{}', now(), now() + $3::interval
                    from generate_series(1, $4) n`
    await foundation.pool.query(keys, ['many_', many.organizationId, '2 days', 10_000])
    await foundation.pool.query(keys, ['one_', one.organizationId, '3 days', 1])
    const told = new Set(await tellOfExpiringKeys(foundation.pool, Date.now()))
    expect(told).toEqual(new Set([ofMany, ofOne]))
    // No webhook has more waiting messages than the limit, even if they all arrive together.
    const rows = await house.query('select from webhook_deliveries where webhook_id = $1', [ofMany])
    expect(rows).toHaveLength(1_000)
    for (const webhookId of [ofMany, ofOne])
      await deleteWebhook(foundation, { webhookId: webhookId ?? '', actor: 'cli' })
    await house.query(`delete from api_keys where key_id ~ '^(many|one)_'`)
  })

  test('can be tested immediately, and gets no messages about test organizations', async () => {
    const outside = openOutside(house.config)
    const before = received.length
    const tested = await testWebhook(house.foundation, { webhookId: good.webhookId, outside, actor: 'cli' })
    expect(tested).toMatchObject({ delivered: true, result: '204', enabled: false })
    expect(JSON.parse(received[before]?.body ?? '')).toMatchObject({ type: 'webhook.test' })
  })

  test('that was disabled works again after a successful test, and failed messages are sent again', async () => {
    const { foundation } = house
    const { webhookId } = good
    const [delivery] = await listDeliveries(foundation, { webhookId, state: 'delivered' })
    const deliveryId = delivery?.delivery_id ?? ''
    await house.query(
      "update webhook_endpoints set disabled_at = now(), disabled_reason = 'r' where webhook_id = $1",
      [webhookId],
    )
    await expect(resendDelivery(foundation, { deliveryId })).rejects.toThrow(
      `"webhook test ${webhookId}" succeeds`,
    )
    const tested = await testWebhook(foundation, {
      webhookId,
      actor: 'cli',
      outside: openOutside(house.config),
    })
    expect(tested).toMatchObject({ delivered: true, enabled: true })
    await resendDelivery(foundation, { deliveryId })
    expect(await listDeliveries(foundation, { webhookId, state: 'pending' })).toMatchObject([
      { delivery_id: deliveryId, attempts: 0 },
    ])
    expect(await listWebhooks(foundation, partner.organizationId)).toMatchObject([
      { webhook_id: silent.webhookId },
      { webhook_id: webhookId, disabled_at: null, pending: 1, dead: 0 },
    ])
  })

  test('that is disabled while it is tested stays disabled, because no event enables it', async () => {
    const { foundation } = house
    const { webhookId } = good
    const outside = openOutside(house.config)
    const disabling: typeof outside = {
      ...outside,
      post: async (request) => {
        const answer = await outside.postOwn(request)
        await house.query(
          "update webhook_endpoints set disabled_at = now(), disabled_reason = 'the receiver answered 410 Gone' where webhook_id = $1",
          [webhookId],
        )
        return answer
      },
    }
    const resumed = async () =>
      (await house.recorded()).filter(({ type }) => type === 'WebhookResumed').length
    const before = await resumed()
    const tested = await testWebhook(foundation, { webhookId, outside: disabling, actor: 'cli' })
    expect(tested).toMatchObject({ delivered: true, enabled: false })
    const isDisabled =
      'select disabled_at is not null as disabled from webhook_endpoints where webhook_id = $1'
    expect(await house.query(isDisabled, [webhookId])).toEqual([{ disabled: true }])
    expect(await resumed()).toBe(before)
    await testWebhook(foundation, { webhookId, outside, actor: 'cli' })
    expect(await house.query(isDisabled, [webhookId])).toEqual([{ disabled: false }])
    expect(await resumed()).toBe(before + 1)
  })

  test('is recorded when it is created and deleted: its host, but neither path nor secret', async () => {
    const made = await make('/another-path', ['checkpoint'], null)
    await deleteWebhook(house.foundation, { webhookId: made.webhookId, actor: 'user:ada' })
    const events = (await house.recorded()).filter(({ stream }) => stream === operatorStream).map(decodeEvent)
    const { host } = new URL(base)
    const recorded = { webhook_id: made.webhookId, organization_id: null, host }
    expect(
      events.filter(({ data }) => 'webhook_id' in data && data.webhook_id === made.webhookId),
    ).toMatchObject([
      { type: 'WebhookCreated', data: { ...recorded, events: ['checkpoint'] }, metadata: { actor: 'cli' } },
      { type: 'WebhookDeleted', data: recorded, metadata: { actor: 'user:ada' } },
    ])
    expect(JSON.stringify(events.map(({ data }) => data))).not.toMatch(/path|whsec_/)
    const { rows } = await house.foundation.pool.query('select * from webhook_endpoints')
    expect(JSON.stringify(rows)).not.toContain('whsec_')
    await expect(
      deleteWebhook(house.foundation, { webhookId: made.webhookId, actor: 'cli' }),
    ).rejects.toThrow('see "webhook list"')
  })

  test('does not take effect before the event log contains its creation', async () => {
    const { eventLog } = house.foundation
    const counted = 'select count(*)::int as webhooks from webhook_endpoints'
    const before = await house.query(counted)
    const seen: unknown[] = []
    const append: typeof eventLog.append = async (...asked) => {
      seen.push(await house.query(counted))
      await eventLog.append(...asked)
      throw new TypeError('this process ends here')
    }
    const dying = { ...house.foundation, eventLog: { ...eventLog, append } }
    const asked = { organizationId: null, url: new URL(base), events: ['checkpoint'] as const, actor: 'cli' }
    await expect(createWebhook(dying, asked)).rejects.toThrow('ends here')
    expect([...seen, await house.query(counted)]).toEqual([before, before])
  })
})

describe('valid URLs and events', () => {
  const strict = createEgressGuard({ allow: [] })
  const exempt = createEgressGuard({ allow: ['10.0.0.0/8'] })

  test.each([
    ['https://hooks.example.com/a?b=c', strict],
    ['https://10.1.2.3:8443/', exempt],
    ['http://10.1.2.3/', exempt],
  ])('%s', (url, where) => {
    expect(webhookUrlOf(url, where).href).toBe(url)
  })

  test.each([
    ['hooks.example.com', strict, 'a whole URL'],
    ['ftp://a.test/', exempt, 'https://'],
    ['http://a.test/', strict, 'https://'],
    ['https://a.test:8443/', strict, 'port 8443'],
    ['https://user:word@a.test/', strict, 'name or password'],
    ['https://10.1.2.3/', strict, '10.1.2.3 is not a public Internet address'],
    ['https://192.168.1.1/', exempt, '192.168.1.1 is not'],
    ['https://[::1]/', strict, '::1 is not'],
    ['https://0x7f000001/', strict, '127.0.0.1 is not'],
    ['https://localhost/x', strict, 'localhost is not a public host'],
    ['https://a.LOCALHOST./', strict, 'a.localhost. is not a public host'],
  ])('not %s', (url, where, why) => {
    expect(() => webhookUrlOf(url, where)).toThrow(why)
  })

  test('a URL has a maximum length', () => {
    expect(() => webhookUrlOf(`https://a.test/${'x'.repeat(2_048)}`, strict)).toThrow('at most 2048')
  })

  test('events are known, are listed once, and need an organization if they concern one', () => {
    expect(webhookEventsOf(['checkpoint', 'checkpoint'], null)).toEqual(['checkpoint'])
    expect(() => webhookEventsOf(['balance.low', 'checkpoint'], null)).toThrow(
      'balance.low concern one organization',
    )
    expect(() => webhookEventsOf(['balance.high'], null)).toThrow('the events are balance.low, ')
    expect(() => webhookEventsOf([], null)).toThrow('at least one')
  })

  test('twenty per organization at most, even if several are created at the same time', async () => {
    const { organizationId } = await house.partner()
    await house.query(
      `insert into webhook_endpoints (webhook_id, organization_id, url, events, sealed_secret)
       select 'wh_' || lpad(n::text, 26, '0'), $1, 'https://a.test/', '{balance.low}', '' from generate_series(1, 19) n`,
      [organizationId],
    )
    const holder = new pg.Client({ connectionString: house.foundation.migrationUrl })
    holder.on('error', () => undefined)
    await holder.connect()
    await holder.query('begin; lock table webhook_endpoints in share mode')
    const making = Promise.allSettled(
      Array.from({ length: 3 }, () => make('/many', ['balance.low'], organizationId)),
    )
    // A delivery of the house may wait for the table, too.
    const waiting = `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
       and (query like 'insert into webhook_endpoints%' or query like 'select pg_advisory_xact_lock(hashtext(''webhooks of%')`
    await until('all wait', async () => (await house.query(waiting)).length === 3)
    await holder.query('commit')
    await holder.end()
    const made = await making
    expect(made.filter(({ status }) => status === 'fulfilled')).toHaveLength(1)
    await expect(make('/many', ['balance.low'], organizationId)).rejects.toThrow(
      'there are already 20 webhooks',
    )
    expect(await listWebhooks(house.foundation, organizationId)).toHaveLength(20)
  })
})
