import type { Logger } from 'pino'
import { z } from 'zod'
import type { Projection } from '../../projections/projection.ts'
import type { InputVerdict } from '../call/capability.ts'
import type { FoundData } from '../call/data-source.ts'
import type { Config } from '../config.ts'
import type { CallFacts } from '../events/calls.ts'
import type { Foundation } from '../foundation/foundation.ts'
import { CommandRefused } from '../ledger/command.ts'
import { type Field, fieldsIn } from './fields.ts'
import { InputFault } from './input.ts'
import type { Operator } from './operator.ts'
import type { WithPixel } from './pixel/pixel.ts'
import type { Action } from './roles.ts'
import type { WebhookOutside } from './webhooks/webhook-request.ts'

/**
 * Commands and queries of administration. Each is declared once, in `<area>/commands.ts` or `<area>/queries.ts`. The command line, the
 * dashboard and the admin API offer it: they read its fields, check the person's rights, and show its plan and its answer.
 */

type Interface = 'command line' | 'dashboard' | 'admin API'

const everywhere: readonly Interface[] = ['command line', 'dashboard', 'admin API']

/** What a command or query works with, in every interface. */
export type Context = {
  readonly foundation: Foundation
  readonly logger: Logger
  readonly operator: Operator
  /** If set, one person proposes and another one approves. */
  readonly twoPerson: boolean
  readonly pixel: WithPixel
  /** Opened at the first use. Rejects with `ConfigError`. */
  readonly outside: () => Promise<WebhookOutside>
  /** Shows the progress of long work: a line for people, and `figures` for programs. */
  readonly progress: (line: string, figures?: object) => void
  /** The dashboard's address, without a trailing slash. */
  readonly dashboardUrl: () => Promise<string>
  /** Resolves when rows have caught up with the event log. Pages do not wait: they show how late their rows are. */
  readonly caughtUp: () => Promise<void>
  /** Opened at the first use. */
  readonly data: () => Promise<CapabilityData>
}

/** For commands and queries about the data of capabilities. */
export type CapabilityData = {
  readonly settings: Config
  /** Resolves when rows have caught up with the event log, in every interface. */
  readonly folded: () => Promise<void>
  /** Removes deleted rows from tables immediately. Returns why that failed for a table; null: it did not fail. */
  readonly vacuum: (of: {
    readonly tables: readonly string[]
    readonly projections: readonly Projection[]
  }) => Promise<string | null>
  /** The data sources of all capabilities, in their current state. */
  readonly sources: () => Promise<FoundData>
  /** Whether a text was the input of a call with these facts; null: no capability can say. */
  readonly recognizerOf: (text: string) => (facts: CallFacts) => Promise<InputVerdict | null>
}

/** Whether it is a query about a person, whose values must be in no address. */
export const isPersonal = ({ changes, fields }: Pick<Declared, 'changes' | 'fields'>): boolean =>
  changes === 'nothing' && fields.some(({ personal }) => personal === true)

/** Values by the names of the fields: texts, or JSON values. An absent field was not given. */
export type Given = Readonly<Record<string, unknown>>

/** The changes that a command makes. */
export type Changes = {
  readonly of: 'money' | 'access' | 'rows' | 'people' | 'records' | 'settings'
  readonly asks: Asks
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
  /** The part of `json` that people see, before `says`; empty: `says` contains everything in it. */
  readonly sections?: Sections
  /** Overrides the command's own value if the input or the current state makes a difference. */
  readonly asks?: Asks
  /** It would change nothing, because it has already been done. */
  readonly nothing?: true
}

/** For people: a text is a heading, an object is shown as its members, and an array as a table. */
export type Sections = readonly (string | object)[]

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

