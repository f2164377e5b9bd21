import { type Html, html } from '../html.ts'

/** Organizations for people: their names, by id. */
export type Names = ReadonlyMap<string, string>

/** The name with the id below it; only the id if the name is unknown. `path`: the page that the link leads to. */
export const organizationLink = (id: string, names: Names, path = ''): Html => {
  const name = names.get(id)
  const href = `/organizations/${id}${path}`
  return name === undefined
    ? html`<a href="${href}"><span class="id">${id}</span></a>`
    : html`<a href="${href}">${name}</a> <span class="id below">${id}</span>`
}
