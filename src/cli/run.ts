import { constants, userInfo } from 'node:os'
import type { Answer } from '../administration/declare.ts'
import { labelOf } from '../administration/input.ts'
import { labelledOperator, type Operator, provedOperator } from '../administration/operator.ts'
import { mayDo, rolesThatMay } from '../administration/roles.ts'
import { checkTokenForm, userOfToken } from '../administration/users/operator-tokens.ts'
import { userNameMax } from '../administration/users/users.ts'
import { type Config, ConfigError, parseConfig } from '../config.ts'
import { type Closing, createClosing } from '../foundation/closing.ts'
import { type Foundation, openFoundation } from '../foundation/foundation.ts'
import { createLogger } from '../foundation/logger.ts'
import { parseSoundConfig } from '../foundation/sound-config.ts'
import { CommandRefused } from '../ledger/command.ts'
import {
  type Command,
  type CommandContext,
  databaseWaitMs,
  type OperatedFoundation,
  UsageError,
} from './command.ts'
import { consentTo } from './consent.ts'
import { exitCodeOf, failureJson, failureText, withoutSecrets } from './failure.ts'
import { closeWords, notFound, usageOf, verbsText } from './help.ts'
import { commandsOfNoun } from './nouns.ts'
import { invocation } from './overview.ts'
import { findCommand, givenOf, type Typed } from './parse.ts'
import { plain, plainJson, sectionLines, sectionsOf } from './table.ts'
import { answerTo, isTerminal } from './terminal.ts'

/**
 * Runs a command of the operators' command line. The service does not have to be running. Resolves with the exit code: 0 done, 1
 * failed, 2 wrong usage, 130 interrupted by Ctrl-C.
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
    // A failure caused by an interruption is not reported separately.
    if (interruption.code() === null) process.stderr.write(failureText(error, { command, json }))
    return interruption.code() ?? exitCodeOf(error)
  } finally {
    await closing.close()
    interruption.end()
  }
}

/** `--json org list` means `org list --json`. */
const withFlagsBehind = (args: readonly string[]): string[] => {
  const leading = args.findIndex((arg) => !isFlag(arg))
  return leading <= 0 ? [...args] : [...args.slice(leading), ...args.slice(0, leading)]
}
const isFlag = (arg: string): boolean => ['--json', '--yes', '--dry-run'].includes(arg)

/** Whether `--json` was typed. Also recognized if the command is otherwise invalid. */
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
  // Set before writing, in case the reader closes the pipe.
  process.exitCode = code
  if (answer.written !== true) await write(`${printed(answer, json)}\n`)
  return code
}

const printed = (answer: Answer, json: boolean): string => {
  if (json) return plainJson(JSON.stringify(answer.json, null, 2))
  return (answer.lines ?? sectionLines(answer.sections ?? sectionsOf(answer.json))).join('\n')
}

/**
 * Throws `CommandRefused` if the user's role does not permit the command. An operator without a token has no role and is not
 * restricted, because access to the database and its secrets is enough to create a token for any user.
 */
export const requirePermission = (
  { actor, role }: Operator,
  { name, action }: Pick<Command, 'name' | 'action'>,
): void => {
  if (role === null || mayDo(role, action)) return
  throw new CommandRefused(
    `${actor.slice('user:'.length)} has the role ${role}, but "${name}" requires ${rolesThatMay(action)}`,
  )
}

/** The time limit for closing resources. The command's work in the database ends with its connection. */
const closeMaxMs = 2_000

const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const

type Interruptible = {
  /** Returns the exit code for the received signal; null if no signal was received. */
  code(): number | null
  /** From now on, an interruption can leave a partial change, which `left` describes. */
  began(change: { readonly left: string }): void
  /** Restores the default effect of signals. */
  end(): void
}

/**
 * Ctrl-C, SIGTERM and SIGHUP print a sentence about possible changes, and end the command with 128 + the number of the signal. A
 * second signal ends the process immediately.
 */
