import type { ProjectionState } from '../../administration/projections.ts'
import type { LastReconciled } from '../../administration/reconciliations.ts'
import { mayDo } from '../../administration/roles.ts'
import { balance, count, credits, instant } from '../format.ts'
import { type Html, html, type Renderable } from '../html.ts'
import type { OrganizationLine } from '../queries.ts'
import type { StandingProjection } from '../rows.ts'
import { type CheckpointView, checkpointSection } from './checkpoint.ts'
import { layout, table, type Viewer } from './layout.ts'
import { reconciliationSection } from './reconciliation.ts'
import { behindText } from './rows.ts'

type Overview = {
  readonly viewer: Viewer
  readonly organizations: readonly OrganizationLine[]
  /** The page is not the first; where the next one begins. */
  readonly further: boolean
  readonly next: string | null
  readonly head: bigint
  readonly projections: readonly StandingProjection[]
  readonly checkpoint: CheckpointView
  readonly reconciliation: LastReconciled | null
  readonly nowMs: number
}

export const overviewPage = ({
  viewer,
  organizations,
  further,
  next,
  head,
  projections,
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
${mayDo(viewer.role, 'organizations.change') && html`<a class="button" href="/organizations/new">Register an organization</a>`}</div>
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
<section aria-labelledby="projections">
<h2 id="projections">Projections</h2>
<p class="note">The event log ends at position ${count(head)}. Pages show what the projections have folded.</p>
${table({
  caption: 'Where each projection stands',
  rows: projections,
  columns: [
    {
      head: 'Projection',
      kind: 'name',
      cell: (row) => html`${row.name} <span class="minor below">version ${row.version}</span>`,
    },
    { head: 'Position', kind: 'number', cell: (row) => count(row.position) },
    { head: 'Behind', kind: 'number', cell: behindText },
    { head: 'State', cell: stateOf },
    { head: 'Moved (UTC)', cell: (row) => instant(row.updatedAt) },
  ],
})}
</section>
${checkpointSection(checkpoint, nowMs)}
${reconciliationSection(reconciliation)}`,
  })

const namedMax = 20

const stateOf = ({ state, error, parked, haltedStreams }: ProjectionState): Renderable => [
  state === 'live'
    ? html`<span class="mark good">live</span>`
    : html`<span class="mark bad">halted</span> <span class="free">${error}</span>`,
  haltedStreams.length > 0 &&
    html` <span class="mark bad">${count(haltedStreams.length)} stopped</span> <span class="free">${haltedStreams
      .slice(0, namedMax)
      .map(({ stream }) => stream)
      .join(', ')}</span>`,
  parked > 0 && html` <span class="mark warn">${count(parked)} parked</span>`,
]
