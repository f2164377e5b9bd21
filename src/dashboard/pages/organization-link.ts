import { type Html, html } from '../html.ts'

/** Organizations as people know them: what they are called, by id. */
export type Names = ReadonlyMap<string, string>

/** Its name with its id below it; the id alone where its name is not known. `path`: which of its pages the link leads to. */
export const organizationLink = (id: string, names: Names, path = ''): Html => {
  const name = names.get(id)
  const href = `/organizations/${id}${path}`
  return name === undefined
    ? html`<a href="${href}"><span class="id">${id}</span></a>`
    : html`<a href="${href}">${name}</a> <span class="id below">${id}</span>`
}
