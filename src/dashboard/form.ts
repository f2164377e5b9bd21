import { type Permission, permission } from '../events/capabilities.ts'
import type { KeyLimits } from '../events/keys.ts'
import { CommandRefused } from '../ledger/commit.ts'
import { defaultKeyLimits } from '../ops/api-keys.ts'
import { UsageError, wholeNumber } from '../ops/command.ts'
import type { IssueFields } from './pages/keys.ts'
import type { FormFault } from './pages/layout.ts'

/** Reads what forms and addresses carry: text, given once or several times, or anything else. */

export type Form = { text(name: string): string; list(name: string): string[] }

export const formOf = (given: unknown): Form => {
  const members: Readonly<Record<string, unknown>> =
    typeof given === 'object' && given !== null ? { ...given } : {}
  const list = (name: string): string[] =>
    [members[name]].flat().filter((value): value is string => typeof value === 'string')
  return { text: (name) => list(name)[0] ?? '', list }
}

/** An input was filled in wrongly. */
export class InputFault extends Error {
  override name = 'InputFault'
  readonly field: string
  constructor(field: string, message: string) {
    super(message)
    this.field = field
  }
}

/**
 * What to tell whoever sent a form; null for what is not about the form. Operators' functions name parameters as
 * `--name: …`: the name is the input's, the rest is for people.
 */
export const faultOf = (error: unknown): FormFault | null => {
  if (error instanceof InputFault) return { field: error.field, message: error.message }
  if (error instanceof CommandRefused) return { field: null, message: sentence(error.message) }
  if (!(error instanceof UsageError)) return null
  const [, field, message] = /^--([a-z-]+): (.*)$/s.exec(error.message) ?? []
  return { field: field ?? null, message: sentence(message ?? error.message) }
}

const sentence = (text: string): string => `${text.charAt(0).toUpperCase()}${text.slice(1)}.`

const labelMax = 200

/** Required short text of an operator's. */
export const labelOf = (form: Form, field: string, what: string): string => {
  const text = form.text(field).trim()
  if (text === '' || text.length > labelMax)
    throw new InputFault(field, `${what} is needed, of at most ${labelMax} characters.`)
  return text
}

export const freshIssueFields: IssueFields = {
  name: '',
  permissions: permission.options,
  requestsPerMinute: String(defaultKeyLimits.requests_per_minute),
  requestsPerDay: String(defaultKeyLimits.requests_per_day),
  emailValidationsPerSecond: String(defaultKeyLimits.email_validations_per_second),
}

export const issueFieldsOf = (form: Form): IssueFields => ({
  name: form.text('name'),
  permissions: form.list('permissions'),
  requestsPerMinute: form.text('requests-per-minute').trim(),
  requestsPerDay: form.text('requests-per-day').trim(),
  emailValidationsPerSecond: form.text('email-validations-per-second').trim(),
})

/** What is to be issued. Throws `InputFault` or `UsageError`. */
export const parseIssue = (form: Form): { name: string; permissions: Permission[]; limits: KeyLimits } => {
  const fields = issueFieldsOf(form)
  const permissions = permission
    .array()
    .min(1)
    .safeParse([...new Set(fields.permissions)])
  const name = labelOf(form, 'name', 'A name')
  if (!permissions.success) throw new InputFault('permissions', 'Choose at least one permission.')
  return {
    name,
    permissions: permissions.data,
    limits: {
      requests_per_minute: wholeNumber('requests-per-minute', fields.requestsPerMinute, {
        min: 1,
        max: 100_000_000,
      }),
      requests_per_day: wholeNumber('requests-per-day', fields.requestsPerDay, {
        min: 1,
        max: 1_000_000_000,
      }),
      email_validations_per_second: wholeNumber(
        'email-validations-per-second',
        fields.emailValidationsPerSecond,
        { min: 1, max: 100_000 },
      ),
    },
  }
}
