import { capability } from '../../events/capabilities.ts'
import type { Form } from '../form.ts'
import { words } from '../format.ts'
import { type Html, html, type Renderable } from '../html.ts'
import type { AccountRow, StatementRow } from '../queries.ts'
import { layout, organizationHead, table, type Viewer } from './layout.ts'
import { lineColumns } from './statement-lines.ts'

/** The statement with filters. The list grows in place; without scripts, a link leads to the next page. */

export const lineKinds: readonly string[] = [
  'call',
  'refused',
  'rate_limited',
  'grant',
  'expiry',
  'adjustment',
]
export const lineOutcomes: readonly string[] = ['answered', 'refused', 'failed']

type StatementView = {
  readonly viewer: Viewer
  readonly account: AccountRow
  readonly typed: Form
  readonly keys: readonly { readonly key_id: string; readonly name: string }[]
  readonly lines: readonly StatementRow[]
  /** The revision below which the next page continues; null if no further line matches. */
  readonly older: string | null
}

export const statementPage = (view: StatementView): Html => {
  const { viewer, account, lines } = view
  const path = `/organizations/${account.organization_id}`
  return layout({
    title: `Statement of ${account.name}`,
    viewer,
    main: html`${organizationHead(viewer, account, '/statement')}
<h1>Statement of ${account.name}</h1>
<p class="note">Download a month as CSV under <a href="${path}/months">Months</a>. The file also has the balance after each line, and the reason and reference of each grant, refund and correction.</p>
${filterForm(view, path)}
${
  lines.length === 0
    ? html`<p class="empty">${view.older === null ? 'No lines match.' : 'No lines match among those searched. Older lines may match.'}</p>`
    : html`<div id="lines">${table({
        caption: 'Matching lines, newest first',
        rows: lines,
        idOf: (line) => `line-${line.revision}`,
        columns: lineColumns(account.organization_id),
      })}</div>`
}
${pager(view, path)}`,
  })
}

const choice = (
  name: string,
  label: string,
  options: readonly (readonly [value: string, shown: string])[],
  chosen: string,
): Html => html`<p><label for="${name}">${label}</label>
<select id="${name}" name="${name}"><option value="">any</option>${options.map(
  ([value, shown]) => html`<option value="${value}"${value === chosen && html` selected`}>${shown}</option>`,
)}</select></p>`

const named = (values: readonly string[]): (readonly [string, string])[] =>
  values.map((value) => [value, words(value)])

const filterForm = (
  { typed, keys }: StatementView,
  path: string,
): Html => html`<form class="filters" method="get" action="${path}/statement">
<p><label for="from">From (UTC)</label><input id="from" name="from" type="date" value="${typed.text('from')}"></p>
<p><label for="to">Through</label><input id="to" name="to" type="date" value="${typed.text('to')}"></p>
${choice('kind', 'Kind', named(lineKinds), typed.text('kind'))}
${choice('capability', 'Capability', named(capability.options), typed.text('capability'))}
${choice('outcome', 'Outcome', named(lineOutcomes), typed.text('outcome'))}
${choice(
  'key',
  'Key',
  keys.map(({ key_id, name }) => [key_id, `${name} ${key_id}`]),
  typed.text('key'),
)}
<p class="actions"><button type="submit">Show</button> <a href="${path}/statement">All lines</a></p>
</form>`

const pager = ({ typed, older, lines }: StatementView, path: string): Renderable => {
  if (older === null) return html`<nav class="pager" id="pager" aria-label="Pages of the statement"></nav>`
  const query = new URLSearchParams({ before: older })
  for (const name of ['from', 'to', 'kind', 'capability', 'outcome', 'key'])
    if (typed.text(name) !== '') query.set(name, typed.text(name))
  const href = `${path}/statement?${query.toString()}`
  // Without a table on the page, there is nothing to extend.
  const grows =
    lines.length > 0 &&
    html` hx-get="${href}" hx-select="#lines tbody > tr" hx-target="#lines tbody" hx-swap="beforeend" hx-select-oob="#pager"`
  return html`<nav class="pager" id="pager" aria-label="Pages of the statement"><a class="button quiet" href="${href}"${grows}>Older lines</a></nav>`
}
