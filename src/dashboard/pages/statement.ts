import type { FastifyInstance } from 'fastify'
import { capability } from '../../events/capabilities.ts'
import { type Form, formOf } from '../form.ts'
import { words } from '../format.ts'
import { type Html, html, type Renderable } from '../html.ts'
import { linePlaces } from '../line-places.ts'
import {
  accountAt,
  type Dashboard,
  keyIdPattern,
  type OrganizationParams,
  sendPage,
  viewerOf,
} from '../page.ts'
import {
  type AccountRow,
  keysOf,
  type LineFilters,
  linesThatFit,
  rowsOf,
  type StatementRow,
} from '../queries.ts'
import { layout, organizationHead, table, type Viewer } from './layout.ts'
import { lineColumns } from './statement-lines.ts'

/**
 * The statement with filters, one page of lines at a time. Scripts extend the list in place; without scripts, a link leads to the next page.
 */

const pageLines = 50
/** The maximum number of revisions that are searched for one page, including lines that do not match. */
const lookedMax = 200_000n
const keysMax = 200
const dayMs = 86_400_000
const always = { fromMs: Date.parse('0001-01-01'), untilMs: Date.parse('9999-12-31') }

/** The start of a day; null if the text is not an existing day. */
const dayMsOf = (text: string): number | null => {
  const ms = /^\d{4}-\d\d-\d\d$/.test(text) ? Date.parse(text) : Number.NaN
  return Number.isNaN(ms) || !new Date(ms).toISOString().startsWith(text) ? null : ms
}

const oneOf = (text: string, known: readonly string[]): string | null => (known.includes(text) ? text : null)

const filtersIn = (form: Form): LineFilters => {
  const to = dayMsOf(form.text('to'))
  const key = form.text('key')
  return {
    kind: oneOf(form.text('kind'), lineKinds),
    keyId: keyIdPattern.test(key) ? key : null,
    capability: oneOf(form.text('capability'), capability.options),
    outcome: oneOf(form.text('outcome'), lineOutcomes),
    fromMs: dayMsOf(form.text('from')) ?? always.fromMs,
    untilMs: to === null ? always.untilMs : to + dayMs,
  }
}

export const statementRoutes = (pages: FastifyInstance, context: Dashboard): void => {
  const { pool } = context.foundation
  pages.get<OrganizationParams>('/organizations/:organization/statement', async (request, reply) => {
    const account = await accountAt(context, request.params.organization)
    const id = account.organization_id
    const form = formOf(request.query)
    const filters = filtersIn(form)
    const isBounded = filters.fromMs !== always.fromMs || filters.untilMs !== always.untilMs
    const [keys, places] = await Promise.all([
      rowsOf(pool, keysOf(id, { max: keysMax, nowMs: Date.now() })),
      isBounded ? linePlaces(pool, id, filters) : null,
    ])
    const last = places === null ? BigInt(account.revision) : BigInt(places.last)
    const before = form.text('before')
    const below = /^\d{1,15}$/.test(before) ? BigInt(before) : last + 1n
    const first = places === null ? 0n : BigInt(places.first)
    const above = below - lookedMax > first ? below - lookedMax : first
    const found = await rowsOf(
      pool,
      linesThatFit(id, { above: String(above - 1n), below: String(below), max: pageLines + 1 }, filters),
    )
    const lines = found.slice(0, pageLines)
    const older =
      found.length > pageLines ? (lines.at(-1)?.revision ?? null) : above > first ? String(above) : null
    return sendPage(
      reply,
      statementPage({ viewer: viewerOf(request, reply), account, typed: form, keys, lines, older }),
    )
  })
}

const lineKinds: readonly string[] = ['call', 'refused', 'rate_limited', 'grant', 'expiry', 'adjustment']
const lineOutcomes: readonly string[] = ['answered', 'refused', 'failed']

type StatementView = {
  readonly viewer: Viewer
  readonly account: AccountRow
  readonly typed: Form
  readonly keys: readonly { readonly key_id: string; readonly name: string }[]
  readonly lines: readonly StatementRow[]
  /** The revision below which the next page continues; null if no further line matches. */
  readonly older: string | null
}

const statementPage = (view: StatementView): Html => {
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
  // Only a page with a table can be extended.
  const grows =
    lines.length > 0 &&
    html` hx-get="${href}" hx-select="#lines tbody > tr" hx-target="#lines tbody" hx-swap="beforeend" hx-select-oob="#pager"`
  return html`<nav class="pager" id="pager" aria-label="Pages of the statement"><a class="button quiet" href="${href}"${grows}>Older lines</a></nav>`
}
