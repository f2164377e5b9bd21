import type { LastReconciled } from '../../administration/ledgers/reconciliations.ts'
import { mayOpen } from '../access.ts'
import { type Html, html } from '../html.ts'
import { layout, type Viewer } from './layout.ts'
import { reconciliationSection } from './reconciliation.ts'

/** The page about the last reconciliation. */
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
<p class="note">A reconciliation compares the charges in the event log with the read models, and with the prices that the tariff computes from the facts.</p>
${reconciliationSection(last, false)}
${mayOpen(viewer.role, 'GET /commands/ledger/reconcile') && html`<p class="actions"><a class="button" href="/commands/ledger/reconcile">Reconcile now</a></p>`}`,
  })
