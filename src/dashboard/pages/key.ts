import { limitNames, limitWords } from '../../administration/keys/key-request.ts'
import { mayDo } from '../../administration/roles.ts'
import { copyable, count, credits, instant, utc, words } from '../format.ts'
import { type Html, html } from '../html.ts'
import type { AccountRow, KeyDetailRow } from '../queries.ts'
import type { UsageSeries } from '../usage-series.ts'
import { figures, layout, organizationHead, type Viewer } from './layout.ts'
import { keyState, mayRotate } from './organization.ts'
import { plot } from './plot.ts'

/** One key: its permissions, its limits and its usage. */

type KeyView = {
  readonly viewer: Viewer
  readonly account: AccountRow
  readonly key: KeyDetailRow
  /** Of the last thirty days, by outcome. */
  readonly series: UsageSeries
  readonly atMs: number
}

export const keyPage = (view: KeyView): Html => {
  const { viewer, account, key, atMs } = view
  const mayChange = mayDo(viewer.role, 'keys.change')
  return layout({
    title: `Key ${key.name}`,
    viewer,
    scripts: ['plots.js'],
    main: html`${organizationHead(viewer, account, null, `Key ${key.name}`)}
<h1>Key ${key.name}</h1>
<p class="note">${copyable(key.key_id)} <span class="id">…${key.last4}</span> · issued ${utc(key.created_at)} · ${keyState(key, atMs)}</p>
${figures([
  ['Calls, 30 days', html`<strong>${count(key.calls_30_days)}</strong>`],
  ['Credits, 30 days', credits(key.charged_30_days_micro)],
  ['Credits so far', credits(key.charged_micro)],
  ['Last used (UTC)', key.last_used_at === null ? 'never' : instant(key.last_used_at)],
])}
${callsPlot(view)}
${investigateSection(view)}
<section aria-labelledby="rights">
<h2 id="rights">Rights</h2>
<p>May use ${key.permissions.map(words).join(', ') || 'whoami only'}, from ${key.allowed_cidrs.join(', ') || 'any address'}.</p>
</section>
${limitsSection(view, mayChange && key.revoked_at === null)}
${mayChange && key.revoked_at === null && endSection(view)}`,
  })
}

/** For a key that may have leaked: its use and its calls, on the pages that have ranges and filters for them. */
const investigateSection = ({ account, key: { key_id: key } }: KeyView): Html => {
  const path = `/organizations/${account.organization_id}`
  const [usage, calls] = [
    { range: '7d', by: 'capability', key },
    { range: '7d', key },
  ].map((query) => new URLSearchParams(query).toString())
  return html`<section aria-labelledby="investigate">
<h2 id="investigate">Investigate</h2>
<p class="note">If the key may have leaked: see what was used with it in the last seven days or at another time, then revoke it and issue another.</p>
<p class="actions"><a class="button quiet" href="${path}/usage?${usage}">Use by capability</a>
<a class="button quiet" href="${path}/calls?${calls}">Calls with this key</a></p>
</section>`
}

/** The form of a command, filled in. */
const formOf = (
  { account, key }: KeyView,
  verb: string,
  typed: Readonly<Record<string, string>> = {},
): string =>
  `/organizations/${account.organization_id}/key/${verb}?${new URLSearchParams({ key: key.key_id, ...typed }).toString()}`

const limitsSection = (view: KeyView, mayChange: boolean): Html => {
  const { limits } = view.key
  const typed = Object.fromEntries(
    limitNames.map((name) => [name.replaceAll('_', '-'), String(limits[name])]),
  )
  return html`<section aria-labelledby="limits">
<h2 id="limits">Limits</h2>
<p>${limitNames.map((name) => `${count(limits[name])} ${limitWords[name].label.toLowerCase()}`).join(', ')}.</p>
${
  mayChange &&
  html`<p class="note">They count from the next call on, in every process within a second.${
    view.viewer.role === 'partner' &&
    ' You can lower them, and raise them to the usual limits. For more, ask the operator of the service.'
  }</p>
<p class="actions"><a class="button" href="${formOf(view, 'limits', typed)}">Change the limits</a></p>`
}
</section>`
}

const endSection = (view: KeyView): Html => {
  const rotates = mayRotate(view.key, view.atMs)
  return html`<section aria-labelledby="end">
<h2 id="end">${rotates ? 'Replace or end it' : 'End it'}</h2>
<p class="actions">${rotates && html`<a class="button" href="${formOf(view, 'rotate')}">Rotate the key</a>`}
<a class="button danger" href="${formOf(view, 'revoke')}">Revoke the key</a></p>
</section>`
}

const callsPlot = ({ account, key, series }: KeyView): Html =>
  plot({
    id: 'calls',
    title: 'Calls by day',
    unit: 'calls',
    groups: series.groups.map((name) => words(name ?? 'all others')),
    csvHref: `/organizations/${account.organization_id}/usage.csv?${new URLSearchParams({ key: key.key_id, by: 'outcome', unit: 'day', table: 'steps' }).toString()}`,
    points: series.points.map(({ at, calls }) => ({
      at,
      values: calls.map((value) => ({ value: String(value), shown: count(value) })),
    })),
  })
