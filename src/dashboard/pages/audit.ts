import type { AuditEntry } from '../../administration/event-log/audit.ts'
import { auditedTypes } from '../../events/audited.ts'
import { count, instant } from '../format.ts'
import { type Html, html, type Renderable } from '../html.ts'
import { described, type FormFault, faultNotice, layout, table, type Viewer } from './layout.ts'
import { type Names, organizationLink } from './organization-link.ts'

/** Who changed what. */

type AuditView = {
  readonly viewer: Viewer
  readonly typed: (name: string) => string
  readonly entries: readonly AuditEntry[]
  /** The position after which there are more. */
  readonly next: string | null
  /** It is not the first page. */
  readonly further: boolean
  /** Events that this release cannot read. */
  readonly leftOut: number
  readonly names: Names
  readonly fault: FormFault | null
}

export const auditPage = (view: AuditView): Html => {
  const { viewer, entries, leftOut, names, fault } = view
  return layout({
    title: 'Audit',
    viewer,
    at: '/audit',
    main: html`<h1>Audit</h1>
<p class="note">Every change by anyone, sign-ins too, as the event log has it. Calls are not among them.</p>
${leftOut > 0 && html`<p class="notice bad" role="alert">${count(leftOut)} events cannot be read by this release and are not among these.</p>`}
${faultNotice(fault)}
${filterForm(view)}
${entries.length > 0 && entriesTable(entries, names)}
${entries.length === 0 && fault === null && html`<p class="empty">Nothing was found.</p>`}
${pagesLinks(view)}`,
  })
}

const filterForm = ({
  typed,
  fault,
}: AuditView): Html => html`<form class="filters" method="get" action="/audit">
<p><label for="since">Since (UTC)</label>
<input id="since" name="since" value="${typed('since')}" placeholder="2027-01-31" maxlength="40" autocomplete="off"${described('since', fault)}></p>
<p><label for="actor">By</label>
<input id="actor" name="actor" value="${typed('actor')}" placeholder="person, label or key" maxlength="200" autocomplete="off"${described('actor', fault)}></p>
<p><label for="about">About</label>
<input id="about" name="about" value="${typed('about')}" placeholder="id, user or projection" maxlength="200" autocomplete="off"${described('about', fault)}></p>
<p><label for="type">Type</label>
<select id="type" name="type"${described('type', fault)}><option value="">Any</option>${auditedTypes.map(
  (type) => html`<option value="${type}"${type === typed('type') && html` selected`}>${type}</option>`,
)}</select></p>
<p><label for="order">Order</label>
<select id="order" name="order"><option value="">The newest first</option><option value="oldest"${typed('order') === 'oldest' && html` selected`}>The oldest first</option></select></p>
<p class="actions"><button type="submit">Show</button></p>
</form>`

const entriesTable = (entries: readonly AuditEntry[], names: Names): Html =>
  table({
    caption: 'Changes',
    rows: entries,
    columns: [
      { head: 'When (UTC)', cell: ({ at }) => instant(new Date(at)) },
      { head: 'By', cell: ({ actor }) => actor },
      { head: 'What', cell: ({ says }) => says },
      {
        head: 'Organization',
        cell: ({ organizationId: id }): Renderable => (id === null ? '–' : organizationLink(id, names)),
      },
      {
        head: 'Position',
        kind: 'number',
        cell: ({ position }) => html`<a href="/events/at/${position}">${count(position)}</a>`,
      },
    ],
  })

const fields = ['since', 'actor', 'about', 'type', 'order'] as const

const pagesLinks = ({ typed, next, further }: AuditView): Renderable => {
  const query = new URLSearchParams()
  for (const name of fields) if (typed(name) !== '') query.set(name, typed(name))
  const first = `/audit${query.size === 0 ? '' : `?${query}`}`
  if (next !== null) query.set('after', next)
  return (
    (further || next !== null) &&
    html`<p class="actions">${further && html`<a class="button quiet" href="${first}">From the beginning</a> `}${next !== null && html`<a class="button" href="/audit?${query.toString()}">More</a>`}</p>`
  )
}
