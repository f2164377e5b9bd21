import type { Finding } from '../../administration/checks/check.ts'
import type { LastReconciled } from '../../administration/ledgers/reconciliations.ts'
import { mayDo } from '../../administration/roles.ts'
import { balance, count, credits, instant } from '../format.ts'
import { type Html, html } from '../html.ts'
import type { OrganizationLine } from '../queries.ts'
import { type CheckpointView, checkpointSection } from './checkpoint.ts'
import { findingsTable } from './findings.ts'
import { layout, table, type Viewer } from './layout.ts'
import { reconciliationSection } from './reconciliation.ts'

type Overview = {
  readonly viewer: Viewer
  readonly organizations: readonly OrganizationLine[]
  /** The page is not the first; the start of the next page. */
  readonly further: boolean
  readonly next: string | null
  readonly findings: readonly Finding[]
  readonly checkpoint: CheckpointView
  readonly reconciliation: LastReconciled | null
  readonly nowMs: number
}

export const overviewPage = ({
  viewer,
  organizations,
  further,
  next,
  findings,
  checkpoint,
  reconciliation,
  nowMs,
}: Overview): Html =>
  layout({
    title: 'Overview',
    at: '/',
    viewer,
    main: html`<h1>Overview</h1>
<section aria-labelledby="organizations">
<div class="heading"><h2 id="organizations">Organizations</h2>
${mayDo(viewer.role, 'organizations.change') && html`<a class="button" href="/commands/org/create">Register an organization</a>`}</div>
${
  organizations.length === 0
    ? html`<p class="empty">${further ? 'There are no more organizations.' : html`There is no organization yet. Create one with <code>npm run -s cli -- org create NAME</code>.`}</p>`
    : table({
        caption: 'Organizations with balance, charges, keys and last call',
        rows: organizations,
        columns: [
          {
            head: 'Organization',
            kind: 'name',
            cell: (row) => html`<a href="/organizations/${row.organization_id}">${row.name}</a>
<span class="id below">${row.organization_id}</span>`,
          },
          { head: 'Balance, credits', kind: 'number', cell: (row) => balance(row.balance_micro) },
          { head: 'Charged so far', kind: 'number', cell: (row) => credits(row.charged_micro) },
          { head: 'Live keys', kind: 'number', cell: (row) => count(row.live_keys) },
          {
            head: 'Last call (UTC)',
            cell: (row) => (row.last_call_at === null ? 'never' : instant(row.last_call_at)),
          },
        ],
      })
}
<nav class="pager" aria-label="Pages of organizations">
${further && html`<a href="/">First page</a>`}
${next !== null && html`<a href="/?after=${next}">Next page</a>`}
</nav>
</section>
<section aria-labelledby="checks">
<h2 id="checks">Checks</h2>
${checksShown(findings)}
<p class="actions"><a class="button" href="/operations">Operations</a></p>
</section>
${checkpointSection(checkpoint, nowMs)}
${reconciliationSection(reconciliation)}`,
  })

/** Faults first, as far as this process can find them immediately. */
const checksShown = (findings: readonly Finding[]): Html => {
  const wrong = findings.filter(({ level }) => level !== 'ok')
  return wrong.length === 0
    ? html`<p class="note">All checks of this process are ok.</p>`
    : findingsTable(wrong)
}