type Described<Shape extends z.ZodRawShape> = {
  /** `noun verb`. */
  readonly name: `${string} ${string}`
  /** The right that it needs, in the table of roles. */
  readonly action: Action
  readonly summary: string
  /** Its fields, of `fields.ts`. */
  readonly input: z.ZodObject<Shape>
  /** Default: all of them. */
  readonly interfaces?: readonly Interface[]
  /** The member of its answer that is secret and shown once. */
  readonly secret?: string
  /** The help of `--out`: the command line writes the answer into that file as well. */
  readonly out?: string
  /** It works while a restore is incomplete. */
  readonly anyHistory?: true
  /** It may use an event log that the rows were not folded from. */
  readonly anyEventLog?: (given: Given) => boolean
  /**
   * It may take minutes, so it runs as a job (`jobs/long-work.ts`). `repeatable`: if its process ends, another process repeats
   * it. `once`: it is not repeated, because that could do it twice.
   */
  readonly long?: 'repeatable' | 'once'
  readonly run: (context: Context, input: z.output<z.ZodObject<Shape>>) => Promise<Answer>
}

type CommandDeclaration<Shape extends z.ZodRawShape> = Described<Shape> & {
  readonly changes: Changes
  /** The effect that it would have now. Writes nothing, and throws where `run` would. */
  readonly plan: (context: Context, input: z.output<z.ZodObject<Shape>>) => Promise<Plan>
}

type QueryDeclaration<Shape extends z.ZodRawShape> = Described<Shape> & {
  /** If its answer is a list: the members that people see, in this order. */
  readonly columns?: readonly Column[]
  /** Suggested next steps for the list, and for each of its rows. */
  readonly next?: readonly Next[]
  readonly nextOfRow?: readonly NextOfRow[]
  /** If its answer is an object: how people see the lists in it, by the names of these members. */
  readonly lists?: Lists
}

export type Lists = Readonly<Record<string, Pick<Declared, 'columns' | 'nextOfRow'>>>

/**
 * A file that is never completely in memory: it is written while it is read. Its address contains all values, so it can be a link.
 */
type ExportDeclaration<Shape extends z.ZodRawShape> = Omit<Described<Shape>, 'run' | 'long'> & {
  /** The content types of its files. */
  readonly types: readonly FileType[]
  /** The name of the file; null: these values request no file, and `run` answers. Throws `InputFault`. */
  readonly file: (input: z.output<z.ZodObject<Shape>>) => FileName | null
  /** Writes the file. Throws what `write` throws: the reader has left, or is too slow. */
  readonly write: (context: Context, input: z.output<z.ZodObject<Shape>>, write: Write) => Promise<Answer>
  readonly run?: Described<Shape>['run']
}

/** With JSON Lines, every written piece ends with a line break, or is empty. */
type FileType = 'application/jsonl' | 'text/csv'
type FileName = { readonly name: string; readonly type: FileType }
/** Resolves when more can be written. An empty text only asks whether the reader is still there. */
type Write = (text: string) => Promise<void>

/** The requested part of a list: at most `max` rows after a cursor; null: from the first row on. */
type Stretch = { readonly cursor: string | null; readonly max: number }

/** A query with a list that is never completely in memory: rows are read as they are consumed. */
type PagedDeclaration<Shape extends z.ZodRawShape> = Omit<QueryDeclaration<Shape>, 'run' | 'columns'> & {
  readonly columns: readonly Column[]
  readonly rows: (
    context: Context,
    input: z.output<z.ZodObject<Shape>>,
    stretch: Stretch,
  ) => AsyncIterable<Row>
  /** The member of a row that is the cursor of the rows after it. */
  readonly cursor: string
  /** A sentence about missing rows; null: the list is complete. */
  readonly lacks: (context: Context) => Promise<string | null>
}

/** A command or query that people may want next, with values by the names of its fields. */
export type Next = {
  readonly name: Declared['name']
  readonly label: string
  readonly given?: Readonly<Record<string, string>>
}

type NextOfRow = Omit<Next, 'given'> & {
  /** The values of its fields; null: it does not apply to this row. */
  readonly given: (row: Row) => Given | null
}

/** A row of a list, or the object of an answer. */
export type Row = Readonly<Record<string, unknown>>

/** A column of a list, named like the member of each row. */
export type Column = {
  readonly name: string
  readonly label: string
  /** `whole`: a text of any length, which is not cut on a terminal. */
  readonly kind?:
    | 'id'
    | 'credits'
    | 'instant'
    | 'number'
    | 'name'
    | 'whole'
    | 'organization'
    | 'position'
    | 'work'
  /** The member with the most that this number can reach: pages show both as a meter. */
  readonly limit?: string
}

