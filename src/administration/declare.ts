import type { Logger } from 'pino'
import { z } from 'zod'
import type { Projection } from '../../projections/projection.ts'
import type { InputVerdict, SealedStore } from '../call/capability.ts'
import type { FoundData } from '../call/data-source.ts'
import type { Config } from '../config.ts'
import type { CallFacts } from '../events/calls.ts'
import { agreedNowMs } from '../foundation/clocks.ts'
import type { Foundation, FoundationOptions } from '../foundation/foundation.ts'
import { CommandRefused } from '../ledger/command.ts'
import type { Finding } from './checks/check.ts'
import { type Field, fieldsIn } from './fields.ts'
import { InputFault } from './input.ts'
import type { Operator } from './operator.ts'
import type { WithPixel } from './pixel/pixel.ts'
import type { Action } from './roles.ts'
import type { WebhookOutside } from './webhooks/webhook-request.ts'

/**
 * Each command and query is declared once, in `<area>/commands.ts` or `<area>/queries.ts`. The command line, the dashboard and the
 * admin API read its fields, check the user's rights, and show its plan and its answer.
 */

type Interface = 'command line' | 'dashboard' | 'admin API'

const everywhere: readonly Interface[] = ['command line', 'dashboard', 'admin API']

/** The context in which every interface runs a command or query. */
export type Context = {
  readonly foundation: Foundation
  readonly logger: Logger
  readonly operator: Operator
  /** The time of the request (ISO 8601). Long-running work can begin hours later, and can be repeated. */
  readonly requestedAt: string
  /** If set, a change that one user proposes must be approved by another user. */
  readonly twoPerson: boolean
  readonly pixel: WithPixel
  /** Opened at the first use. Rejects with `ConfigError` if it cannot be opened. */
  readonly outside: () => Promise<WebhookOutside>
  /** Shows the progress of long-running work: a line for people, and `figures` for programs. */
  readonly progress: (line: string, figures?: object) => void
  /** The dashboard's address, without a trailing slash. */
  readonly dashboardUrl: () => Promise<string>
  /**
   * Resolves when rows have caught up with the event log. On the dashboard, resolves immediately, because pages show the lag of their rows.
   */
  readonly caughtUp: () => Promise<void>
  /** Opened at the first use. */
  readonly data: () => Promise<CapabilityData>
}

export type CapabilityData = {
  readonly settings: Config
  /** Resolves when rows have caught up with the event log, even on the dashboard. */
  readonly folded: () => Promise<void>
  /** Removes deleted rows from tables immediately. Resolves with null, or with the reason if a table cannot be vacuumed. */
  readonly vacuum: (of: {
    readonly tables: readonly string[]
    readonly projections: readonly Projection[]
  }) => Promise<string | null>
  readonly sources: () => Promise<FoundData>
  /** All stores of values that are sealed under epoch keys. */
  readonly sealedStores: readonly SealedStore[]
  /** Decides whether a string was the input of a call with these facts; null if that is unknown. */
  readonly recognizerOf: (text: string) => (facts: CallFacts) => Promise<InputVerdict | null>
}

/**
 * The machine of the installation. Some commands work without its stores, or decide themselves when and how these are opened. Only the
 * command line offers them.
 */
export type Host = {
  readonly config: Config
  readonly logger: Logger
  readonly progress: Context['progress']
  /** How long to wait for an unavailable database. */
  readonly waitMs: number
  /** Opens the stores on first use, and identifies the operator. Throws `CommandRefused` if the operator may not run the command. */
  readonly open: (options?: HowToOpen) => Promise<Context>
  /** Runs all checks of the installation. Never rejects. */
  readonly examine: () => Promise<readonly Finding[]>
  /** The script that completes commands in a shell. */
  readonly completion: (shell: Shell) => Promise<readonly string[]>
}

type HowToOpen = Pick<FoundationOptions, 'anyEventLog' | 'anyHistory' | 'anyMark' | 'restored'>

export const shells = ['bash', 'zsh', 'fish'] as const
export type Shell = (typeof shells)[number]

/** Whether this is a query about a person, whose values must not appear in a URL. */
export const isPersonal = ({ changes, fields }: Pick<Declared, 'changes' | 'fields'>): boolean =>
  changes === 'nothing' && fields.some(({ personal }) => personal === true)

/** The given values by field name, as text or as JSON values. A field without a value is absent. */
export type Given = Readonly<Record<string, unknown>>

type Changes = {
  readonly of: 'money' | 'access' | 'rows' | 'people' | 'records' | 'settings'
  readonly asks: Asks
}

