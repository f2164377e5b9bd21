import { durationText } from '../../administration/checks/check.ts'
import type { UserRole } from '../../events/users.ts'
import { mayOpen } from '../access.ts'
import { type AssetName, assetHref } from '../assets.ts'
import { count, sentence } from '../format.ts'
import { type Html, html, type Renderable } from '../html.ts'
import { type MenuPlace, menu, type OrganizationPlace, organizationMenu } from '../menu.ts'
import type { LateRows, RowsState } from '../rows.ts'
import type { Times } from '../times.ts'
import { suggesting } from './choices.ts'

/** The layout of every page, and common parts of pages. */

/** The user who views the page, and the tokens of its forms. */
export type Viewer = {
  readonly user: string
  readonly role: UserRole
  readonly csrf: string
  /** The token that ensures that a form of this page is accepted only once. */
  readonly once: string
  /** Whether all rows are current. */
  readonly rows: RowsState | null
  /** The URL of the documentation for partners; null if it is not known in this process. */
  readonly docsUrl: string | null
  /** Whether scripts show the times on the page in UTC or as local time. */
  readonly times: Times
}

export const layout = ({
  title,
  viewer,
  main,
  at,
  scripts = [],
  refreshSeconds,
  searched = '',
}: {
  title: string
  viewer: Viewer | null
  main: Renderable
  /** The page's place in the menu. */
  at?: MenuPlace
  /** Scripts of this page, in addition to those of every page. */
  scripts?: readonly AssetName[]
  /** The number of seconds after which the page reloads if no script runs. */
  refreshSeconds?: number
  searched?: string
}): Html => html`<html lang="en"${viewer?.times === 'local' && html` data-times="local"`}>
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${title} · Enrichment ledger</title>
<link rel="icon" type="image/svg+xml" href="${assetHref('mark.svg')}">
<link rel="stylesheet" href="${assetHref('style.css')}">
<meta name="htmx-config" content="${htmxConfig}">
${refreshSeconds !== undefined && html`<noscript><meta http-equiv="refresh" content="${refreshSeconds}"></noscript>`}
${(['page.js', ...(viewer === null ? [] : (['more.js'] as const)), ...scripts] as const).map((name) => html`<script type="module" src="${assetHref(name)}"></script>`)}
</head>
<body>
<a class="skip" href="#main">Skip to content</a>
<header class="top">
<a class="brand" href="/">Enrichment ledger</a>
${viewer !== null && searchForm(viewer, searched)}
${viewer !== null && mainMenu(viewer, at)}
${
  viewer !== null &&
  html`<form class="who" method="post" action="/logout">
${csrfField(viewer.csrf)}
${viewer.docsUrl !== null && html`<a href="${viewer.docsUrl}">Documentation</a>`}
<span><span class="unseen">Signed in as </span><a href="/me"><strong>${viewer.user}</strong></a></span>
<button class="quiet" type="submit">Sign out</button>
</form>`
}
</header>
<main id="main">
${viewer !== null && rowsNotice(viewer)}
${main}
</main>
<footer>
<p><span id="times">All times are UTC.</span>${viewer !== null && html` <a href="/me#times-choice">Change</a>.`} <a href="https://db-ip.com">IP geolocation by DB-IP</a>
(<a href="https://creativecommons.org/licenses/by/4.0/">CC BY 4.0</a>).</p>
</footer>
</body>
</html>`

/** The text can be personal data, so it is sent by POST. The pattern prevents browsers from sending a whole key. */
const searchForm = (
  { csrf }: Viewer,
  text: string,
): Html => html`<form class="search" method="post" action="/search" role="search">
${csrfField(csrf)}
<label class="unseen" for="q">Search</label>
<input id="q" name="q" type="search" value="${text}" placeholder="Search: an id, a name, a page" maxlength="200" autocomplete="off" autocapitalize="off" spellcheck="false" aria-keyshortcuts="Control+K /" pattern="(?!\\s*enl_[a-z]+_[0-9A-Za-z]{16}.).*" title="The id of a key, without its secret"${suggesting('q', { address: '/search/choices', within: null, posted: true })}>
<datalist id="q-choices"></datalist>
</form>`

const mainMenu = ({ role }: Viewer, at: MenuPlace | undefined): Html => {
  const groups = Map.groupBy(
    menu.filter(({ href }) => mayOpen(role, `GET ${href}`)),
    ({ group }) => group,
  )
  const links = (lines: readonly (typeof menu)[number][]): Renderable =>
    lines.map(
      ({ href, name }) => html`<a href="${href}"${href === at && html` aria-current="page"`}>${name}</a> `,
    )
  return html`<nav class="menu" aria-label="Main">${[...groups].map(([group, lines]) =>
    group === null
      ? links(lines)
      : html`<div role="group" aria-label="${group}"><span aria-hidden="true">${group}</span> ${links(lines)}</div> `,
  )}</nav>`
}

/** With these settings, htmx runs no code from attributes, adds no style and stores no page. */
const htmxConfig = '{"includeIndicatorCSS":false,"history":false,"extensions":"none"}'

