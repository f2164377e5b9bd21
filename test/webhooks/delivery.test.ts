/** From an event to a receiver: which messages are stored, and when they are sent. Each message is created only once. */
import { createHmac } from 'node:crypto'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import type { PostAnswer, PostRequest } from '../../src/egress/post.ts'
import type { EventLog } from '../../src/event-log/port.ts'
import { encodeEvent, uuidV5 } from '../../src/event-log/stored-event.ts'
import type { DomainEvent } from '../../src/events/catalogue.ts'
import { ledgerStream, operatorStream } from '../../src/events/streams.ts'
import { createSecrets } from '../../src/guard/secrets/secrets.ts'
import { expiryNotice } from '../../src/webhooks/expiring-keys.ts'
import { createWebhookFollower } from '../../src/webhooks/follow.ts'
import {
  dueWebhooks,
  forgetDeliveries,
  pendingDeliveries,
  pendingMax,
  writeMessages,
} from '../../src/webhooks/outbox.ts'
import { retryDelaysMs, type Sending, sendRound, webhookSealPurpose } from '../../src/webhooks/send.ts'
import { secretText, signedHeaders } from '../../src/webhooks/signature.ts'
import { until } from '../support/house.ts'
import { logger } from '../support/logger.ts'
import { createMemoryEventLog, type MemoryEventLog } from '../support/memory-event-log.ts'
import { databaseForFile } from '../support/postgres.ts'
import { moved, organization } from './events.ts'

const secret = `whsec_${Buffer.alloc(32, 3).toString('base64')}`
const sealer = createSecrets('a secret of at least thirty-two characters').sealer(webhookSealPurpose)
const startMs = Date.parse('2026-11-22T10:00:00.000Z')
const dayMs = 24 * 3_600_000

let memory: MemoryEventLog
let log: EventLog
let running: { stop(): Promise<void> }[]

const { pool } = await databaseForFile()
beforeEach(() => {
  memory = createMemoryEventLog()
  log = memory.client('test')
  running = []
})
afterEach(async () => {
  for (const one of running) await one.stop()
  await log.close()
  await pool.query(
    'truncate webhook_endpoints, webhook_deliveries, webhook_progress, webhook_balances, leases',
  )
})

let made = 0
const webhook = async (
  events: readonly string[],
  { organizationId = organization.id as string | null, createdAtMs = startMs - dayMs } = {},
): Promise<string> => {
  const id = `wh_${String(++made).padStart(26, '0')}`
  await pool.query(
    `insert into webhook_endpoints (webhook_id, organization_id, url, events, sealed_secret, created_at)
     values ($1, $2, 'https://a.test/', $3, $4, $5)`,
    [id, organizationId, events, sealer.seal(secret, id), new Date(createdAtMs)],
  )
  return id
}

const deliveries = async (id?: string) => {
  const { rows } = await pool.query<{
    delivery_id: string
    webhook_id: string
    state: string
    attempts: number
    payload: string
    last_result: string | null
  }>(
    `select delivery_id, webhook_id, state, attempts, payload, last_result from webhook_deliveries
      where $1::text is null or webhook_id = $1 order by created_at, delivery_id`,
    [id ?? null],
  )
  return rows
}

let appended = 0
const append = async (event: DomainEvent, stream = ledgerStream(organization.id), atMs = startMs) => {
  const revision = memory.eventsOf(stream).length - 1
  const at = new Date(atMs).toISOString()
  const encoded = encodeEvent(event, { id: uuidV5(`${++appended}`), actor: 'system', effectiveAt: at })
  const metadata = encoded.metadata.replace(/\}$/, `,"recorded_at":"${at}"}`)
  await log.append(stream, revision < 0 ? 'none' : revision, [{ ...encoded, metadata }])
}

const threshold = (amount: number): DomainEvent => ({
  type: 'BalanceThresholdSet',
  data: { amount: String(amount) },
})
const follow = (owner = 'one', eventLog = log) => {
  const follower = createWebhookFollower({
    pool,
    eventLog,
    logger,
    owner,
    clock: { now: () => startMs },
    put: async () => undefined,
  })
  void follower.run()
  running.push(follower)
  return follower
}

