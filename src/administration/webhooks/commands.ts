import { z } from 'zod'
import { webhookEvent } from '../../events/webhooks.ts'
import { graceDaysMax } from '../../keys/key-state.ts'
import { type Context, command, query } from '../declare.ts'
import { anyText, choice, duration, id, list, organization } from '../fields.ts'
import { webhookEventsOf, webhookUrlOf } from './webhook-request.ts'
import {
  createWebhook,
  deleteWebhook,
  deliveryStates,
  listDeliveries,
  listWebhooks,
  resendDelivery,
  rotateWebhookSecret,
  setPaused,
  testWebhook,
  type WebhookNamed,
  type WebhookRow,
  webhookOf,
} from './webhooks.ts'

const webhook = id(
  { label: 'Webhook', help: 'webhook id, such as wh_01J…' },
  /^wh_[0-9A-HJKMNP-TV-Z]{26}$/,
  'wh_01J8ZQ5V7N3K2M4P6R8T0W1X2Y',
)

/** This field comes last, because on the command line the id of a webhook or a message is enough. */
const ofWebhook = organization({
  help: 'organization id; if given, webhooks of other organizations are refused',
}).optional()

const ofOne = z.object({ webhook, organization: ofWebhook })

const namedIn = ({ webhook: webhookId, organization: organizationId }: z.output<typeof ofOne>) => ({
  webhookId,
  organizationId,
})

const placeOf = async ({ foundation }: Context, named: WebhookNamed): Promise<string> => {
  const { organization_id, url } = await webhookOf(foundation.pool, named)
  return `webhook ${named.webhookId} to ${new URL(url).host} of ${organization_id ?? 'this installation'}`
}

const wanted = z.object({
  organization: organization({
    help: 'organization id; if omitted, the webhook belongs to the operator, for checkpoints',
  }).optional(),
  url: anyText({ label: 'URL', help: 'https://…, at a public Internet address' }),
  events: list(
    (names) => names,
    {
      label: 'Events',
      help: 'the events to send messages for; balance.low is sent only if the organization has a low-balance threshold',
    },
    webhookEvent.options,
  ),
})

const wantedOf = async ({ outside }: Context, input: z.output<typeof wanted>) => {
  const organizationId = input.organization ?? null
  const { guard, operatorGuard } = await outside()
  return {
    organizationId,
    url: webhookUrlOf(input.url, organizationId === null ? operatorGuard : guard),
    events: webhookEventsOf(input.events, organizationId),
  }
}

const create = command({
  name: 'webhook create',
  action: 'webhooks.change',
  summary: 'create a webhook that sends messages to a URL; its signing secret is shown once',
  input: wanted,
  secret: 'secret',
  changes: { of: 'settings', asks: 'never' },
  plan: async (context, input) => {
    const { organizationId, url, events } = await wantedOf(context, input)
    return `Send the events ${events.join(', ')} of ${organizationId ?? 'this installation'} to ${url.host}.`
  },
  run: async (context, input) => {
    const { organizationId, url, events } = await wantedOf(context, input)
    const { actor } = context.operator
    const { webhookId, secret } = await createWebhook(context.foundation, {
      organizationId,
      url,
      events,
      actor,
    })
    return {
      json: { webhook_id: webhookId, organization_id: organizationId, url: url.href, events, secret },
      next: [{ name: 'webhook test', label: 'Send test message', given: { webhook: webhookId } }],
    }
  },
})

const listAll = query({
  name: 'webhook list',
  action: 'accounts.read',
  summary: 'list webhooks, with waiting and failed messages',
  input: z.object({ organization: organization({ help: 'only this organization' }).optional() }),
  // The path of a URL is often a secret, so a list shows only the host. "webhook show" shows the whole URL.
  columns: [
    { name: 'webhook_id', label: 'Webhook', kind: 'id' },
    { name: 'organization_id', label: 'Organization', kind: 'organization' },
    { name: 'host', label: 'Sent to' },
    { name: 'events', label: 'Events' },
    { name: 'state', label: 'Status' },
    { name: 'failing_since', label: 'Failing since (UTC)', kind: 'instant' },
    { name: 'pending', label: 'Waiting', kind: 'number' },
    { name: 'dead', label: 'Failed', kind: 'number' },
    { name: 'dropped', label: 'Dropped', kind: 'number' },
    { name: 'last_attempt_at', label: 'Last attempt (UTC)', kind: 'instant' },
    { name: 'last_result', label: 'Last result' },
  ],
  next: [{ name: 'webhook create', label: 'Add a webhook' }],
  nextOfRow: [{ name: 'webhook show', label: 'Show', given: ({ webhook_id }) => ({ webhook: webhook_id }) }],
  run: async ({ foundation }, { organization: organizationId = null }) => ({
    json: (await listWebhooks(foundation, organizationId)).map((row) => ({
      ...webhookJson(row),
      pending: row.pending,
      dead: row.dead,
      last_attempt_at: row.last_attempt_at,
      last_result: row.last_result,
    })),
  }),
})

