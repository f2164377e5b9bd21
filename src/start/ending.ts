import type { Logger } from 'pino'

/**
 * Shuts the service down after a signal or an error, and reloads its files after SIGHUP.
 *
 * A signal often arrives more than once, because systemd and terminals send it to every process of a group, and npm also forwards it. A
 * second signal therefore has no effect. After SIGKILL, the next start takes over the embedded PostgreSQL, which is still running.
 */
const endingSignals = ['SIGTERM', 'SIGINT', 'SIGQUIT'] as const

/** The time limit for closing. Calls take at most 12 s, and jobs 10 s. A container's stop timeout must exceed this time plus the pause before it. */
const drainMs = 30_000

type Running = {
  readonly logger: Logger
  /** Stops accepting requests, without interrupting those in progress. `pause`: first gives load balancers time to stop sending requests. */
  leave(options: { readonly pause: boolean }): Promise<void>
  close(): Promise<void>
  reload(): Promise<void>
}

/** How long a shutdown waits for a start to finish. A start that takes longer is still waiting for its database, so it can be stopped. */
const startMs = 10_000

export type Ending = {
  started(running: Running): void
  /** Aborted when shutdown begins, so that parts that are still starting can stop. */
  readonly signal: AbortSignal
  /** Returns the exit code, if closing succeeds. */
  code(): 0 | 1
}

/**
 * Must be called before anything else starts. After a signal or an uncaught error, the running service is closed once and the process then exits:
 * with 0 after a signal, and with 1 after an error or if closing takes longer than `drainMs`. If a signal arrives during the start, the start
 * finishes first. SIGHUP only reloads files.
 */
export const listenForEnd = (): Ending => {
  let running: Running | undefined
  const ending = new AbortController()
  let code: 0 | 1 = 0
  let pause = false
  let giveUpStart: NodeJS.Timeout | undefined

  const close = async (now: Running): Promise<void> => {
    await now
      .leave({ pause })
      .catch((error: unknown) =>
        now.logger.error({ err: error }, 'shutdown: could not stop accepting requests'),
      )
    setTimeout(() => {
      now.logger.fatal({ drainMs }, 'shutdown took too long; remaining requests are dropped')
      process.exit(1)
    }, drainMs)
    now.close().then(
      () => process.exit(code),
      (error: unknown) => {
        now.logger.error({ err: error }, 'shutdown: some parts could not be closed')
        process.exit(1)
      },
    )
  }
  const end = (why: object): void => {
    running?.logger.info(why, ending.signal.aborted ? 'already shutting down' : 'shutting down')
    if (ending.signal.aborted) return
    ending.abort()
    // Only SIGTERM, which service managers send, needs the pause. A person who presses Ctrl-C (SIGINT) should not have to wait.
    pause = 'signal' in why && why.signal === 'SIGTERM'
    if (running === undefined) giveUpStart = setTimeout(() => process.exit(code), startMs)
    else void close(running)
  }

  for (const signal of endingSignals) process.on(signal, () => end({ signal }))
  process.on('SIGHUP', () => {
    if (running === undefined || ending.signal.aborted) return
    const { reload, logger } = running
    logger.info('SIGHUP: reloading location files and lists')
    reload().catch((error: unknown) =>
      logger.error({ err: error }, 'location files or lists could not be reloaded; the old ones stay in use'),
    )
  })
  const failed = (error: unknown): void => {
    code = 1
    if (running === undefined)
      process.stderr.write(`${error instanceof Error ? error.stack : String(error)}\n`)
    else running.logger.fatal({ err: error }, 'shutting down after an uncaught error')
    end({})
  }
  process.on('uncaughtException', failed)
  process.on('unhandledRejection', failed)
  return {
    started: (now) => {
      running = now
      clearTimeout(giveUpStart)
      if (ending.signal.aborted) void close(now)
    },
    signal: ending.signal,
    code: () => code,
  }
}
