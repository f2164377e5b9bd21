import { constants } from 'node:os'
import { failureJson } from './failure.ts'

/** How long open resources may take to close. Work that the command began in the database ends with its connection. */
const closeMaxMs = 2_000

const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const

export type Interruptible = {
  /** Aborted by the first signal. */
  readonly signal: AbortSignal
  /** The exit code for the received signal; null: none. */
  code(): number | null
  /** From here on an interruption may leave something half-done: a description, and whether the command ends itself. */
  began(change: { readonly left: string; readonly stopsItself?: true }): void
  /** Restores the default effect of signals. */
  end(): void
}

/**
 * Ctrl-C, SIGTERM and SIGHUP end the command with 128 + the number of the signal, and print the state it leaves. Work that
 * ends itself is awaited; a second signal ends the process immediately.
 */
export const interruptible = ({
  json,
  close,
}: {
  readonly json: boolean
  readonly close: () => Promise<void>
}): Interruptible => {
  const interrupted = new AbortController()
  let code: number | null = null
  let change: { readonly left: string; readonly stopsItself?: true } | null = null
  const onSignal = (signal: NodeJS.Signals): void => {
    const again = code !== null
    code = 128 + constants.signals[signal]
    if (again) process.exit(code)
    interrupted.abort()
    tell(json, change?.left ?? null)
    if (change?.stopsItself === true) return
    const exit = (): never => process.exit(code ?? 1)
    setTimeout(exit, closeMaxMs)
    close().then(exit, exit)
  }
  for (const signal of signals) process.on(signal, onSignal)
  return {
    signal: interrupted.signal,
    code: () => code,
    began: (what) => {
      change = what
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
