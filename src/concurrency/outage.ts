/**
 * Logs failures of an operation that is retried: when they begin, once a minute while they continue, and when they end. If every failure were
 * logged, the first line would be hard to find.
 */
export type Outage = {
  /** Reports a failure. The first failure after a minute without one begins a new outage, even if `works` was not called. */
  failed(error: unknown): void
  /** Reports a success. Can be called often. */
  works(): void
}

/** The part of pino's logger that is used here. */
export type OutageLogger = Readonly<
  Record<'info' | 'warn' | 'error', (fields: object, message: string) => void>
>

const repeatMs = 60_000
/** The maximum number of outages per minute that are logged, if an operation alternates between failure and success. */
const beginningsMax = 5

export const createOutage = ({
  logger,
  what,
  level = 'warn',
  clock = performance,
}: {
  logger: OutageLogger
  /** The subject of the log message, such as `event log: reading`. */
  what: string
  level?: 'warn' | 'error'
  clock?: { now(): number }
}): Outage => {
  let begunMs: number | undefined
  let failedMs = Number.NEGATIVE_INFINITY
  let loggedMs = Number.NEGATIVE_INFINITY
  let failures = 0
  let minuteMs = Number.NEGATIVE_INFINITY
  let beginnings = 0
  let logged = false

  return {
    failed: (error) => {
      const now = clock.now()
      if (now - failedMs >= repeatMs) {
        begunMs = undefined
        failures = 0
      }
      failedMs = now
      const begins = begunMs === undefined
      begunMs ??= now
      failures++
      if (now - minuteMs >= repeatMs) {
        minuteMs = now
        beginnings = 0
      }
      if (begins ? beginnings >= beginningsMax : now - loggedMs < repeatMs) return
      if (begins) beginnings++
      loggedMs = now
      logged = true
      logger[level](
        { err: error, failures, seconds: Math.round((now - begunMs) / 1_000) },
        `${what} fails, trying again`,
      )
    },
    works: () => {
      if (begunMs === undefined) return
      const seconds = Math.round((clock.now() - begunMs) / 1_000)
      begunMs = undefined
      if (logged) logger.info({ failures, seconds }, `${what} works again`)
      logged = false
      failures = 0
    },
  }
}
