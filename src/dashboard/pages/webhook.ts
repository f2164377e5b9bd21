import { mayDo } from '../../administration/roles.ts'
import type { DeliveryRow, ListedWebhook } from '../../administration/webhooks/webhooks.ts'
import { capitalized, count, instant, utc } from '../format.ts'
import { type Html, html, type Renderable } from '../html.ts'
import type { AccountRow } from '../queries.ts'
import {
  described,
  type FormFault,
  faultNotice,
  figures,
  formFields,
  layout,
  organizationHead,
  table,
  type Viewer,
} from './layout.ts'
import { hostOf, webhookState } from './webhooks.ts'

/** One webhook: the results of its messages, and the actions on it. */

type WebhookView = {
  readonly viewer: Viewer
  readonly account: AccountRow
  readonly webhook: ListedWebhook
  readonly deliveries: readonly DeliveryRow[]
  /** There are more messages than the page shows. */
  readonly more: boolean
  readonly fault: FormFault | null
}

const pathOf = ({ account, webhook }: Pick<WebhookView, 'account' | 'webhook'>): string =>
  `/organizations/${account.organization_id}/webhooks/${webhook.webhook_id}`

export const webhookPage = (view: WebhookView): Html => {
  const { viewer, account, webhook, fault } = view
  return layout({
    title: `Webhook to ${hostOf(webhook.url)}`,
    viewer,
    main: html`${organizationHead(viewer, account, '/webhooks')}
<h1>Webhook to ${hostOf(webhook.url)}</h1>
<p class="note"><span class="id whole">${webhook.webhook_id}</span> · added ${utc(webhook.created_at)} · ${webhookState(webhook)}</p>
${faultNotice(fault)}
${figures([
  ['Waiting', count(webhook.pending)],
  ['Given up', count(webhook.dead)],
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

const graces = [
  ['0s', 'no longer'],
  ['1h', '1 hour'],
  ['24h', '24 hours'],
  ['7d', '7 days'],
] as const

const actions = (view: WebhookView): Html => {
  const { viewer, webhook, fault } = view
  const path = pathOf(view)
  const press = (act: string, what: string): Html =>
    html`<form method="post" action="${path}/${act}">${formFields(viewer)}<button class="quiet" type="submit">${what}</button></form>`
  return html`<section aria-labelledby="acts">
<h2 id="acts">What can be done</h2>
<div class="actions">${press('test', 'Send a test message')}
${webhook.paused_at === null ? press('pause', 'Pause it') : press('resume', 'Resume it')}
<a class="button danger" href="${path}/delete">Remove it</a></div>
${webhook.disabled_at !== null && html`<p class="note">It is disabled. A test message that succeeds takes it up again.</p>`}
<form class="fields narrow" method="post" action="${path}/rotate">
${formFields(viewer)}
<p><label for="grace">The former secret signs too for</label>
<select id="grace" name="grace"${described('grace', fault)}>${graces.map(
    ([value, label]) => html`<option value="${value}"${value === '24h' && html` selected`}>${label}</option>`,
  )}</select></p>
<p class="actions"><button type="submit">Replace the secret</button></p>
</form>
</section>`
}

const deliveriesSection = (view: WebhookView): Html => {
  const { viewer, webhook, deliveries, more } = view
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
          { head: 'Put down (UTC)', cell: ({ created_at }) => instant(created_at) },
          { head: 'State', cell: stateOf },
          { head: 'Attempts', kind: 'number', cell: ({ attempts }) => count(attempts) },
          {
            head: 'Last attempt (UTC)',
            cell: ({ last_attempt_at: at, last_result }) => [
              at === null ? '–' : instant(at),
              last_result !== null && html` <small>${last_result}</small>`,
            ],
          },
          ...(maySend ? [{ head: 'Again', cell: resendButton(viewer, pathOf(view)) }] : []),
        ],
      })
}
${more && html`<p class="note">Older ones are not shown; "webhook deliveries" lists more.</p>`}
</section>`
}

const stateOf = ({ state, attempts, next_attempt_at }: DeliveryRow): Renderable => {
  if (state === 'delivered') return 'delivered'
  if (state === 'dead') return html`<span class="mark bad">given up</span>`
  return attempts === 0 ? 'waits' : html`waits, next at ${instant(next_attempt_at)}`
}

const resendButton =
  (viewer: Viewer, path: string) =>
  ({ delivery_id: id, state }: DeliveryRow): Renderable =>
    state === 'pending'
      ? '–'
      : html`<form method="post" action="${path}/resend">${formFields(viewer)}<input type="hidden" name="delivery" value="${id}"><button class="quiet" type="submit" aria-label="Send ${id} again">Send again</button></form>`

export const deleteWebhookPage = (
  view: Pick<WebhookView, 'viewer' | 'account' | 'webhook' | 'fault'>,
): Html =>
  layout({
    title: 'Remove a webhook',
    viewer: view.viewer,
    main: html`${organizationHead(view.viewer, view.account, null)}
<div class="narrow">
<h1>Remove a webhook</h1>
${faultNotice(view.fault)}
<p>Nothing more is sent to <strong>${hostOf(view.webhook.url)}</strong>. ${count(view.webhook.pending)} ${
      view.webhook.pending === 1 ? 'message that waits is' : 'messages that wait are'
    } dropped. This cannot be undone; another webhook to the same URL has another secret.</p>
<form method="post" action="${pathOf(view)}/delete">${formFields(view.viewer)}
<p class="actions"><button class="danger" type="submit">Remove the webhook</button> <a href="${pathOf(view)}">Cancel</a></p>
</form>
</div>`,
  })

export const webhookTestedPage = ({
  tested,
  ...view
}: Pick<WebhookView, 'viewer' | 'account' | 'webhook'> & {
  readonly tested: {
    readonly delivered: boolean
    readonly result: string
    readonly ms: number
    readonly enabled: boolean
  }
}): Html =>
  layout({
    title: 'Test message',
    viewer: view.viewer,
    main: html`${organizationHead(view.viewer, view.account, null)}
<div class="narrow">
<h1>${tested.delivered ? 'The test message was delivered' : 'The test message was not delivered'}</h1>
<p class="notice${!tested.delivered && ' bad'}">${capitalized(hostOf(view.webhook.url))} gave, after ${count(tested.ms)} ms: ${tested.result}</p>
${tested.enabled && html`<p>The webhook was disabled and is in use again.</p>`}
<p class="actions"><a class="button" href="${pathOf(view)}">To the webhook</a></p>
</div>`,
  })
