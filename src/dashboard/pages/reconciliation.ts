import type { LastReconciled } from '../../administration/ledgers/reconciliations.ts'
import { count, utc } from '../format.ts'
import { type Html, html, type Renderable } from '../html.ts'
import { figures } from './layout.ts'

/**
 * The last comparison of ledgers with their read models and the tariff. `linked` is true if the section links to the page about this
 * comparison.
 */
export const reconciliationSection = (last: LastReconciled | null, linked: boolean): Html => {
  const own = (shown: Renderable): Renderable => (linked ? html`<a href="/reconcile">${shown}</a>` : shown)
  return html`<section aria-labelledby="reconciliation">
<h2 id="reconciliation">Last reconciliation</h2>
${
  last === null
    ? html`<p class="empty">No reconciliation yet. One runs every night, and you can run one ${own('now')}.</p>`
    : html`${figures([
        ['Made', own(utc(new Date(last.at)))],
        ['Calls', count(last.calls)],
        ['Compared', last.whole ? 'from the beginning of each ledger' : 'since the last match'],
        ['Differences', count(last.differences)],
      ])}
${
  last.differences > 0 &&
  html`<div class="notice bad" role="alert"><p>The event log, the read models and the tariff differ. ${own('Reconcile again')} to see the differences of each ledger.</p>
<ul>${last.named.map((one) => html`<li>${one}</li>`)}</ul></div>`
}`
}
</section>`
}