const readUpTo = (position: number) =>
  until(`read up to ${position}`, async () => {
    const { rows } = await pool.query('select position from webhook_progress')
    return Number(rows[0]?.position) === position
  })

describe('events of the log', () => {
  test('create messages from the first webhook on, one per crossing, with balances of the whole ledger', async () => {
    for (const event of [moved(20n), threshold(10), moved(-15n)])
      await append(event, undefined, startMs - 2 * dayMs)
    const id = await webhook(['balance.low'])
    follow()
    await readUpTo(3)
    expect(await deliveries()).toEqual([])
    for (const event of [moved(-1n), moved(10n), moved(-10n), moved(-1n)]) await append(event)
    await readUpTo(7)
    expect((await deliveries(id)).map(({ payload }) => JSON.parse(payload))).toEqual([
      {
        type: 'balance.low',
        timestamp: '2026-11-22T10:00:00.000Z',
        data: { organization_id: organization.id, balance: '4', threshold: '10' },
      },
    ])
  })

  test('create each message once, also after a restart, with several processes, and when everything is read again', async () => {
    await webhook(['balance.low'])
    for (const event of [moved(5n), threshold(10), moved(10n)]) await append(event)
    await follow()
      .stop()
      .then(() => undefined)
    follow('two')
    follow('three')
    await readUpTo(3)
    const once = await deliveries()
    expect(once).toHaveLength(1)
    for (const one of running.splice(0)) await one.stop()
    // Simulates a process that has read nothing yet.
    await pool.query('truncate webhook_progress, webhook_balances')
    await append(moved(-10n))
    follow('four')
    await readUpTo(4)
    const twice = await deliveries()
    expect(twice).toHaveLength(2)
    expect(twice.map(({ delivery_id }) => delivery_id)).toContain(once[0]?.delivery_id)
  })

  test('of a restored log are read from the beginning, and create no second message', async () => {
    await webhook(['balance.low'])
    for (const event of [moved(5n), threshold(10), moved(1n)]) await append(event)
    follow()
    await readUpTo(3)
    for (const one of running.splice(0)) await one.stop()
    memory.restore(2)
    await append(moved(2n))
    follow('two')
    await until('read again', async () => {
      const { rows } = await pool.query('select balance_micro::text as balance from webhook_balances')
      return rows[0]?.balance === '7000000'
    })
    expect(await deliveries()).toHaveLength(1)
  })

  test('delete webhooks again that a restored table brought back, before they get a message', async () => {
    const id = await webhook(['price.changed'])
    const kept = await webhook(['balance.low'])
    const data = { webhook_id: id, organization_id: organization.id, host: 'a.test' }
    await append({ type: 'WebhookDeleted', data }, operatorStream)
    await append({ type: 'PriceBookWithdrawn', data: { version: 3, reason: 'r' } }, 'pricebook')
    follow()
    await readUpTo(2)
    const { rows } = await pool.query('select webhook_id from webhook_endpoints')
    expect(rows).toEqual([{ webhook_id: kept }])
    expect(await deliveries()).toEqual([])
  })

  test('that cannot be read are left out, and the others create messages', async () => {
    await webhook(['balance.low'])
    await append(moved(5n))
    const bad = { id: uuidV5('bad'), type: 'CreditAdjusted', data: '{"amount":"much"}', metadata: '{}' }
    await log.append(ledgerStream(organization.id), 0, [bad])
    await append(threshold(10))
    follow()
    await readUpTo(3)
    expect(await deliveries()).toHaveLength(1)
  })
})

const receiver = (...answers: (number | null)[]) => {
  const requests: PostRequest[] = []
  const post = async (request: PostRequest): Promise<PostAnswer> => {
    requests.push(request)
    const status = answers[Math.min(requests.length, answers.length) - 1] ?? null
    return status === null ? { kind: 'timeout', detail: 'deadline' } : { kind: 'answered', status }
  }
  return { requests, post }
}

