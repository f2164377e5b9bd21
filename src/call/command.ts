/** One verb of the command line: its parameters, its changes, its work and its answer. */
export type CommandOf<Context> = {
  /** `noun verb`. */
  readonly name: string
  readonly summary: string
  readonly parameters: readonly Parameter[]
  /** The changes it makes. Required, so that every command announces them first. */
  readonly changes: 'nothing' | Change<Context>
  /** It works in an invalid environment: wrong values are left out. */
  readonly anyEnvironment?: true
  /** Throws `InputFault` for a value that it cannot take. */
  readonly run: (context: Context, given: Given) => Promise<Answer>
}

/**
 * A command that changes something. The command line shows its plan, asks, and takes `--dry-run` and `--yes`; the
 * command itself does none of that, and runs only after confirmation.
 */
export type Change<Context> = {
  readonly of: 'money' | 'access' | 'rows' | 'people' | 'records' | 'settings'
  readonly asks: Asks
  /** The effect the command would have now. Writes nothing, and throws for input that the command cannot take. */
  readonly plan: (context: Context, given: Given) => Promise<Plan>
  /** A sentence for someone who interrupts the command: the work that may be done by then, and how to continue. */
  readonly left: string
}

/**
 * `never`: it adds something, or changes a setting that it can change back.
 * `on a terminal`: it gives money or access, or another command undoes it; scripts are not asked.
 * `always`: it takes credits, access or records away, or it cannot be undone; a script needs `--yes`.
 */
export type Asks = 'never' | 'on a terminal' | 'always'

export type Plan = {
  /** The planned changes, one sentence each. */
  readonly says: readonly string[]
  /** The same for programs; `dry_run` and `would`, which is `says`, go before it. */
  readonly json?: object
  /** `says` contains everything in `json`, so people see only `says`. */
  readonly saysAll?: true
  /** The part of `json` that people see, before `says`. */
  readonly sections?: Sections
  /** Overrides the command's own value if the input or the current state makes a difference. */
  readonly asks?: Asks
  /** It would change nothing, because it has already been done. */
  readonly nothing?: true
}

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

/** For people: a text is a heading, an object is shown as its members, and an array as a table. */
export type Sections = readonly (string | object)[]

/** A command or query, with values by the names of its fields. */
export type Next = {
  readonly name: string
  readonly label: string
  readonly given?: Readonly<Record<string, string>>
}

export type Answer = {
  /** An object, or an array for lists. */
  readonly json: object
  /** The exit code is 1 although the command ran. */
  readonly failed?: boolean
  /** Lines for people; default: the members of `json`. */
  readonly lines?: readonly string[]
  /** Instead of lines. */
  readonly sections?: Sections
  /** Suggested next steps. */
  readonly next?: readonly Next[]
  /** The command has written its output itself. */
  readonly written?: boolean
}
