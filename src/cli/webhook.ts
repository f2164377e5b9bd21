import { InputFault, listOf } from '../administration/input.ts'
import { webhookEventsOf, webhookUrlOf } from '../administration/webhooks/webhook-request.ts'
import {
  createWebhook,
  type DeliveryRow,
  deleteWebhook,
  type ListedWebhook,
  listDeliveries,
  listWebhooks,
  resendDelivery,
  testWebhook,
  type WebhookRow,
  webhookOf,
} from '../administration/webhooks/webhooks.ts'
import { webhookEvent } from '../events/webhooks.ts'
import { openOutside } from '../start/capabilities.ts'
import { type Command, type CommandContext, type Given, wholeOrNot } from './command.ts'
import { cut, nameCharsMax, table } from './table.ts'
import { webhookChangeCommands, webhookParameter } from './webhook-changes.ts'

const wantedOf = ({ config }: Pick<CommandContext, 'config'>, given: Given) => {
  const organizationId = given.text('org') ?? null
  const { guard, operatorGuard } = openOutside(config)
  const url = webhookUrlOf(
    given.required('url'),
    organizationId === null
      ? { guard: operatorGuard, exemptions: config.EGRESS_ALLOW.length > 0 }
      : { guard, exemptions: false },
  )
  return { organizationId, url, events: webhookEventsOf(listOf(given.required('events')), organizationId) }
}

const create: Command = {
  name: 'webhook create',
  summary: 'have messages sent to a URL; the secret they are signed with is shown once, here',
  parameters: [
    { name: 'org', help: 'organization id; without one the webhook is yours, for checkpoints' },
    { name: 'url', help: 'https://…', required: true },
    { name: 'events', help: `comma-separated, of ${webhookEvent.options.join(', ')}`, required: true },
  ],
  changes: {
    of: 'settings',
    asks: 'never',
    left: 'A webhook may be made whose secret no one has seen; "webhook list" shows it, and "webhook delete" ends it.',
    plan: async (context, given) => {
      const { organizationId, url, events } = wantedOf(context, given)
      return {
        says: [`Send ${events.join(', ')} of ${organizationId ?? 'this installation'} to ${url.host}.`],
      }
    },
  },
  run: async ({ config, foundation }, given) => {
    const { organizationId, url, events } = wantedOf({ config }, given)
    const open = await foundation()
    const { webhookId, secret } = await createWebhook(open, {
      organizationId,
      url,
      events,
      ...open.operator,
    })
    return {
      json: { webhook_id: webhookId, organization_id: organizationId, url: url.href, events, secret },
    }
  },
}

const list: Command = {
  name: 'webhook list',
  summary: 'list webhooks, with what waits to be sent and what was given up',
  parameters: [{ name: 'org', help: 'of this organization only' }],
  changes: 'nothing',
  run: async ({ foundation }, given) => {
    const rows = await listWebhooks(await foundation(), given.text('org') ?? null)
    return { json: rows.map(webhookJson), lines: table(rows.map(shownWebhook)) }
  },
}

const webhookJson = (row: ListedWebhook) => ({
  webhook_id: row.webhook_id,
  organization_id: row.organization_id,
  url: row.url,
  events: row.events,
  created_at: row.created_at.toISOString(),
  failing_since: row.failing_since?.toISOString() ?? null,
  disabled_at: row.disabled_at?.toISOString() ?? null,
  disabled_reason: row.disabled_reason,
  paused_at: row.paused_at?.toISOString() ?? null,
  pending: row.pending,
  dead: row.dead,
  dropped: Number(row.dropped),
})

const shownWebhook = (row: ListedWebhook) => ({
  webhook_id: row.webhook_id,
  organization_id: row.organization_id ?? 'operator',
  url: cut(row.url, nameCharsMax),
  events: row.events,
  pending: row.pending,
  dead: row.dead,
  dropped: row.dropped,
  state: stateOf(row),
})

const stateOf = ({ disabled_at, disabled_reason, failing_since, paused_at }: WebhookRow): string => {
  if (disabled_at !== null) return `disabled ${disabled_at.toISOString()}: ${disabled_reason}`
  if (paused_at !== null) return `paused ${paused_at.toISOString()}`
  return failing_since === null ? 'works' : `fails since ${failing_since.toISOString()}`
}

