import { mayDo } from '../../administration/roles.ts'
import { balance, copyable, count, credits, instant, movement, utc, words } from '../format.ts'
import { type Html, html, type Renderable } from '../html.ts'
import type { RangeFigures } from '../overview.ts'
import type { AccountRow, KeyRow, LotRow } from '../queries.ts'
import { type Range, rangeQuery } from '../ranges.ts'
import type { StatementPage } from '../statement.ts'
import type { UsedUp } from '../used-up.ts'
import {
  type Column,
  type FormFault,
  faultNotice,
  figures,
  layout,
  organizationHead,
  table,
  type Viewer,
} from './layout.ts'
import { codesSection } from './overview.ts'
import { usagePlot } from './plot.ts'
import { rangeFields } from './ranges.ts'
import { lineColumns } from './statement-lines.ts'

type OrganizationView = {
  readonly viewer: Viewer
  readonly account: AccountRow
  readonly lots: readonly LotRow[]
  readonly keys: readonly KeyRow[]
  /** There are more lots, or more keys, than the page shows. */
  readonly moreLots: boolean
  readonly moreKeys: boolean
  readonly atMs: number
  /** `newest`: it begins with the newest line. */
  readonly statement: StatementPage & { readonly newest: boolean }
  readonly use: RangeFigures & UsedUp & { readonly range: Range; readonly fault: FormFault | null }
}

export const organizationPage = (view: OrganizationView): Html =>
  layout({
    title: view.account.name,
    viewer: view.viewer,
    scripts: ['plots.js'],
    main: html`${organizationHead(view.viewer, view.account, '')}
<h1>${view.account.name}</h1>
<p class="note">${copyable(view.account.organization_id)} · registered ${utc(view.account.registered_at)}
· ledger revision ${count(view.account.revision)}</p>
${figures([
  ['Balance, credits', html`<strong>${balance(view.account.balance_micro)}</strong>`],
  ['Granted', credits(view.account.granted_micro)],
  ['Charged', credits(view.account.charged_micro)],
  ['Expired', credits(view.account.expired_micro)],
  ['Adjusted', movement(view.account.adjusted_micro)],
  ['Overdraft limit', credits(view.account.overdraft_limit_micro)],
  ['Days left at the current rate', daysLeft(view.use, view.atMs)],
])}
${mayDo(view.viewer.role, 'credits.change') && creditLinks(view.account)}
${useSection(view)}
${lotsSection(view)}
${keysSection(view)}
${statementSection(view)}`,
  })

/** At the mean of the last seven whole days. */
const daysLeft = ({ perDayMicro, usedUpAtMs }: UsedUp, nowMs: number): string => {
  if (perDayMicro === null) return 'not yet known'
  return usedUpAtMs === null ? 'more than ten years' : count(Math.round((usedUpAtMs - nowMs) / 86_400_000))
}

const useSection = ({
  account: { organization_id: id },
  use: { series, codes, range, fault },
}: OrganizationView): Html => {
  const csv = `/organizations/${id}/usage.csv?${new URLSearchParams({ ...rangeQuery(range), by: 'capability', table: 'steps' }).toString()}`
  const all = { series, range, csvHref: csv }
  return html`<section aria-labelledby="use">
<div class="heading"><h2 id="use">Usage</h2><a href="/organizations/${id}/calls">All calls</a></div>
<form class="filters" method="get" action="/organizations/${id}">
${rangeFields(range, fault)}
<p class="actions"><button type="submit">Show</button></p>
</form>
${faultNotice(fault)}
${usagePlot({ ...all, id: 'calls', title: 'Calls by capability', of: 'calls' })}
${usagePlot({ ...all, id: 'credits', title: 'Credits by capability', of: 'credits' })}
${codesSection(codes, { range, path: `/organizations/${id}/calls` })}
</section>`
}

const creditLinks = ({ organization_id: id }: AccountRow): Html => html`<p class="actions">
<a class="button" href="/organizations/${id}/credits/grant">Grant credits</a>
<a href="/organizations/${id}/credits/adjust">Adjust the balance</a>
<a href="/organizations/${id}/credits/threshold">Low balance</a></p>`

const lotsSection = ({ lots, moreLots }: OrganizationView): Html => html`<section aria-labelledby="lots">
<h2 id="lots">Lots</h2>
<p class="note">Charges draw them down from the top: by priority, then expiry, then age. Used-up lots are not shown.</p>
${
  lots.length === 0
    ? html`<p class="empty">No credits are left.</p>`
    : table({
        caption: 'Lots with remaining credits',
        rows: lots,
        columns: [
          { head: 'Grant', kind: 'name', cell: (row) => html`<span class="id">${row.grant_id}</span>` },
          { head: 'Priority', kind: 'number', cell: (row) => count(row.priority) },
          {
            head: 'Expires (UTC)',
            cell: (row) => [
              row.expires_at === null ? 'never' : instant(row.expires_at),
              row.past_expiry && html` <span class="mark warn">expired</span>`,
            ],
          },
          { head: 'Granted', kind: 'number', cell: (row) => credits(row.granted_micro) },
          { head: 'Remaining', kind: 'number', cell: (row) => credits(row.remaining_micro) },
        ],
      })
}
${moreLots && html`<p class="note">There are more; these ${count(lots.length)} are drawn first.</p>`}
</section>`

