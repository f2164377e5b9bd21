import { declarationNamed } from '../../administration/declarations.ts'
import {
  type Answer,
  isPersonal,
  type Lists,
  type Page,
  type Plan,
  type Row,
  type Sections,
} from '../../administration/declare.ts'
import { requestIdIn } from '../../call/request-id.ts'
import { askedFields, hasCsv, hrefOf, type Place } from '../declared.ts'
import type { Form } from '../form.ts'
import { balance, capitalized, sentence, utc } from '../format.ts'
import { type Html, html, type Renderable } from '../html.ts'
import { menu, type OrganizationPlace, organizationMenu } from '../menu.ts'
import { keyIdPattern, organizationPattern } from '../page.ts'
import type { AccountRow } from '../queries.ts'
import { control, type FieldsView } from './fields.ts'
import {
  crumbs,
  faultNotice,
  figures,
  formFields,
  layout,
  organizationHead,
  type Column as TableColumn,
  type Viewer,
} from './layout.ts'
import {
  isList,
  isText,
  labelOf,
  list,
  memberValue,
  type Names,
  noEntries,
  organizationForm,
  shownValue,
} from './values.ts'

/** The pages of commands (form, plan and answer) and of queries (filters and table). */

export type DeclaredView = {
  readonly viewer: Viewer
  readonly place: Place
  readonly account: AccountRow | null
  /** The values of the form, and the members of its answer. They name the organization, key, call or user that the command changes. */
  readonly about?: Row
}

type FormView = DeclaredView & FieldsView

const addressOf = ({ place: { path }, account }: DeclaredView): string =>
  path.replace(':organization', account?.organization_id ?? '')

/** The page to which *Back* and *Cancel* lead: the page of what the command changes, if that is known. */
const homeOf = ({ place: { declared }, account, about = {} }: DeclaredView): string => {
  const [noun = ''] = declared.name.split(' ')
  const named = (name: string, form: RegExp): string | null => {
    const { [name]: value } = about
    return typeof value === 'string' && form.test(value) ? value : null
  }
  const organizationId =
    account?.organization_id ??
    named('organization', organizationPattern) ??
    named('organization_id', organizationPattern)
  const home = organizationHomes[declared.name] ?? organizationHomes[noun]
  if (organizationId !== null && (account !== null || home !== undefined)) {
    const below = `/organizations/${organizationId}`
    const [keyId, requestId] = [named('key', keyIdPattern), requestIdIn(named('request', /./) ?? '')]
    if (keyId !== null) return `${below}/keys/${keyId}`
    return requestId === null ? `${below}${home ?? ''}` : `${below}/calls/${requestId}`
  }
  const user = noun === 'user' ? named('user', /./) : null
  if (user !== null) return `/commands/user/list?${new URLSearchParams({ name: user }).toString()}`
  return homes[declared.name] ?? homes[noun] ?? '/commands'
}

/** The page of an organization that opens after a command, by the name or the noun of the command. */
const organizationHomes: Readonly<Record<string, string>> = {
  org: '',
  credits: '',
  'credits void': '/credits/lots',
  key: '#keys',
  webhook: '/webhook/list',
  pixel: '/pixel/rules',
  price: '/price/show',
  ledger: '/ledger/months',
}
const homes: Readonly<Record<string, string>> = {
  org: '/commands/org/list',
  credits: '/commands/org/list',
  key: '/commands/key/list',
  price: '/commands/price/show',
  rerate: '/commands/rerate/list',
  ledger: '/commands/ledger/charges',
  'ledger reconcile': '/#reconciliation',
  geo: '/commands/data/list',
  companies: '/commands/data/list',
  lists: '/commands/data/list',
  profiles: '/commands/data/list',
  user: '/commands/user/list',
  webhook: '/commands/webhook/list',
  projection: '/operations',
  jobs: '/commands/jobs/list',
  'event-log': '/commands/event-log/list',
}

/**
 * The name in the menu. For a page that is not in a menu, the summary up to its first semicolon, without the verb of a query. The rest of the summary
 * becomes a note below the title.
 */
export const titleOf = (view: DeclaredView): string =>
  menuNameOf(view) ??
  capitalized(
    subjectOf(view)
      .replace(/;.*/, '')
      .replace(/^(the|an?) /, ''),
  )

const menuNameOf = (view: DeclaredView): string | undefined =>
  menu.find(({ href }) => href === addressOf(view))?.name ?? organizationPlaceOf(view)?.name

