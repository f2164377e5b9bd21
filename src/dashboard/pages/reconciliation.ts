import type { LastReconciled } from '../../administration/ledgers/reconciliations.ts'
import { mayOpen } from '../access.ts'
import { count, utc } from '../format.ts'
import { type Html, html } from '../html.ts'
import { figures, type Viewer } from './layout.ts'

/** The last comparison of ledgers with their read models and the tariff. */
export const reconciliationSection = (
  last: LastReconciled | null,
  { role }: Viewer,
): Html => html`<section aria-labelledby="reconciliation">
<h2 id="reconciliation">Last reconciliation</h2>
${
  last === null
    ? html`<p class="empty">No reconciliation yet. One runs every night.</p>`
    : html`${figures([
        ['Made', utc(new Date(last.at))],
        ['Calls', count(last.calls)],
        ['Compared', last.whole ? 'from the beginning of each ledger' : 'since the last match'],
        ['Differences', count(last.differences)],
      ])}
${
  last.differences > 0 &&
  html`<div class="notice bad" role="alert"><p>The event log, the read models and the tariff differ. Reconcile again to see the differences of each ledger.</p>
<ul>${last.named.map((one) => html`<li>${one}</li>`)}</ul></div>`
}`
}
${mayOpen(role, 'GET /commands/ledger/reconcile') && html`<p class="actions"><a class="button quiet" href="/commands/ledger/reconcile">Reconcile now</a></p>`}
</section>`