/** The header of an organization's pages. */
export const organizationHead = (
  { role }: Viewer,
  account: { readonly organization_id: string; readonly name: string },
  at: OrganizationPlace | null,
  /** The name of the page, if the page itself is not in the menu. */
  here?: string,
): Html => {
  const name = account.name
  const own = `/organizations/${account.organization_id}`
  const place = organizationMenu.find(({ path }) => path === at && path !== '')
  return html`${crumbs([
    ...(mayOpen(role, 'GET /commands/org/list') ? [['/commands/org/list', 'Organizations'] as const] : []),
    ...(at === '' && here === undefined ? [] : [[own, name] as const]),
    ...(here === undefined || place === undefined ? [] : [[`${own}${place.path}`, place.name] as const]),
    here ?? place?.name ?? name,
  ])}
<nav class="places" aria-label="Pages of ${name}">${organizationMenu.map(
    ({ path, name: called }) =>
      html`<a href="${own}${path}"${path === at && html` aria-current="page"`}>${called}</a> `,
  )}</nav>`
}

type Crumb = readonly [href: string, name: string]

/** Links to the pages above a page, and its own name. */
export const crumbs = (way: readonly (Crumb | string)[]): Html =>
  html`<nav class="crumbs" aria-label="Breadcrumb"><ol>${way.map((one) =>
    typeof one === 'string'
      ? html`<li><span aria-current="page">${one}</span></li>`
      : html`<li><a href="${one[0]}">${one[1]}</a></li>`,
  )}</ol></nav>`

export const csrfField = (token: string): Html => html`<input type="hidden" name="_csrf" value="${token}">`

/** The hidden fields of a form that changes something. */
export const formFields = ({ csrf, once }: Viewer): Html =>
  html`${csrfField(csrf)}<input type="hidden" name="once" value="${once}">`

export type Column<Row> = {
  readonly head: string
  readonly cell: (row: Row) => Renderable
  readonly kind?: 'number' | 'name'
}

/** A table. On narrow screens it becomes a list of cards, in which each cell shows the head of its column. */
export const table = <Row>({
  caption,
  columns,
  rows,
  idOf,
}: {
  caption: string
  columns: readonly Column<Row>[]
  rows: readonly Row[]
  idOf?: (row: Row) => string
}): Html => html`<table>
<caption class="unseen">${caption}</caption>
<thead><tr>${columns.map(({ head, kind }) => html`<th scope="col"${classOf(kind)}>${head}</th>`)}</tr></thead>
<tbody>
${rows.map(
  (row) => html`<tr${idOf !== undefined && html` id="${idOf(row)}"`}>${columns.map(({ head, cell, kind }) =>
    kind === 'name'
      ? html`<th scope="row" class="name" data-head="${head}">${cell(row)}</th>`
      : html`<td${classOf(kind)} data-head="${head}"><div>${cell(row)}</div></td>`,
  )}</tr>
`,
)}</tbody>
</table>`

const classOf = (kind: string | undefined): Renderable => kind !== undefined && html` class="${kind}"`

/** Figures with their labels, the most important first. */
export const figures = (entries: readonly (readonly [name: string, value: Renderable])[]): Html =>
  html`<dl class="figures">${entries.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`

/** A fault in a form. `field` names the invalid input, if there is one. */
export type FormFault = {
  readonly field: string | null
  readonly message: string
}

/** `label` names the field for forms with many fields. */
export const faultNotice = (fault: FormFault | null, label: string | null = null): Renderable =>
  fault !== null &&
  html`<p class="notice bad" role="alert" id="fault">${label !== null && html`<strong>${label}:</strong> `}${sentence(fault.message)}</p>`

/** Attributes that connect an input to its hint and to its error message. */
export const described = (field: string, fault: FormFault | null, hint?: string): Renderable => {
  const faulty = fault?.field === field
  const by = [hint, faulty ? 'fault' : undefined].filter((id) => id !== undefined).join(' ')
  return [faulty && html` aria-invalid="true"`, by !== '' && html` aria-describedby="${by}"`]
}

/** The field for the user's current password. */
export const presentPassword = (fault: FormFault | null, id = 'present'): Html =>
  passwordField({ id, name: 'present', label: 'Current password', autocomplete: 'current-password' }, fault)

export const newPasswordField = (name: string, label: string, fault: FormFault | null): Html =>
  passwordField({ id: name, name, label, autocomplete: 'new-password' }, fault)

const passwordField = (
  { id, name, label, autocomplete }: Readonly<Record<'id' | 'name' | 'label' | 'autocomplete', string>>,
  fault: FormFault | null,
): Html =>
  html`<p><label for="${id}">${label}</label>
<input id="${id}" name="${name}" type="password" required maxlength="1024" autocomplete="${autocomplete}"${described(name, fault)}></p>`

/** The notice above every page while rows are out of date. */
const rowsNotice = ({ role, rows }: Pick<Viewer, 'role' | 'rows'>): Renderable => {
  if (rows === null || rows.kind === 'current') return null
  if (rows.kind === 'unknown')
    return html`<p class="notice" role="status">Some figures may be out of date, because the event log or the database did not answer.</p>`
  return html`<div class="notice bad" role="status"><p><strong>Some figures are out of date.</strong> Newer events are missing from the projections below. Nothing is lost, and charges do not depend on them.</p>
<ul>${rows.late.map((one) => html`<li>${named(one, mayOpen(role, 'GET /commands/projection/list'))} ${says(one)}</li>`)}</ul></div>`
}

const named = ({ name }: LateRows, leads: boolean): Html =>
  leads
    ? html`<a href="/commands/projection/list?name=${name}">${name}</a>`
    : html`<span class="id">${name}</span>`

const says = ({ state, behind, seconds }: LateRows): Html => {
  const far = html`${durationText(seconds * 1_000)} (${count(behind)} position${behind === 1n ? '' : 's'}) behind the event log`
  return {
    behind: html`is ${far}.`,
    halted: html`is halted, ${far}. It must be rebuilt.`,
    stream: html`has stopped for this organization at an event that it cannot process.`,
  }[state]
}
