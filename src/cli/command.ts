import type { Logger } from 'pino'
import type { Config } from '../config.ts'
import { labelFault, labelMax } from '../events/text.ts'
import type { Foundation } from '../foundation/foundation.ts'

/** One verb of the command line: what it takes, what it does, what it answers. */
export type Command = {
  /** `noun verb`. */
  readonly name: string
  readonly summary: string
  readonly parameters: readonly Parameter[]
  /** The answer: an object, or an array for lists. `failed` makes the exit code 1 although the command ran. */
  readonly run: (context: CommandContext, given: Given) => Promise<Answer>
}

export type Parameter = {
  /** Without dashes: `org` is given as `--org X`, or by position. */
  readonly name: string
  readonly help: string
  readonly required?: true
  /** `flag` takes no value. Only values can be given by position, in the order of the parameters. */
  readonly kind?: 'flag'
}

/** Parameters as typed. */
export type Given = {
  text(name: string): string | undefined
  required(name: string): string
  flag(name: string): boolean
}

export type Answer = {
  readonly json: object
  readonly failed?: boolean
  /** Lines for people; default: the members of `json`. */
  readonly lines?: readonly string[]
  /** The command has written its output itself. */
  readonly written?: boolean
}

export type CommandContext = {
  readonly config: Config
  readonly logger: Logger
  readonly foundation: (options?: { anyEventLog?: boolean; anyHistory?: boolean }) => Promise<Foundation>
  readonly json: boolean
  /** Shows how far long work is; on a terminal the line is overwritten. */
  readonly progress: (line: string) => void
  readonly write: (text: string) => Promise<void>
  /** Asks whoever sits at the terminal; null where nobody does. */
  readonly ask: (question: string) => Promise<boolean | null>
}

/** The command was typed wrongly: exit code 2, `message` says what to change. */
export class UsageError extends Error {
  override name = 'UsageError'
}

/** A whole number within bounds, or a UsageError naming the parameter. */
export const wholeNumber = (
  name: string,
  text: string,
  { min, max }: { min: number; max: number },
): number => {
  const digits = text.trim()
  const value = Number(digits)
  if (!/^\d{1,15}$/.test(digits) || value < min || value > max)
    throw new UsageError(`--${name}: "${text}" is not a whole number from ${min} to ${max}`)
  return value
}

/** An instant in UTC, from ISO 8601 text. */
export const instantOf = (name: string, text: string): string => {
  const trimmed = text.trim()
  const ms = /^\d{4}-\d\d-\d\d/.test(trimmed) ? Date.parse(trimmed) : Number.NaN
  const instant = Number.isNaN(ms) ? '' : new Date(ms).toISOString()
  // A year may have more than four digits once its time zone is taken off.
  if (!/^\d{4}-/.test(instant))
    throw new UsageError(`--${name}: "${text}" is not an ISO 8601 instant such as 2027-01-31T00:00:00Z`)
  return instant
}

/** An instant that is still to come, in UTC. */
export const futureInstantOf = (name: string, text: string, nowMs: number): string => {
  const instant = instantOf(name, text)
  if (Date.parse(instant) <= nowMs) throw new UsageError(`--${name}: ${text} has passed already`)
  return instant
}

/** Text that people will read, without the white space around it; or a UsageError naming the parameter. */
export const labelOf = (name: string, text: string, max = labelMax): string => {
  // Before the white space is taken off: a line break is not allowed at the end either.
  const fault = labelFault(text, max)
  if (fault !== null) throw new UsageError(`--${name}: ${fault}`)
  return text.trim()
}

const unitMs = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const

/** A length of time such as 90s, 15m, 24h or 7d, in milliseconds. */
export const durationMsOf = (name: string, text: string): number => {
  const match = /^(\d{1,6})([smhd])$/.exec(text.trim())
  if (match === null)
    throw new UsageError(`--${name}: "${text}" is not a length of time such as 90s, 15m, 24h or 7d`)
  return Number(match[1]) * unitMs[match[2] as keyof typeof unitMs]
}

export const organizationParameter: Parameter = {
  name: 'org',
  help: 'organization id, such as org_01J…',
  required: true,
}
