import { randomBytes } from 'node:crypto'
import type pg from 'pg'
import { ulid } from 'ulid'
import { inTransaction } from '../../concurrency/transaction.ts'
import { uuidV5 } from '../../event-log/stored-event.ts'
import type { WebhookEvent } from '../../events/webhooks.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import { CommandRefused } from '../../ledger/command.ts'
import { payloadOf, testMessage } from '../../webhooks/outbox.ts'
import { type Receiver, resultText, type Sending, sendOnce, webhookSealPurpose } from '../../webhooks/send.ts'
import { secretBytes, secretText } from '../../webhooks/signature.ts'
import { balance } from '../credits/credits.ts'
import { recordOperation } from '../operator-events.ts'

type Webhooks = Pick<Foundation, 'pool' | 'eventLog' | 'ledger' | 'secrets'>

const deliveryIdPattern = /^msg_[0-9a-f]{32}$/
/** The maximum number of webhooks for one organization, or for the operator. */
const webhooksMax = 20

/** Creates a webhook. The secret is returned only here. Throws `CommandRefused` if the organization is unknown or has too many. */
export const createWebhook = async (
  foundation: Webhooks,
  {
    organizationId,
    url,
    events,
    actor,
  }: { organizationId: string | null; url: URL; events: readonly WebhookEvent[]; actor: string },
): Promise<{ webhookId: string; secret: string }> => {
  if (organizationId !== null) await balance(foundation, organizationId)
  const { pool, eventLog, secrets } = foundation
  const webhookId = `wh_${ulid()}`
  const secret = secretText(randomBytes(secretBytes))
  const sealed = secrets.sealer(webhookSealPurpose).seal(secret, webhookId)
  await inTransaction(pool, async (client) => {
    // Without the lock, two concurrent commands would not count each other's new webhooks.
    await client.query(`select pg_advisory_xact_lock(hashtext('webhooks of ' || $1))`, [organizationId ?? ''])
    const { rowCount } = await client.query(
      `insert into webhook_endpoints (webhook_id, organization_id, url, events, sealed_secret, created_at)
       select $1, $2, $3, $4, $5, $7
        where (select count(*) from webhook_endpoints where organization_id is not distinct from $2) < $6`,
      // The time of events is compared with this time. Both come from the clocks of processes, because the database's clock may differ.
      [webhookId, organizationId, url.href, events, sealed, webhooksMax, new Date()],
    )
    if (rowCount === 0)
      throw new CommandRefused(
        `there are already ${webhooksMax} webhooks, the maximum: delete one that is not needed`,
      )
    // Recorded before the row is committed, so that no webhook is missing from the event log.
    const data = {
      webhook_id: webhookId,
      organization_id: organizationId,
      host: url.host,
      events: [...events],
    }
    await recordOperation(eventLog, { type: 'WebhookCreated', data }, { actor })
  })
  return { webhookId, secret }
}

/** Deletes a webhook with its waiting messages. */
export const deleteWebhook = async (
  { pool, eventLog }: Webhooks,
  { actor, ...named }: WebhookNamed & { readonly actor: string },
): Promise<void> => {
  const { webhookId } = named
  const data = toldOf(await webhookOf(pool, named))
  // The deletion is recorded first. If deleting the row then fails, the webhook is still in the list, and the command can be
  // repeated.
  await recordOperation(eventLog, { type: 'WebhookDeleted', data }, { actor })
  await pool.query('delete from webhook_endpoints where webhook_id = $1', [webhookId])
}

/** The audit contains only the host of the URL, because its path is often a secret. */
const toldOf = ({ webhook_id, organization_id, url }: WebhookRow) => ({
  webhook_id,
  organization_id,
  host: new URL(url).host,
})

export type WebhookRow = Receiver & {
  readonly events: readonly WebhookEvent[]
  readonly created_at: Date
  readonly failing_since: Date | null
  readonly disabled_at: Date | null
  readonly disabled_reason: string | null
  /** When the webhook was paused; null if it is not paused. */
  readonly paused_at: Date | null
  readonly dropped: string
}

const columns =
  'e.webhook_id, e.organization_id, e.url, e.events, e.created_at, e.failing_since, e.disabled_at, e.disabled_reason, e.paused_at, e.dropped, e.sealed_secret, e.former_sealed_secret, e.former_until'

type ListedWebhook = WebhookRow & {
  readonly pending: number
  readonly dead: number
  /** The time of the last attempt to send the newest message that was tried. */
  readonly last_attempt_at: Date | null
  readonly last_result: string | null
}

