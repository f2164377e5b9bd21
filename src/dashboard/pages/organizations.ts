import { mayDo } from '../../administration/roles.ts'
import { balance, count, credits, instant } from '../format.ts'
import { type Html, html } from '../html.ts'
import type { OrganizationLine } from '../queries.ts'
import { layout, table, type Viewer } from './layout.ts'

type OrganizationsView = {
  readonly viewer: Viewer
  readonly organizations: readonly OrganizationLine[]
  /** `further`: whether this is not the first page. `next`: the start of the next page; null on the last page. */
  readonly further: boolean
  readonly next: string | null
}

export const organizationsPage = ({ viewer, organizations, further, next }: OrganizationsView): Html =>
  layout({
    title: 'Organizations',
    at: '/organizations',
    viewer,
    main: html`<div class="heading"><h1>Organizations</h1>
${mayDo(viewer.role, 'organizations.change') && html`<a class="button" href="/commands/org/create">Register an organization</a>`}</div>
${
  organizations.length === 0
    ? html`<p class="empty">${further ? 'There are no more organizations.' : html`No organizations yet. Create one with <code>npm run -s cli -- org create NAME</code>.`}</p>`
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
${further && html`<a href="/organizations">First page</a>`}
${next !== null && html`<a href="/organizations?after=${next}">Next page</a>`}
</nav>`,
  })
