import type { Logger } from 'pino'
import type { Operator } from '../administration/operator.ts'
import type { Action } from '../administration/roles.ts'
import type { CommandOf, Parameter } from '../call/command.ts'
import type { Config } from '../config.ts'
import type { Foundation } from '../foundation/foundation.ts'
import type { KeySlot } from '../guard/secrets/installation-key.ts'

export type { Answer, Asks, Given, Parameter, Plan } from '../call/command.ts'

export type Command = CommandOf<CommandContext> & {
  /** The right that it needs; default: by its name, in `permissions.ts`. */
  readonly action?: Action
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

export const organizationParameter: Parameter = {
  name: 'org',
  help: 'organization id, such as org_01J…',
  required: true,
}
