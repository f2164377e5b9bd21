import { createInterface } from 'node:readline/promises'
import { type ParseArgsConfig, parseArgs } from 'node:util'
import { capabilityCommands } from './capability-commands.ts'
import { type Answer, type Command, type CommandContext, type Given, UsageError } from './cli/command.ts'
import { creditsCommands } from './cli/credits.ts'
import { epochKeyCommands } from './cli/epoch-key.ts'
import { eventLogCommands } from './cli/event-log.ts'
import { keyCommands } from './cli/key.ts'
import { ledgerCommands } from './cli/ledger.ts'
import { organizationCommands } from './cli/organization.ts'
import { priceCommands } from './cli/price.ts'
import { projectionCommands } from './cli/projection.ts'
import { seedCommands } from './cli/seed.ts'
import { members, type Row, table } from './cli/table.ts'
import { userCommands } from './cli/user.ts'
import { ConfigError, parseConfig } from './config.ts'
import { EventDataError } from './event-log/stored-event.ts'
import { type Foundation, openFoundation } from './foundation/foundation.ts'
import { createLogger } from './foundation/logger.ts'

/** The operators' command line. Works while the service runs and while it does not. Exit 0 done, 1 failed, 2 usage. */

/** For installations that start many processes at once: one applies the migrations, the others find them applied. */
const migrateCommand: Command = {
  name: 'migrate',
  summary: 'bring the database to this release; every start does this too',
  parameters: [],
  run: async ({ foundation }) => {
    await foundation()
    return { json: { migrated: true } }
  },
}

const commands: readonly Command[] = [
  ...organizationCommands,
  ...keyCommands,
  ...creditsCommands,
  ...priceCommands,
  ...ledgerCommands,
  ...projectionCommands,
  ...eventLogCommands,
  ...seedCommands,
  ...userCommands,
  ...capabilityCommands,
  ...epochKeyCommands,
  migrateCommand,
]

/** A person waits no longer for a database that is away; the service itself waits for one that recovers. */
const databaseWaitMs = 10_000

const invocation = 'npm run -s cli --'

const overview = (shown: readonly Command[]): string => {
  const width = Math.max(...shown.map(({ name }) => name.length))
  return [
    `Usage: ${invocation} <noun> <verb> [values] [--json]`,
    '',
    ...shown.map(({ name, summary }) => `  ${name.padEnd(width)}  ${summary}`),
    '',
    `${invocation} <noun> <verb> --help shows a command's parameters. --json prints one JSON document.`,
    'Exit codes: 0 done, 1 failed, 2 wrong usage.',
  ].join('\n')
}

const notFound = ([noun = '', verb]: readonly string[], verbs: readonly Command[]): string => {
  const names = verbs.map(({ name }) => name.slice(noun.length + 1)).join(', ')
  if (verbs.length === 0) return `There is no command "${verb === undefined ? noun : `${noun} ${verb}`}".`
  return verb === undefined || verb.startsWith('-')
    ? `"${noun}" needs a verb: ${names}.`
    : `There is no command "${noun} ${verb}"; the verbs of "${noun}" are ${names}.`
}

const usageOf = ({ name, summary, parameters }: Command): string => {
  const positional = parameters.filter(({ kind }) => kind !== 'flag')
  const width = Math.max(0, ...parameters.map((parameter) => parameter.name.length))
  return [
    `Usage: ${invocation} ${name}${positional.map((one) => (one.required ? ` <${one.name}>` : ` [${one.name}]`)).join('')} [--json]`,
    '',
    `  ${summary}`,
    ...(parameters.length === 0 ? [] : ['']),
    ...parameters.map(
      (one) => `  --${one.name.padEnd(width)}  ${one.help}${one.required ? ' (required)' : ''}`,
    ),
  ].join('\n')
}

const findCommand = (words: readonly string[]): { command: Command; rest: string[] } | null => {
  for (const length of [2, 1]) {
    const command = commands.find(({ name }) => name === words.slice(0, length).join(' '))
    if (command !== undefined) return { command, rest: words.slice(length) }
  }
  return null
}

/** A negative number is a value, and no option as parseArgs takes it for. What is typed never holds the zero character. */
const veiled = (arg: string): string => (/^-[\d.]/.test(arg) ? `\0${arg}` : arg)
const unveiled = (text: string): string => text.replace(/^\0/, '')