const organizationPlaceOf = ({ place }: DeclaredView) =>
  organizationMenu.find(({ path }) => place.path === `/organizations/:organization${path}`)

const subjectOf = ({ place: { declared } }: DeclaredView): string =>
  declared.changes === 'nothing' ? declared.summary.replace(/^(list|show) /, '') : declared.summary

const addedNote = (view: DeclaredView): Renderable => {
  const added =
    menuNameOf(view) === undefined ? subjectOf(view).split('; ').slice(1).join('; ') : subjectOf(view)
  return added !== '' && html`<p class="note">${capitalized(added)}.</p>`
}

const frame = (view: DeclaredView, title: string, main: Html, narrow = true): Html => {
  const { viewer, account } = view
  const at = menu.find(({ href }) => href === addressOf(view))?.href
  return layout({
    title: account === null ? title : `${title}: ${account.name}`,
    viewer,
    ...(at !== undefined && { at }),
    main: html`${account === null ? at === undefined && crumbs([['/commands', 'Commands'], titleOf(view)]) : headIn(view, account)}
<div${narrow && html` class="narrow"`}>
<h1>${title}</h1>
${account !== null && html`<p class="note"><a href="/organizations/${account.organization_id}">${account.name}</a>, balance ${balance(account.balance_micro)} credits</p>`}
${main}
</div>`,
  })
}

const headIn = (view: DeclaredView, account: AccountRow): Html => {
  const place = organizationPlaceOf(view)
  return place === undefined
    ? organizationHead(view.viewer, account, parents[view.place.declared.name] ?? null, titleOf(view))
    : organizationHead(view.viewer, account, place.path)
}

/** The page above a page in the breadcrumb, by the name of the command or query. */
const parents: Readonly<Record<string, OrganizationPlace>> = {
  'ledger totals': '/ledger/months',
  'ledger close': '/ledger/months',
}

/** Button labels of commands and long queries whose name does not end in a suitable verb. */
const labels: Readonly<Record<string, string>> = {
  'credits threshold': 'Set threshold',
  'event-log checkpoint': 'Sign checkpoint',
  'key limits': 'Change limits',
  'key replace-leaked': 'Replace the key',
  'pixel limit': 'Set limit',
  'pixel unlimit': 'Remove limit',
  'price diff': 'Compare',
  'price override': 'Set price',
  'user password': 'Set new password',
  'user role': 'Change role',
  'user second-factor': 'Remove second factor',
  'user token': 'Create token',
}

/** The label of the button that makes the change, or begins a long query. */
const verbOf = ({ place: { declared } }: DeclaredView, typed: Form): string => {
  const instead = ['withdraw', 'revoke'].find((flag) => typed.text(flag) !== '')
  if (instead !== undefined) return capitalized(instead)
  const [, verb = ''] = declared.name.split(' ')
  return labels[declared.name] ?? capitalized(verb.replaceAll('-', ' '))
}

const cancel = (view: DeclaredView): Html => html`<a href="${homeOf(view)}">Cancel</a>`

/** The label of the field that a message is about; null if the message is not about one field. */
const labelOfFault = ({ place, fault }: FormView): string | null =>
  askedFields(place).find(({ flag }) => flag === fault?.field)?.label ?? null

export const formPage = (view: FormView): Html => {
  const { viewer, place, fault } = view
  const { changes } = place.declared
  return frame(
    view,
    titleOf(view),
    html`${addedNote(view)}
${faultNotice(fault, labelOfFault(view))}
<form class="fields" method="post" action="${addressOf(view)}">
${formFields(viewer)}
${askedFields(place).map((field) => control(view, field))}
<p class="actions"><button type="submit">${changes !== 'nothing' && changes.asks === 'never' ? verbOf(view, view.typed) : 'Preview'}</button> ${cancel(view)}</p>
</form>`,
  )
}

export const planPage = (
  view: DeclaredView & {
    readonly plan: Plan
    readonly typed: Form
    readonly names: readonly (readonly [label: string, name: string])[]
  },
): Html => {
  const { viewer, place, plan, typed, names } = view
  const { changes } = place.declared
  const takes = (plan.asks ?? (changes === 'nothing' ? 'never' : changes.asks)) === 'always'
  return frame(
    view,
    `${titleOf(view)}?`,
    html`${plan.says.map((one) => html`<p>${sentence(one)}</p>`)}
${names.length > 0 && figures(names)}
${plan.sections === undefined ? members(plan.json ?? {}) : sectionsIn(view, plan.sections)}
<form method="post" action="${addressOf(view)}">
${formFields(viewer)}
<input type="hidden" name="confirmed" value="yes">
${askedFields(place).flatMap(({ flag }) =>
  typed.list(flag).map((value) => html`<input type="hidden" name="${flag}" value="${value}">`),
)}
<p class="actions"><button${takes && html` class="danger"`} type="submit">${verbOf(view, typed)}</button> ${cancel(view)}</p>
</form>`,
  )
}

