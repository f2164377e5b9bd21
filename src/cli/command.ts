import type { Logger } from 'pino'
import type { Operator } from '../administration/operator.ts'
import type { CommandOf, Parameter } from '../call/command.ts'
import type { Config } from '../config.ts'
import type { Foundation } from '../foundation/foundation.ts'

export type { Answer, Given, Parameter } from '../call/command.ts'

export type Command = CommandOf<CommandContext>

export type OperatedFoundation = Foundation & { readonly operator: Operator }

export type CommandContext = {
  readonly config: Config
  readonly logger: Logger
  /** Opened when it is first asked for, with who acts: a token that does not work opens nothing. */
  readonly foundation: (options?: {
    anyEventLog?: boolean
    anyHistory?: boolean
  }) => Promise<OperatedFoundation>
  readonly json: boolean
  /** Shows how far long work is; on a terminal the line is overwritten. */
  readonly progress: (line: string) => void
  readonly write: (text: string) => Promise<void>
  /** Asks the person at the terminal; null where there is no terminal. */
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
