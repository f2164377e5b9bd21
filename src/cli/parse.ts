import { text } from 'node:stream/consumers'
import { type ParseArgsConfig, parseArgs } from 'node:util'
import { type AnyDeclared, type Given, rowsDefault } from '../administration/declare.ts'
import { type Field, typedHelp } from '../administration/fields.ts'
import { priceNameForm, UsageError } from '../administration/input.ts'
import { nearest } from '../foundation/nearest.ts'
import { fromUser, readTextFile } from './files.ts'
import { answerTo, isTerminal } from './terminal.ts'

/** Returns the command at the beginning of the words, and the remaining words; null if the words name no command. */
export const findCommand = (
  words: readonly string[],
  commands: readonly AnyDeclared[],
): { command: AnyDeclared; rest: string[] } | null => {
  for (const length of [2, 1]) {
    const command = commands.find(({ name }) => name === words.slice(0, length).join(' '))
    if (command !== undefined) return { command, rest: words.slice(length) }
  }
  return null
}

type Parameter = {
  /** The name without dashes. The value of `org` is typed as `--org X` or by position. */
  readonly name: string
  readonly help: string
  readonly required?: boolean
  /** A flag has no value. Values can be typed by position, in the order of the parameters. */
  readonly flag?: boolean
}

/** A query runs in this process and not in a job, so that a check does not depend on the service. */
export const runsAsJob = ({ long, changes }: Pick<AnyDeclared, 'long' | 'changes'>): boolean =>
  long !== undefined && changes !== 'nothing'

export const limitMax = 1_000_000

/** Returns the parameters for the fields, and those that only the command line has. */
export const parametersOf = (declared: AnyDeclared): readonly Parameter[] => {
  const { fields, out, paged, types } = declared
  return [
    ...fields.map(parameterOf),
    ...(out === undefined ? [] : [{ name: 'out', help: out }]),
    ...(paged === true
      ? [{ name: 'limit', help: `the maximum number of rows (default ${rowsDefault}, at most ${limitMax})` }]
      : []),
    ...(runsAsJob(declared)
      ? [
          {
            name: 'here',
            help: 'do the work in this process instead of a job that continues when this process ends',
            flag: true,
          },
        ]
      : []),
    ...(types === undefined
      ? []
      : [
          { name: 'out', help: 'write to this file, readable only by its owner (default: standard output)' },
          { name: 'force', help: 'replace the file if it exists', flag: true },
        ]),
  ]
}

const parameterOf = (field: Field): Parameter => {
  const { flag, required, control, byDefault, options, personal } = field
  const of =
    options === undefined
      ? ''
      : `: ${control === 'choices' ? 'comma-separated, of' : 'one of'} ${options.join(', ')}`
  const file =
    control === 'document'
      ? ' (the path of a file)'
      : personal === true
        ? '; - asks for it, or reads it from standard input'
        : ''
  const more = byDefault === undefined ? '' : ` (default ${byDefault})`
  return { name: flag, help: `${typedHelp(field)}${of}${file}${more}`, required, flag: control === 'flag' }
}

const commonFlags = ['json', 'help'] as const
const changeFlags = ['dry-run', 'yes'] as const

/** Returns the names of a command's options, without dashes. */
export const optionsOf = (declared: AnyDeclared): string[] => [
  ...parametersOf(declared).map(({ name }) => name),
  ...(declared.changes === 'nothing' ? [] : changeFlags),
  'as',
  ...commonFlags,
]

/** Hides a negative number from parseArgs, which would parse the number as an option. Typed text never contains U+0000. */
const veiled = (arg: string): string => (/^-[\d.]/.test(arg) ? `\0${arg}` : arg)
const unveiled = (text: string): string => text.replace(/^\0/, '')

/** The typed parameters by name. */
export type Typed = {
  readonly texts: ReadonlyMap<string, string>
  readonly flags: ReadonlySet<string>
}

/** Reads values by `--name`, then by position for the remaining parameters. Throws errors that `isUsageError` recognizes. */
export const typedIn = (declared: AnyDeclared, args: readonly string[]): Typed => {
  const parameters = parametersOf(declared)
  const options: NonNullable<ParseArgsConfig['options']> = {
    as: { type: 'string' },
    json: { type: 'boolean' },
    help: { type: 'boolean', short: 'h' },
  }
  if (declared.changes !== 'nothing') for (const name of changeFlags) options[name] = { type: 'boolean' }
  for (const { name, flag } of parameters) options[name] = { type: flag === true ? 'boolean' : 'string' }
  const veiledArgs = args.map(veiled)
  checkOptions(declared, veiledArgs, options)
  const { values, positionals } = parseArgs({ args: veiledArgs, allowPositionals: true, options })
  const texts = new Map<string, string>()
  const flags = new Set<string>()
  for (const [name, value] of Object.entries(values))
    if (typeof value === 'string') texts.set(name, unveiled(value))
    else flags.add(name)
  const open = parameters.filter(({ name, flag }) => flag !== true && !texts.has(name))
  for (const [i, value] of positionals.map(unveiled).entries()) {
    const parameter = open[i]
    if (parameter === undefined) throw new UsageError(`there is no parameter for the value "${value}"`)
    texts.set(parameter.name, value)
  }
  return { texts, flags }
}

/** A document can contain a plan for all organizations of a large installation, but must fit into memory. */
const documentBytesMax = 256 * 1024 * 1024

/** Returns the values of the fields. Throws `UsageError` if a required value is missing, and `InputFault` if a file cannot be read. */
export const givenIn = async (fields: readonly Field[], { texts, flags }: Typed): Promise<Given> => {
  const values: Record<string, unknown> = {}
  for (const field of fields) {
    const { name, flag, required, control } = field
    const typed = texts.get(flag)
    if (required && (typed === undefined || typed === '')) throw new UsageError(`--${flag} is required`)
    if (control === 'flag') values[name] = flags.has(flag)
    else if (typed !== undefined) values[name] = await readTyped(field, typed)
  }
  return values
}

const readTyped = async (
  { flag, label, control, named, personal }: Field,
  typed: string,
): Promise<string> => {
  if (personal === true && typed === '-') return unseen(label)
  if (control === 'file') return typed.trim() === '' ? typed : fromUser(typed)
  if (control !== 'document' || (named === true && priceNameForm.test(typed.trim()))) return typed
  return readTextFile(flag, fromUser(typed), documentBytesMax)
}

/** A value that must not be in the shell's history: asked for on a terminal, otherwise all of standard input. */
const unseen = async (label: string): Promise<string> =>
  isTerminal() ? answerTo(`${label}: `) : (await text(process.stdin)).trim()

/** Throws for an unknown option, and suggests the most similar one. */
const checkOptions = (
  command: AnyDeclared,
  args: string[],
  options: NonNullable<ParseArgsConfig['options']>,
): void => {
  const { tokens } = parseArgs({ args, allowPositionals: true, options, strict: false, tokens: true })
  for (const token of tokens) {
    if (token.kind !== 'option' || Object.hasOwn(options, token.name)) continue
    const known = optionsOf(command)
    const close = nearest(token.name, known)
    throw new UsageError(
      `"${command.name}" has no option ${token.rawName}`,
      close === null
        ? `its options are ${known.map((one) => `--${one}`).join(', ')}`
        : `did you mean --${close}?`,
    )
  }
}

/** Whether the error is a usage error, by our rules or those of `parseArgs`. */
export const isUsageError = (error: unknown): boolean =>
  error instanceof UsageError ||
  (error instanceof Error && 'code' in error && String(error.code).startsWith('ERR_PARSE_ARGS'))
