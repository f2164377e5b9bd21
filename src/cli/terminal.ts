import { createInterface } from 'node:readline/promises'

/** Whether a person can be asked. Questions use standard error, so standard output can be redirected. */
export const isTerminal = (): boolean => process.stdin.isTTY === true && process.stderr.isTTY === true

/** Asks on the terminal, and returns the answer; an empty string if the input ends. Ctrl-C interrupts the command. */
export const answerTo = async (question: string): Promise<string> => {
  const terminal = createInterface({ input: process.stdin, output: process.stderr })
  // The terminal is in raw mode, so Ctrl-C arrives as a character.
  terminal.once('SIGINT', () => process.kill(process.pid, 'SIGINT'))
  const ended = new Promise<string>((resolve) => terminal.once('close', () => resolve('')))
  try {
    return (await Promise.race([terminal.question(question), ended])).trim()
  } finally {
    terminal.close()
  }
}