const interruptible = ({
  json,
  close,
}: {
  readonly json: boolean
  readonly close: () => Promise<void>
}): Interruptible => {
  let code: number | null = null
  let left: string | null = null
  const onSignal = (signal: NodeJS.Signals): void => {
    const again = code !== null
    code = 128 + constants.signals[signal]
    if (again) process.exit(code)
    tell(json, left)
    const exit = (): never => process.exit(code ?? 1)
    setTimeout(exit, closeMaxMs)
    close().then(exit, exit)
  }
  for (const signal of signals) process.on(signal, onSignal)
  return {
    code: () => code,
    began: (change) => {
      left = change.left
    },
    end: () => {
      for (const signal of signals) process.off(signal, onSignal)
    },
  }
}

const tell = (json: boolean, left: string | null): void => {
  const message = left === null ? 'Interrupted: nothing was changed.' : 'Interrupted.'
  process.stderr.write(
    json
      ? failureJson({ code: 'interrupted', message, field: null, remedy: left })
      : `\n${message}${left === null ? '' : ` ${left}`}\n`,
  )
}

const progressPauseMs = 100

/** One line on a terminal, overwritten at most ten times a second. Shows nothing if standard error is not a terminal. */
const progressLine = (): { show: (line: string) => void; end: () => void } => {
  let shownAt = 0
  return {
    show: (line) => {
      if (!process.stderr.isTTY || performance.now() - shownAt < progressPauseMs) return
      shownAt = performance.now()
      process.stderr.write(`\r\x1b[K${plain(line)}`)
    },
    end: () => {
      if (shownAt > 0) process.stderr.write('\r\x1b[K')
    },
  }
}

/** Resolves when standard output has accepted the text. */
const write = (text: string): Promise<void> =>
  new Promise((resolve, reject) => process.stdout.write(text, (error) => (error ? reject(error) : resolve())))

/** Shows the plan on standard error and asks. Any answer except yes means no. */
const ask = async ({
  says,
  question,
}: {
  readonly says: readonly string[]
  readonly question: string
}): Promise<boolean> => {
  process.stderr.write(`${says.join('\n')}\n`)
  return /^y(es)?$/i.test(await answerTo(`${question} [y/N] `))
}

/**
 * Returns the operator of a command: the owner of `OPERATOR_TOKEN`, or else the name in `--as` or `OPERATOR`, or else the operating-system
 * account that runs the command. Throws `ConfigError`, `InputFault` or `UsageError`, if possible before anything is opened.
 */
export const operatorOf = (
  { OPERATOR_TOKEN: token, OPERATOR }: Config,
  as: string | undefined,
): ((foundation: Foundation) => Promise<Operator>) => {
  const label = as === undefined ? labelOfEnvironment(OPERATOR) : labelOf('as', as, labelMax)
  if (token === undefined) return async () => labelledOperator(label ?? accountName())
  checkTokenForm(token)
  return async (foundation) => {
    const { user, role } = await userOfToken(foundation, token)
    if (as !== undefined && as !== user)
      throw new UsageError(`--as: OPERATOR_TOKEN belongs to ${user}; unset it, or omit --as`)
    return { ...provedOperator(user), role }
  }
}

/** An actor has at most 128 characters, and `cli:` is shorter than `user:`. */
const labelMax = userNameMax

/**
 * Returns the name of the operating-system account that runs the command. The name does not prove an identity. A container may have
 * no account.
 */
const accountName = (): string => {
  try {
    return labelOf('account', userInfo().username, labelMax)
  } catch {
    return `uid-${process.getuid?.() ?? 'unknown'}`
  }
}

const labelOfEnvironment = (text: string | undefined): string | null => {
  if (text === undefined) return null
  try {
    return labelOf('OPERATOR', text, labelMax)
  } catch (error) {
    throw new ConfigError(`OPERATOR: ${error instanceof Error ? error.message : String(error)}`)
  }
}
