import type { LastReconciled } from '../../administration/ledgers/reconciliations.ts'
import { mayDo } from '../../administration/roles.ts'
import type { Reconciled } from '../../ledger/check/reconcile.ts'
import { count, credits } from '../format.ts'
import { type Html, html } from '../html.ts'
import {
  described,
  type FormFault,
  faultNotice,
  figures,
  formFields,
  layout,
  table,
  type Viewer,
} from './layout.ts'
import { type Names, organizationLink } from './organization-link.ts'
import { reconciliationSection } from './reconciliation.ts'

/** The comparison of log, read models and tariff: the last one, the form that starts one, and the result. */

export const reconcilePage = ({
  viewer,
  last,
  typed,
  fault,
}: {
  readonly viewer: Viewer
  readonly last: LastReconciled | null
  readonly typed: (name: string) => string
  readonly fault: FormFault | null
}): Html =>
  layout({
    title: 'Reconciliation',
    viewer,
    at: '/reconcile',
    main: html`<h1>Reconciliation</h1>
<p class="note">What the log says was charged, what the read models say, and what the tariff makes of the facts.</p>
${reconciliationSection(last)}
${
  mayDo(viewer.role, 'ledgers.change') &&
  html`<section class="narrow" aria-labelledby="now">
<h2 id="now">Reconcile now</h2>
${faultNotice(fault)}
<form class="fields" method="post" action="/reconcile">
${formFields(viewer)}
<p><label for="organization">Organization</label>
<input id="organization" name="organization" value="${typed('organization')}" maxlength="40" autocomplete="off"${described('organization', fault, 'organization-hint')}>
<small id="organization-hint">Its id. Empty: all of them.</small></p>
<p><label for="month">Month (UTC)</label>
<input id="month" name="month" type="month" value="${typed('month')}"${described('month', fault, 'month-hint')}>
<small id="month-hint">Empty: all of them. Only a comparison of everything is recorded.</small></p>
<p class="actions"><button type="submit">Reconcile</button></p>
</form>
</section>`
}`,
  })

const shownMax = 200

export const reconciledPage = ({
  viewer,
  ledgers,
  names,
  whole,
}: {
  readonly viewer: Viewer
  readonly ledgers: readonly Reconciled[]
  readonly names: Names
  /** It covered everything, and is recorded. */
  readonly whole: boolean
}): Html => {
  const differences = ledgers.reduce((sum, one) => sum + one.differences, 0)
  const wrong = ledgers.filter((one) => one.differences > 0)
  return layout({
    title: 'Reconciled',
    viewer,
    at: '/reconcile',
    main: html`<p class="eyebrow"><a href="/reconcile">Reconciliation</a></p>
<h1>${differences === 0 ? 'Everything agrees' : 'There are differences'}</h1>
<p class="note">${whole ? 'Recorded in the event log.' : 'Of a part: not recorded.'}</p>
${figures([
  ['Ledgers', count(ledgers.length)],
  ['Calls', count(ledgers.reduce((sum, { calls }) => sum + calls, 0))],
  ['Differences', html`<strong>${count(differences)}</strong>`],
])}
${wrong.map(
  ({
    organizationId,
    named,
    differences: of,
  }) => html`<div class="notice bad" role="alert"><p>${count(of)} differences: ${organizationLink(organizationId, names)}</p>
<ul>${named.map((one) => html`<li>${one}</li>`)}</ul></div>`,
)}
${ledgers.slice(0, shownMax).map((one) => sumsSection(one, names))}
${ledgers.length > shownMax && html`<p class="note">The sums of the first ${shownMax} ledgers are shown.</p>`}`,
  })
}

const sumsSection = (
  { organizationId, sums, calls, through }: Reconciled,
  names: Names,
): Html => html`<section aria-labelledby="of-${organizationId}">
<h2 id="of-${organizationId}">${organizationLink(organizationId, names)}</h2>
<p class="note">${count(calls)} calls up to revision ${count(through)}</p>
${
  sums.size === 0
    ? html`<p class="empty">It has no movements.</p>`
    : table({
        caption: `Sums of ${names.get(organizationId) ?? organizationId}`,
        rows: [...sums].map(([sku, sum]) => ({ sku, ...sum })),
        columns: [
          { head: 'SKU', kind: 'name', cell: ({ sku }) => sku },
          { head: 'Log', kind: 'number', cell: ({ log }) => credits(String(log)) },
          { head: 'Read models', kind: 'number', cell: ({ projections }) => credits(String(projections)) },
          {
            head: 'Tariff',
            kind: 'number',
            cell: ({ sku, tariff }) => !sku.startsWith('(') && credits(String(tariff)),
          },
        ],
      })
}
</section>`