const show = query({
  name: 'webhook show',
  action: 'accounts.read',
  summary: 'show a webhook: its whole URL, its events and its status',
  input: ofOne,
  run: async ({ foundation }, input) => {
    const row = await webhookOf(foundation.pool, namedIn(input))
    const given = { webhook: row.webhook_id }
    return {
      json: { ...webhookJson(row), former_secret_until: row.former_until },
      next: [
        { name: 'webhook deliveries', label: 'Messages', given },
        {
          name: 'webhook test',
          label: row.disabled_at === null ? 'Send test message' : 'Enable with a test message',
          given,
        },
        row.paused_at === null
          ? { name: 'webhook pause', label: 'Pause', given }
          : { name: 'webhook resume', label: 'Resume', given },
        { name: 'webhook rotate-secret', label: 'Rotate secret', given },
        { name: 'webhook delete', label: 'Delete', given },
      ],
    }
  },
})

const webhookJson = (row: WebhookRow) => ({
  webhook_id: row.webhook_id,
  organization_id: row.organization_id,
  url: row.url,
  host: new URL(row.url).host,
  events: row.events,
  state: stateOf(row),
  created_at: row.created_at,
  failing_since: row.failing_since,
  disabled_at: row.disabled_at,
  disabled_reason: row.disabled_reason,
  paused_at: row.paused_at,
  dropped: Number(row.dropped),
})

const stateOf = ({ disabled_at, failing_since, paused_at }: WebhookRow): string => {
  if (disabled_at !== null) return 'disabled'
  if (paused_at !== null) return 'paused'
  return failing_since === null ? 'works' : 'fails'
}

const deliveries = query({
  name: 'webhook deliveries',
  action: 'accounts.read',
  summary: 'list the newest messages of a webhook, with their results',
  input: z.object({
    webhook,
    state: choice({ label: 'Status', help: 'only messages with this status' }, deliveryStates).optional(),
    organization: ofWebhook,
  }),
  columns: [
    { name: 'delivery_id', label: 'Message', kind: 'id' },
    { name: 'event', label: 'Event' },
    { name: 'state', label: 'Status' },
    { name: 'attempts', label: 'Attempts', kind: 'number' },
    { name: 'created_at', label: 'Created (UTC)', kind: 'instant' },
    { name: 'next_attempt_at', label: 'Next attempt (UTC)', kind: 'instant' },
    { name: 'last_attempt_at', label: 'Last attempt (UTC)', kind: 'instant' },
    { name: 'last_result', label: 'Last result' },
  ],
  nextOfRow: [
    {
      name: 'webhook resend',
      label: 'Send again',
      given: ({ state, delivery_id }) => (state === 'pending' ? null : { delivery: delivery_id }),
    },
  ],
  run: async ({ foundation }, { state = null, ...input }) => {
    const rows = await listDeliveries(foundation, { ...namedIn(input), state })
    return {
      json: rows.map(({ webhook_id: _, ...row }) => ({
        ...row,
        next_attempt_at: row.state === 'pending' ? row.next_attempt_at : null,
      })),
    }
  },
})

const remove = command({
  name: 'webhook delete',
  action: 'webhooks.change',
  summary: 'delete a webhook; its waiting messages are dropped',
  input: ofOne,
  changes: { of: 'settings', asks: 'always' },
  plan: async (context, input) => {
    const place = await placeOf(context, namedIn(input))
    const pending = await listDeliveries(context.foundation, { ...namedIn(input), state: 'pending' })
    return `Delete ${place}; ${pending.length} waiting messages are dropped.`
  },
  run: async ({ foundation, operator }, input) => {
    await deleteWebhook(foundation, { ...namedIn(input), actor: operator.actor })
    return { json: { webhook_id: input.webhook, deleted: true } }
  },
})