/**
 * `never`: the command adds something, or changes a setting that it can change back.
 * `on a terminal`: the command gives money or access, or another command undoes the change. Scripts are not asked.
 * `always`: the command removes credits, access or records, or cannot be undone. A script needs `--yes`.
 */
export type Asks = 'never' | 'on a terminal' | 'always'

export type Plan = {
  /** The planned changes, one sentence each. */
  readonly says: readonly string[]
  /** The planned changes in machine-readable form. Interfaces add `dry_run` and `would` (the sentences of `says`) before these members. */
  readonly json?: object
  /** The part of `json` that people see before `says`; empty if `says` already contains everything. */
  readonly sections?: Sections
  /** Overrides the command's own `asks`, if the input or the current state makes a difference. */
  readonly asks?: Asks
  /** The command would change nothing, because the change has already been made. */
  readonly nothing?: true
}

/** The plan that a declaration returns. A plan that has only sentences is stated as these. */
type StatedPlan = Plan | string | readonly string[]

const planOf = (stated: StatedPlan): Plan =>
  typeof stated === 'object' && 'says' in stated ? stated : { says: [stated].flat() }

/** Output for people. A string is a heading, an object is shown as a list of its members, and an array as a table. */
export type Sections = readonly (string | object)[]

/** A table with a heading; empty if the table has no rows. */
export const titled = (title: string, rows: readonly object[]): Sections =>
  rows.length === 0 ? [] : [title, rows]

export type Answer = {
  /** An object, or an array for lists. */
  readonly json: object
  /** True if the command line must exit with code 1 although the command ran. */
  readonly failed?: boolean
  /** The output lines for human readers. Default: the members of `json`. */
  readonly lines?: readonly string[]
  /** Sections for people, shown instead of `lines`. */
  readonly sections?: Sections
  readonly next?: readonly Next[]
  /** The values that a query chose for optional fields, which forms show. */
  readonly chosen?: Readonly<Record<string, string>>
  /** True if the command has already written its output. */
  readonly written?: boolean
}

type Described<Shape extends z.ZodRawShape> = {
  /** `noun verb`. */
  readonly name: `${string} ${string}`
  /** The right that the user needs (see `roles.ts`). */
  readonly action: Action
  readonly summary: string
  readonly input: z.ZodObject<Shape>
  /** Default: all interfaces. */
  readonly interfaces?: readonly Interface[]
  /** The member of the answer that is secret and shown only once. */
  readonly secret?: string
  /** The help of `--out`, which makes the command line also write the answer into a file. */
  readonly out?: string
  /** Whether the command can run while a restore is incomplete. */
  readonly anyHistory?: true
  /** Whether the command can run with an event log other than the one from which the rows were folded. */
  readonly anyEventLog?: (given: Given) => boolean
  /**
   * Set if the command can take minutes, and therefore runs as a job (`jobs/long-work.ts`). If the process that runs the job ends,
   * `repeatable` work is run again by another process. `once` work is not, because its changes could be made twice.
   */
  readonly long?: 'repeatable' | 'once'
  /** Set if the query reads a whole ledger. Pages then show its progress if the answer takes more than a moment. */
  readonly slow?: true
  /** If the answer is an object: the heading, columns and next steps of the lists in it, by the name of the member. */
  readonly lists?: Lists
  readonly run: (context: Context, input: z.output<z.ZodObject<Shape>>) => Promise<Answer>
}

type CommandDeclaration<Shape extends z.ZodRawShape> = Described<Shape> & {
  readonly changes: Changes
  /** Describes the effect that `run` would have now. Writes nothing, and throws if `run` would throw. */
  readonly plan: (context: Context, input: z.output<z.ZodObject<Shape>>) => Promise<StatedPlan>
}

type QueryDeclaration<Shape extends z.ZodRawShape> = Described<Shape> & {
  /** The members that people see if the answer is a list, in this order. */
  readonly columns?: readonly Column[]
  /** Suggested next steps for the list, and for each of its rows. */
  readonly next?: readonly Next[]
  readonly nextOfRow?: readonly NextOfRow[]
  /** What an empty list says. Default: that it has no entries. */
  readonly empty?: string
}

export type Lists = Readonly<
  Record<string, Pick<Declared, 'columns' | 'nextOfRow'> & { readonly label?: string }>
>

/**
 * A query that writes a file while it reads the data, so that the whole file is never in memory. The URL of the file contains all
 * values of the query, so pages can link to the file.
 */
