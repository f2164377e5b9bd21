import type pg from 'pg'
import { uuidV5 } from '../event-log/stored-event.ts'
import type { WebhookEvent } from '../events/webhooks.ts'
import type { Notice } from './notices.ts'

/**
 * The messages to send, one row for each webhook and notice. They are written in the transaction that advances the position in the event log,
 * so no message is lost. A message's id is derived from the webhook and the notice's source, and rows are kept for longer than `noticeMsMax`.
 * Therefore, reading the whole log again does not send any message twice.
 */

/** Older notices are not sent, because they are out of date. */
const noticeMsMax = 30 * 24 * 3_600_000
/** Delivered and failed messages are deleted after this many days. */
const keptDays = 90
/** The maximum number of waiting messages per webhook. Further messages are dropped and counted. */
export const pendingMax = 1_000

type Listener = {
  readonly webhook_id: string
  readonly organization_id: string | null
  readonly events: readonly WebhookEvent[]
  readonly created_at: Date
}

type Delivery = {
  readonly deliveryId: string
  readonly webhookId: string
  readonly event: string
  readonly payload: string
}

/** The type of the message that "webhook test" sends. Webhooks cannot subscribe to it. */
export const testMessage = 'webhook.test'

/** Returns the body of a message. `organizationId` is the organization of the receiving webhook. */
export const payloadOf = (
  { event, at, data }: { event: Notice['event'] | typeof testMessage; at: string; data: Notice['data'] },
  organizationId: string | null,
): string =>
  JSON.stringify({ type: event, timestamp: at, data: { organization_id: organizationId, ...data } })

/** Returns the messages for the webhooks that receive these notices. Pure. */
export const deliveriesOf = (
  notices: readonly Notice[],
  listeners: readonly Listener[],
  nowMs: number,
): Delivery[] =>
  notices
    .filter(({ recordedAtMs }) => nowMs - recordedAtMs <= noticeMsMax)
    .flatMap((notice) =>
      listeners
        .filter(
          ({ organization_id, events, created_at }) =>
            events.includes(notice.event) &&
            created_at.getTime() <= notice.recordedAtMs &&
            (notice.organizationId === null || notice.organizationId === organization_id),
        )
        .map(({ webhook_id, organization_id }) => ({
          deliveryId: deliveryIdOf(webhook_id, notice),
          webhookId: webhook_id,
          event: notice.event,
          payload: payloadOf(notice, organization_id),
        })),
    )

const deliveryIdOf = (webhookId: string, { event, source }: Notice): string =>
  `msg_${uuidV5(`webhook/${webhookId}/${event}/${source}`).replaceAll('-', '')}`

/**
 * Writes the messages in the caller's transaction. Returns the webhooks that have a new message. `repeated`: the caller will pass the same
 * notices again later, so notices that do not fit are not counted as dropped.
 */
