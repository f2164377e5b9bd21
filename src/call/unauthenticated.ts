import type { Logger } from 'pino'
import type { AuthenticationFailure } from '../guard/authenticate.ts'

/**
 * Logs requests without a valid key. The first requests in each minute get a line each. All later ones share one line with a count
 * per reason, so that the log cannot fill the disk. The metrics count all requests.
 */
export type UnauthenticatedRequests = {
  /** `about` must contain neither a secret nor the header itself. */
  turnedAway(reason: AuthenticationFailure, about: Readonly<Record<string, unknown>>): void
}

const loggedMax = 10
const minuteMs = 60_000

export const createUnauthenticatedRequests = (logger: Logger): UnauthenticatedRequests => {
  let logged = 0
  let others: Partial<Record<AuthenticationFailure, number>> = {}
  let minute: NodeJS.Timeout | undefined
  const turnOver = (): void => {
    minute = undefined
    logged = 0
    if (Object.keys(others).length > 0)
      logger.info(
        { requests: others },
        'not authenticated: more requests without a valid key in the last minute',
      )
    others = {}
  }
  return {
    turnedAway: (reason, about) => {
      if (minute === undefined) minute = setTimeout(turnOver, minuteMs).unref()
      if (++logged <= loggedMax) logger.info({ reason, ...about }, 'not authenticated')
      else others[reason] = (others[reason] ?? 0) + 1
    },
  }
}
