import { mayDo } from '../../administration/roles.ts'
import type { ListedWebhook, WebhookRow } from '../../administration/webhooks/webhooks.ts'
import { count, instant, utc } from '../format.ts'
import { type Html, html, type Renderable } from '../html.ts'
import type { AccountRow } from '../queries.ts'
import { layout, organizationHead, table, type Viewer } from './layout.ts'

/** The webhooks of one organization. */

type WebhooksView = {
  readonly viewer: Viewer
  readonly account: AccountRow
  readonly webhooks: readonly ListedWebhook[]
}

export const webhooksPage = ({ viewer, account, webhooks }: WebhooksView): Html => {
  const path = `/organizations/${account.organization_id}/webhooks`
  return layout({
    title: `Webhooks of ${account.name}`,
    viewer,
    main: html`${organizationHead(viewer, account, '/webhooks')}
<h1>Webhooks of ${account.name}</h1>
<p class="note">Messages that are sent to a URL when something happens, signed with a secret.</p>
${
  webhooks.length === 0
    ? html`<p class="empty">There is no webhook yet. Each one you add is listed here, with what became of its messages.</p>`
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
          { head: 'Failed', kind: 'number', cell: ({ dead }) => count(dead) },
          { head: 'Dropped', kind: 'number', cell: ({ dropped }) => count(dropped) },
        ],
      })
}
${mayDo(viewer.role, 'webhooks.change') && html`<p class="actions"><a class="button" href="/organizations/${account.organization_id}/webhook/create">Add a webhook</a></p>`}`,
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
