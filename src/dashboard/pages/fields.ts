import { type Field, organizationHelp } from '../../administration/fields.ts'
import { askedFields, type Place } from '../declared.ts'
import type { Form } from '../form.ts'
import { capitalized } from '../format.ts'
import { type Html, html, type Renderable } from '../html.ts'
import type { AccountRow } from '../queries.ts'
import { suggesting, suggestions } from './choices.ts'
import { described, type FormFault } from './layout.ts'
import { labelOf } from './values.ts'

/** The fields of the forms of commands and queries. */

export type FieldsView = {
  readonly place: Place
  readonly account: AccountRow | null
  readonly typed: Form
  readonly fault: FormFault | null
}

const hintOf = ({ label, help, picks, control, byDefault }: Field): string =>
  [
    ...(help === organizationHelp ? [] : [capitalized(help)]),
    ...(picks === undefined || picks === 'users' ? [] : ['Type the name, or the id']),
    ...(control === 'instant' && !label.endsWith('(UTC)') ? ['In UTC'] : []),
    ...(control === 'line' && byDefault !== undefined ? [`Default: ${byDefault}`] : []),
  ]
    .map((one) => (one.endsWith('…') ? one : `${one}.`))
    .join(' ')

/** Browsers accept a time only without a zone. The zone is UTC. */
const pickerValue = (value: string): string => value.replace(/^(\d{4}-\d\d-\d\dT[\d:.]+)Z$/i, '$1')

/** A day with a time is entered as an instant. */
const typeOf = ({ control }: Field, value: string): Renderable => {
  if (control === 'month') return html` type="month"`
  if (control === 'number') return html` inputmode="numeric"`
  if (control === 'instant' || (control === 'day' && value.includes('T')))
    return html` type="datetime-local" step="any" max="9999-12-31T23:59:59.999"`
  return control === 'day' && html` type="date" max="9999-12-31"`
}

/** One field of a form, with its label, hint and suggestions. */
export const control = (view: FieldsView, field: Field): Html => {
  const { flag, options = [], required, picks } = field
  const { typed, fault, place, account } = view
  const about = described(flag, fault, `${flag}-hint`)
  const hint = html`<small id="${flag}-hint">${hintOf(field)}</small>`
  const value = typed.text(flag)
  // The value comes from a link, for example on the page of a key, so people should not change it. A filter by key can be changed.
  const isSet = field.control === 'id' || (field.control === 'key' && place.declared.changes !== 'nothing')
  const fixed = isSet && value !== '' && fault === null
  const label = html`${field.label}${required && !fixed && html` <span class="required">(required)</span>`}`
  switch (field.control) {
    case 'flag':
      return html`<p><label class="inline"><input type="checkbox" id="${flag}" name="${flag}" value="on"${value !== '' && html` checked`}${about}> ${label}</label>
${hint}</p>`
    case 'choice':
      return html`<p><label for="${flag}">${label}</label>
<select id="${flag}" name="${flag}"${required && html` required`}${about}>${!required && html`<option value=""></option>`}${options.map(
        (one) => html`<option value="${one}"${one === value && html` selected`}>${labelOf(one)}</option>`,
      )}</select>
${hint}</p>`
    case 'choices':
      return html`<fieldset id="${flag}"${about}><legend>${label}</legend>
${options.map(
  (one) =>
    html`<label class="inline"><input type="checkbox" name="${flag}" value="${one}"${
      typed
        .list(flag)
        .flatMap((text) => text.split(','))
        .includes(one) && html` checked`
    }> ${labelOf(one)}</label> `,
)}
${hint}</fieldset>`
    default: {
      // A document that can also be given by name needs only one line.
      if (field.control === 'document' && field.named === undefined)
        return documentInput(field, value, { label, about, required })
      const within = askedFields(place).find(({ control }) => control === 'organization')?.flag ?? null
      const picked =
        picks !== undefined &&
        !fixed &&
        suggesting(flag, {
          address: `${picks === 'keys' && account !== null ? `/organizations/${account.organization_id}` : ''}/pick/${picks}`,
          within: picks === 'keys' ? within : null,
        })
      return html`<p><label for="${flag}">${label}</label>
<input id="${flag}" name="${flag}" value="${pickerValue(value)}"${required && html` required`}${typeOf(field, value)}${fixed && html` readonly`}${picked} maxlength="2000" autocomplete="off"${about}>
${hint}</p>
${picked !== false && suggestions(flag)}`
    }
  }
}

const documentInput = (
  field: Field,
  value: string,
  {
    label,
    about,
    required,
  }: { readonly label: Renderable; readonly about: Renderable; readonly required: boolean },
): Html => html`<p><label for="${field.flag}">${label}</label>
<textarea id="${field.flag}" name="${field.flag}"${required && html` required`} rows="${String(value.split('\n').length + 2)}" spellcheck="false"${about}>
${value}</textarea>
<small id="${field.flag}-hint">${hintOf(field)}</small></p>`