export const writeMessages = async (
  client: pg.ClientBase | pg.Pool,
  notices: readonly Notice[],
  nowMs: number,
  { repeated = false } = {},
): Promise<string[]> => {
  if (notices.length === 0) return []
  const { rows } = await client.query<Listener>(
    `select webhook_id, organization_id, events, created_at from webhook_endpoints
      where disabled_at is null and events && $1::text[] and (organization_id is null or $3 or organization_id = any ($2))`,
    [
      [...new Set(notices.map(({ event }) => event))],
      [...new Set(notices.map(({ organizationId }) => organizationId))],
      notices.some(({ organizationId }) => organizationId === null),
    ],
  )
  const deliveries = deliveriesOf(notices, rows, nowMs)
  if (deliveries.length === 0) return []
  const put = await client.query<{ webhook_id: string }>(
    `with fresh as (
       select n.*, row_number() over (partition by n.webhook_id order by n.place) as nth
         from unnest($1::text[], $2::text[], $3::text[], $4::text[])
              with ordinality as n (delivery_id, webhook_id, event, payload, place)
        where not exists (select from webhook_deliveries d where d.delivery_id = n.delivery_id)),
     waiting as (
       select webhook_id, count(*) as many from webhook_deliveries
        where state = 'pending' and webhook_id in (select webhook_id from fresh) group by webhook_id),
     judged as (
       select f.*, f.nth + coalesce(w.many, 0) <= $6 as fits from fresh f left join waiting w using (webhook_id)),
     dropped as (
       update webhook_endpoints e set dropped = e.dropped + j.many
         from (select webhook_id, count(*) as many from judged where not fits group by webhook_id) j
        where e.webhook_id = j.webhook_id and not $7)
     insert into webhook_deliveries (delivery_id, webhook_id, event, payload, created_at, next_attempt_at)
     select delivery_id, webhook_id, event, payload, $5, $5 from judged where fits
     on conflict (delivery_id) do nothing returning webhook_id`,
    [
      deliveries.map(({ deliveryId }) => deliveryId),
      deliveries.map(({ webhookId }) => webhookId),
      deliveries.map(({ event }) => event),
      deliveries.map(({ payload }) => payload),
      new Date(nowMs),
      pendingMax,
      repeated,
    ],
  )
  return [...new Set(put.rows.map(({ webhook_id }) => webhook_id))]
}

/** Returns the webhooks with a due message, the one with the oldest due message first. */
export const dueWebhooks = async (
  pool: pg.Pool,
  { nowMs, max }: { nowMs: number; max: number },
): Promise<{ webhookId: string; failing: boolean }[]> => {
  const { rows } = await pool.query<{ webhook_id: string; failing: boolean }>(
    `select e.webhook_id, e.failing_since is not null as failing
       from webhook_endpoints e
       join (select webhook_id, min(next_attempt_at) as next from webhook_deliveries
              where state = 'pending' and next_attempt_at <= $1 group by webhook_id) d using (webhook_id)
      where e.disabled_at is null and e.paused_at is null and (e.busy_until is null or e.busy_until < now()) order by d.next limit $2`,
    [new Date(nowMs), max],
  )
  return rows.map(({ webhook_id, failing }) => ({ webhookId: webhook_id, failing }))
}

export const forgottenAtOnceMax = 5_000

/**
 * Deletes old messages that were delivered or failed, and previous secrets whose grace period is over. Returns the number of deleted
 * messages. Call it again until it returns fewer than `forgottenAtOnceMax`.
 */
export const forgetDeliveries = async (pool: pg.Pool, nowMs: number): Promise<number> => {
  await pool.query(
    'update webhook_endpoints set former_sealed_secret = null, former_until = null where former_until < $1',
    [new Date(nowMs)],
  )
  const { rowCount } = await pool.query(
    `delete from webhook_deliveries where delivery_id in (
       select delivery_id from webhook_deliveries
        where state <> 'pending' and created_at < now() - $1 * interval '1 d' order by created_at limit $2)`,
    [keptDays, forgottenAtOnceMax],
  )
  return rowCount ?? 0
}

/** Returns the number of waiting messages, the age of the oldest, and the number of disabled webhooks. Ignores paused webhooks. */
export const pendingDeliveries = async (
  pool: pg.Pool,
): Promise<{ count: number; oldestSeconds: number; disabled: number }> => {
  const { rows } = await pool.query<{ count: string; oldest: string; disabled: string }>(
    `select count(*), coalesce(extract(epoch from now() - min(d.created_at)), 0) as oldest,
            (select count(*) from webhook_endpoints where disabled_at is not null) as disabled
       from webhook_deliveries d join webhook_endpoints e using (webhook_id)
      where d.state = 'pending' and e.paused_at is null`,
  )
  const [row] = rows
  return {
    count: Number(row?.count ?? 0),
    oldestSeconds: Math.max(0, Number(row?.oldest ?? 0)),
    disabled: Number(row?.disabled ?? 0),
  }
}