type ExportDeclaration<Shape extends z.ZodRawShape> = Omit<Described<Shape>, 'run' | 'long'> & {
  readonly types: readonly FileType[]
  /** The name of the file; null if the input requests no file, so that `run` is called instead. Throws `InputFault`. */
  readonly file: (input: z.output<z.ZodObject<Shape>>) => FileName | null
  /** Writes the file. Throws the error of `write` if the reader has left or is too slow. */
  readonly write: (context: Context, input: z.output<z.ZodObject<Shape>>, write: Write) => Promise<Answer>
  readonly run?: Described<Shape>['run']
}

/** In JSON Lines, each written text is empty or ends with a line break. */
type FileType = 'application/jsonl' | 'text/csv'
type FileName = { readonly name: string; readonly type: FileType }
/** Resolves when more can be written. An empty text only checks whether the reader is still connected. Bytes are text in UTF-8. */
export type Write = (text: string | Buffer) => Promise<void>

/** A command or query that runs on a `Host`. A query has no plan. */
type HostDeclaration<Shape extends z.ZodRawShape> = Pick<Described<Shape>, 'action' | 'summary' | 'input'> & {
  /** `noun verb`, or only a noun. */
  readonly name: string
  /** Set if the command also runs in an invalid environment, without the invalid values. */
  readonly anyEnvironment?: true
  readonly run: (host: Host, input: z.output<z.ZodObject<Shape>>) => Promise<Answer>
} & (
    | { readonly changes: 'nothing'; readonly plan?: undefined }
    | {
        readonly changes: Changes
        readonly plan: (host: Host, input: z.output<z.ZodObject<Shape>>) => Promise<StatedPlan>
      }
  )

/** The requested part of a list: at most `max` rows after `cursor`, or the first rows if `cursor` is null. */
type Stretch = { readonly cursor: string | null; readonly max: number }

/** A part of a list. */
export type Page = {
  readonly rows: readonly Row[]
  /** The cursor of the next page; null on the last page. A page before it can be short, or even empty, if a search stops early. */
  readonly next: string | null
  /** A sentence about rows that are missing or cannot be trusted; null if the list is complete. */
  readonly lacks: string | null
  /** Sections and next steps about the whole list, which pages of the dashboard show before the rows. */
  readonly about?: Pick<Answer, 'sections' | 'next' | 'chosen'>
}

/** A query for a list of which each interface reads a page at a time. */
type PagedDeclaration<Shape extends z.ZodRawShape> = Omit<QueryDeclaration<Shape>, 'run' | 'columns'> & {
  readonly columns: readonly Column[]
  /** Throws `InputFault` if the cursor is invalid. */
  readonly page: (context: Context, input: z.output<z.ZodObject<Shape>>, stretch: Stretch) => Promise<Page>
  /** Whether the whole list fits into memory, so that the command line shows all of it, and the dashboard offers it as CSV. */
  readonly whole?: true
}

/** The page that begins with `rows`. If there is a row after the page's `max` rows, the member `cursor` of the last row is the cursor. */
export const pageUpTo = (
  rows: readonly Row[],
  {
    max,
    cursor,
    lacks = null,
  }: { readonly max: number; readonly cursor: string; readonly lacks?: string | null },
): Page => {
  const shown = rows.slice(0, max)
  return { rows: shown, next: rows.length > max ? String(shown.at(-1)?.[cursor]) : null, lacks }
}

/** A suggested next command or query, with values for its fields. */
export type Next = {
  readonly name: Declared['name']
  readonly label: string
  readonly given?: Readonly<Record<string, string>>
}

type NextOfRow = Omit<Next, 'given'> & {
  /** The values of the step's fields; null if the step does not apply to this row. */
  readonly given: (row: Row) => Given | null
}

/** A row of a list, or the object of an answer. */
export type Row = Readonly<Record<string, unknown>>

/** A column of a list, named like the member of each row. */
export type Column = {
  readonly name: string
  readonly label: string
  /**
   * `change`: credits by which a balance changes, shown with a sign. `balance`: credits that can be below zero. `whole`: a string that
   * is never cut on a terminal.
   */
  readonly kind?:
    | 'id'
    | 'credits'
    | 'change'
    | 'balance'
    | 'instant'
    | 'number'
    | 'name'
    | 'whole'
    | 'organization'
    | 'call'
    | 'position'
    | 'stream'
    | 'work'
  /** The member that contains the maximum of this number. Pages show number and maximum as a meter. */
  readonly limit?: string
  /** The column that contains the name of this organization. Pages show both in one column. */
  readonly named?: string
  /** Pages of the dashboard leave the column out if it is empty in all rows. */
  readonly sparse?: true
  /** Pages of the dashboard show this column below the values of another column. */
  readonly below?: string
}

export type Declared = Pick<
  Described<z.ZodRawShape>,
  'name' | 'action' | 'summary' | 'anyHistory' | 'anyEventLog' | 'secret' | 'out' | 'long' | 'slow'