/** The page for a plan without changes. */
export const nothingPage = (view: DeclaredView & { readonly plan: Plan }): Html =>
  frame(
    view,
    titleOf(view),
    html`${view.plan.says.map((one) => html`<p class="notice">${sentence(one)}</p>`)}
<p class="actions"><a class="button" href="${homeOf(view)}">Back</a></p>`,
  )

export const answerPage = (
  view: DeclaredView & { readonly answer: Answer; readonly calls: FirstCallsView | null },
): Html => {
  const { secret = '' } = view.place.declared
  const { [secret]: shownOnce, ...json }: Row = { ...view.answer.json }
  const answer = typeof shownOnce === 'string' ? { ...view.answer, json } : view.answer
  return frame(
    view,
    view.answer.failed === true ? 'Done, with failures' : 'Done',
    html`<p>${titleOf(view)}.</p>
${typeof shownOnce === 'string' && secretSection(labelOf(secret), shownOnce)}
${shownAnswer({ ...view, answer })}
${view.calls !== null && firstCallsSection(view.calls)}
${nextLinks({ ...view, answer })}
<p class="actions"><a class="button" href="${homeOf(view)}">Back</a></p>`,
  )
}

/** A secret is shown only here. */
const secretSection = (
  label: string,
  secret: string,
): Html => html`<p class="notice">Copy it now, because it is not shown again.</p>
<p class="label" id="secret-label">${label}</p>
<p class="secret" tabindex="0" aria-labelledby="secret-label"><code id="secret">${secret}</code></p>
<p class="actions"><button type="button" data-copy="secret" aria-live="polite" hidden>Copy</button></p>`

/** Example calls with a new API key. */
export type FirstCallsView = {
  readonly calls: readonly { readonly name: string; readonly text: string }[]
  /** Whether the examples contain the API's own address. */
  readonly apiKnown: boolean
}

const firstCallsSection = ({
  calls,
  apiKnown,
}: FirstCallsView): Html => html`<section aria-labelledby="first-call">
<h2 id="first-call">A first call</h2>
<p class="note">${
  apiKnown
    ? 'This is the address on which the service listens. Behind a proxy, use the address of the proxy.'
    : 'Replace api.example.com with the address of your API.'
}</p>
${calls.map(
  ({ name, text }, i) => html`<div class="heading"><h3 id="line-${i}-label">${name}</h3>
<button class="quiet" type="button" data-copy="line-${i}" aria-live="polite" hidden>Copy<span class="unseen"> ${name}</span></button></div>
<pre class="kept" tabindex="0" aria-labelledby="line-${i}-label"><code id="line-${i}">${text}</code></pre>`,
)}
</section>`

/** The result of a query: `page` for a list, otherwise `answer`. Both are null after a fault, or if the query has not run. */
export type Found = {
  readonly answer: Answer | null
  readonly page: Page | null
  readonly names: Names
  /** Whether this is not the first page. */
  readonly further: boolean
}

export const listPage = (view: FormView & Found): Html => {
  const { place, viewer, fault, answer, page } = view
  const chosen = (page?.about ?? answer)?.chosen ?? {}
  const typed: Form = { ...view.typed, text: (name) => view.typed.text(name) || (chosen[name] ?? '') }
  const fields = askedFields(place)
  const long = place.declared.long !== undefined
  const file = place.declared.types !== undefined
  const sent = long || isPersonal(place.declared)
  const query = new URLSearchParams(
    fields.flatMap(({ flag }) =>
      typed.text(flag) === '' ? [] : [[flag, typed.text(flag)] as [string, string]],
    ),
  ).toString()
  return frame(
    view,
    titleOf(view),
    html`${addedNote(view)}
${faultNotice(fault, labelOfFault(view))}
${
  (fields.length > 0 || long) &&
  html`<form class="${sent || file ? 'fields' : 'filters'}" method="${sent ? 'post' : 'get'}" action="${addressOf(view)}${file && '/file'}">
${sent && formFields(viewer)}
${fields.map((field) => control({ ...view, typed }, field))}
<p class="actions"><button type="submit">${long ? verbOf(view, typed) : file ? 'Download' : 'Show'}</button></p>
</form>`
}
${nextLinks({ ...view, answer: page?.about ?? answer })}
${answer !== null && shownAnswer({ ...view, answer })}
${page?.about?.sections !== undefined && sectionsIn(view, page.about.sections)}
${page !== null && listOf(view, page, query)}`,
    false,
  )
}

