/**
 * Logs the failure of something that is retried: when it begins, once a minute while it lasts, and when it is
 * over. A loop that logged every failure would hide the cause, because it fails as often as it retries.
 */
export type Outage = {
  /** It failed. If it did not fail for a minute, this is a new outage, even if `works` was not called. */
  failed(error: unknown): void
  /** It worked. Costs nothing if it worked before. */
  works(): void
}

/** The part of a logger used here; pino's fits. */
export type OutageLogger = Readonly<
  Record<'info' | 'warn' | 'error', (fields: object, message: string) => void>
>

const repeatMs = 60_000
/** An outage that starts and ends repeatedly is logged this often a minute. */
const beginningsMax = 5

export const createOutage = ({
  logger,
  what,
  level = 'warn',
  clock = performance,
}: {
  logger: OutageLogger
  /** The subject of the log message: `event log: reading`. */
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
  /** Whether the last message was about a failure. */
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