const sendingTo = (post: Sending['outside']['post'], postOwn = post) => {
  const clock = { nowMs: startMs, now: () => clock.nowMs, passedMs: 0, monotonic: () => clock.passedMs }
  const sending: Sending = { pool, sealer, outside: { post, postOwn }, clock, chance: () => 0, logger }
  return { clock, sending }
}

/** The secrets whose signatures a request carries. */
const signersOf = ({ headers, body }: PostRequest, secrets: readonly string[]): string[] =>
  secrets.filter((one) => {
    const { 'webhook-id': id = '', 'webhook-timestamp': timestamp } = headers
    const expected = signedHeaders(one, { id, atMs: Number(timestamp) * 1_000, body })['webhook-signature']
    return headers['webhook-signature']?.split(' ').includes(expected)
  })

const message = (n = 0, event: 'price.changed' | 'checkpoint' = 'price.changed') => ({
  event,
  organizationId: null,
  source: `source ${n}`,
  at: new Date(startMs).toISOString(),
  recordedAtMs: startMs,
  data: { n },
})

/** As if every process that sends had been suspended for a minute. */
const expireClaims = () =>
  pool.query("update webhook_endpoints set busy_until = now() - interval '1 ms' where busy_until is not null")

/** A webhook for which these messages wait. */
const webhookWith = async (...messages: ReturnType<typeof message>[]): Promise<string> => {
  const id = await webhook(['price.changed'])
  await writeMessages(pool, messages, startMs)
  return id
}

const nextAttemptMs = async (): Promise<number> => {
  const { rows } = await pool.query<{ at: Date }>(
    "select min(next_attempt_at) as at from webhook_deliveries where state = 'pending'",
  )
  return rows[0]?.at?.getTime() ?? Number.NaN
}

