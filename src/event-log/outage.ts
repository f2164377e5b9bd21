/**
 * Says that something which is tried again and again fails: when it begins, once a minute while it lasts, and when it is
 * over. A loop that logged every failure would bury what led to it, at the speed of its retries.
 */
export type Outage = {
  /** It failed. After a minute in which it did not this is a new outage, also where nobody said that it works. */
  failed(error: unknown): void
  /** It worked. Costs nothing where it did before. */
  works(): void
}

/** The part of a logger used here; pino's fits. */
export type OutageLogger = Readonly<
  Record<'info' | 'warn' | 'error', (fields: object, message: string) => void>
>

const repeatMs = 60_000
/** What comes and goes all the time is told this often a minute. */
const beginningsMax = 5

export const createOutage = ({
  logger,
  what,
  level = 'warn',
  clock = performance,
}: {
  logger: OutageLogger
  /** What fails, as the beginning of a sentence: `event log: reading`. */
  what: string
  level?: 'warn' | 'error'
  clock?: { now(): number }
}): Outage => {
  let begunMs: number | undefined
  let failedMs = Number.NEGATIVE_INFINITY
  let toldMs = Number.NEGATIVE_INFINITY
  let failures = 0
  let minuteMs = Number.NEGATIVE_INFINITY
  let beginnings = 0
  /** Whether what was said last is that it fails. */
  let told = false

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
      if (begins ? beginnings >= beginningsMax : now - toldMs < repeatMs) return
      if (begins) beginnings++
      toldMs = now
      told = true
      logger[level](
        { err: error, failures, seconds: Math.round((now - begunMs) / 1_000) },
        `${what} fails, trying again`,
      )
    },
    works: () => {
      if (begunMs === undefined) return
      const seconds = Math.round((clock.now() - begunMs) / 1_000)
      begunMs = undefined
      if (told) logger.info({ failures, seconds }, `${what} works again`)
      told = false
      failures = 0
    },
  }
}
