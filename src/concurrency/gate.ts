import { within } from './deadline.ts'

/**
 * Refuses work immediately while a server does not answer, so that callers do not have to wait for a timeout.
 *
 * With a circuit breaker, one caller at a time would be a trial and wait for ten seconds. The gate sends its own query instead: when work has taken
 * a second or nothing has succeeded for a second, and twice a second while the gate is shut. Only an answer to that query opens the gate, because
 * some work can succeed even if a part of the server hangs.
 */
export type Gate = {
  /** Registers work in progress. Settles like `work`. */
  watch<Value>(work: Promise<Value>): Promise<Value>
  /** Returns for how many milliseconds the server has not answered, and counts the refused work. Returns null if the server answers. */
  refuses(): number | null
  /** Like `refuses`, but does not count refused work. */
  shutForMs(): number | null
  close(): void
}

/** The work was refused because the gate is shut. Nothing was sent. */
export class GateShut extends Error {
  override name = 'GateShut'
}

type GateLogger = Readonly<Record<'info' | 'error', (fields: object, message: string) => void>>

type GateOptions = {
  /** The name of the server, with which log messages begin. */
  readonly what: string
  /** Sends a small query to the server, on a separate connection. */
  readonly ask: () => Promise<unknown>
  readonly logger: GateLogger
  readonly bounds?: GateBounds
  readonly now?: () => number
}

type GateBounds = {
  /** How often the work in progress is checked. */
  readonly lookMs: number
  /** The server is queried if work takes this long, or if nothing succeeds for this long. */
  readonly stalledMs: number
  /** How long to wait for the answer to a query. A server on a host without spare processor time can need several seconds. */
  readonly answerMs: number
  /** The pause between two queries while the gate is shut. */
  readonly againMs: number
}

const gateBounds: GateBounds = { lookMs: 250, stalledMs: 1_000, answerMs: 5_000, againMs: 500 }
/** How often to log that the gate is still shut. */
const toldAgainMs = 60_000

export const createGate = ({
  what,
  ask,
  logger,
  bounds = gateBounds,
  now = () => performance.now(),
}: GateOptions): Gate => {
  /** The work in progress, the oldest first. */
  const underWay = new Set<{ readonly sinceMs: number }>()
  /** The start of the first work that failed since the last success. Null: the last work succeeded. */
  let failingSinceMs: number | null = null
  let answeredMs = Number.NEGATIVE_INFINITY
  let shut: { readonly sinceMs: number; toldMs: number; refused: number } | null = null
  let asking = false
  let closed = false
  let timer: NodeJS.Timeout | undefined

  const lookIn = (ms: number): void => {
    if (closed) return
    timer ??= setTimeout(look, ms).unref()
  }

  /** Returns the time since which the server may not be answering, or null if nothing suggests that. */
  const doubtfulSinceMs = (): number | null => {
    const [oldest] = underWay
    if (oldest === undefined) return failingSinceMs
    return Math.min(oldest.sinceMs, failingSinceMs ?? oldest.sinceMs)
  }

  const answered = (): void => {
    answeredMs = now()
    if (underWay.size === 0) failingSinceMs = null
    if (shut === null) return
    const { sinceMs, refused } = shut
    shut = null
    logger.info({ refused, seconds: secondsBetween(sinceMs, now()) }, `${what} answers again`)
  }

  const silent = (error: unknown): void => {
    const nowMs = now()
    if (shut === null) {
      shut = { sinceMs: doubtfulSinceMs() ?? nowMs, toldMs: nowMs, refused: 0 }
      logger.error(
        { err: error },
        `${what} does not answer; until it does, requests that need it are refused`,
      )
    } else if (nowMs - shut.toldMs >= toldAgainMs) {
      shut.toldMs = nowMs
      const { refused, sinceMs } = shut
      logger.error(
        { err: error, refused, seconds: secondsBetween(sinceMs, nowMs) },
        `${what} still does not answer`,
      )
    }
  }

  const look = (): void => {
    timer = undefined
    const doubtful = doubtfulSinceMs()
    if (shut === null && doubtful === null) return
    const stalled = now() - Math.max(doubtful ?? now(), answeredMs) >= bounds.stalledMs
    // Only one query runs at a time, because a late answer also counts.
    if (asking || (shut === null && !stalled)) lookIn(bounds.lookMs)
    else askServer()
  }

  const askServer = (): void => {
    asking = true
    const answer = ask()
    answer
      .then(answered, () => undefined)
      .finally(() => {
        asking = false
      })
    within(answer, { waitMs: bounds.answerMs }, () => {
      throw new Error(`no answer within ${bounds.answerMs} ms`)
    })
      .catch(silent)
      .finally(() => lookIn(shut === null ? bounds.lookMs : bounds.againMs))
  }

  const shutForMs = (): number | null => (shut === null ? null : now() - shut.sinceMs)

  return {
    watch: async (work) => {
      const begun = { sinceMs: now() }
      underWay.add(begun)
      failingSinceMs ??= begun.sinceMs
      lookIn(bounds.lookMs)
      try {
        const value = await work
        failingSinceMs = null
        return value
      } finally {
        // A failure proves nothing, because it can be an answer of the server or a timeout of the client.
        underWay.delete(begun)
      }
    },
    refuses: () => {
      if (shut !== null) shut.refused += 1
      return shutForMs()
    },
    shutForMs,
    close: () => {
      closed = true
      clearTimeout(timer)
    },
  }
}

const secondsBetween = (fromMs: number, toMs: number): number => Math.round((toMs - fromMs) / 1_000)
