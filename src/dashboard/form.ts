import { InputFault, labelOf } from '../administration/input.ts'
import { defaultKeyLimits, type IssueRequest } from '../administration/keys/api-keys.ts'
import {
  allowedCidrsOf,
  expiryOf,
  limitFields,
  limitsOf,
  permissionsByDefault,
  permissionsOf,
} from '../administration/keys/key-request.ts'
import { EventDataError } from '../event-log/stored-event.ts'
import { CommandRefused } from '../ledger/write/commit.ts'
import { capitalized } from './format.ts'
import type { FormFault } from './pages/layout.ts'

/** Reads the values of forms and addresses: text, given once or several times, or anything else. */

export type Form = { text(name: string): string; list(name: string): string[] }

export const formOf = (given: unknown): Form => {
  const members: Readonly<Record<string, unknown>> =
    typeof given === 'object' && given !== null ? { ...given } : {}
  const list = (name: string): string[] =>
    [members[name]].flat().filter((value): value is string => typeof value === 'string')
  return { text: (name) => list(name)[0] ?? '', list }
}

/** The message for the sender of a form; null for a failure that is not about the form. */
export const faultOf = (error: unknown): FormFault | null => {
  if (error instanceof InputFault) return { field: error.field, message: sentence(error.message) }
  if (error instanceof CommandRefused || error instanceof EventDataError)
    return { field: null, message: sentence(error.message) }
  return null
}

const sentence = (text: string): string => `${capitalized(text)}.`

/** The initial form for a new key: the usual permissions and limits. */
export const freshIssueForm: Form = formOf({
  permissions: permissionsByDefault,
  ...Object.fromEntries(limitFields.map(({ field, limit }) => [field, String(defaultKeyLimits[limit])])),
})

/** The requested key, by administration's rules. Throws `InputFault`. */
export const parseIssue = (
  form: Form,
): Pick<IssueRequest, 'name' | 'permissions' | 'limits' | 'allowedCidrs' | 'expiresAt'> => ({
  name: labelOf('name', form.text('name')),
  permissions: permissionsOf(form.list('permissions')),
  limits: { ...defaultKeyLimits, ...limitsOf(form.text) },
  allowedCidrs: allowedCidrsOf(optional(form, 'allow')),
  expiresAt: expiryOf(optional(form, 'expires-at')),
})

/** Browsers also send empty fields. */
const optional = (form: Form, name: string): string | undefined => {
  const text = form.text(name)
  return text.trim() === '' ? undefined : text
}