describe('a message', () => {
  test('is signed, and delivered once', async () => {
    const id = await webhookWith(message())
    const { post, requests } = receiver(200)
    const { sending } = sendingTo(post)
    expect(await sendRound(sending, id)).toEqual({ sent: 1, more: null })
    expect(await sendRound(sending, id)).toEqual({ sent: 0, more: null })
    const [row] = await deliveries(id)
    const [request] = requests
    expect(row).toMatchObject({ state: 'delivered', attempts: 1, last_result: '200' })
    expect(request?.body).toBe(row?.payload)
    const signed = `${row?.delivery_id}.${startMs / 1000}.${request?.body}`
    expect(request?.headers).toMatchObject({
      'webhook-id': row?.delivery_id,
      'webhook-timestamp': String(startMs / 1000),
      'webhook-signature': `v1,${createHmac('sha256', Buffer.alloc(32, 3)).update(signed).digest('base64')}`,
    })
  })

  test.each([
    ["a partner's", () => organization.id],
    ["the operator's own", () => null],
  ])('of %s webhook goes only where that webhook may send', async (whose, organizationId) => {
    const id = await webhook(['checkpoint'], { organizationId: organizationId() })
    await writeMessages(pool, [message(0, 'checkpoint')], startMs)
    const [toPartners, own] = [receiver(200), receiver(200)]
    await sendRound(sendingTo(toPartners.post, own.post).sending, id)
    const isOwn = whose === "the operator's own"
    expect([toPartners.requests.length, own.requests.length]).toEqual(isOwn ? [0, 1] : [1, 0])
  })

  test('is retried on schedule, under the same id with a new time, until it fails', async () => {
    const id = await webhookWith(message())
    const { post, requests } = receiver(500, null, 302)
    const { clock, sending } = sendingTo(post)
    await sendRound(sending, id)
    const pauses: number[] = []
    for (;;) {
      const next = await nextAttemptMs()
      if (Number.isNaN(next)) break
      clock.nowMs = next - 1
      expect(await dueWebhooks(pool, { nowMs: clock.nowMs, max: 10 })).toEqual([])
      pauses.push(next - Number(requests.at(-1)?.headers['webhook-timestamp']) * 1_000)
      clock.nowMs = next
      expect(await dueWebhooks(pool, { nowMs: next, max: 10 })).toEqual([{ webhookId: id, failing: true }])
      await sendRound(sending, id)
    }
    expect(pauses).toEqual([...retryDelaysMs])
    expect(new Set(requests.map(({ headers }) => headers['webhook-id'])).size).toBe(1)
    expect(new Set(requests.map(({ headers }) => headers['webhook-signature'])).size).toBe(8)
    expect(await deliveries(id)).toMatchObject([{ state: 'dead', attempts: 8 }])
  })

  test('without an answer delays its webhook’s other messages for one attempt only', async () => {
    const id = await webhookWith(message(1), message(2))
    const { post, requests } = receiver(null, 200)
    const { clock, sending } = sendingTo(post)
    expect(await sendRound(sending, id)).toEqual({ sent: 1, more: null })
    expect(await sendRound(sending, id)).toEqual({ sent: 1, more: null })
    clock.nowMs += retryDelaysMs[0] ?? 0
    await sendRound(sending, id)
    expect(requests).toHaveLength(3)
    expect((await deliveries(id)).map(({ state }) => state)).toEqual(['delivered', 'delivered'])
  })

  test('in progress when the process ends is left as if it had not been tried', async () => {
    const id = await webhookWith(message(1), message(2))
    const ending = new AbortController()
    const post = async ({ signal }: PostRequest): Promise<PostAnswer> => {
      expect(signal).toBe(ending.signal)
      ending.abort()
      return { kind: 'timeout', detail: 'aborted' }
    }
    const sending = { ...sendingTo(post).sending, signal: ending.signal }
    expect(await sendRound(sending, id)).toEqual({ sent: 0, more: null })
    expect(await deliveries(id)).toMatchObject([{ attempts: 0 }, { attempts: 0 }])
    const { rows } = await pool.query('select busy_until, failing_since from webhook_endpoints')
    expect(rows).toEqual([{ busy_until: null, failing_since: null }])
  })

  test('waits while another process sends to its webhook, and no longer than a process lives', async () => {
    const id = await webhookWith(message())
    const { post } = receiver(200)
    const { clock, sending } = sendingTo(post)
    const { nowMs } = clock
    await pool.query("update webhook_endpoints set busy_until = now() + interval '1 min'")
    // A process must not end the claim of another process because of its own clock.
    for (clock.nowMs of [nowMs, Date.now() + dayMs]) {
      expect(await dueWebhooks(pool, { nowMs: clock.nowMs, max: 10 })).toEqual([])
      expect(await sendRound(sending, id)).toMatchObject({ sent: 0 })
    }
    clock.nowMs = nowMs
    await expireClaims()
    expect(await dueWebhooks(pool, { nowMs, max: 10 })).toEqual([{ webhookId: id, failing: false }])
    expect(await sendRound(sending, id)).toMatchObject({ sent: 1 })
  })

  test.each([
    { answersAfterMs: 9_000, sent: 3, slow: true },
    { answersAfterMs: 10, sent: 50, slow: false },
  ])('waits for its next round after $sent attempts that take $answersAfterMs ms each', async (expected) => {
    const id = await webhookWith(...Array.from({ length: 51 }, (_, n) => message(n)))
    const { clock, sending } = sendingTo(async () => {
      clock.passedMs += expected.answersAfterMs
      // The time of day is corrected, which must not make the round longer.
      clock.nowMs = startMs
      return { kind: 'answered', status: 200 }
    })
    const { sent, slow } = expected
    expect(await sendRound(sending, id)).toEqual({ sent, more: { slow } })
  })

  test('whose secret was sealed with another key is not sent', async () => {
    const id = await webhook(['price.changed'])
    await pool.query("update webhook_endpoints set sealed_secret = 'AAAA'")
    await writeMessages(pool, [message()], startMs)
    const { post, requests } = receiver(200)
    await sendRound(sendingTo(post).sending, id)
    expect(requests).toEqual([])
    expect(await deliveries(id)).toMatchObject([{ state: 'pending', last_result: 'refused secret' }])
  })

  test('waits while its webhook is paused, and is sent afterwards', async () => {
    const id = await webhook(['price.changed'])
    await pool.query('update webhook_endpoints set paused_at = now()')
    await writeMessages(pool, [message()], startMs)
    const { post, requests } = receiver(200)
    const { sending } = sendingTo(post)
    expect(await dueWebhooks(pool, { nowMs: startMs, max: 10 })).toEqual([])
    expect(await sendRound(sending, id)).toMatchObject({ sent: 0 })
    // Messages of a paused webhook do not count, because they do not wait for the receiver.
    expect(await pendingDeliveries(pool)).toMatchObject({ count: 0, oldestSeconds: 0 })
    await pool.query('update webhook_endpoints set paused_at = null')
    expect(await sendRound(sending, id)).toMatchObject({ sent: 1 })
    expect(requests).toHaveLength(1)
  })

  test('is not sent if its webhook was paused during the previous message', async () => {
    const id = await webhookWith(message(1), message(2))
    const { post, requests } = receiver(200)
    const pausing: typeof post = async (request) => {
      await pool.query('update webhook_endpoints set paused_at = now()')
      return post(request)
    }
    expect(await sendRound(sendingTo(pausing).sending, id)).toMatchObject({ sent: 1 })
    expect(requests).toHaveLength(1)
  })

  test('is sent by one process at a time, even if another process was suspended during its round', async () => {
    const id = await webhookWith(message(1), message(2))
    const { post, requests } = receiver(200)
    const first = sendingTo(async (request) => {
      await expireClaims()
      const second = sendingTo(async (another) => {
        inSecond.resolve()
        await ended
        return post(another)
      })
      later = sendRound(second.sending, id)
      await inSecond.promise
      return post(request)
    })
    const inSecond = Promise.withResolvers<void>()
    const { promise: ended, resolve: end } = Promise.withResolvers<void>()
    let later: ReturnType<typeof sendRound> | undefined
    await sendRound(first.sending, id)
    const third = sendingTo(post)
    expect(await sendRound(third.sending, id)).toEqual({ sent: 0, more: null })
    end()
    await later
    expect(requests).not.toHaveLength(0)
  })

  test('does not disable its webhook if a suspended process fails after another process has delivered it', async () => {
    const id = await webhook(['price.changed'])
    await writeMessages(pool, [message(1)], startMs)
    await pool.query('update webhook_deliveries set attempts = $1', [retryDelaysMs.length])
    await pool.query('update webhook_endpoints set failing_since = $1', [new Date(startMs - 4 * dayMs)])
    const { post } = receiver(200)
    const first = sendingTo(async () => {
      await expireClaims()
      const second = sendingTo(post)
      expect(await sendRound(second.sending, id)).toMatchObject({ sent: 1 })
      await writeMessages(pool, [message(2)], startMs)
      return { kind: 'timeout', detail: 'no answer' }
    })
    await sendRound(first.sending, id)
    expect(await deliveries(id)).toMatchObject([
      { state: 'delivered' },
      { state: 'pending', last_result: null },
    ])
    const { rows } = await pool.query('select disabled_at, failing_since from webhook_endpoints')
    expect(rows).toEqual([{ disabled_at: null, failing_since: null }])
  })

  test('carries the signature of the previous secret until its time is over', async () => {
    const id = await webhook(['price.changed'])
    const next = secretText(Buffer.alloc(32, 9))
    await pool.query(
      'update webhook_endpoints set former_sealed_secret = sealed_secret, sealed_secret = $1, former_until = $2',
      [sealer.seal(next, id), new Date(startMs + 1_000)],
    )
    await writeMessages(pool, [message(1)], startMs)
    const { post, requests } = receiver(200)
    const { clock, sending } = sendingTo(post)
    await sendRound(sending, id)
    clock.nowMs += 1_000
    await writeMessages(pool, [message(2)], clock.nowMs)
    await sendRound(sending, id)
    expect(requests.map(({ headers }) => headers['webhook-signature']?.split(' ').length)).toEqual([2, 1])
  })

  test('is signed with the new secret immediately after a rotation, also in the middle of a round', async () => {
    const id = await webhook(['price.changed'])
    const next = secretText(Buffer.alloc(32, 9))
    await writeMessages(pool, [message(1), message(2)], startMs)
    const { post, requests } = receiver(200)
    const rotating: typeof post = async (request) => {
      await pool.query(
        'update webhook_endpoints set former_sealed_secret = sealed_secret, sealed_secret = $1, former_until = $2',
        [sealer.seal(next, id), new Date(startMs)],
      )
      return post(request)
    }
    expect(await sendRound(sendingTo(rotating).sending, id)).toMatchObject({ sent: 2 })
    expect(requests.map((request) => signersOf(request, [secret, next]))).toEqual([[secret], [next]])
  })

  test('is not kept if a thousand wait, and is counted as dropped', async () => {
    const id = await webhook(['price.changed'])
    const many = Array.from({ length: pendingMax }, (_, n) => message(n))
    await writeMessages(pool, many, startMs)
    await writeMessages(pool, [message(pendingMax), message(0)], startMs)
    expect(await deliveries(id)).toHaveLength(pendingMax)
    const { rows } = await pool.query('select dropped::int from webhook_endpoints')
    expect(rows).toEqual([{ dropped: 1 }])
  })

  test('that is finished is deleted after 90 days, and one that waits is not', async () => {
    const id = await webhookWith(message(1), message(2))
    await pool.query("update webhook_deliveries set created_at = now() - interval '91 d'")
    await pool.query(
      "update webhook_deliveries set state = 'dead' where delivery_id = (select min(delivery_id) from webhook_deliveries)",
    )
    expect(await forgetDeliveries(pool, Date.now())).toBe(1)
    expect(await deliveries(id)).toMatchObject([{ state: 'pending' }])
  })
})