/** The interval at which the page of running work reloads if no script runs. */
const refreshSeconds = 3

/** The progress of running work. The page refreshes itself, and shows the result when the work has ended. */
export const workPage = ({
  viewer,
  title,
  since,
  progress,
  path,
}: {
  readonly viewer: Viewer
  readonly title: string
  readonly since: Date
  readonly progress: string
  /** The address of the page. */
  readonly path: string
}): Html =>
  layout({
    title,
    viewer,
    refreshSeconds,
    main: html`<div class="narrow" id="work" hx-get="${path}" hx-trigger="every 1s" hx-select="#main" hx-target="#main" hx-swap="outerMorph" hx-status:5xx="swap:none">
<h1>${title}</h1>
<p class="note">Started ${utc(since)}. The work continues if you leave this page.</p>
<p class="notice" role="status" data-progress>${progress}</p>
<p class="bar" aria-hidden="true"></p>
</div>`,
  })

/** The page with the answer of long-running work. */
export const workAnswerPage = (view: DeclaredView & { readonly answer: Answer }): Html =>
  view.place.declared.changes === 'nothing'
    ? frame(
        view,
        titleOf(view),
        html`${nextLinks(view)}
${shownAnswer(view)}
<p class="actions"><a class="button" href="${addressOf(view)}">Run again</a></p>`,
        false,
      )
    : answerPage({ ...view, calls: null })

/** The page with the reason why long-running work was refused or failed. */
export const workFailedPage = (view: DeclaredView & { readonly message: string }): Html =>
  frame(
    view,
    titleOf(view),
    html`<p class="notice bad" role="alert">${sentence(view.message)}</p>
<p class="actions"><a class="button" href="${addressOf(view)}">Try again</a> <a href="${homeOf(view)}">Back</a></p>`,
  )

const askerOf = ({ viewer, account }: DeclaredView) => ({
  role: viewer.role,
  organizationId: account?.organization_id ?? null,
})

/** Links to the next steps that the user's role permits. */
const nextLinks = (view: DeclaredView & { readonly answer?: Pick<Answer, 'next'> | null }): Renderable => {
  const links = [...(view.place.declared.next ?? []), ...(view.answer?.next ?? [])].flatMap((next) => {
    const declared = declarationNamed(next.name)
    const given: Row = ('given' in next ? next.given : undefined) ?? {}
    const personal = isPersonal(declared)
    const href = hrefOf(personal ? { name: next.name } : next, askerOf(view))
    if (href === null) return []
    if (!personal) return [html`<a class="button quiet" href="${href}">${next.label}</a> `]
    return [
      html`<form method="post" action="${href}">${formFields(view.viewer)}${declared.fields.map(
        ({ name, flag }) =>
          given[name] !== undefined &&
          html`<input type="hidden" name="${flag}" value="${String(given[name])}">`,
      )}<button class="quiet" type="submit">${next.label}</button></form> `,
    ]
  })
  return links.length > 0 && html`<div class="actions">${links}</div>`
}

/** A page of a list, with links to its other pages. */
export const listOf = (view: DeclaredView & Found, page: Page, query: string): Html => {
  const { rows, next } = page
  const { columns } = view.place.declared
  const address = addressOf(view)
  const more = new URLSearchParams(query)
  if (next !== null) more.set('cursor', next)
  const asked = query === '' ? '' : `?${query}`
  return html`${page.lacks !== null && html`<p class="notice bad" role="alert">${capitalized(page.lacks)}.</p>`}
${list(rows, { caption: titleOf(view), columns, names: view.names, empty: emptyOf(view, page, query), more: columnOfNext(view, view.place.declared, rows) })}
${(view.further || next !== null) && html`<nav class="pager" aria-label="Pages">${view.further && html`<a href="${address}${asked}">First page</a> `}${next !== null && html`<a href="${address}?${more.toString()}">Next page</a>`}</nav>`}
${hasCsv(view.place.declared) && html`<p class="note"><a href="${address}.csv${asked}">Download CSV</a></p>`}`
}

