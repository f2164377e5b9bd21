import type { Logger } from 'pino'
import type { CommandOf, Parameter } from '../call/command.ts'
import type { Config } from '../config.ts'
import type { Foundation } from '../foundation/foundation.ts'

export type { Answer, Given, Parameter } from '../call/command.ts'

export type Command = CommandOf<CommandContext>

export type CommandContext = {
  readonly config: Config
  readonly logger: Logger
  readonly foundation: (options?: { anyEventLog?: boolean; anyHistory?: boolean }) => Promise<Foundation>
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