const states: readonly DeliveryRow['state'][] = ['pending', 'delivered', 'dead']

const deliveries: Command = {
  name: 'webhook deliveries',
  summary: 'list the newest messages of a webhook, and what came of them',
  parameters: [webhookParameter, { name: 'state', help: `only ${states.join(', ')}` }],
  changes: 'nothing',
  run: async ({ foundation }, given) => {
    const text = given.text('state')
    const state = states.find((one) => one === text) ?? null
    if (text !== undefined && state === null)
      throw new InputFault('state', `"${text}" is none of ${states.join(', ')}`)
    const rows = await listDeliveries(await foundation(), { webhookId: given.required('webhook'), state })
    const json = rows.map((row) => ({
      delivery_id: row.delivery_id,
      event: row.event,
      state: row.state,
      attempts: row.attempts,
      created_at: row.created_at.toISOString(),
      next_attempt_at: row.state === 'pending' ? row.next_attempt_at.toISOString() : null,
      last_attempt_at: row.last_attempt_at?.toISOString() ?? null,
      last_result: row.last_result,
    }))
    return { json, lines: table(json) }
  },
}

const remove: Command = {
  name: 'webhook delete',
  summary: 'end a webhook; what waits to be sent to it is dropped',
  parameters: [webhookParameter],
  changes: {
    of: 'settings',
    asks: 'always',
    left: 'Its end may be on record while it is still there: "webhook delete" again ends it.',
    plan: async ({ foundation }, given) => {
      const webhookId = given.required('webhook')
      const open = await foundation()
      const { organization_id, url } = await webhookOf(open.pool, webhookId)
      const pending = (await listWebhooks(open, organization_id)).find(
        (one) => one.webhook_id === webhookId,
      )?.pending
      return {
        says: [
          `End webhook ${webhookId} to ${new URL(url).host} of ${organization_id ?? 'this installation'}; ${pending ?? 0} messages that wait are dropped.`,
        ],
      }
    },
  },
  run: async ({ foundation }, given) => {
    const webhookId = given.required('webhook')
    const open = await foundation()
    await deleteWebhook(open, { webhookId, ...open.operator })
    return { json: { webhook_id: webhookId, deleted: true } }
  },
}

const test: Command = {
  name: 'webhook test',
  summary: 'send a test message now and tell what came back; a disabled webhook that answers is in use again',
  parameters: [webhookParameter],
  changes: {
    of: 'settings',
    asks: 'never',
    left: 'The test message may have been sent.',
    plan: async ({ foundation }, given) => {
      const { webhook_id, url } = await webhookOf((await foundation()).pool, given.required('webhook'))
      return {
        says: [
          `Send a test message of ${webhook_id} to ${new URL(url).host}; where it answers, the webhook is in use.`,
        ],
      }
    },
  },
  run: async ({ config, foundation }, given) => {
    const webhookId = given.required('webhook')
    const outside = openOutside(config)
    const open = await foundation()
    const tested = await testWebhook(open, { webhookId, outside, ...open.operator })
    const { delivered, result, ms, enabled } = tested
    return {
      json: { webhook_id: webhookId, delivered, result, milliseconds: ms, enabled_again: enabled },
      failed: !delivered,
    }
  },
}

const resend: Command = {
  name: 'webhook resend',
  summary: 'send a message again under its own id, within two minutes',
  parameters: [{ name: 'delivery', help: 'delivery id, such as msg_5f0c…', required: true }],
  changes: {
    of: 'settings',
    asks: 'never',
    left: wholeOrNot('webhook deliveries'),
    plan: async (_, given) => ({
      says: [`Send the message ${given.required('delivery')} again, within two minutes.`],
    }),
  },
  run: async ({ foundation }, given) => {
    const deliveryId = given.required('delivery')
    const { webhookId } = await resendDelivery(await foundation(), { deliveryId })
    return { json: { delivery_id: deliveryId, webhook_id: webhookId, state: 'pending' } }
  },
}

export const webhookCommands: readonly Command[] = [
  ...[create, list, deliveries, remove, test, resend],
  ...webhookChangeCommands,
]
