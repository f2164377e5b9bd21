import { type ParseArgsConfig, parseArgs } from 'node:util'
import { nearest } from '../foundation/nearest.ts'
import { type Command, type Given, UsageError } from './command.ts'
import { fromUser } from './files.ts'

/** Returns the command at the beginning of the words, and the remaining words; null if the words name no command. */
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

const commonFlags = ['json', 'help'] as const
const changeFlags = ['dry-run', 'yes'] as const

/** Returns the names of a command's options, without dashes. */
export const optionsOf = ({ parameters, changes }: Command): string[] => [
  ...parameters.map(({ name }) => name),
  ...(changes === 'nothing' ? [] : changeFlags),
  'as',
  ...commonFlags,
]

/** Hides a negative number from parseArgs, which would parse the number as an option. Typed text never contains U+0000. */
const veiled = (arg: string): string => (/^-[\d.]/.test(arg) ? `\0${arg}` : arg)
const unveiled = (text: string): string => text.replace(/^\0/, '')

export type Typed = {
  readonly given: Given
  readonly as: string | undefined
  readonly json: boolean
  readonly help: boolean
  readonly dryRun: boolean
  readonly yes: boolean
}

/** Reads values by `--name`, then by position for the remaining parameters. Throws errors that `isUsageError` recognizes. */
export const givenOf = (command: Command, args: string[]): Typed => {
  const { parameters, changes } = command
  const options: NonNullable<ParseArgsConfig['options']> = {
    as: { type: 'string' },
    json: { type: 'boolean' },
    help: { type: 'boolean', short: 'h' },
  }
  if (changes !== 'nothing') for (const name of changeFlags) options[name] = { type: 'boolean' }
  for (const { name, kind } of parameters) options[name] = { type: kind === 'flag' ? 'boolean' : 'string' }
  checkOptions(command, args.map(veiled), options)
  const { values, positionals } = parseArgs({ args: args.map(veiled), allowPositionals: true, options })
  const texts = new Map<string, string>()
  for (const [name, value] of Object.entries(values))
    if (typeof value === 'string') texts.set(name, unveiled(value))
  const open = parameters.filter(({ name, kind }) => kind !== 'flag' && !texts.has(name))
  for (const [i, value] of positionals.map(unveiled).entries()) {
    const parameter = open[i]
    if (parameter === undefined) throw new UsageError(`there is no parameter for the value "${value}"`)
    texts.set(parameter.name, value)
  }
  const meanings = new Map([...texts].map(([name, text]) => [name, meant(command, name, text)]))
  const given: Given = {
    text: (name) => meanings.get(name),
    required: (name) => {
      const value = meanings.get(name)
      if (value === undefined || value === '') throw new UsageError(`--${name} is required`)
      return value
    },
    flag: (name) => values[name] === true,
  }
  const is = (name: string): boolean => values[name] === true
  return {
    given,
    as: texts.get('as'),
    json: is('json'),
    help: is('help'),
    dryRun: is('dry-run'),
    yes: is('yes'),
  }
}

/** Converts a value as its parameter requires. An empty value is left to the command. */
const meant = ({ parameters }: Command, name: string, text: string): string => {
  const kind = parameters.find((one) => one.name === name)?.kind
  return kind === 'file' && text.trim() !== '' ? fromUser(text) : text
}

/** Throws for an unknown option, and suggests the most similar one. */
const checkOptions = (
  command: Command,
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
