import { type AnyDeclared, NeedsConsent } from '../administration/declare.ts'
import { InputFault, UsageError } from '../administration/input.ts'
import { SettingFault } from '../call/capability.ts'
import { ConfigError } from '../config.ts'
import { Unavailable, UnknownOutcome } from '../event-log/port.ts'
import { EventDataError } from '../event-log/stored-event.ts'
import { CommandRefused, LedgerOutcomeUnknown, LedgerUnavailable } from '../ledger/command.ts'
import { Declined, NeedsYes } from './consent.ts'
import { usageOf } from './help.ts'
import { invocation } from './overview.ts'
import { isUsageError } from './parse.ts'
import { plain, plainJson } from './table.ts'

type Failure = {
  readonly code:
    | 'usage'
    | 'input'
    | 'configuration'
    | 'needs_yes'
    | 'declined'
    | 'refused'
    | 'unavailable'
    | 'interrupted'
    | 'failed'
  readonly message: string
  /** The invalid parameter or variable. */
  readonly field: string | null
  readonly remedy: string | null
  readonly would?: readonly string[]
}

/** Returns 1 if the command failed, and 2 if the command or the environment is invalid and nothing was done. */
export const exitCodeOf = (error: unknown): 1 | 2 =>
  error instanceof InputFault ||
  error instanceof NeedsYes ||
  isUsageError(error) ||
  error instanceof ConfigError ||
  error instanceof SettingFault ||
  error instanceof EventDataError
    ? 2
    : 1

/** Returns the text for standard error: lines for people, or one line of JSON with `--json`. Contains no secret of a key. */
export const failureText = (
  error: unknown,
  { command, json }: { command: AnyDeclared; json: boolean },
): string => {
  const failure = failureOf(error, command)
  if (json) return failureJson(failure)
  const { code, message, field, remedy, would = [] } = failure
  if (code === 'input')
    return withoutSecrets(`--${field}: ${message.split('\n').map(plain).join('\n')}; ${seeHelp(command)}\n`)
  // The usage that follows already shows the text of --help.
  const remedies = remedy === null || remedy === seeHelp(command) ? [] : [remedy]
  const said = [message, ...remedies].join(remedies.length > 0 && code === 'usage' ? '; ' : '\n')
  const lines = [...would, ...(would.length === 0 ? [] : ['']), said]
  // A message can have several lines.
  const plainLines = lines.flatMap((line) => line.split('\n')).map(plain)
  return withoutSecrets(`${plainLines.join('\n')}\n${code === 'usage' ? `\n${usageOf(command)}\n` : ''}`)
}

/** Returns a failure as one line of JSON. */
export const failureJson = (failure: Failure): string =>
  withoutSecrets(`${plainJson(JSON.stringify(failure))}\n`)

const seeHelp = ({ name }: AnyDeclared): string => `"${invocation} ${name} --help" shows its parameters`

const failureOf = (error: unknown, command: AnyDeclared): Failure => {
  const message = sentenceOf(error)
  const failure = (
    code: Failure['code'],
    { remedy = null, field = null }: { remedy?: string | null; field?: string | null } = {},
  ): Failure => ({ code, message, field, remedy })
  if (error instanceof InputFault) return failure('input', { field: error.field, remedy: seeHelp(command) })
  if (error instanceof NeedsYes)
    return { ...failure('needs_yes', { field: 'yes', remedy: error.remedy }), would: error.would }
  if (error instanceof NeedsConsent) {
    const { field, value } = error.agreement
    const remedy = `Read the list. To agree to exactly this list, add --${field} ${value}.`
    const nothing = 'Nothing was changed, because --yes does not include consent to this list.'
    return { ...failure('needs_yes', { field, remedy }), message: nothing, would: error.would }
  }
  if (error instanceof Declined) return failure('declined')
  if (isUsageError(error)) {
    const remedy = error instanceof UsageError ? error.remedy : null
    return failure('usage', { field: fieldIn(message), remedy: remedy ?? seeHelp(command) })
  }
  if (error instanceof ConfigError || error instanceof SettingFault)
    return failure('configuration', { field: variableIn(message) })
  if (error instanceof CommandRefused) return failure('refused')
  if (
    error instanceof Unavailable ||
    error instanceof UnknownOutcome ||
    error instanceof LedgerUnavailable ||
    error instanceof LedgerOutcomeUnknown ||
    isUnreachable(error)
  )
    return failure('unavailable')
  return failure('failed')
}

const fieldIn = (message: string): string | null => /^--([a-z-]+) is required$/.exec(message)?.[1] ?? null
const variableIn = (message: string): string | null => /^([A-Z][A-Z_]+): /.exec(message)?.[1] ?? null

const unreachable = new Set(['ECONNREFUSED', 'ECONNRESET', 'ENOTFOUND', 'ETIMEDOUT', 'EAI_AGAIN'])
const isUnreachable = (error: unknown): boolean =>
  (error instanceof AggregateError && error.errors.some(isUnreachable)) ||
  (error instanceof Error && 'code' in error && unreachable.has(String(error.code)))

/** If a host has several addresses, the error contains one error for each address and has no message itself. */
const sentenceOf = (error: unknown): string => {
  if (error instanceof AggregateError && error.message === '') return sentenceOf(error.errors[0])
  return error instanceof Error ? error.message || error.name : String(error)
}

const secretText = /\b(enl_(?:live|test|operator)_[0-9A-Za-z]+)_[0-9A-Za-z]*/g

/** Shortens each key and token in a string to its id, so that no message shows a whole key. */
export const withoutSecrets = (text: string): string => text.replace(secretText, '$1_…')
