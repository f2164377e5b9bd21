import { mayDo } from '../../administration/roles.ts'
import type { DeliveryRow, ListedWebhook } from '../../administration/webhooks/webhooks.ts'
import { copyable, count, instant, utc } from '../format.ts'
import { type Html, html, type Renderable } from '../html.ts'
import type { AccountRow } from '../queries.ts'
import { figures, layout, organizationHead, table, type Viewer } from './layout.ts'
import { hostOf, webhookState } from './webhooks.ts'

/** One webhook: the results of its messages, and the actions on it. */

type WebhookView = {
  readonly viewer: Viewer
  readonly account: AccountRow
  readonly webhook: ListedWebhook
  readonly deliveries: readonly DeliveryRow[]
  /** There are more messages than the page shows. */
  readonly more: boolean
}

export const webhookPage = (view: WebhookView): Html => {
  const { viewer, account, webhook } = view
  return layout({
    title: `Webhook to ${hostOf(webhook.url)}`,
    viewer,
    main: html`${organizationHead(viewer, account, '/webhooks', webhook.url)}
<h1>Webhook to ${hostOf(webhook.url)}</h1>
<p class="note">${copyable(webhook.webhook_id)} · added ${utc(webhook.created_at)} · ${webhookState(webhook)}</p>
${figures([
  ['Waiting', count(webhook.pending)],
  ['Failed', count(webhook.dead)],
  ['Not kept', count(webhook.dropped)],
])}
<p>Told of ${webhook.events.join(', ')}, at <span class="id whole">${webhook.url}</span></p>
${
  webhook.former_until !== null &&
  html`<p class="note">The former secret signs too until ${utc(webhook.former_until)}.</p>`
}
${mayDo(viewer.role, 'webhooks.change') && actions(view)}
${deliveriesSection(view)}`,
  })
}

/** The form of a command, filled in. */
const formOf = ({ account, webhook }: WebhookView, verb: string): string =>
  `/organizations/${account.organization_id}/webhook/${verb}?webhook=${webhook.webhook_id}`

const actions = (view: WebhookView): Html => {
  const { webhook } = view
  const link = (verb: string, what: string): Html =>
    html`<a class="button quiet" href="${formOf(view, verb)}">${what}</a>`
  return html`<section aria-labelledby="acts">
<h2 id="acts">Change it</h2>
<p class="actions">${link('test', 'Send test message')}
${webhook.paused_at === null ? link('pause', 'Pause') : link('resume', 'Resume')}
${link('rotate-secret', 'Rotate secret')}
<a class="button danger" href="${formOf(view, 'delete')}">Remove it</a></p>
${webhook.disabled_at !== null && html`<p class="note">It is disabled. A test message that succeeds takes it up again.</p>`}
</section>`
}

const deliveriesSection = (view: WebhookView): Html => {
  const { viewer, account, webhook, deliveries, more } = view
  const maySend = mayDo(viewer.role, 'webhooks.change') && webhook.disabled_at === null
  return html`<section aria-labelledby="messages">
<h2 id="messages">Messages</h2>
${
  deliveries.length === 0
    ? html`<p class="empty">None yet. What happened before the webhook was added is not told.</p>`
    : table({
        caption: 'Messages, newest first',
        rows: deliveries,
        columns: [
          {
            head: 'Message',
            kind: 'name',
            cell: ({ delivery_id: id }) => html`<span class="id">${id}</span>`,
          },
          { head: 'Event', cell: ({ event }) => event },
          { head: 'Created (UTC)', cell: ({ created_at }) => instant(created_at) },
          { head: 'State', cell: stateOf },
          { head: 'Attempts', kind: 'number', cell: ({ attempts }) => count(attempts) },
          {
            head: 'Last attempt (UTC)',
            cell: ({ last_attempt_at: at, last_result }) => [
              at === null ? '–' : instant(at),
              last_result !== null && html` <small>${last_result}</small>`,
            ],
          },
          ...(maySend ? [{ head: 'Again', cell: resendLink(account) }] : []),
        ],
      })
}
${more && html`<p class="note"><a href="${formOf(view, 'deliveries')}">More messages</a></p>`}
</section>`
}

const stateOf = ({ state, attempts, next_attempt_at }: DeliveryRow): Renderable => {
  if (state === 'delivered') return 'delivered'
  if (state === 'dead') return html`<span class="mark bad">failed</span>`
  return attempts === 0 ? 'waiting' : html`waiting, next at ${instant(next_attempt_at)}`
}

const resendLink =
  ({ organization_id }: AccountRow) =>
  ({ delivery_id: id, state }: DeliveryRow): Renderable =>
    state === 'pending'
      ? '–'
      : html`<a href="/organizations/${organization_id}/webhook/resend?delivery=${id}">Send again<span class="unseen"> message ${id}</span></a>`