/**
 * The webhooks of one organization, or of all, oldest first, each with the numbers of waiting and failed messages and the result of
 * the newest message.
 */
export const listWebhooks = async (
  { pool }: Pick<Foundation, 'pool'>,
  organizationId: string | null,
): Promise<ListedWebhook[]> => {
  const { rows } = await pool.query<ListedWebhook>(
    `select ${columns},
            (select count(*)::int from webhook_deliveries d where d.webhook_id = e.webhook_id and d.state = 'pending') as pending,
            (select count(*)::int from webhook_deliveries d where d.webhook_id = e.webhook_id and d.state = 'dead'
                and d.event <> '${testMessage}') as dead,
            last.last_attempt_at, last.last_result
       from webhook_endpoints e
       left join lateral (
         select d.last_attempt_at, d.last_result from webhook_deliveries d
          where d.webhook_id = e.webhook_id and d.last_attempt_at is not null
          order by d.created_at desc, d.delivery_id limit 1) last on true
      where $1::text is null or e.organization_id = $1 order by e.created_at, e.webhook_id`,
    [organizationId],
  )
  return rows
}

export const deliveryStates = ['pending', 'delivered', 'dead'] as const

type DeliveryRow = {
  readonly delivery_id: string
  readonly webhook_id: string
  readonly event: WebhookEvent | typeof testMessage
  readonly state: (typeof deliveryStates)[number]
  readonly attempts: number
  readonly created_at: Date
  readonly next_attempt_at: Date
  readonly last_attempt_at: Date | null
  readonly last_result: string | null
}

const deliveriesMax = 1_000

/** The newest messages of a webhook, newest first. Throws `CommandRefused` if the webhook does not exist. */
export const listDeliveries = async (
  { pool }: Pick<Foundation, 'pool'>,
  { state, ...named }: WebhookNamed & { readonly state: DeliveryRow['state'] | null },
): Promise<DeliveryRow[]> => {
  await webhookOf(pool, named)
  const { rows } = await pool.query<DeliveryRow>(
    `select delivery_id, webhook_id, event, state, attempts, created_at, next_attempt_at, last_attempt_at, last_result
       from webhook_deliveries where webhook_id = $1 and ($2::text is null or state = $2)
      order by created_at desc, delivery_id limit $3`,
    [named.webhookId, state, deliveriesMax],
  )
  return rows
}

/** If the organization is given, a webhook of another organization or of the operator is refused as if it did not exist. */
export type WebhookNamed = { readonly webhookId: string; readonly organizationId?: string | undefined }

/** Throws `CommandRefused` if the webhook does not exist. */
export const webhookOf = async (
  pool: pg.Pool,
  { webhookId, organizationId }: WebhookNamed,
): Promise<WebhookRow> => {
  const { rows } = await pool.query<WebhookRow>(
    `select ${columns} from webhook_endpoints e
      where e.webhook_id = $1 and ($2::text is null or e.organization_id = $2)`,
    [webhookId, organizationId ?? null],
  )
  const [row] = rows
  if (row === undefined) throw new CommandRefused(`there is no webhook ${webhookId}; see "webhook list"`)
  return row
}

/**
 * Sends a message again under the same id, at most two minutes from now. Throws `CommandRefused` if the message does not exist or
 * belongs to another organization than the given one.
 */
export const resendDelivery = async (
  { pool }: Pick<Foundation, 'pool'>,
  { deliveryId, organizationId }: Pick<WebhookNamed, 'organizationId'> & { readonly deliveryId: string },
): Promise<{ webhookId: string }> => {
  const unknown = `there is no message ${deliveryId.slice(0, 40)}; see "webhook deliveries"`
  // A string that cannot be an id is not sent to PostgreSQL, which refuses a string with U+0000.
  if (!deliveryIdPattern.test(deliveryId)) throw new CommandRefused(unknown)
  const { rows } = await pool.query<{ webhook_id: string; disabled: boolean }>(
    `select d.webhook_id, e.disabled_at is not null as disabled
       from webhook_deliveries d join webhook_endpoints e using (webhook_id)
      where d.delivery_id = $1 and ($2::text is null or e.organization_id = $2)`,
    [deliveryId, organizationId ?? null],
  )
  const [row] = rows
  if (row === undefined) throw new CommandRefused(unknown)
  if (row.disabled)
    throw new CommandRefused(
      `webhook ${row.webhook_id} is disabled; once "webhook test ${row.webhook_id}" succeeds, messages can be sent again`,
    )
  await pool.query(
    `update webhook_deliveries set state = 'pending', attempts = 0, next_attempt_at = $2 where delivery_id = $1`,
    [deliveryId, new Date()],
  )
  return { webhookId: row.webhook_id }
}

