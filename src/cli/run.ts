import { constants } from 'node:os'
import type { Answer, AnyDeclared, Host, Write } from '../administration/declare.ts'
import { commandsOfNoun } from '../administration/nouns.ts'
import { parseConfig } from '../config.ts'
import { type Closing, createClosing } from '../foundation/closing.ts'
import { createLogger } from '../foundation/logger.ts'
import { parseSoundConfig } from '../foundation/sound-config.ts'
import { consentTo } from './consent.ts'
import { workOf } from './declared.ts'
import { exitCodeOf, failureJson, failureText, withoutSecrets } from './failure.ts'
import { closeWords, notFound, usageOf, verbsText } from './help.ts'
import { hostOf } from './host.ts'
import { invocation } from './overview.ts'
import { findCommand, givenIn, type Typed, typedIn } from './parse.ts'
import { plain, plainJson, sectionLines, sectionsOf } from './table.ts'
import { answerTo, isTerminal } from './terminal.ts'

/**
 * Runs a command of the operators' command line. The service does not have to be running. Resolves with the exit code: 0 done, 1
 * failed, 2 wrong usage or missing --yes, 130 interrupted by Ctrl-C.
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
    const typed = typedIn(command, rest)
    if (typed.flags.has('help')) {
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

const withoutCommand = async (words: readonly string[], verbs: readonly AnyDeclared[]): Promise<number> => {
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
  command: AnyDeclared,
  typed: Typed,
  { closing, interruption }: { closing: Closing; interruption: Interruptible },
): Promise<number> => {
  const config = 'anyEnvironment' in command ? parseSoundConfig(process.env).config : parseConfig(process.env)
  const logger = createLogger(process.env.LOG_LEVEL === undefined ? 'error' : config.LOG_LEVEL)
  const json = typed.flags.has('json')
  const progress = progressLine(json)
  const host = hostOf(
    command,
    { config, logger, progress: progress.show },
    { as: typed.texts.get('as'), closing },
  )
  const perform = async (): Promise<Answer> => {
    const given = await givenIn(command.fields, typed)
    const work = workOf(command, { given, typed, host, json, write, leaves: interruption.began })
    const { changes } = command
    if (changes !== 'nothing') {
      const [dryRun, yes] = [typed.flags.has('dry-run'), typed.flags.has('yes')]
      const asking = isTerminal() ? ask : null
      const shown = await consentTo({ ...changes, plan: work.plan }, { dryRun, yes, ask: asking })
      if (shown !== null) return shown
      interruption.began(perhapsChanged)
    }
    return work.run()
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

/** The time limit for closing resources. The command's work in the database ends with its connection. */
const closeMaxMs = 2_000

const perhapsChanged =
  'The change may have been made, completely or in part. Look at its result: if a part is missing, run the same command again.'

const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const

type Interruptible = {
  /** Returns the exit code for the received signal; null if no signal was received. */
  code(): number | null
  /** From now on, an interruption can leave a partial change. `left` is a sentence about it. */
  began(left: string): void
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
    began: (sentence) => {
      left = sentence
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
const jsonPauseMs = 500

/**
 * One line on a terminal, overwritten at most ten times a second. Shows nothing if standard error is not a terminal. With `--json`,
 * the figures as JSON lines, because standard output contains only the answer.
 */
const progressLine = (json: boolean): { show: Host['progress']; end: () => void } => {
  const pauseMs = json ? jsonPauseMs : progressPauseMs
  let shownAtMs = -pauseMs
  const isDue = (): boolean => {
    const nowMs = performance.now()
    if (nowMs - shownAtMs < pauseMs) return false
    shownAtMs = nowMs
    return true
  }
  return {
    show: (line, figures) => {
      if (json && figures !== undefined && isDue()) process.stderr.write(`${JSON.stringify(figures)}\n`)
      if (!json && process.stderr.isTTY && isDue()) process.stderr.write(`\r\x1b[K${plain(line)}`)
    },
    end: () => {
      if (!json && shownAtMs >= 0) process.stderr.write('\r\x1b[K')
    },
  }
}

/** Resolves when standard output has accepted the text. */
const write: Write = (text) =>
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
