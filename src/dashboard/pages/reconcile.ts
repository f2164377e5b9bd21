import type { LastReconciled } from '../../administration/ledgers/reconciliations.ts'
import { mayOpen } from '../access.ts'
import { type Html, html } from '../html.ts'
import { layout, type Viewer } from './layout.ts'
import { reconciliationSection } from './reconciliation.ts'

/** The last comparison of log, read models and tariff. */
export const reconcilePage = ({
  viewer,
  last,
}: {
  readonly viewer: Viewer
  readonly last: LastReconciled | null
}): Html =>
  layout({
    title: 'Reconciliation',
    viewer,
    at: '/reconcile',
    main: html`<h1>Reconciliation</h1>
<p class="note">What the log says was charged, what the read models say, and what the tariff makes of the facts.</p>
${reconciliationSection(last, false)}
${mayOpen(viewer.role, 'GET /commands/ledger/reconcile') && html`<p class="actions"><a class="button" href="/commands/ledger/reconcile">Reconcile now</a></p>`}`,
  })