describe('a webhook', () => {
  test('that answers 410 is disabled, with all its messages', async () => {
    const id = await webhookWith(message(1), message(2))
    const { post, requests } = receiver(410)
    const { sending } = sendingTo(post)
    await sendRound(sending, id)
    expect(requests).toHaveLength(1)
    expect((await deliveries(id)).map(({ state }) => state)).toEqual(['dead', 'dead'])
    const { rows } = await pool.query('select disabled_reason from webhook_endpoints')
    expect(rows).toEqual([{ disabled_reason: 'the receiver answered 410 Gone' }])
    expect(await writeMessages(pool, [message(3)], startMs)).toEqual([])
  })

  test('that fails for three days is disabled, with the time of the first failure', async () => {
    const id = await webhook(['price.changed'])
    const { sending, clock } = sendingTo(receiver(503).post)
    await writeMessages(pool, [message(1)], startMs)
    await sendRound(sending, id)
    clock.nowMs = startMs + 3 * dayMs
    await pool.query('update webhook_deliveries set attempts = 7')
    await sendRound(sending, id)
    const { rows } = await pool.query('select disabled_reason from webhook_endpoints')
    expect(rows).toEqual([{ disabled_reason: 'every attempt failed since 2026-11-22T10:00:00.000Z' }])
  })
})

describe('a key that ends', () => {
  const key = (leftMs: number) => ({
    key_id: 'AAAAAAAAAAAAAAAA',
    organization_id: organization.id,
    successor_id: null,
    ends_at: new Date(startMs + leftMs),
  })

  test.each([
    [8 * dayMs, null],
    [7 * dayMs, 7],
    [2 * dayMs, 7],
    [dayMs, 1],
    [1, 1],
    [0, null],
    [-1, null],
  ])('in %d ms: %s days before', (leftMs, days) => {
    expect(expiryNotice(key(leftMs), startMs)?.data.days_before ?? null).toBe(days)
  })

  test('creates one message for each, no matter how often it is checked', async () => {
    const id = await webhook(['key.expiring'])
    for (const [leftMs, nowMs] of [
      [6 * dayMs, startMs],
      [6 * dayMs, startMs + dayMs],
      [6 * dayMs, startMs + 5.5 * dayMs],
      [6 * dayMs, startMs + 5.7 * dayMs],
    ] as const) {
      const notice = expiryNotice(key(leftMs), nowMs)
      await writeMessages(pool, notice === null ? [] : [notice], nowMs)
    }
    expect(await deliveries(id)).toHaveLength(2)
  })
})
