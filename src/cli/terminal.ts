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

/** Asks the person at the terminal; null where there is no terminal. */
export const ask = async (question: string): Promise<boolean | null> => {
  if (!process.stdin.isTTY) return null
  const terminal = createInterface({ input: process.stdin, output: process.stderr })
  try {
    return /^y(es)?$/i.test((await terminal.question(`${question} [y/N] `)).trim())
  } finally {
    terminal.close()
  }
}
