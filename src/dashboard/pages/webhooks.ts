import { mayDo } from '../../administration/roles.ts'
import type { ListedWebhook, WebhookRow } from '../../administration/webhooks/webhooks.ts'
import { webhookEvent } from '../../events/webhooks.ts'
import type { Form } from '../form.ts'
import { count, instant, utc } from '../format.ts'
import { type Html, html, type Renderable } from '../html.ts'
import type { AccountRow } from '../queries.ts'
import {
  described,
  type FormFault,
  faultNotice,
  formFields,
  layout,
  organizationHead,
  table,
  type Viewer,
} from './layout.ts'

/** The webhooks of one organization, the form that adds one, and the one page that shows a secret. */

type WebhooksView = {
  readonly viewer: Viewer
  readonly account: AccountRow
  readonly webhooks: readonly ListedWebhook[]
  readonly typed: Form
  readonly fault: FormFault | null
}

export const webhooksPage = (view: WebhooksView): Html => {
  const { viewer, account, webhooks, fault } = view
  const path = `/organizations/${account.organization_id}/webhooks`
  return layout({
    title: `Webhooks of ${account.name}`,
    viewer,
    main: html`${organizationHead(viewer, account, '/webhooks')}
<h1>Webhooks of ${account.name}</h1>
<p class="note">Messages that are sent to a URL when something happens, signed with a secret.</p>
${faultNotice(fault)}
${
  webhooks.length === 0
    ? html`<p class="empty">There is none. Nothing is told to anyone.</p>`
    : table({
        caption: 'Webhooks, oldest first',
        rows: webhooks,
        idOf: ({ webhook_id }) => webhook_id,
        columns: [
          {
            head: 'Sent to',
            kind: 'name',
            cell: ({ webhook_id, url }) => html`<a href="${path}/${webhook_id}">${hostOf(url)}</a>`,
          },
          { head: 'Events', cell: ({ events }) => events.join(', ') },
          { head: 'State', cell: webhookState },
          { head: 'Last attempt (UTC)', cell: lastAttempt },
          { head: 'Waiting', kind: 'number', cell: ({ pending }) => count(pending) },
          { head: 'Given up', kind: 'number', cell: ({ dead }) => count(dead) },
          { head: 'Not kept', kind: 'number', cell: ({ dropped }) => count(dropped) },
        ],
      })
}
${mayDo(viewer.role, 'webhooks.change') && addForm(view, path)}`,
  })
}

/** The path is often a password, so only the webhook's own page shows it. */
export const hostOf = (url: string): string => new URL(url).host

const lastAttempt = ({ last_attempt_at, last_result }: ListedWebhook): Renderable =>
  last_attempt_at === null ? 'none yet' : html`${instant(last_attempt_at)} <small>${last_result}</small>`

/** Marked by more than its colour. */
export const webhookState = ({
  disabled_at,
  disabled_reason,
  paused_at,
  failing_since,
}: WebhookRow): Renderable => {
  if (disabled_at !== null)
    return html`<span class="mark bad">disabled</span> since ${utc(disabled_at)} <small>${disabled_reason}</small>`
  if (paused_at !== null) return html`<span class="mark">paused</span> since ${utc(paused_at)}`
  return failing_since === null
    ? 'works'
    : html`<span class="mark bad">fails</span> since ${utc(failing_since)}`
}

const addForm = (
  { viewer, typed, fault }: WebhooksView,
  path: string,
): Html => html`<section class="narrow" aria-labelledby="add">
<h2 id="add">Add a webhook</h2>
<form class="fields" method="post" action="${path}">
${formFields(viewer)}
<p><label for="url">URL</label>
<input id="url" name="url" type="url" value="${typed.text('url')}" required maxlength="2048" autocomplete="off"${described('url', fault, 'url-hint')}>
<small id="url-hint">Such as https://example.com/hooks. It must lead to an address of the Internet.</small></p>
<fieldset${described('events', fault)}>
<legend>Events</legend>
${webhookEvent.options.map(
  (option) => html`<label class="choice"><input type="checkbox" name="events" value="${option}"${
    typed.list('events').includes(option) && html` checked`
  }> ${option}</label>
`,
)}</fieldset>
<p class="note">The secret that messages are signed with is shown once, on the next page.</p>
<p class="actions"><button type="submit">Add the webhook</button></p>
</form>
</section>`

/** The only page that ever shows a secret. */
export const webhookSecretPage = ({
  viewer,
  account,
  webhookId,
  secret,
  formerUntil,
}: {
  readonly viewer: Viewer
  readonly account: AccountRow
  readonly webhookId: string
  readonly secret: string
  /** Until when messages are also signed with the previous secret; null: it is the first. */
  readonly formerUntil: Date | null
}): Html =>
  layout({
    title: formerUntil === null ? 'Webhook added' : 'Secret replaced',
    viewer,
    main: html`${organizationHead(viewer, account, null)}
<div class="narrow">
<h1>${formerUntil === null ? 'Webhook added' : 'Secret replaced'}</h1>
<p class="notice">Copy the secret now. It is not shown again.</p>
<p class="label" id="secret-label">Secret</p>
<p class="secret" tabindex="0" aria-labelledby="secret-label"><code id="secret">${secret}</code></p>
<p class="actions"><button type="button" data-copy="secret" aria-live="polite" hidden>Copy the secret</button></p>
<p class="note">${
      formerUntil === null
        ? 'Receivers check signatures with it.'
        : html`Messages carry a signature of each secret until ${utc(formerUntil)}; from then on of this one alone.`
    }</p>
<p class="actions"><a class="button" href="/organizations/${account.organization_id}/webhooks/${webhookId}">To the webhook</a></p>
</div>`,
  })