/**
 * Sends a test message now and returns the result. If a disabled webhook answers, it is enabled again, but failed messages are
 * not sent again.
 */
export const testWebhook = async (
  { pool, eventLog, secrets }: Webhooks,
  { outside, actor, ...named }: WebhookNamed & { outside: Sending['outside']; actor: string },
): Promise<{ delivered: boolean; result: string; ms: number; enabled: boolean }> => {
  const { webhookId } = named
  const webhook = await webhookOf(pool, named)
  const atMs = Date.now()
  const at = new Date(atMs).toISOString()
  const message = {
    id: `msg_${uuidV5(`webhook/${webhookId}/test/${ulid()}`).replaceAll('-', '')}`,
    atMs,
    body: payloadOf({ event: testMessage, at, data: {} }, webhook.organization_id),
  }
  const sealer = secrets.sealer(webhookSealPurpose)
  const started = performance.now()
  const answer = await sendOnce({ sealer, outside }, webhook, message)
  const ms = Math.round(performance.now() - started)
  const delivered = answer.kind === 'answered' && answer.status >= 200 && answer.status < 300
  await pool.query(
    `insert into webhook_deliveries (delivery_id, webhook_id, event, payload, state, attempts, created_at,
                                     next_attempt_at, last_attempt_at, last_result)
     select $1, webhook_id, $3, $4, $5, 1, $6, $6, $6, $7 from webhook_endpoints where webhook_id = $2`,
    [
      message.id,
      webhookId,
      testMessage,
      message.body,
      delivered ? 'delivered' : 'dead',
      at,
      resultText(answer),
    ],
  )
  const enabled = delivered && webhook.disabled_at !== null
  if (enabled) await recordOperation(eventLog, { type: 'WebhookResumed', data: toldOf(webhook) }, { actor })
  if (delivered)
    // A webhook that was disabled during the test stays disabled, because no event records that it was enabled.
    await pool.query(
      `update webhook_endpoints set disabled_at = null, disabled_reason = null, failing_since = null
        where webhook_id = $1 and (disabled_at is null or $2)`,
      [webhookId, enabled],
    )
  return { delivered, result: resultText(answer), ms, enabled }
}

type Asked = WebhookNamed & { readonly actor: string }

/**
 * Pauses a webhook, so that its messages wait, or resumes it, so that they are sent within two minutes. Throws `CommandRefused` if
 * the webhook is already in that state, or does not exist.
 */
export const setPaused = async (
  { pool, eventLog }: Webhooks,
  { paused, actor, ...named }: Asked & { readonly paused: boolean },
): Promise<void> => {
  const { webhookId } = named
  const webhook = await webhookOf(pool, named)
  if (paused === (webhook.paused_at !== null))
    throw new CommandRefused(`webhook ${webhookId} is ${paused ? 'already' : 'not'} paused`)
  const type = paused ? 'WebhookPaused' : 'WebhookResumed'
  await recordOperation(eventLog, { type, data: toldOf(webhook) }, { actor })
  await pool.query(
    'update webhook_endpoints set paused_at = case when $2 then coalesce(paused_at, now()) end where webhook_id = $1',
    [webhookId, paused],
  )
}

/**
 * Creates a new secret, which is returned only here. For `graceMs`, messages are also signed with the previous secret, but not with
 * older secrets. Throws `CommandRefused` if the webhook does not exist.
 */
export const rotateWebhookSecret = async (
  { pool, eventLog, secrets }: Webhooks,
  { graceMs, actor, ...named }: Asked & { readonly graceMs: number },
): Promise<{ secret: string; formerUntil: Date }> => {
  const { webhookId } = named
  const webhook = await webhookOf(pool, named)
  const secret = secretText(randomBytes(secretBytes))
  const formerUntil = new Date(Date.now() + graceMs)
  const data = { ...toldOf(webhook), former_until: formerUntil.toISOString() }
  await recordOperation(eventLog, { type: 'WebhookSecretRotated', data }, { actor })
  const { rowCount } = await pool.query(
    `update webhook_endpoints set sealed_secret = $2, former_sealed_secret = sealed_secret, former_until = $3
      where webhook_id = $1`,
    [webhookId, secrets.sealer(webhookSealPurpose).seal(secret, webhookId), formerUntil],
  )
  // The webhook was deleted a moment ago.
  if (rowCount === 0) throw new CommandRefused(`there is no webhook ${webhookId}; see "webhook list"`)
  return { secret, formerUntil }
}
