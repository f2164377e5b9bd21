import { createInterface } from 'node:readline/promises'

const progressPauseMs = 100

/** One line on a terminal, overwritten at most ten times a second; nothing if standard error is not a terminal. */
export const progressLine = (): { show: (line: string) => void; end: () => void } => {
  let shownAt = 0
  return {
    show: (line) => {
      if (!process.stderr.isTTY || performance.now() - shownAt < progressPauseMs) return
      shownAt = performance.now()
      process.stderr.write(`\r\x1b[K${line}`)
    },
    end: () => {
      if (shownAt > 0) process.stderr.write('\r\x1b[K')
    },
  }
}

/** Resolves when standard output has accepted the text. */
export const write = (text: string): Promise<void> =>
  new Promise((resolve, reject) => process.stdout.write(text, (error) => (error ? reject(error) : resolve())))

/** Whether there is a person to ask: questions go to standard error, so standard output may go anywhere. */
export const isTerminal = (): boolean => process.stdin.isTTY === true && process.stderr.isTTY === true

/**
 * Shows the context on standard error, which keeps standard output for the answer, and asks. Anything except a yes is a
 * no, including the end of the input. Ctrl-C interrupts the command as usual.
 */
export const ask = async ({
  says,
  question,
}: {
  readonly says: readonly string[]
  readonly question: string
}): Promise<boolean> => {
  process.stderr.write(`${says.join('\n')}\n`)
  const terminal = createInterface({ input: process.stdin, output: process.stderr })
  // The terminal is in raw mode, so the signal arrives as a character.
  terminal.once('SIGINT', () => process.kill(process.pid, 'SIGINT'))
  const ended = new Promise<string>((resolve) => terminal.once('close', () => resolve('')))
  try {
    return /^y(es)?$/i.test((await Promise.race([terminal.question(`${question} [y/N] `), ended])).trim())
  } finally {
    terminal.close()
  }
}
