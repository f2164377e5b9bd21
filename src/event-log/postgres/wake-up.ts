import pg from 'pg'
import type { Logger } from 'pino'

/**
 * Tells subscriptions that the log may have grown: by a LISTEN connection, and by polling where notifications fail
 * to arrive. Waking up for nothing is harmless; a lost notification costs at most one poll interval.
 */

const pollIntervalMs = 250
/** A busy log notifies hundreds of times a second; looking that often would cost more than it tells. */
const wakeIntervalMs = 50
const reconnectMs = 1_000

export type WakeUp = {
  /** How often it has rung so far. Ask before looking at the log, and pass it to `after` when there was nothing. */
  rings(): number
  /** Resolves once it has rung since `rings`, at the latest after the poll interval, or at once when aborted. */
  after(rings: number, signal: AbortSignal): Promise<void>
  pause(ms: number, signal: AbortSignal): Promise<void>
  close(): Promise<void>
}

export const createWakeUp = ({
  url,
  channel,
  logger,
}: {
  url: string
  channel: string
  logger: Logger
}): WakeUp => {
  const waiting = new Set<() => void>()
  let client: pg.Client | undefined
  let retry: NodeJS.Timeout | undefined
  let ring: NodeJS.Timeout | undefined
  let started = false
  let closed = false
  let rings = 0

  const wakeAll = (): void => {
    ring = undefined
    rings++
    const all = [...waiting]
    waiting.clear()
    for (const wake of all) wake()
  }

  const listen = async (): Promise<void> => {
    const fresh = new pg.Client({
      connectionString: url,
      connectionTimeoutMillis: 5_000,
      application_name: 'event-log-listen',
      keepAlive: true,
    })
    fresh.on('notification', () => {
      ring ??= setTimeout(wakeAll, wakeIntervalMs)
    })
    fresh.on('error', () => again(fresh))
    fresh.on('end', () => again(fresh))
    client = fresh
    try {
      await fresh.connect()
      await fresh.query(`listen ${channel}`)
      wakeAll()
    } catch (error) {
      logger.debug({ err: error }, 'event log: cannot listen, polling instead')
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

  const wait = (ms: number, signal: AbortSignal, early: boolean): Promise<void> =>
    new Promise((resolve) => {
      const done = (): void => {
        clearTimeout(timer)
        signal.removeEventListener('abort', done)
        waiting.delete(done)
        resolve()
      }
      const timer = setTimeout(done, ms)
      if (signal.aborted) return done()
      signal.addEventListener('abort', done, { once: true })
      if (early) waiting.add(done)
    })

  return {
    rings: () => rings,
    after: (seen, signal) => {
      if (!started && !closed) {
        started = true
        void listen()
      }
      return rings === seen ? wait(pollIntervalMs, signal, true) : Promise.resolve()
    },
    pause: (ms, signal) => wait(ms, signal, false),
    close: async () => {
      closed = true
      clearTimeout(retry)
      clearTimeout(ring)
      wakeAll()
      await client?.end().catch(() => undefined)
    },
  }
}