/** A command or query, as the interfaces see it. */
export type Declared = Pick<
  Described<z.ZodRawShape>,
  'name' | 'action' | 'summary' | 'anyHistory' | 'anyEventLog' | 'secret' | 'out' | 'long'
> & {
  readonly interfaces: readonly Interface[]
  readonly fields: readonly Field[]
  readonly input: z.ZodObject
  readonly changes: 'nothing' | Changes
  readonly columns?: readonly Column[]
  readonly next?: readonly Next[]
  readonly nextOfRow?: readonly NextOfRow[]
  readonly lists?: Lists
  /** Its rows are read a page at a time: see `Asked`. */
  readonly paged?: true
  /** The content types of the files that it writes. */
  readonly types?: readonly FileType[]
  /** Reads the values. Throws `InputFault`, which names the field as the command line does. */
  readonly read: (given: Given) => Asked
}

/** A command or query with its values. */
export type Asked = {
  /** For a query, nothing. */
  readonly plan: (context: Context) => Promise<Plan>
  readonly run: (context: Context) => Promise<Answer>
  /** Of a list that is read a page at a time; `run` then answers its first rows. */
  readonly paged?: {
    readonly rows: (context: Context, stretch: Stretch) => AsyncIterable<Row>
    readonly cursor: string
    readonly lacks: (context: Context) => Promise<string | null>
  }
  /** Set if these values request a file. `write` returns a summary. */
  readonly file?: FileName & { readonly write: (context: Context, write: Write) => Promise<Answer> }
}

/**
 * The command needs a person's consent: `field` with exactly this `value`. Nothing was changed. `would`: the effect, a sentence
 * each.
 */
export class NeedsConsent extends CommandRefused {
  override name = 'NeedsConsent'
  readonly agreement: { readonly field: string; readonly value: string }
  readonly would: readonly string[]
  constructor(agreement: NeedsConsent['agreement'], would: readonly string[]) {
    super(
      `nothing was changed; read what is listed, then give --${agreement.field} ${agreement.value}, which agrees to exactly that: ${would.join(' ')}`,
    )
    this.agreement = agreement
    this.would = would
  }
}

export const command = <Shape extends z.ZodRawShape>(declaration: CommandDeclaration<Shape>): Declared => {
  const { input, plan, run } = declaration
  return {
    ...declaredOf(declaration),
    read: (given) => {
      const values = valuesOf(input, given)
      return { plan: (context) => plan(context, values), run: (context) => run(context, values) }
    },
  }
}

export const query = <Shape extends z.ZodRawShape>(declaration: QueryDeclaration<Shape>): Declared => {
  const { input, run } = declaration
  return {
    ...declaredOf({ ...declaration, changes: 'nothing' }),
    read: (given) => {
      const values = valuesOf(input, given)
      return { plan: async () => ({ says: [] }), run: (context) => run(context, values) }
    },
  }
}

/** The default number of rows of a list. */
export const rowsDefault = 100

export const pagedList = <Shape extends z.ZodRawShape>(declaration: PagedDeclaration<Shape>): Declared => {
  const { input, rows, cursor, lacks } = declaration
  return {
    ...declaredOf({ ...declaration, changes: 'nothing' }),
    paged: true,
    read: (given) => {
      const values = valuesOf(input, given)
      const paged = {
        ...{ cursor, lacks },
        rows: (context: Context, stretch: Stretch) => rows(context, values, stretch),
      }
      const first = { cursor: null, max: rowsDefault }
      return {
        plan: async () => ({ says: [] }),
        run: async (context) => ({ json: await Array.fromAsync(paged.rows(context, first)) }),
        paged,
      }
    },
  }
}