const test = command({
  name: 'webhook test',
  action: 'webhooks.change',
  summary: 'send a test message now and show the answer; a disabled webhook that answers is enabled again',
  input: ofOne,
  changes: { of: 'settings', asks: 'never' },
  plan: async ({ foundation }, input) => {
    const { webhook_id, url } = await webhookOf(foundation.pool, namedIn(input))
    const { host } = new URL(url)
    return `Send a test message for ${webhook_id} to ${host}; if it answers, the webhook is enabled.`
  },
  run: async ({ foundation, operator, outside }, input) => {
    const asked = { ...namedIn(input), outside: await outside(), actor: operator.actor }
    const { delivered, result, ms, enabled } = await testWebhook(foundation, asked)
    return {
      json: { webhook_id: input.webhook, delivered, result, milliseconds: ms, enabled_again: enabled },
      failed: !delivered,
      next: [{ name: 'webhook show', label: 'Show the webhook', given: { webhook: input.webhook } }],
    }
  },
})

const delivery = id(
  { label: 'Message', help: 'delivery id, such as msg_5f0c…' },
  /^msg_[0-9a-f]{32}$/,
  'msg_5f0c3a1e9b7d4c2f8a6e0d1b3c5f7a9e',
)

const resend = command({
  name: 'webhook resend',
  action: 'webhooks.change',
  summary: 'send a message again under its own id, within two minutes',
  input: z.object({ delivery, organization: ofWebhook }),
  changes: { of: 'settings', asks: 'never' },
  plan: async (_, { delivery }) => `Send the message ${delivery} again, within two minutes.`,
  run: async ({ foundation }, { delivery: deliveryId, organization: organizationId }) => {
    const { webhookId } = await resendDelivery(foundation, { deliveryId, organizationId })
    return { json: { delivery_id: deliveryId, webhook_id: webhookId, state: 'pending' } }
  },
})

/** The commands that pause and resume a webhook. */
const pausing = (paused: boolean) =>
  command({
    name: paused ? 'webhook pause' : 'webhook resume',
    action: 'webhooks.change',
    summary: paused
      ? 'pause a webhook; its messages wait'
      : 'resume a webhook; waiting messages are sent within two minutes',
    input: ofOne,
    changes: { of: 'settings', asks: 'never' },
    plan: async (context, input) => {
      const place = await placeOf(context, namedIn(input))
      return paused
        ? `Send nothing to ${place} until it is resumed.`
        : `Send waiting and future messages to ${place}.`
    },
    run: async ({ foundation, operator }, input) => {
      await setPaused(foundation, { ...namedIn(input), paused, actor: operator.actor })
      return { json: { webhook_id: input.webhook, paused } }
    },
  })

const rotateSecret = command({
  name: 'webhook rotate-secret',
  action: 'webhooks.change',
  summary: 'give a webhook a new secret; it is shown once, and the old secret also signs for a while',
  input: z.object({
    webhook,
    grace: duration(
      { label: 'Grace period', help: 'how long the old secret also signs, such as 0s, 1h or 7d' },
      { daysMax: graceDaysMax },
    ).prefault('24h'),
    organization: ofWebhook,
  }),
  secret: 'secret',
  changes: { of: 'settings', asks: 'always' },
  plan: async (context, { grace, ...input }) => {
    const until = new Date(Date.now() + grace).toISOString()
    return `Give ${await placeOf(context, namedIn(input))} a new secret; the old secret also signs until ${until}.`
  },
  run: async ({ foundation, operator }, { grace: graceMs, ...input }) => {
    const { actor } = operator
    const { secret, formerUntil } = await rotateWebhookSecret(foundation, {
      ...namedIn(input),
      graceMs,
      actor,
    })
    return { json: { webhook_id: input.webhook, secret, former_until: formerUntil.toISOString() } }
  },
})

export const declarations = [
  create,
  listAll,
  show,
  deliveries,
  remove,
  test,
  resend,
  pausing(true),
  pausing(false),
  rotateSecret,
]
