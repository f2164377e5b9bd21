import type { Logger } from 'pino'
import type { Answer, Changes, Plan } from '../administration/declare.ts'
import type { Operator } from '../administration/operator.ts'
import type { Action } from '../administration/roles.ts'
import type { Config } from '../config.ts'
import type { Foundation } from '../foundation/foundation.ts'
import type { KeySlot } from '../guard/secrets/installation-key.ts'

/** One verb of the command line: its parameters, its changes, its work and its answer. */
export type Command = {
  /** `noun verb`. */
  readonly name: string
  /** The right that it needs, in the table of roles. */
  readonly action: Action
  readonly summary: string
  readonly parameters: readonly Parameter[]
  /** The changes it makes. Required, so that every command announces them first. */
  readonly changes: 'nothing' | (Changes & { readonly plan: Planning })
  /** It works in an invalid environment: wrong values are left out. */
  readonly anyEnvironment?: true
  /** Runs only after confirmation. Throws `InputFault` for a value that it cannot take. */
  readonly run: (context: CommandContext, given: Given) => Promise<Answer>
}

/**
 * The effect the command would have now: the command line shows it, asks, and takes `--dry-run` and `--yes`. Writes nothing, and throws
 * for input that the command cannot take.
 */
type Planning = (context: CommandContext, given: Given) => Promise<Plan>

export type Parameter = {
  /** Without dashes: `org` is given as `--org X`, or by position. */
  readonly name: string
  readonly help: string
  readonly required?: true
  /**
   * `flag` takes no value. Only values can be given by position, in the order of the parameters. `file` is a path, passed as
   * an absolute one from where the user is; `-` stays.
   */
  readonly kind?: 'flag' | 'file'
}

/** Parameters as typed. */
export type Given = {
  text(name: string): string | undefined
  required(name: string): string
  flag(name: string): boolean
}

export type OperatedFoundation = Foundation & { readonly operator: Operator }

export type CommandContext = {
  readonly config: Config
  readonly logger: Logger
  /** Opened on first use, together with the operator: a token that does not work opens nothing. */
  readonly foundation: (options?: {
    anyEventLog?: boolean
    anyHistory?: boolean
    anyMark?: boolean
    restored?: readonly KeySlot[]
  }) => Promise<OperatedFoundation>
  readonly json: boolean
  /** Shows the progress of long work; on a terminal the line is overwritten. */
  readonly progress: (line: string) => void
  readonly write: (text: string) => Promise<void>
  /** A sentence about the state that an interruption leaves from here on. */
  readonly leaves: (what: string) => void
}

/** The command was typed wrongly: exit code 2, `message` says what is wrong, and `remedy` what to type instead. */
export class UsageError extends Error {
  override name = 'UsageError'
  readonly remedy: string | null
  constructor(message: string, remedy: string | null = null) {
    super(message)
    this.remedy = remedy
  }
}