const keysSection = ({ viewer, account, keys, moreKeys, atMs }: OrganizationView): Html => {
  const mayChange = mayDo(viewer.role, 'keys.change')
  return html`<section aria-labelledby="keys">
<div class="heading"><h2 id="keys">API keys</h2>
${mayChange && html`<a class="button" href="/organizations/${account.organization_id}/key/issue">Issue a key</a>`}</div>
${
  keys.length === 0
    ? html`<p class="empty">No key was issued yet.${mayChange && html` <a href="/organizations/${account.organization_id}/key/issue">Issue the first one</a>.`}</p>`
    : table({
        caption: 'API keys, newest first',
        rows: keys,
        idOf: (key) => `key-${key.key_id}`,
        columns: keyColumns(account.organization_id, { atMs, mayChange }),
      })
}
${moreKeys && html`<p class="note">There are more; these are the youngest ${count(keys.length)}.</p>`}
</section>`
}

const keyColumns = (
  organizationId: string,
  { atMs, mayChange }: { atMs: number; mayChange: boolean },
): Column<KeyRow>[] => [
  {
    head: 'Key',
    kind: 'name',
    cell: (key) => html`<a href="/organizations/${organizationId}/keys/${key.key_id}">${key.name}</a>
<span class="id whole below">${key.key_id} …${key.last4}</span>`,
  },
  { head: 'Permissions', cell: (key) => key.permissions.map(words).join(', ') || 'whoami only' },
  {
    head: 'Limits',
    cell: (key) => html`${count(key.limits.requests_per_minute)}/min
<br>${count(key.limits.requests_per_day)}/day
<br>${count(key.limits.email_validations_per_second)} e-mails/s`,
  },
  { head: 'Calls, 30 days', kind: 'number', cell: (key) => count(key.calls_30_days) },
  {
    head: 'Last used (UTC)',
    cell: (key) => (key.last_used_at === null ? 'never' : instant(key.last_used_at)),
  },
  { head: 'State', cell: (key) => keyState(key, atMs) },
  {
    head: 'Actions',
    cell: (key) => {
      const [path, query] = [`/organizations/${organizationId}/key`, `key=${key.key_id}`]
      const about = html`<span class="unseen"> key ${key.name} ${key.key_id}</span>`
      return [
        mayChange && mayRotate(key, atMs) && html`<a href="${path}/rotate?${query}">Rotate${about}</a> `,
        mayChange && key.revoked_at === null && html`<a href="${path}/revoke?${query}">Revoke${about}</a>`,
      ]
    },
  },
]

const past = (at: Date | null, atMs: number): boolean => at !== null && at.getTime() <= atMs

export const mayRotate = (key: KeyRow, atMs: number): boolean =>
  key.successor_id === null && key.revoked_at === null && !past(key.expires_at, atMs)

export const keyState = (key: KeyRow, atMs: number): Renderable => {
  if (key.revoked_at !== null)
    return html`<span class="mark bad">revoked</span> ${instant(key.revoked_at)}<br><span class="free">${key.revoke_reason}</span>`
  if (past(key.expires_at, atMs))
    return html`<span class="mark bad">expired</span> ${key.expires_at !== null && instant(key.expires_at)}`
  if (key.successor_id !== null && key.grace_until !== null)
    return past(key.grace_until, atMs)
      ? html`<span class="mark bad">rotated</span> ended ${instant(key.grace_until)}`
      : html`<span class="mark warn">rotated</span> works until ${instant(key.grace_until)}`
  return html`<span class="mark good">live</span>${key.expires_at !== null && html` until ${instant(key.expires_at)}`}`
}

const statementSection = ({
  account: { organization_id: id },
  statement: { lines, newer, older, newest },
}: OrganizationView): Html => {
  const path = `/organizations/${id}`
  return html`<section aria-labelledby="statement">
<h2 id="statement">Statement</h2>
${
  lines.length === 0
    ? html`<p class="empty">${newest ? 'No lines yet.' : 'There are no more lines.'}</p>`
    : table({
        caption: 'Statement, newest line first',
        rows: lines,
        idOf: (line) => `line-${line.revision}`,
        columns: lineColumns(id),
      })
}
<nav class="pager" aria-label="Pages of the statement">${[
    !newest && html`<a href="${path}#statement">Newest</a> `,
    newer !== null && html`<a href="${path}?after=${newer}#statement">Newer</a> `,
    older !== null && html`<a href="${path}?before=${older}#statement">Older</a>`,
  ]}</nav>
</section>`
}
