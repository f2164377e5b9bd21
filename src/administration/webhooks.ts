import { randomBytes } from 'node:crypto'
import { isIP } from 'node:net'
import type pg from 'pg'
import { ulid } from 'ulid'
import type { EgressGuard } from '../egress/guard.ts'
import type { PostAnswer, PostRequest } from '../egress/post.ts'
import { appendNext } from '../event-log/append-next.ts'
import { eventIdOf, uuidV5 } from '../event-log/event-id.ts'
import { encodeEvent } from '../event-log/stored-event.ts'
import type { DomainEventOf } from '../events/catalogue.ts'
import { operatorStream } from '../events/streams.ts'
import { type WebhookEvent, webhookEvent } from '../events/webhooks.ts'
import type { Foundation } from '../foundation/foundation.ts'
import { CommandRefused } from '../ledger/command.ts'
import { payloadOf } from '../webhooks/outbox.ts'
import { resultText, sendOnce, webhookSealPurpose } from '../webhooks/send.ts'
import { secretBytes, secretText } from '../webhooks/signature.ts'
import { balance } from './credits.ts'
import { InputFault } from './input.ts'

/** Whom to tell of what: webhooks, as an operator makes, lists, tries and ends them. */

type Webhooks = Pick<Foundation, 'pool' | 'eventLog' | 'ledger' | 'secrets'>

const urlCharsMax = 2_048
/** Of one organization, or of the operator. */
const webhooksMax = 20
const everyone: readonly WebhookEvent[] = ['checkpoint']

/** Events from names. Throws `InputFault`: an operator's own webhook is told only of what is nobody's. */
export const webhookEventsOf = (names: readonly string[], organizationId: string | null): WebhookEvent[] => {
  const events = names.map((name) => {
    const read = webhookEvent.safeParse(name)
    if (read.success) return read.data
    throw new InputFault('events', `there is no "${name}"; there are ${webhookEvent.options.join(', ')}`)
  })
  if (events.length === 0) throw new InputFault('events', 'name at least one')
  const others = events.filter((event) => !everyone.includes(event))
  if (organizationId === null && others.length > 0)
    throw new InputFault(
      'events',
      `${others.join(', ')} concern one organization: give --org; without one there is ${everyone.join(', ')}`,
    )
  return [...new Set(events)]
}

/**
 * An address messages may be sent to: https, and http only where `EGRESS_ALLOW` exempts addresses. Whether the name leads
 * to an address that may be dialled is checked whenever it is. Throws `InputFault`.
 */
export const webhookUrlOf = (
  text: string,
  { guard, exemptions }: { guard: EgressGuard; exemptions: boolean },
): URL => {
  const url = URL.parse(text.trim())
  const refuse = (why: string): never => {
    throw new InputFault('url', why)
  }
  if (url === null || text.length > urlCharsMax)
    return refuse(
      `it must be a whole URL of at most ${urlCharsMax} characters, such as https://example.com/hooks`,
    )
  if (url.username !== '' || url.password !== '')
    return refuse(
      'it must not hold a name or password: messages are signed, and the secret in the path is yours to choose',
    )
  if (url.protocol !== 'https:' && !(url.protocol === 'http:' && exemptions))
    return refuse('it must begin with https:// (http:// is for addresses that EGRESS_ALLOW names)')
  if (url.port !== '' && !exemptions)
    return refuse(
      `port ${url.port} is not allowed: other ports than 443 are for addresses that EGRESS_ALLOW names`,
    )
  const host = url.hostname.replace(/^\[|\]$/g, '')
  if (isIP(host) !== 0 && !guard.mayDial(host))
    return refuse(
      `${host} is not an address of the Internet; EGRESS_ALLOW exempts addresses of your own network`,
    )
  url.hash = ''
  return url
}

/** Makes one. The secret is told here and never again. Throws `CommandRefused` for an unknown organization. */
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
  const { rowCount } = await pool.query(
    `insert into webhook_endpoints (webhook_id, organization_id, url, events, sealed_secret)
     select $1, $2, $3, $4, $5
      where (select count(*) from webhook_endpoints where organization_id is not distinct from $2) < $6`,
    [webhookId, organizationId, url.href, events, sealed, webhooksMax],
  )
  if (rowCount === 0)
    throw new CommandRefused(
      `there are ${webhooksMax} webhooks already, which is as many as there may be: delete one that is not needed`,
    )
  try {
    await record(eventLog, actor, {
      type: 'WebhookCreated',
      data: {
        webhook_id: webhookId,
        organization_id: organizationId,
        host: url.host,
        events: [...events],
      },
    })
  } catch (error) {
    // No one has seen its secret.
    await pool.query('delete from webhook_endpoints where webhook_id = $1', [webhookId])
    throw error
  }
  return { webhookId, secret }
}

/** Ends one, with everything that waits to be sent to it. */
export const deleteWebhook = async (
  { pool, eventLog }: Webhooks,
  { webhookId, actor }: { webhookId: string; actor: string },
): Promise<void> => {
  const { organization_id, url } = await webhookOf(pool, webhookId)
  // Recorded first: an end that is on record and did not come is seen in the list, and deleted again.
  await record(eventLog, actor, {
    type: 'WebhookDeleted',
    data: { webhook_id: webhookId, organization_id, host: new URL(url).host },
  })
  await pool.query('delete from webhook_endpoints where webhook_id = $1', [webhookId])
}

const record = async (
  eventLog: Foundation['eventLog'],
  actor: string,
  event: DomainEventOf<'WebhookCreated' | 'WebhookDeleted'>,
): Promise<void> => {
  await appendNext(eventLog, operatorStream, [
    encodeEvent(event, {
      id: eventIdOf(operatorStream, `${event.type}/${event.data.webhook_id}/${ulid()}`, 0),
      actor,
      effectiveAt: new Date().toISOString(),
    }),
  ])
}