> & {
  readonly interfaces: readonly Interface[]
  readonly fields: readonly Field[]
  readonly input: z.ZodObject
  readonly changes: 'nothing' | Changes
  readonly columns?: readonly Column[]
  readonly next?: readonly Next[]
  readonly nextOfRow?: readonly NextOfRow[]
  readonly lists?: Lists
  readonly empty?: string
  /** Set if the list can be too long for memory, so that it is only read a page at a time (see `Asked`). */
  readonly paged?: true
  readonly types?: readonly FileType[]
  /** Parses the values. Throws an `InputFault` that names the field as on the command line. */
  readonly read: (given: Given) => Asked
}

export type HostDeclared = Omit<Declared, 'name' | 'read'> &
  Pick<HostDeclaration<z.ZodRawShape>, 'name' | 'anyEnvironment'> & {
    readonly readOnHost: (given: Given) => AskedOn<Host>
  }

export type AnyDeclared = Declared | HostDeclared

type AskedOn<Place> = {
  /** The plan of a query is empty. */
  readonly plan: (place: Place) => Promise<Plan>
  readonly run: (place: Place) => Promise<Answer>
}

/** A command or query with its values. */
export type Asked = AskedOn<Context> & {
  /** Set if the list is read a page at a time. */
  readonly page?: (context: Context, stretch: Stretch) => Promise<Page>
  /** Set if the values request a file. `write` returns a summary. */
  readonly file?: FileName & { readonly write: (context: Context, write: Write) => Promise<Answer> }
}

/**
 * Nothing was changed, because the command needs consent. To consent, repeat the command with the field and value in `agreement`.
 * `would` describes the effect in sentences.
 */
export class NeedsConsent extends CommandRefused {
  override name = 'NeedsConsent'
  readonly agreement: { readonly field: string; readonly value: string }
  readonly would: readonly string[]
  constructor(agreement: NeedsConsent['agreement'], would: readonly string[]) {
    super(
      `nothing was changed; to agree to exactly the following, add --${agreement.field} ${agreement.value}: ${would.join(' ')}`,
    )
    this.agreement = agreement
    this.would = would
  }
}

/** A command that changes money is refused while this host's clock is wrong, because its events would be dated in the wrong month. */
export const command = <Shape extends z.ZodRawShape>(declaration: CommandDeclaration<Shape>): Declared => {
  const { plan, run, ...declared } = declaration
  const checkClock = async ({ foundation }: Context): Promise<void> => {
    if (declared.changes.of === 'money') await agreedNowMs(foundation.pool, 'no command changes money')
  }
  return {
    ...offered(declared),
    read: (given) => {
      const values = valuesOf(declared.input, given)
      return {
        plan: async (context) => {
          await checkClock(context)
          return planOf(await plan(context, values))
        },
        run: async (context) => {
          await checkClock(context)
          return run(context, values)
        },
      }
    },
  }
}

export const query = <Shape extends z.ZodRawShape>(declaration: QueryDeclaration<Shape>): Declared => {
  const { run, ...declared } = declaration
  return {
    ...offered({ ...declared, changes: 'nothing' }),
    read: (given) => {
      const values = valuesOf(declared.input, given)
      return {
        plan: noPlan,
        run: async (context) => {
          const { json, ...answer } = await run(context, values)
          return { ...answer, json: Array.isArray(json) ? json.map(inJson) : inJson({ ...json }) }
        },
      }
    },
  }
}

/** A row or an object of a query as JSON: times in ISO 8601, and positions, which can be larger than a number, as strings. */
const inJson = (row: Row): Row =>
  Object.fromEntries(
    Object.entries(row).map(([name, value]) => [
      name,
      value instanceof Date ? value.toISOString() : typeof value === 'bigint' ? String(value) : value,
    ]),
  )

const noPlan = async (): Promise<Plan> => ({ says: [] })

export const rowsDefault = 100
/** The rows of a page, if all pages of a list are read one after the other. */
export const rowsPerRead = 1_000

export const pagedList = <Shape extends z.ZodRawShape>(declaration: PagedDeclaration<Shape>): Declared => {
  const { page, whole, ...declared } = declaration
  return {
    ...offered({ ...declared, changes: 'nothing' }),
    ...(whole !== true && { paged: true }),
    read: (given) => {
      const values = valuesOf(declared.input, given)
      const pageAt = async (context: Context, stretch: Stretch) => {
        const { rows, ...found } = await page(context, values, stretch)
        return { ...found, rows: rows.map(inJson) }
      }
      return {
        plan: noPlan,
        run: async (context) => {
          const rows: Row[] = []
          let cursor: string | null = null
          do {
            const { rows: more, next }: Page = await pageAt(context, { cursor, max: rowsPerRead })
            rows.push(...more)
            cursor = next
          } while (cursor !== null && whole === true)
          return { json: rows }
        },
        page: pageAt,
      }
    },
  }
}

