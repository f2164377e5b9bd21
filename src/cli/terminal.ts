import { createInterface } from 'node:readline/promises'

const progressPauseMs = 100

/** One line on a terminal, overwritten at most ten times a second; nothing where standard error is no terminal. */
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

/** Resolves once standard output has taken the text. */
export const write = (text: string): Promise<void> =>
  new Promise((resolve, reject) => process.stdout.write(text, (error) => (error ? reject(error) : resolve())))

/** Whether there is a person to ask: what is asked goes to standard error, and standard output may go anywhere. */
export const isTerminal = (): boolean => process.stdin.isTTY === true && process.stderr.isTTY === true

/**
 * Shows what it is about on standard error, which keeps standard output for the answer, and asks. Anything but a yes is a
 * no, an end of the input as well. Ctrl-C interrupts the command as it does elsewhere.
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
  // The terminal is read as it is typed on, so the signal comes as a character.
  terminal.once('SIGINT', () => process.kill(process.pid, 'SIGINT'))
  const ended = new Promise<string>((resolve) => terminal.once('close', () => resolve('')))
  try {
    return /^y(es)?$/i.test((await Promise.race([terminal.question(`${question} [y/N] `), ended])).trim())
  } finally {
    terminal.close()
  }
}
