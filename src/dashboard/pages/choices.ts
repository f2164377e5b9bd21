import { type Html, html, type Renderable } from '../html.ts'

/** Form fields for values that people choose by name. */

export type Choice = {
  readonly id: string
  readonly name: string
  readonly about: string
  /** The organization to which the choice belongs; null if it belongs to none. */
  readonly organization_id: string | null
}

export type Choices = {
  readonly found: readonly Choice[]
  /** Whether there are more choices after these. */
  readonly more: boolean
}

/** The text of a choice in the browser's suggestions: its name and its id. */
export const suggested = ({ id, name }: Pick<Choice, 'id' | 'name'>): string =>
  id === name ? id : `${name} (${id})`

/** The name of the form field for the choice if a text matches several entries. */
export const chosenName = (flag: string): string => `${flag}-chosen`

/** Begins the value that requests the choices after an id. */
export const afterMark = 'after '

export const choiceOptions = ({
  found,
}: {
  readonly found: readonly Omit<Choice, 'organization_id'>[]
}): Html => html`${found.map((one) => html`<option value="${suggested(one)}">${one.about}</option>`)}`

/** The choices that a browser suggests. Scripts replace them while a person types. */
export const suggestions = (flag: string, choices: Choices): Html =>
  html`<datalist id="${flag}-choices">${choiceOptions(choices)}</datalist>`

/**
 * The attributes of an input with suggestions from `address`. `within` names the field with the organization to which the suggestions must
 * belong. If `posted` is true, the text is not in a URL.
 */
export const suggesting = (
  flag: string,
  {
    address,
    within,
    posted = false,
  }: { readonly address: string; readonly within: string | null; readonly posted?: boolean },
): Html =>
  html` list="${flag}-choices" ${posted ? 'hx-post' : 'hx-get'}="${address}?field=${flag}" hx-trigger="input changed delay:150ms" hx-target="#${flag}-choices" hx-sync="this:replace"${within !== null && html` hx-include="[name='${within}']"`}`

/** The list of possible matches for a string. */
export const choiceList = (flag: string, { found, more }: Choices): Renderable => {
  const [first, last] = [found[0], found.at(-1)]
  return html`<p><label for="${chosenName(flag)}">Which one?</label>
<select id="${chosenName(flag)}" name="${chosenName(flag)}"><option value="">None of these: search for the text above</option>${found.map(
    (one) =>
      html`<option value="${one.id}"${found.length === 1 && one === first && html` selected`}>${suggested(one)}${one.about !== '' && `, ${one.about}`}</option>`,
  )}${more && last !== undefined && html`<option value="${afterMark}${last.id}">More…</option>`}</select></p>`
}