export const exported = <Shape extends z.ZodRawShape>(declaration: ExportDeclaration<Shape>): Declared => {
  const { file, write, run, ...declared } = declaration
  return {
    ...offered({ ...declared, changes: 'nothing' }),
    read: (given) => {
      const values = valuesOf(declared.input, given)
      const named = file(values)
      return {
        plan: noPlan,
        run: async (context) => (await run?.(context, values)) ?? { json: {} },
        ...(named && {
          file: { ...named, write: (context: Context, to: Write) => write(context, values, to) },
        }),
      }
    },
  }
}

export const onHost = <Shape extends z.ZodRawShape>(declaration: HostDeclaration<Shape>): HostDeclared => {
  const { plan = noPlan, run, ...declared } = declaration
  return {
    ...declared,
    interfaces: ['command line'],
    fields: fieldsIn(declared.input),
    readOnHost: (given) => {
      const values = valuesOf(declared.input, given)
      return { plan: async (host) => planOf(await plan(host, values)), run: (host) => run(host, values) }
    },
  }
}

/** The members of a declaration that interfaces read, without the functions that do the work. */
const offered = <Shape extends z.ZodRawShape>(
  declared: Omit<Described<Shape>, 'run'> &
    Pick<Declared, 'changes' | 'columns' | 'lists' | 'empty' | 'types'>,
): Omit<Declared, 'read'> => ({
  ...declared,
  interfaces: declared.interfaces ?? everywhere,
  fields: fieldsIn(declared.input),
})

/** The values of an input. Throws an `InputFault` that names the first invalid field. */
export const valuesOf = <Shape extends z.ZodRawShape>(
  input: z.ZodObject<Shape>,
  given: Given,
): z.output<z.ZodObject<Shape>> => {
  for (const [name, value] of Object.entries(given))
    if (holdsNul(value))
      throw new InputFault(
        fieldsIn(input).find((one) => one.name === name)?.flag ?? name,
        'the text contains the character U+0000, which cannot be stored',
      )
  const read = z.strictObject(input.shape).safeParse(given)
  if (read.success) return read.data as z.output<z.ZodObject<Shape>>
  const { issues } = read.error
  // A misspelt name also leaves the intended field without a value, so the unknown name is the better explanation.
  const issue = issues.find(({ code }) => code === 'unrecognized_keys') ?? issues[0]
  if (issue === undefined) throw read.error
  if (issue.code === 'unrecognized_keys') {
    const known = Object.keys(input.shape)
    throw new InputFault(
      String(issue.keys[0]),
      `this field does not exist; ${known.length === 0 ? 'there are no fields' : `the fields are ${known.join(', ')}`}`,
    )
  }
  const name = String(issue.path[0])
  const field = fieldsIn(input).find((one) => one.name === name)
  throw new InputFault(field?.flag ?? name, whyInvalid(issue, given[name]))
}

const whyInvalid = (issue: z.core.$ZodIssue, value: unknown): string => {
  if (issue.code === 'custom') return issue.message
  if (value === undefined) return 'a value is required'
  return issue.code === 'invalid_type' ? `the value must have the JSON type ${issue.expected}` : issue.message
}

const holdsNul = (value: unknown): boolean =>
  typeof value === 'string'
    ? value.includes('\u0000')
    : typeof value === 'object' && value !== null && Object.values(value).some(holdsNul)

/**
 * Reads up to `max` rows after a cursor, or from the beginning if the cursor is null. Throws `InputFault` if the cursor is invalid.
 */
export const pageOf = async (
  { run, page }: Asked,
  context: Context,
  { cursor, max }: Stretch,
): Promise<Page> =>
  page === undefined ? partOf(await run(context), { cursor, max }) : page(context, { cursor, max })

/** The part of a whole list. Throws `InputFault` if the cursor is invalid. */
export const partOf = (answer: Answer, { cursor, max }: Stretch): Page => {
  const from = Number(cursor ?? 0)
  if (!Number.isInteger(from) || from < 0)
    throw new InputFault('cursor', `"${cursor}" is not a cursor; use next_cursor of the previous page`)
  const rows = answer.json as readonly Row[]
  const to = from + max
  return { rows: rows.slice(from, to), next: to < rows.length ? String(to) : null, lacks: null }
}
