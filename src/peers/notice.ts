import type { OutageLogger } from '../event-log/outage.ts'

/**
 * Says that something went wrong which others can bring about as often as they like: once a minute at most, with how
 * often it was left unsaid since.
 */
export type Notice = (error: unknown, fields?: object) => void

const repeatMs = 60_000

export const createNotice = (logger: OutageLogger, level: 'warn' | 'error', message: string): Notice => {
  let toldMs = Number.NEGATIVE_INFINITY
  let suppressed = 0
  return (error, fields) => {
    const nowMs = performance.now()
    if (nowMs - toldMs < repeatMs) {
      suppressed++
      return
    }
    toldMs = nowMs
    logger[level]({ ...fields, err: error, suppressed }, message)
    suppressed = 0
  }
}

/** Of all connections together, in a minute. */
const linesMax = 20

/** A logger for many that may all have the same to say: what is more than `linesMax` a minute is counted, and not said. */
export const sharedLogger = (logger: OutageLogger, clock: { now(): number } = performance): OutageLogger => {
  let minuteMs = Number.NEGATIVE_INFINITY
  let lines = 0
  let suppressed = 0
  const limited =
    (level: keyof OutageLogger) =>
    (fields: object, message: string): void => {
      const nowMs = clock.now()
      if (nowMs - minuteMs >= repeatMs) {
        minuteMs = nowMs
        lines = 0
      }
      if (++lines > linesMax) {
        suppressed++
        return
      }
      logger[level](suppressed === 0 ? fields : { ...fields, suppressed }, message)
      suppressed = 0
    }
  return { info: limited('info'), warn: limited('warn'), error: limited('error') }
}

/** Calls what another layer gave. What it throws must not end a connection, nor keep others from being called. */
export const runGuarded = (notice: Notice, run: () => void): void => {
  try {
    run()
  } catch (error) {
    notice(error)
  }
}
