import type { Logger } from 'pino'
import type { Projection } from '../../projections/projection.ts'
import type { CapabilityStorage } from './capability.ts'

/** One verb of the command line: what it takes, what it does with what it is given, what it answers. */
export type CommandOf<Context> = {
  /** `noun verb`. */
  readonly name: string
  readonly summary: string
  readonly parameters: readonly Parameter[]
  /** Works in an environment that makes no sense: what is wrong there is left out. */
  readonly anyEnvironment?: true
  /** Throws `InputFault` for a value that it cannot take. */
  readonly run: (context: Context, given: Given) => Promise<Answer>
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
  /** An object, or an array for lists. */
  readonly json: object
  /** The exit code is 1 although the command ran. */
  readonly failed?: boolean
  /** Lines for people; default: the members of `json`. */
  readonly lines?: readonly string[]
  /** Instead of lines: objects are shown by their members, arrays as tables. */
  readonly sections?: readonly object[]
  /** The command has written its output itself. */
  readonly written?: boolean
}

export type CapabilityCommand<Settings = unknown> = CommandOf<{
  readonly settings: Settings
  readonly logger: Logger
  /** Opened when it is first asked for. */
  readonly storage: () => Promise<CommandStorage>
  /** Resolves when the projections have folded what the event log holds now. */
  readonly caughtUp: () => Promise<void>
  /** Takes deleted rows out of tables at once. Says what kept it from a table; null: nothing did. */
  readonly vacuum: (of: {
    readonly tables: readonly string[]
    readonly projections: readonly Projection[]
  }) => Promise<string | null>
  /** Shows how far long work is. */
  readonly progress: (line: string) => void
}>

type CommandStorage = CapabilityStorage & {
  /** Who gives the command. */
  readonly operator: { readonly actor: string }
  /** `lastCopyGoneByMs`: by when no key opens what is deleted today. */
  readonly epochKeys: { lastCopyGoneByMs(): Promise<number> }
}
