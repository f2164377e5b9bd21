import type { Logger } from 'pino'
import type { Answer, Changes, Plan } from '../administration/declare.ts'
import type { Operator } from '../administration/operator.ts'
import type { Action } from '../administration/roles.ts'
import type { Config } from '../config.ts'
import type { Foundation } from '../foundation/foundation.ts'
import type { KeySlot } from '../guard/secrets/installation-key.ts'

export type Command = {
  /** `noun verb`. */
  readonly name: string
  /** The permission that the command needs. */
  readonly action: Action
  readonly summary: string
  readonly parameters: readonly Parameter[]
  /** The changes that the command makes, or `nothing`. Required, so that every command announces its changes. */
  readonly changes: 'nothing' | (Changes & { readonly plan: Planning })
  /** True if the command also runs in an invalid environment, without the invalid values. */
  readonly anyEnvironment?: true
  /** Called only after confirmation. Throws `InputFault` for an invalid value. */
  readonly run: (context: CommandContext, given: Given) => Promise<Answer>
}

/** The changes that the command would make now, for the confirmation and for `--dry-run`. Writes nothing. Throws for invalid input. */
type Planning = (context: CommandContext, given: Given) => Promise<Plan>

export type Parameter = {
  /** The name without dashes. The value of `org` is typed as `--org X` or by position. */
  readonly name: string
  readonly help: string
  readonly required?: true
  /**
   * A `flag` has no value. Values can be typed by position, in the order of the parameters. A `file` is a path relative to the
   * user's folder; `-` stays unchanged.
   */
  readonly kind?: 'flag' | 'file'
}

export type Given = {
  text(name: string): string | undefined
  required(name: string): string
  flag(name: string): boolean
}

export type OperatedFoundation = Foundation & { readonly operator: Operator }

export type CommandContext = {
  readonly config: Config
  readonly logger: Logger
  /** Opens the stores on first use, and identifies the operator. A malformed token is refused before any store is opened. */
  readonly foundation: (options?: {
    anyEventLog?: boolean
    anyHistory?: boolean
    anyMark?: boolean
    restored?: readonly KeySlot[]
  }) => Promise<OperatedFoundation>
  readonly json: boolean
  /** Shows the progress of long-running work. On a terminal, each line overwrites the previous one. */
  readonly progress: (line: string) => void
  readonly write: (text: string) => Promise<void>
  /** Sets the sentence that an interruption prints from now on. */
  readonly leaves: (what: string) => void
}

/**
 * How long a command waits for an unavailable database. The service waits until the database recovers, but a person is waiting for a command.
 */
export const databaseWaitMs = 10_000

/** The command was typed wrongly (exit code 2). `remedy` describes the correct form. */
export class UsageError extends Error {
  override name = 'UsageError'
  readonly remedy: string | null
  constructor(message: string, remedy: string | null = null) {
    super(message)
    this.remedy = remedy
  }
}