export const exported = <Shape extends z.ZodRawShape>(declaration: ExportDeclaration<Shape>): Declared => {
  const { input, types, file, write, run } = declaration
  return {
    ...declaredOf({ ...declaration, changes: 'nothing' }),
    types,
    read: (given) => {
      const values = valuesOf(input, given)
      const named = file(values)
      return {
        plan: async () => ({ says: [] }),
        run: async (context) => (await run?.(context, values)) ?? { json: {} },
        ...(named && {
          file: { ...named, write: (context: Context, to: Write) => write(context, values, to) },
        }),
      }
    },
  }
}

const declaredOf = <Shape extends z.ZodRawShape>({
  interfaces = everywhere,
  input,
  name,
  action,
  summary,
  anyHistory,
  anyEventLog,
  secret,
  out,
  changes,
  columns,
  long,
  next,
  nextOfRow,
  lists,
}: Omit<CommandDeclaration<Shape>, 'changes' | 'plan' | 'run'> &
  Pick<QueryDeclaration<Shape>, 'columns' | 'next' | 'nextOfRow' | 'lists'> &
  Pick<Declared, 'changes'>): Omit<Declared, 'read'> => ({
  ...{ name, action, summary, changes, interfaces, input, fields: fieldsIn(input) },
  ...(anyHistory && { anyHistory }),
  ...(anyEventLog && { anyEventLog }),
  ...(columns && { columns }),
  ...(long && { long }),
  ...(next && { next }),
  ...(nextOfRow && { nextOfRow }),
  ...(lists && { lists }),
  ...(secret !== undefined && { secret }),
  ...(out !== undefined && { out }),
})

const valuesOf = <Shape extends z.ZodRawShape>(
  input: z.ZodObject<Shape>,
  given: Given,
): z.output<z.ZodObject<Shape>> => {
  for (const [name, value] of Object.entries(given))
    if (holdsNul(value))
      throw new InputFault(
        fieldsIn(input).find((one) => one.name === name)?.flag ?? name,
        'the text has a character U+0000, which cannot be stored',
      )
  const read = z.strictObject(input.shape).safeParse(given)
  if (read.success) return read.data as z.output<z.ZodObject<Shape>>
  const [issue] = read.error.issues
  if (issue === undefined) throw read.error
  if (issue.code === 'unrecognized_keys')
    throw new InputFault(String(issue.keys[0]), 'this field does not exist here')
  const name = String(issue.path[0])
  const field = fieldsIn(input).find((one) => one.name === name)
  throw new InputFault(
    field?.flag ?? name,
    issue.code === 'custom'
      ? issue.message
      : given[name] === undefined
        ? 'a value is required'
        : issue.message,
  )
}

const holdsNul = (value: unknown): boolean =>
  typeof value === 'string'
    ? value.includes('\u0000')
    : typeof value === 'object' && value !== null && Object.values(value).some(holdsNul)

export type Page = {
  readonly rows: readonly Row[]
  /** The cursor of the next page; null: this is the last. */
  readonly next: string | null
  /** A sentence about missing rows; null: the list is complete. */
  readonly lacks: string | null
}

/** Up to `max` rows of a list, from a cursor on; null: from the beginning. Throws `InputFault` for an invalid cursor. */
export const pageOf = async (
  { run, paged }: Asked,
  context: Context,
  { cursor, max }: Stretch,
): Promise<Page> => {
  if (paged !== undefined) {
    const rows = await Array.fromAsync(paged.rows(context, { cursor, max: max + 1 }))
    const shown = rows.slice(0, max)
    const next = rows.length > max ? String(shown.at(-1)?.[paged.cursor]) : null
    return { rows: shown, next, lacks: await paged.lacks(context) }
  }
  const from = Number(cursor ?? 0)
  if (!Number.isInteger(from) || from < 0)
    throw new InputFault('cursor', `"${cursor}" is not a cursor; use next_cursor of the previous page`)
  const rows = (await run(context)).json as readonly Row[]
  const to = from + max
  return { rows: rows.slice(from, to), next: to < rows.length ? String(to) : null, lacks: null }
}

/** The state after an interruption of one event or one transaction. `where`: the command that shows it. */
export const wholeOrNot = (where: string): string =>
  `Either all of it was done, or nothing was: "${where}" shows which.`
