import { InputFault } from '../administration/input.ts'
import { ConfigError, parseConfig } from '../config.ts'
import { EventDataError } from '../event-log/stored-event.ts'
import { type Closing, createClosing } from '../foundation/closing.ts'
import { openFoundation } from '../foundation/foundation.ts'
import { createLogger } from '../foundation/logger.ts'
import { parseSoundConfig } from '../foundation/sound-config.ts'
import type { Answer, Command, CommandContext, Given, OperatedFoundation } from './command.ts'
import { commands } from './commands.ts'
import { notFound, overview, usageOf } from './help.ts'
import { operatorOf } from './operator.ts'
import { findCommand, givenOf, isUsageError } from './parse.ts'
import { members, type Row, table } from './table.ts'
import { ask, progressLine, write } from './terminal.ts'

/** A person waits no longer for a database that is away; the service itself waits for one that recovers. */
const databaseWaitMs = 10_000

/**
 * The operators' command line: one face of administration. Works while the service runs and while it does not. Resolves
 * with the exit code: 0 done, 1 failed, 2 wrong usage.
 */
export const runCommandLine = async (args: string[]): Promise<number> => {
  const found = findCommand(args, commands)
  if (found === null) return withoutCommand(args)
  const { command, rest } = found
  const closing = createClosing()
  try {
    const { given, as, json, help } = givenOf(command, rest)
    if (help) {
      await write(`${usageOf(command)}\n`)
      return 0
    }
    return await runCommand(command, { given, as, json, closing })
  } catch (error) {
    const wrongUsage = error instanceof InputFault || isUsageError(error)
    process.stderr.write(`${sentenceOf(error)}\n${wrongUsage ? `\n${usageOf(command)}\n` : ''}`)
    return wrongUsage || error instanceof ConfigError || error instanceof EventDataError ? 2 : 1
  } finally {
    await closing.close()
  }
}

const withoutCommand = async (args: readonly string[]): Promise<number> => {
  const asked = args.length === 0 || args.some((arg) => arg === '--help' || arg === '-h' || arg === 'help')
  const verbs = commands.filter(({ name }) => name.startsWith(`${args[0]} `))
  const text = overview(verbs.length === 0 ? commands : verbs)
  if (asked) await write(`${text}\n`)
  else process.stderr.write(`${notFound(args, verbs)}\n\n${text}\n`)
  return asked ? 0 : 2
}

const runCommand = async (
  command: Command,
  { given, as, json, closing }: { given: Given; as: string | undefined; json: boolean; closing: Closing },
): Promise<number> => {
  const config =
    command.anyEnvironment === true ? parseSoundConfig(process.env).config : parseConfig(process.env)
  const logger = createLogger(process.env.LOG_LEVEL === undefined ? 'error' : config.LOG_LEVEL)
  const progress = progressLine()
  const operatorIn = operatorOf(config, as)
  let opened: OperatedFoundation | undefined
  const foundation: CommandContext['foundation'] = async (options) => {
    if (opened !== undefined) return opened
    const open = await openFoundation(config, { logger, waitMs: databaseWaitMs, ...options })
    closing.add(open.close)
    opened = { ...open, operator: await operatorIn(open) }
    return opened
  }
  const context = { config, logger, json, write, ask, progress: progress.show, foundation }
  const answer = await command.run(context, given).finally(progress.end)
  if (answer.written !== true) await write(`${printed(answer, json)}\n`)
  return answer.failed === true ? 1 : 0
}

const printed = (answer: Answer, json: boolean): string => {
  if (json) return JSON.stringify(answer.json, null, 2)
  if (answer.lines !== undefined) return answer.lines.join('\n')
  const sections = (answer.sections ?? [answer.json]).map((one) =>
    (Array.isArray(one) ? table(one as Row[]) : members({ ...one })).join('\n'),
  )
  return sections.join('\n\n')
}

/** A host with several addresses fails with an error for each, and says nothing itself. */
const sentenceOf = (error: unknown): string => {
  if (error instanceof AggregateError && error.message === '') return sentenceOf(error.errors[0])
  if (error instanceof InputFault) return `--${error.field}: ${error.message}`
  return error instanceof Error ? error.message || error.name : String(error)
}
