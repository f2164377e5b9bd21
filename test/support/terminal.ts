import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { stripVTControlCharacters } from 'node:util'
import { compileCache, root, serviceCommand } from './service.ts'

/** A program on a terminal, as a user runs it: standard input, output and error are one device (util-linux `script`). */
export type OnTerminal = {
  readonly child: ChildProcess
  /** The text shown so far, without colours and cursor movements. */
  shown(): string
  /** The same text with all control sequences. */
  raw(): string
  /** Resolves when the text is shown. Rejects if the program ends first. */
  until(text: string): Promise<void>
  type(keys: string): void
  readonly ended: Promise<number>
}

const quoted = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`

export const onTerminal = (
  command: readonly string[],
  variables: Readonly<Record<string, string>>,
): OnTerminal => {
  const child = spawn('script', ['-qefc', `exec ${command.map(quoted).join(' ')}`, '/dev/null'], {
    cwd: root,
    env: {
      PATH: process.env.PATH ?? '',
      HOME: process.env.HOME ?? '',
      TERM: 'xterm-256color',
      ...compileCache,
      ...variables,
    },
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  let raw = ''
  child.stdout?.on('data', (chunk: Buffer) => {
    raw += chunk.toString()
  })
  const shown = (): string => stripVTControlCharacters(raw).replaceAll('\r', '')
  const ended = once(child, 'close').then(([code]) => Number(code))
  return {
    child,
    shown,
    raw: () => raw,
    type: (keys) => void child.stdin?.write(keys),
    ended,
    until: (text) =>
      new Promise((resolve, reject) => {
        const look = (): void => {
          if (shown().includes(text)) resolve()
        }
        child.stdout?.on('data', look)
        ended.then(() => reject(new Error(`it ended before it showed "${text}":\n${shown()}`)))
        look()
      }),
  }
}

export const serviceOnTerminal = (variables: Readonly<Record<string, string>>): OnTerminal =>
  onTerminal(serviceCommand, variables)

export const cliOnTerminal = (
  args: readonly string[],
  variables: Readonly<Record<string, string>>,
): OnTerminal => onTerminal([process.execPath, 'src/cli.ts', ...args], variables)
