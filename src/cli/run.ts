import { parseConfig } from '../config.ts'
import { type Closing, createClosing } from '../foundation/closing.ts'
import { openFoundation } from '../foundation/foundation.ts'
import { createLogger } from '../foundation/logger.ts'
import { parseSoundConfig } from '../foundation/sound-config.ts'
import type { Answer, Command, CommandContext, OperatedFoundation } from './command.ts'
import { consentTo } from './consent.ts'
import { exitCodeOf, failureJson, failureText } from './failure.ts'
import { closeWords, notFound, usageOf, verbsText } from './help.ts'
import { type Interruptible, interruptible } from './interrupt.ts'
import { commandsOfNoun } from './nouns.ts'
import { operatorOf } from './operator.ts'
import { invocation } from './overview.ts'
import { findCommand, givenOf, type Typed } from './parse.ts'
import { requirePermission } from './permissions.ts'
import { withoutSecrets } from './secrets-in-text.ts'
import { sectionLines } from './table.ts'
import { ask, isTerminal, progressLine, write } from './terminal.ts'

/** A person does not wait longer for an unavailable database; the service itself waits until it recovers. */
const databaseWaitMs = 10_000

/**
 * The operators' command line: one interface of administration. Works whether or not the service runs. Resolves
 * with the exit code: 0 done, 1 failed, 2 wrong usage; 130 if Ctrl-C ended it.
 */
export const runCommandLine = async (args: string[]): Promise<number> => {
  const words = withFlagsBehind(args).filter((word, i) => i > 0 || word !== 'help')
  const commands = await commandsOfNoun(words[0])
  const found = findCommand(words, commands)
  if (found === null) return withoutCommand(words, commands)
  const { command, rest } = found
  const closing = createClosing()
  const json = asksForJson(rest)
  const interruption = interruptible({ json, close: closing.close })
  try {
    const typed = givenOf(command, rest)
    if (typed.help) {
      await write(`${usageOf(command)}\n`)
      return 0
    }
    const code = await runCommand(command, typed, { closing, interruption })
    return interruption.code() ?? code
  } catch (error) {
    // A failure caused by the interruption was already reported with it.
    if (interruption.code() === null) process.stderr.write(failureText(error, { command, json }))
    return interruption.code() ?? exitCodeOf(error)
  } finally {
    await closing.close()
    interruption.end()
  }
}

/** `--json org list` is `org list --json`. */
const withFlagsBehind = (args: readonly string[]): string[] => {
  const leading = args.findIndex((arg) => !isFlag(arg))
  return leading <= 0 ? [...args] : [...args.slice(leading), ...args.slice(0, leading)]
}
const isFlag = (arg: string): boolean => ['--json', '--yes', '--dry-run'].includes(arg)

/** Also if the rest was typed wrongly. */
const asksForJson = (words: readonly string[]): boolean =>
  words.slice(0, words.includes('--') ? words.indexOf('--') : undefined).includes('--json')

const withoutCommand = async (words: readonly string[], verbs: readonly Command[]): Promise<number> => {
  if (verbs.length > 0 && words.some((word) => word === '--help' || word === '-h' || word === 'help')) {
    await write(`${verbsText(verbs)}\n`)
    return 0
  }
  const [message, remedy] = [notFound(words, verbs), await closeWords(words)]
  const help = verbs.length === 0 ? `"${invocation} --help" lists the nouns` : verbsText(verbs)
  process.stderr.write(
    asksForJson(words)
      ? failureJson({ code: 'usage', message, field: null, remedy })
      : withoutSecrets(remedy === null ? `${message}\n\n${help}\n` : `${message} ${remedy}\n`),
  )
  return 2
}

const runCommand = async (
  command: Command,
  { given, as, json, dryRun, yes }: Typed,
  { closing, interruption }: { closing: Closing; interruption: Interruptible },
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
    const operator = await operatorIn(open)
    requirePermission(operator, command)
    opened = { ...open, operator }
    return opened
  }
  const asking = isTerminal() ? ask : null
  const context: CommandContext = {
    config,
    logger,
    json,
    write,
    foundation,
    progress: progress.show,
    interrupted: interruption.signal,
    leaves: (left) => interruption.began({ left }),
  }
  const perform = async (): Promise<Answer> => {
    const shown = await consentTo(command, { context, given, how: { dryRun, yes, ask: asking } })
    if (shown !== null) return shown
    if (command.changes !== 'nothing') interruption.began(command.changes)
    return command.run(context, given)
  }
  const answer = await perform().finally(progress.end)
  const code = answer.failed === true ? 1 : 0
  // If the reader closed the pipe, this is the process's exit code.
  process.exitCode = code
  if (answer.written !== true) await write(`${printed(answer, json)}\n`)
  return code
}

const printed = (answer: Answer, json: boolean): string => {
  if (json) return JSON.stringify(answer.json, null, 2)
  return (answer.lines ?? sectionLines(answer.sections ?? [answer.json])).join('\n')
}
