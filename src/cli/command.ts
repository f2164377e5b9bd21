import type { Logger } from 'pino'
import type { Config } from '../config.ts'
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

export const organizationParameter: Parameter = {
  name: 'org',
  help: 'organization id, such as org_01J…',
  required: true,
}
