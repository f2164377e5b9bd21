import pg from 'pg'
import type { Logger } from 'pino'

/**
 * Notifies subscriptions that the log may have grown, by LISTEN and by polling. A lost notification causes a delay of at most one poll interval.
 */

const pollIntervalMs = 250
/**
 * The minimum time between two queries. A busy log sends hundreds of notifications a second, and a query for each of them would be too expensive.
 */
const wakeIntervalMs = 50
const reconnectMs = 1_000

export type WakeUp = {
  /** Returns the number of notifications so far. Read it before you query the log, and pass it to `after` if the query finds nothing. */
  rings(): number
  /** Resolves at the first of these: more than `rings` notifications, the end of the poll interval, or an abort. */
  after(rings: number, signal: AbortSignal): Promise<void>
  pause(ms: number, signal: AbortSignal): Promise<void>
  close(): Promise<void>
}

type WakeUpOptions = { readonly url: string; readonly channel: string; readonly logger: Logger }

/** Creates a wake-up that connects on the first wait. */
export const createWakeUp = (options: WakeUpOptions): WakeUp => {
  const waiting = new Set<() => void>()
  let listener: Listener | undefined
  let ring: NodeJS.Timeout | undefined
  let closed = false
  let rings = 0

  const wakeAll = (): void => {
    ring = undefined
    rings++
    const all = [...waiting]
    waiting.clear()
    for (const wake of all) wake()
  }

  const wakeSoon = (): void => {
    ring ??= setTimeout(wakeAll, wakeIntervalMs)
  }

  return {
    rings: () => rings,
    after: async (seen, signal) => {
      if (!closed) listener ??= startListening({ ...options, listening: wakeAll, notified: wakeSoon })
      if (rings === seen) await wait(pollIntervalMs, signal, waiting)
    },
    pause: (ms, signal) => wait(ms, signal),
    close: async () => {
      closed = true
      clearTimeout(ring)
      wakeAll()
      await listener?.close()
    },
  }
}

/** Resolves after `ms`, when aborted, or when the callback that this function adds to `waiting` is called. */
const wait = (ms: number, signal: AbortSignal, waiting?: Set<() => void>): Promise<void> =>
  new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(timer)
      signal.removeEventListener('abort', done)
      waiting?.delete(done)
      resolve()
    }
    const timer = setTimeout(done, ms)
    if (signal.aborted) return done()
    signal.addEventListener('abort', done, { once: true })
    waiting?.add(done)
  })

type Listener = { close(): Promise<void> }

/** Listens on the channel until closed, and reconnects if the connection is lost. `notified` receives the text of each notification. */
export const startListening = ({
  url,
  channel,
  logger,
  listening,
  notified,
}: WakeUpOptions & {
  readonly listening: () => void
  readonly notified: (text: string) => void
}): Listener => {
  let client: pg.Client | undefined
  let retry: NodeJS.Timeout | undefined
  let closed = false

  const listen = async (): Promise<void> => {
    const fresh = new pg.Client({
      connectionString: url,
      connectionTimeoutMillis: 5_000,
      application_name: 'event-log-listen',
      keepAlive: true,
    })
    fresh.on('notification', ({ payload = '' }) => notified(payload))
    fresh.on('error', () => again(fresh))
    fresh.on('end', () => again(fresh))
    client = fresh
    try {
      await fresh.connect()
      await fresh.query(`listen ${channel}`)
      listening()
    } catch (error) {
      logger.debug({ err: error, channel }, 'cannot listen for notifications of PostgreSQL; trying again')
      again(fresh)
    }
  }

  const again = (lost: pg.Client): void => {
    if (closed || client !== lost) return
    client = undefined
    lost.end().catch(() => undefined)
    retry = setTimeout(() => void listen(), reconnectMs)
    retry.unref()
  }

  void listen()
  return {
    close: async () => {
      closed = true
      clearTimeout(retry)
      await client?.end().catch(() => undefined)
    },
  }
}
