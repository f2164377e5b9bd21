import { type Html, html } from '../html.ts'

/** Form fields for values that people choose by name. */

export type Choice = {
  readonly id: string
  readonly name: string
  readonly about: string
  /** The organization to which the choice belongs; null if it belongs to none. */
  readonly organization_id: string | null
}

/** The text of a choice in the browser's suggestions: its name and its id. */
export const suggested = ({ id, name }: Pick<Choice, 'id' | 'name'>): string =>
  id === name ? id : `${name} (${id})`

export const choiceOptions = ({
  found,
}: {
  readonly found: readonly Omit<Choice, 'organization_id'>[]
}): Html => html`${found.map((one) => html`<option value="${suggested(one)}">${one.about}</option>`)}`

/** The choices that a browser suggests. Scripts fill the list while a person types. */
export const suggestions = (flag: string): Html => html`<datalist id="${flag}-choices"></datalist>`

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
