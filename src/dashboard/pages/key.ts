import { limitFields } from '../../administration/keys/key-request.ts'
import { mayDo } from '../../administration/roles.ts'
import { capitalized, count, credits, instant, utc, words } from '../format.ts'
import { type Html, html } from '../html.ts'
import type { AccountRow, KeyDetailRow } from '../queries.ts'
import type { UsageSeries } from '../usage-series.ts'
import {
  described,
  type FormFault,
  faultNotice,
  figures,
  formFields,
  layout,
  organizationHead,
  type Viewer,
} from './layout.ts'
import { keyState, mayRotate } from './organization.ts'
import { plot } from './plot.ts'

/** One key: its permissions, its usage, and the form that changes its limits. */

type KeyView = {
  readonly viewer: Viewer
  readonly account: AccountRow
  readonly key: KeyDetailRow
  /** Of the last thirty days, by outcome. */
  readonly series: UsageSeries
  readonly atMs: number
  readonly fault: FormFault | null
  /** The limits as typed, by field. */
  readonly typed: (field: string) => string
}

export const keyPage = (view: KeyView): Html => {
  const { viewer, account, key, atMs } = view
  const path = `/organizations/${account.organization_id}/keys/${key.key_id}`
  const mayChange = mayDo(viewer.role, 'keys.change')
  return layout({
    title: `Key ${key.name}`,
    viewer,
    scripts: ['plots.js'],
    main: html`${organizationHead(viewer, account, null)}
<h1>Key ${key.name}</h1>
<p class="note"><span class="id whole">${key.key_id} …${key.last4}</span> · issued ${utc(key.created_at)} · ${keyState(key, atMs)}</p>
${figures([
  ['Calls, 30 days', html`<strong>${count(key.calls_30_days)}</strong>`],
  ['Credits, 30 days', credits(key.charged_30_days_micro)],
  ['Credits so far', credits(key.charged_micro)],
  ['Last used (UTC)', key.last_used_at === null ? 'never' : instant(key.last_used_at)],
])}
${callsPlot(view)}
<section aria-labelledby="rights">
<h2 id="rights">Rights</h2>
<p>May use ${key.permissions.map(words).join(', ') || 'whoami only'}, from ${key.allowed_cidrs.join(', ') || 'any address'}.</p>
</section>
${mayChange && key.revoked_at === null && limitsSection(view, path)}
${mayChange && key.revoked_at === null && endSection(mayRotate(key, atMs), path)}`,
  })
}

const endSection = (rotates: boolean, path: string): Html => html`<section aria-labelledby="end">
<h2 id="end">${rotates ? 'Replace or end it' : 'End it'}</h2>
<p class="actions">${rotates && html`<a class="button" href="${path}/rotate">Rotate the key</a>`}
<a class="button danger" href="${path}/revoke">Revoke the key</a></p>
</section>`

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

const limitsSection = (
  { viewer, fault, typed }: KeyView,
  path: string,
): Html => html`<section class="narrow" aria-labelledby="limits">
<h2 id="limits">Limits</h2>
${faultNotice(fault)}
<form class="fields" method="post" action="${path}/limits">
${formFields(viewer)}
<div class="pair">
${limitFields.map(
  ({ field, what }) => html`<p><label for="${field}">${capitalized(what)}</label>
<input id="${field}" name="${field}" value="${typed(field)}" inputmode="numeric" required maxlength="15" autocomplete="off"${described(field, fault)}></p>
`,
)}</div>
<p class="note">They count from the next call on, in every process within a second.${
  viewer.role === 'partner' &&
  ' You can lower them, and raise them to the usual limits. For more, ask the operator of the service.'
}</p>
<p class="actions"><button type="submit">Change limits</button></p>
</form>
</section>`