const emptyOf = (view: DeclaredView & Found, { next }: Page, query: string): Renderable =>
  next !== null
    ? 'No entries among those searched. The next page continues the search.'
    : view.further
      ? 'The list ends here.'
      : query === ''
        ? `${view.place.declared.empty ?? noEntries}.`
        : html`${view.place.declared.empty ?? 'No entries match'}. <a href="${addressOf(view)}">Show all entries</a>`

/** A last column with the actions that the user's role permits for each row. */
const columnOfNext = (
  view: DeclaredView,
  { columns, nextOfRow = [] }: Lists[string],
  rows: readonly Row[],
): TableColumn<Row>[] => {
  const { role, organizationId } = askerOf(view)
  const links = new Map(
    rows.map((row) => [
      row,
      nextOfRow.flatMap(({ name, label, given }) => {
        const values = given(row)
        const own = typeof row.organization_id === 'string' ? row.organization_id : null
        const asker = { role, organizationId: organizationId ?? own }
        const href = values === null ? null : hrefOf({ name, given: values }, asker)
        const { name: first, named = first } = columns?.[0] ?? { name: '' }
        const value = row[named]
        // A link must not contain another link.
        const about = typeof value === 'string' && organizationForm.test(value) ? value : shownValue(value)
        return href === null
          ? []
          : [html`<a href="${href}">${label}<span class="unseen"> ${about}</span></a> `]
      }),
    ]),
  )
  if (![...links.values()].some((one) => one.length > 0)) return []
  return [{ head: 'Actions', cell: (row) => links.get(row) ?? [] }]
}

const shownAnswer = (view: DeclaredView & { readonly answer: Answer }): Renderable => {
  const { json, lines, sections } = view.answer
  const { columns, lists } = view.place.declared
  if (lists !== undefined) return members(json, view)
  if (sections !== undefined) {
    const { organization_id: named }: Row = { ...json }
    const of = view.account?.organization_id ?? (typeof named === 'string' ? named : undefined)
    return sectionsIn(view, sections, of)
  }
  if (Array.isArray(json)) return list(json as Row[], { caption: titleOf(view), columns })
  if (lines !== undefined && Object.keys(json).length === 0) return html`<pre>${lines.join('\n')}</pre>`
  return members(json)
}

/** The heading before a table is its caption. `callsOf` is the organization to which the request ids belong. */
const sectionsIn = (view: DeclaredView, sections: Sections, callsOf?: string): Renderable =>
  sections.map((section, i) => {
    if (typeof section === 'string') return html`<h2>${section}</h2>`
    if (!Array.isArray(section)) return members(section)
    const heads = sections.slice(0, i).filter((one) => typeof one === 'string')
    return list(section as Row[], { caption: heads.at(-1) ?? titleOf(view), callsOf })
  })

/** Shows the members of an object as figures, and its lists as tables. Absent members are left out. */
const members = (json: object, view: DeclaredView | null = null): Renderable => {
  const { lists = {}, changes } = view?.place.declared ?? {}
  // The result of a change names only the lots, keys and so on that it changed.
  const isEmptyList = (name: string, value: unknown): boolean =>
    changes !== undefined && lists[name] !== undefined && Array.isArray(value) && value.length === 0
  const entries = Object.entries(json).filter(
    ([name, value]) =>
      name !== 'dry_run' && value !== null && value !== undefined && !isEmptyList(name, value),
  )
  const texts = entries.filter(([name, value]) => isText(name, value))
  const plain = entries.filter(([name, value]) => !isList(value) && !isText(name, value))
  return [
    plain.length > 0 &&
      figures(plain.map(([name, value]) => [labelOf(name), memberValue(name, value, { ...json })])),
    ...texts.map(([name, value]) =>
      name === 'note' && !String(value).includes('\n')
        ? html`<p class="note">${sentence(String(value))}</p>`
        : html`<p class="label">${labelOf(name)}</p>${shownValue(value)}`,
    ),
    ...entries
      .filter(([, value]) => isList(value))
      .map(([name, value]) => {
        const rows = value as Row[]
        const as = lists[name] ?? {}
        const { label = labelOf(name), columns } = as
        const more = view === null ? [] : columnOfNext(view, as, rows)
        return html`<h2>${label}</h2>${list(rows, { caption: label, columns, more })}`
      }),
  ]
}
