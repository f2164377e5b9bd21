import type { FastifyInstance } from 'fastify'
import { mayDo } from '../../administration/roles.ts'
import { rowsOf } from '../../concurrency/query.ts'
import { isTestOrganization, liveOrganizationOf, testOrganizationOf } from '../../events/test-organization.ts'
import { newestOf } from '../declared-routes.ts'
import { balance, copyable, count, credits, instant, movement, utc, words } from '../format.ts'
import { type Html, html, type Renderable } from '../html.ts'
import { type RangeFigures, rangeFigures } from '../overview.ts'
import { accountAt, type Dashboard, type OrganizationParams, sendPage, viewerOf } from '../page.ts'
import { type AccountRow, isRegistered, type KeyRow, keysOf } from '../queries.ts'
import { type Range, rangeQuery } from '../ranges.ts'
import { type UsedUp, usedUpOf } from '../used-up.ts'
import {
  type Column,
  type FormFault,
  figures,
  layout,
  organizationHead,
  table,
  type Viewer,
} from './layout.ts'
import { codesSection } from './overview.ts'
import { usagePlot } from './plot.ts'
import { rangeForm, rangeOrFault } from './ranges.ts'

const keysMax = 200
const newestLines = 20

export const organizationRoute = (pages: FastifyInstance, context: Dashboard): void => {
  const { pool } = context.foundation
  pages.get<OrganizationParams>('/organizations/:organization', async (request, reply) => {
    const account = await accountAt(context, request.params.organization)
    const id = account.organization_id
    const nowMs = Date.now()
    const { range, fault } = await rangeOrFault(pool, request.query, id)
    const viewer = viewerOf(request, reply)
    const [keys, [tests], lines, usedUp, figures] = await Promise.all([
      rowsOf(pool, keysOf(id, { max: keysMax + 1, nowMs })),
      rowsOf(pool, isRegistered(testOrganizationOf(id))),
      newestOf('ledger lines', context, request, { viewer, account, max: newestLines }),
      usedUpOf(pool, account, nowMs),
      rangeFigures(pool, range, { organizationId: id, by: 'capability' }),
    ])
    const page = organizationPage({
      viewer,
      account,
      keys: keys.slice(0, keysMax),
      moreKeys: keys.length > keysMax,
      hasTests: tests?.registered === true,
      atMs: nowMs,
      lines,
      use: { ...usedUp, ...figures, range, fault },
    })
    return sendPage(fault === null ? reply : reply.code(422), page)
  })
}

type OrganizationView = {
  readonly viewer: Viewer
  readonly account: AccountRow
  readonly keys: readonly KeyRow[]
  /** Whether there are more keys than the page shows. */
  readonly moreKeys: boolean
  /** Whether a test key was ever issued. Test keys belong to the test organization, which has a separate page. */
  readonly hasTests: boolean
  readonly atMs: number
  /** The newest lines of the statement. */
  readonly lines: Html
  readonly use: RangeFigures & UsedUp & { readonly range: Range; readonly fault: FormFault | null }
}

const organizationPage = (view: OrganizationView): Html =>
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
${keysSection(view)}
${statementSection(view)}`,
  })

/** Assumes the mean usage of the last seven whole days. */
const daysLeft = ({ perDayMicro, usedUpAtMs }: UsedUp, nowMs: number): string => {
  if (perDayMicro === null) return 'known after the first whole day'
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
${rangeForm(`/organizations/${id}`, { range, fault })}
${usagePlot({ ...all, id: 'calls', title: 'Calls by capability', of: 'calls' })}
${usagePlot({ ...all, id: 'credits', title: 'Credits by capability', of: 'credits' })}
${codesSection(codes, { range, path: `/organizations/${id}/calls` })}
</section>`
}

const creditLinks = ({ organization_id: id }: AccountRow): Html => html`<p class="actions">
<a class="button" href="/organizations/${id}/credits/grant">Grant credits</a>
<a href="/organizations/${id}/credits/adjust">Adjust the balance</a>
<a href="/organizations/${id}/credits/threshold">Low-balance threshold</a>
<a href="/organizations/${id}/credits/balance">Balance at another time</a></p>`

const keysSection = ({ viewer, account, keys, moreKeys, hasTests, atMs }: OrganizationView): Html => {
  const mayChange = mayDo(viewer.role, 'keys.change')
  return html`<section aria-labelledby="keys">
<div class="heading"><h2 id="keys">API keys</h2>
${mayChange && html`<a class="button" href="/organizations/${account.organization_id}/key/issue">Issue a key</a>`}</div>
${
  keys.length === 0
    ? html`<p class="empty">No keys yet.${mayChange && html` <a href="/organizations/${account.organization_id}/key/issue">Issue the first one</a>.`}</p>`
    : table({
        caption: 'API keys, newest first',
        rows: keys,
        idOf: (key) => `key-${key.key_id}`,
        columns: keyColumns(account.organization_id, { atMs, mayChange }),
      })
}
${moreKeys && html`<p class="note">Only the newest ${count(keys.length)} keys are shown.</p>`}
${hasTests && html`<p class="note">${otherKeys(account.organization_id)}</p>`}
</section>`
}

/** The link from the live organization to its test keys, or back. */
const otherKeys = (organizationId: string): Html =>
  isTestOrganization(organizationId)
    ? html`These are test keys. <a href="/organizations/${liveOrganizationOf(organizationId)}#keys">Live keys</a>`
    : html`<a href="/organizations/${testOrganizationOf(organizationId)}#keys">Test keys</a> have a separate page with their calls.`

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

const statementSection = ({ account: { organization_id: id }, lines }: OrganizationView): Html =>
  html`<section aria-labelledby="statement">
<div class="heading"><h2 id="statement">Statement</h2><a href="/organizations/${id}/ledger/lines">All lines</a></div>
${lines}
</section>`