export type WebhookRow = {
  readonly webhook_id: string
  readonly organization_id: string | null
  readonly url: string
  readonly events: readonly WebhookEvent[]
  readonly created_at: Date
  readonly failing_since: Date | null
  readonly disabled_at: Date | null
  readonly disabled_reason: string | null
  readonly dropped: string
  readonly sealed_secret: string
}

const columns =
  'e.webhook_id, e.organization_id, e.url, e.events, e.created_at, e.failing_since, e.disabled_at, e.disabled_reason, e.dropped, e.sealed_secret'

/** The webhooks of one organization, or all, oldest first, with how many messages wait and how many were given up. */
export const listWebhooks = async (
  { pool }: Pick<Foundation, 'pool'>,
  organizationId: string | null,
): Promise<(WebhookRow & { pending: number; dead: number })[]> => {
  const { rows } = await pool.query<WebhookRow & { pending: number; dead: number }>(
    `select ${columns},
            (select count(*)::int from webhook_deliveries d where d.webhook_id = e.webhook_id and d.state = 'pending') as pending,
            (select count(*)::int from webhook_deliveries d where d.webhook_id = e.webhook_id and d.state = 'dead') as dead
       from webhook_endpoints e where $1::text is null or e.organization_id = $1 order by e.created_at, e.webhook_id`,
    [organizationId],
  )
  return rows
}

export type DeliveryRow = {
  readonly delivery_id: string
  readonly webhook_id: string
  readonly event: WebhookEvent
  readonly state: 'pending' | 'delivered' | 'dead'
  readonly attempts: number
  readonly created_at: Date
  readonly next_attempt_at: Date
  readonly last_attempt_at: Date | null
  readonly last_result: string | null
}

const deliveriesMax = 1_000

/** The newest messages of a webhook, newest first. Throws `CommandRefused` where there is no such webhook. */
export const listDeliveries = async (
  { pool }: Pick<Foundation, 'pool'>,
  { webhookId, state }: { webhookId: string; state: DeliveryRow['state'] | null },
): Promise<DeliveryRow[]> => {
  await webhookOf(pool, webhookId)
  const { rows } = await pool.query<DeliveryRow>(
    `select delivery_id, webhook_id, event, state, attempts, created_at, next_attempt_at, last_attempt_at, last_result
       from webhook_deliveries where webhook_id = $1 and ($2::text is null or state = $2)
      order by created_at desc, delivery_id limit $3`,
    [webhookId, state, deliveriesMax],
  )
  return rows
}

/** Throws `CommandRefused` for one that there is not. */
export const webhookOf = async (pool: pg.Pool, webhookId: string): Promise<WebhookRow> => {
  const { rows } = await pool.query<WebhookRow>(
    `select ${columns} from webhook_endpoints e where e.webhook_id = $1`,
    [webhookId],
  )
  const [row] = rows
  if (row === undefined) throw new CommandRefused(`there is no webhook ${webhookId}; see "webhook list"`)
  return row
}

/** Sends a message again, under the same id: with the next messages to its webhook, at most two minutes from now. */
export const resendDelivery = async (
  { pool }: Pick<Foundation, 'pool'>,
  deliveryId: string,
): Promise<{ webhookId: string }> => {
  const { rows } = await pool.query<{ webhook_id: string; disabled: boolean }>(
    `select d.webhook_id, e.disabled_at is not null as disabled
       from webhook_deliveries d join webhook_endpoints e using (webhook_id) where d.delivery_id = $1`,
    [deliveryId],
  )
  const [row] = rows
  if (row === undefined)
    throw new CommandRefused(`there is no message ${deliveryId}; see "webhook deliveries"`)
  if (row.disabled)
    throw new CommandRefused(
      `webhook ${row.webhook_id} is disabled; once "webhook test ${row.webhook_id}" succeeds, messages can be sent again`,
    )
  await pool.query(
    `update webhook_deliveries set state = 'pending', attempts = 0, next_attempt_at = now() where delivery_id = $1`,
    [deliveryId],
  )
  return { webhookId: row.webhook_id }
}

/**
 * Sends a message of the type `webhook.test` now and tells what came back. A webhook that was disabled, and answers, is in
 * use again; messages that were given up stay given up until they are sent again.
 */
export const testWebhook = async (
  { pool, secrets }: Webhooks,
  { webhookId, post }: { webhookId: string; post: (request: PostRequest) => Promise<PostAnswer> },
): Promise<{ delivered: boolean; result: string; ms: number; enabled: boolean }> => {
  const webhook = await webhookOf(pool, webhookId)
  const atMs = Date.now()
  const notice = { event: 'webhook.test', at: new Date(atMs).toISOString(), data: {} }
  const message = {
    id: `msg_${uuidV5(`webhook/${webhookId}/test/${ulid()}`).replaceAll('-', '')}`,
    atMs,
    body: payloadOf(notice, webhook.organization_id),
  }
  const sealer = secrets.sealer(webhookSealPurpose)
  const started = performance.now()
  const answer = await sendOnce({ sealer, post }, webhook, message)
  const ms = Math.round(performance.now() - started)
  const delivered = answer.kind === 'answered' && answer.status >= 200 && answer.status < 300
  if (delivered)
    await pool.query(
      'update webhook_endpoints set disabled_at = null, disabled_reason = null, failing_since = null where webhook_id = $1',
      [webhookId],
    )
  return { delivered, result: resultText(answer), ms, enabled: delivered && webhook.disabled_at !== null }
}
