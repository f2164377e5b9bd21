import { type ParseArgsConfig, parseArgs } from 'node:util'
import { type Command, type Given, UsageError } from './command.ts'

/** The command that the words begin with, and the words behind its name. */
export const findCommand = (
  words: readonly string[],
  commands: readonly Command[],
): { command: Command; rest: string[] } | null => {
  for (const length of [2, 1]) {
    const command = commands.find(({ name }) => name === words.slice(0, length).join(' '))
    if (command !== undefined) return { command, rest: words.slice(length) }
  }
  return null
}

/** A negative number is a value, and no option as parseArgs takes it for. What is typed never holds the zero character. */
const veiled = (arg: string): string => (/^-[\d.]/.test(arg) ? `\0${arg}` : arg)
const unveiled = (text: string): string => text.replace(/^\0/, '')

/** Values by `--name`, then by position into the parameters that were not named. Throws what `isUsageError` knows. */
export const givenOf = (
  { parameters }: Command,
  args: string[],
): { given: Given; as: string | undefined; json: boolean; help: boolean } => {
  const options: NonNullable<ParseArgsConfig['options']> = {
    as: { type: 'string' },
    json: { type: 'boolean' },
    help: { type: 'boolean', short: 'h' },
  }
  for (const { name, kind } of parameters) options[name] = { type: kind === 'flag' ? 'boolean' : 'string' }
  const { values, positionals } = parseArgs({ args: args.map(veiled), allowPositionals: true, options })
  const texts = new Map<string, string>()
  for (const [name, value] of Object.entries(values))
    if (typeof value === 'string') texts.set(name, unveiled(value))
  const open = parameters.filter(({ name, kind }) => kind !== 'flag' && !texts.has(name))
  for (const [i, value] of positionals.map(unveiled).entries()) {
    const parameter = open[i]
    if (parameter === undefined) throw new UsageError(`"${value}" is one value too many`)
    texts.set(parameter.name, value)
  }
  const given: Given = {
    text: (name) => texts.get(name),
    required: (name) => {
      const value = texts.get(name)
      if (value === undefined || value === '') throw new UsageError(`--${name} is required`)
      return value
    },
    flag: (name) => values[name] === true,
  }
  return { given, as: texts.get('as'), json: values.json === true, help: values.help === true }
}

/** Whether a command was typed wrongly, by our rules or by those of `parseArgs`. */
export const isUsageError = (error: unknown): boolean =>
  error instanceof UsageError ||
  (error instanceof Error && 'code' in error && String(error.code).startsWith('ERR_PARSE_ARGS'))
