import type { LastReconciled } from '../../administration/ledgers/reconciliations.ts'
import { count, utc } from '../format.ts'
import { type Html, html } from '../html.ts'
import { figures } from './layout.ts'

/** The last comparison of ledgers with their read models and with the tariff. */
export const reconciliationSection = (last: LastReconciled | null): Html =>
  html`<section aria-labelledby="reconciliation">
<h2 id="reconciliation">Last reconciliation</h2>
${
  last === null
    ? html`<p class="empty">No reconciliation yet. It runs every night, or <a href="/reconcile">now</a>.</p>`
    : html`${figures([
        ['Made', html`<a href="/reconcile">${utc(new Date(last.at))}</a>`],
        ['Calls', count(last.calls)],
        ['Ledgers', last.whole ? 'from their beginning' : 'from their last agreement'],
        ['Differences', count(last.differences)],
      ])}
${
  last.differences > 0 &&
  html`<div class="notice bad" role="alert"><p>Log, read models and tariff disagree. <a href="/reconcile">Reconcile again</a> to see where, ledger by ledger.</p>
<ul>${last.named.map((one) => html`<li>${one}</li>`)}</ul></div>`
}`
}
</section>`
