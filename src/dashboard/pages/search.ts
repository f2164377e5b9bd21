import { type Html, html } from '../html.ts'
import { type Choice, suggesting, suggestions } from './choices.ts'
import { csrfField, type FormFault, faultNotice, layout, table, type Viewer } from './layout.ts'

export type Hit = Pick<Choice, 'id' | 'name' | 'about'> & {
  readonly href: string
  /** Whether the searched text is the whole id or name of the result. */
  readonly exact: boolean
}

/** Search results of one kind. `more` is true if there are more results of this kind. */
export type Found = { readonly title: string; readonly hits: readonly Hit[]; readonly more: boolean }

export const searchPage = ({
  viewer,
  can,
  text,
  found,
  fault,
  callsAbout,
}: {
  readonly viewer: Viewer
  /** The kinds of text for which this user can search. */
  readonly can: readonly string[]
  readonly text: string
  readonly found: readonly Found[]
  readonly fault: FormFault | null
  /** The address of the form that finds the calls about the text; null if the page does not offer it. */
  readonly callsAbout: string | null
}): Html => {
  const groups = found.filter(({ hits }) => hits.length > 0)
  const title = text === '' ? 'Search' : `Search: ${text}`
  return layout({
    // The title must not contain the text, because browsers store titles in their history.
    title: 'Search',
    viewer,
    searched: text,
    main: html`<h1>${title}</h1>
${faultNotice(fault)}
${groups.map(groupSection)}
${callsAbout !== null && callsAboutForm(viewer, { text, at: callsAbout })}
${
  groups.length === 0 &&
  html`${text !== '' && html`<p class="empty">No results with this id or name. A new call can be found after about a second.</p>`}
<p>You can search for:</p>
<ul>${can.map((one) => html`<li>${one}</li>`)}</ul>`
}`,
  })
}

/** The form asks for an organization outside the pages of an organization. */
const callsAboutForm = (
  { csrf }: Viewer,
  { text, at }: { readonly text: string; readonly at: string },
): Html => html`<section aria-labelledby="calls-about">
<h2 id="calls-about">Calls about this input</h2>
<p>Find the calls of one organization about this e-mail address, IP address or profile. The audit records you and the organization, but not the text.</p>
<form class="fields" method="post" action="${at}">
${csrfField(csrf)}
<input type="hidden" name="input" value="${text}">
${
  at.startsWith('/commands/') &&
  html`<p><label for="org">Organization</label>
<input id="org" name="org" required maxlength="200" autocomplete="off"${suggesting('org', { address: '/pick/organizations', within: null })}></p>
${suggestions('org', { found: [], more: false })}`
}
<p class="actions"><button type="submit">Find calls about this input</button></p>
</form>
</section>`

const groupSection = (
  { title, hits, more }: Found,
  i: number,
): Html => html`<section aria-labelledby="group-${i}">
<h2 id="group-${i}">${title}</h2>
${table({
  caption: title,
  rows: hits,
  columns: [
    { head: 'Name', kind: 'name', cell: ({ href, name }) => html`<a href="${href}">${name}</a>` },
    { head: 'Id', cell: ({ id, name }) => id !== name && html`<span class="id whole">${id}</span>` },
    { head: 'About', cell: ({ about }) => about },
  ],
})}
${more && html`<p class="note">There are more results. Type more of the name.</p>`}
</section>`
