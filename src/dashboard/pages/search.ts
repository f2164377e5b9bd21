import { type Html, html } from '../html.ts'
import type { Choice } from './choices.ts'
import { type FormFault, faultNotice, layout, table, type Viewer } from './layout.ts'

/** The things that match a text, by kind. */

export type Hit = Pick<Choice, 'id' | 'name' | 'about'> & {
  readonly href: string
  /** The text is its id or its name. */
  readonly exact: boolean
}

/** Things of one kind. `more`: there are further ones. */
export type Found = { readonly title: string; readonly hits: readonly Hit[]; readonly more: boolean }

export const searchPage = ({
  viewer,
  can,
  text,
  found,
  fault,
}: {
  readonly viewer: Viewer
  /** The texts by which this person can search. */
  readonly can: readonly string[]
  readonly text: string
  readonly found: readonly Found[]
  readonly fault: FormFault | null
}): Html => {
  const groups = found.filter(({ hits }) => hits.length > 0)
  const title = text === '' ? 'Search' : `Search: ${text}`
  return layout({
    title,
    viewer,
    searched: text,
    main: html`<h1>${title}</h1>
${faultNotice(fault)}
${groups.map(groupSection)}
${
  groups.length === 0 &&
  html`${text !== '' && html`<p class="empty">Nothing that you may see has this id or name. A new call can be found after about a second.</p>`}
<p>You can search for:</p>
<ul>${can.map((one) => html`<li>${one}</li>`)}</ul>`
}`,
  })
}

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
${more && html`<p class="note">There are more. Type more of the name.</p>`}
</section>`