/** Values by `--name`, then by position into the parameters that were not named. */
const givenOf = ({ parameters }: Command, args: string[]): { given: Given; json: boolean; help: boolean } => {
  const options: NonNullable<ParseArgsConfig['options']> = {
    json: { type: 'boolean' },
    help: { type: 'boolean', short: 'h' },
  }
  for (const { name, kind } of parameters) options[name] = { type: kind === 'flag' ? 'boolean' : 'string' }
  const parsed = parseArgs({ args: args.map(veiled), allowPositionals: true, options })
  const { values } = parsed
  const positionals = parsed.positionals.map(unveiled)
  const texts = new Map<string, string>()
  for (const [name, value] of Object.entries(values))
    if (typeof value === 'string') texts.set(name, unveiled(value))
  const open = parameters.filter(({ name, kind }) => kind !== 'flag' && !texts.has(name))
  if (positionals.length > open.length)
    throw new UsageError(`"${positionals[open.length]}" is one value too many`)
  for (const [i, value] of positionals.entries()) texts.set(open[i]?.name ?? '', value)
  const given: Given = {
    text: (name) => texts.get(name),
    required: (name) => {
      const value = texts.get(name)
      if (value === undefined || value === '') throw new UsageError(`--${name} is required`)
      return value
    },
    flag: (name) => values[name] === true,
  }
  return { given, json: values.json === true, help: values.help === true }
}

const print = (answer: Answer, json: boolean): string => {
  if (json) return JSON.stringify(answer.json, null, 2)
  if (answer.lines !== undefined) return answer.lines.join('\n')
  return (Array.isArray(answer.json) ? table(answer.json as Row[]) : members({ ...answer.json })).join('\n')
}

/** One line on a terminal, overwritten at most ten times a second; nothing where nobody watches. */
const progressLine = (): { show: (line: string) => void; end: () => void } => {
  let shownAt = 0
  return {
    show: (line) => {
      if (!process.stderr.isTTY || performance.now() - shownAt < 100) return
      shownAt = performance.now()
      process.stderr.write(`\r\x1b[K${line}`)
    },
    end: () => {
      if (shownAt > 0) process.stderr.write('\r\x1b[K')
    },
  }
}

const write = (text: string): Promise<void> =>
  new Promise((resolve, reject) => process.stdout.write(text, (error) => (error ? reject(error) : resolve())))

const ask = async (question: string): Promise<boolean | null> => {
  if (!process.stdin.isTTY) return null
  const terminal = createInterface({ input: process.stdin, output: process.stderr })
  try {
    return /^y(es)?$/i.test((await terminal.question(`${question} [y/N] `)).trim())
  } finally {
    terminal.close()
  }
}

const run = async (args: string[]): Promise<number> => {
  const found = findCommand(args)
  if (found === null) {
    const asked = args.length === 0 || args.some((arg) => arg === '--help' || arg === '-h' || arg === 'help')
    const verbs = commands.filter(({ name }) => name.startsWith(`${args[0]} `))
    const text = overview(verbs.length === 0 ? commands : verbs)
    if (asked) await write(`${text}\n`)
    else process.stderr.write(`${notFound(args, verbs)}\n\n${text}\n`)
    return asked ? 0 : 2
  }
  let foundation: Foundation | undefined
  const progress = progressLine()
  try {
    const { given, json, help } = givenOf(found.command, found.rest)
    if (help) {
      await write(`${usageOf(found.command)}\n`)
      return 0
    }
    const config = parseConfig(process.env)
    const logger = createLogger(process.env.LOG_LEVEL === undefined ? 'error' : config.LOG_LEVEL)
    const context: CommandContext = {
      config,
      logger,
      json,
      write,
      progress: progress.show,
      ask,
      foundation: async (options) =>
        (foundation ??= await openFoundation(config, { logger, waitMs: databaseWaitMs, ...options })),
    }
    const answer = await found.command.run(context, given)
    progress.end()
    if (answer.written !== true) await write(`${print(answer, json)}\n`)
    return answer.failed === true ? 1 : 0
  } catch (error) {
    progress.end()
    process.stderr.write(`${sentenceOf(error)}\n`)
    if (error instanceof ConfigError || error instanceof EventDataError) return 2
    if (!(error instanceof UsageError || isParseArgsError(error))) return 1
    process.stderr.write(`\n${usageOf(found.command)}\n`)
    return 2
  } finally {
    await foundation?.close()
  }
}

/** A host with several addresses fails with an error for each, and says nothing itself. */
const sentenceOf = (error: unknown): string => {
  if (error instanceof AggregateError && error.message === '') return sentenceOf(error.errors[0])
  return error instanceof Error ? error.message || error.name : String(error)
}

const isParseArgsError = (error: unknown): boolean =>
  error instanceof Error && 'code' in error && String(error.code).startsWith('ERR_PARSE_ARGS')

// A reader that has seen enough, such as head, closes the pipe: that is no failure.
process.stdout.on('error', (error: NodeJS.ErrnoException) => process.exit(error.code === 'EPIPE' ? 0 : 1))
process.exitCode = await run(process.argv.slice(2))
