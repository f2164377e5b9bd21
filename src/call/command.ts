/** One verb of the command line: its parameters, its changes, its work and its answer. */
export type CommandOf<Context> = {
  /** `noun verb`. */
  readonly name: string
  readonly summary: string
  readonly parameters: readonly Parameter[]
  /** The changes it makes. Required, so that every command says what it does before it does it. */
  readonly changes: 'nothing' | Change<Context>
  /** Works in an invalid environment: wrong values are left out. */
  readonly anyEnvironment?: true
  /** Throws `InputFault` for a value that it cannot take. */
  readonly run: (context: Context, given: Given) => Promise<Answer>
}

/**
 * A command that leaves something different. The command line shows its plan, asks, takes `--dry-run` and `--yes`; the
 * command itself does none of that, and is run only where it may be.
 */
export type Change<Context> = {
  readonly of: 'money' | 'access' | 'rows' | 'people' | 'records' | 'settings'
  readonly asks: Asks
  /** What the command would do, as things are now. Writes nothing, and throws for what the command cannot take. */
  readonly plan: (context: Context, given: Given) => Promise<Plan>
  /** A sentence for someone who interrupts the command: the work that may be done by then, and how to continue. */
  readonly left: string
}

/**
 * `never`: it adds something, or sets what it sets back.
 * `on a terminal`: it gives money or access, or another command takes it back; scripts go ahead.
 * `always`: it takes credits, access or records away, or nothing takes it back; a script needs `--yes`.
 */
export type Asks = 'never' | 'on a terminal' | 'always'

export type Plan = {
  /** What would be done, a sentence each. */
  readonly says: readonly string[]
  /** The same for programs; `dry_run` and `would`, which is `says`, go before it. */
  readonly json?: object
  /** `says` contains everything in `json`: people read it once. */
  readonly saysAll?: true
  /** What a person reads of `json`, before `says`. */
  readonly sections?: Sections
  /** In place of the command's own, where what it is given, or what is there, makes the difference. */
  readonly asks?: Asks
  /** It would change nothing, because it was done before. */
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

/** For people: a text is a heading, an object is shown by its members, and an array as a table. */
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
  /** Where a person may want to go from here. */
  readonly next?: readonly Next[]
  /** The command has written its output itself. */
  readonly written?: boolean
}
