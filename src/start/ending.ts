import type { Logger } from 'pino'

/**
 * How the service shuts down, and how it reads its files again.
 *
 * A signal arrives more than once: systemd and a terminal send it to every process of a group, and npm also forwards it. A second signal
 * therefore has no effect. SIGKILL ends the process immediately, and the next start takes over the embedded PostgreSQL.
 */
const endingSignals = ['SIGTERM', 'SIGINT', 'SIGQUIT'] as const

/** The time for closing after the last request. Calls end within 12 s, and jobs within 10 s. Container limits must exceed this time plus the pause before it. */
const drainMs = 30_000

type Running = {
  readonly logger: Logger
  /** Accepts no new requests, and interrupts no request in progress. `pause`: waits first, so that load balancers notice. */
  leave(options: { readonly pause: boolean }): Promise<void>
  close(): Promise<void>
  reload(): Promise<void>
}

/** How long the end waits for a start, which takes a few seconds. A start that waits longer for its database has nothing to finish. */
const startMs = 10_000

export type Ending = {
  started(running: Running): void
  /** Aborted when shutdown begins, so that parts that are still starting can stop. */
  readonly signal: AbortSignal
  /** Returns the code with which the process will exit if closing succeeds. */
  code(): 0 | 1
}

/**
 * Must be called before anything else starts. A signal or an uncaught error closes the running service once and ends the process: with 0
 * after a signal, with 1 after an error or if closing takes longer than `drainMs`. During a start, the process first waits for the start to
 * finish. SIGHUP only reads files again.
 */
export const listenForEnd = (): Ending => {
  let running: Running | undefined
  const ending = new AbortController()
  let code: 0 | 1 = 0
  let pause = false

  const close = async (now: Running): Promise<void> => {
    await now.leave({ pause }).catch((error: unknown) => now.logger.error({ err: error }, 'could not leave'))
    setTimeout(() => {
      now.logger.fatal({ drainMs }, 'ending took too long: requests still in flight are dropped')
      process.exit(1)
    }, drainMs)
    now.close().then(
      () => process.exit(code),
      (error: unknown) => {
        now.logger.error({ err: error }, 'not everything could be closed')
        process.exit(1)
      },
    )
  }
  const end = (why: object): void => {
    running?.logger.info(why, ending.signal.aborted ? 'already ending' : 'ending')
    if (ending.signal.aborted) return
    ending.abort()
    // Service managers send SIGTERM. A person who presses Ctrl-C (SIGINT) does not want to wait.
    pause = 'signal' in why && why.signal === 'SIGTERM'
    if (running === undefined) setTimeout(() => process.exit(code), startMs)
    else void close(running)
  }

  for (const signal of endingSignals) process.on(signal, () => end({ signal }))
  process.on('SIGHUP', () => {
    if (running === undefined || ending.signal.aborted) return
    const { reload, logger } = running
    logger.info('SIGHUP: reading location files and lists again')
    reload().catch((error: unknown) => logger.error({ err: error }, 'files could not be read again'))
  })
  const failed = (error: unknown): void => {
    code = 1
    if (running === undefined)
      process.stderr.write(`${error instanceof Error ? error.stack : String(error)}\n`)
    else running.logger.fatal({ err: error }, 'ending after an error')
    end({})
  }
  process.on('uncaughtException', failed)
  process.on('unhandledRejection', failed)
  return {
    started: (now) => {
      running = now
      if (ending.signal.aborted) void close(now)
    },
    signal: ending.signal,
    code: () => code,
  }
}
