import { type Html, html, type Renderable } from '../html.ts'

/** Fields whose values people choose by name. */

export type Choice = {
  readonly id: string
  readonly name: string
  readonly about: string
  /** Null: of none. */
  readonly organization_id: string | null
}

export type Choices = {
  readonly found: readonly Choice[]
  /** There are more after these. */
  readonly more: boolean
}

/** The value of a choice as browsers suggest it: its name, and its id. */
export const suggested = ({ id, name }: Pick<Choice, 'id' | 'name'>): string =>
  id === name ? id : `${name} (${id})`

/** The field of a list from which people choose what their text meant. */
export const chosenName = (flag: string): string => `${flag}-chosen`

/** Before the id of the last choice in a list: the next ones are asked for. */
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
 * The attributes of an input with suggestions. `address` finds them. `within`: the field of the organization to which they belong.
 * `posted`: the text must be in no address; the form around the input has its token.
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

/** A list of what a name may have meant. */
export const choiceList = (flag: string, { found, more }: Choices): Renderable => {
  const [first, last] = [found[0], found.at(-1)]
  return html`<p><label for="${chosenName(flag)}">Which one?</label>
<select id="${chosenName(flag)}" name="${chosenName(flag)}"><option value="">None of these: search for the text above</option>${found.map(
    (one) =>
      html`<option value="${one.id}"${found.length === 1 && one === first && html` selected`}>${suggested(one)}${one.about !== '' && `, ${one.about}`}</option>`,
  )}${more && last !== undefined && html`<option value="${afterMark}${last.id}">More…</option>`}</select></p>`
}
