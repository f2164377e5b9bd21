/**
 * The embedded PostgreSQL: one server for each data directory, owned by one process and shared with any number of guests.
 *
 * It gives a URL, no connections.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { makeDataDir } from '../data-dir.ts'
import { type Place, placeIn } from './cluster.ts'
import { takeLock } from './lock.ts'
import { readRunningPostgres, startTimeoutMs } from './server.ts'
import { bringUp, type EmbeddedPostgres, type ServerOptions, supervise } from './supervision.ts'
import { joinUsers } from './users.ts'

export type { EmbeddedPostgres } from './supervision.ts'

const lockPollMs = 50

type EmbeddedPostgresOptions = ServerOptions & {
  /** Directory of the cluster and its files; created (mode 0700) when missing. */
  readonly dataDir: string
  /** How long to wait for a server that another process starts or brings back. */
  readonly waitMs?: number
  /** Waits for the server of another process, and never becomes its owner. */
  readonly guest?: boolean
}

/**
 * Gives a running PostgreSQL 18 for this data directory: a new one, the one that a killed owner left behind (adopted), or the
 * one of another process (joined as guest). When it resolves, the database `enrichment` accepts connections.
 *
 * Of several processes that start at once, one becomes the owner; the others wait for it, `waitMs` at most. It listens on
 * 127.0.0.1 only. The server outlives signals to our process group; `stop()` of the last process that uses it ends it, or its
 * ordinary exit.
 *
 * Throws an Error with the directory and the remedy, and the end of the server's log where the server is the reason.
 */
export const startEmbeddedPostgres = async (options: EmbeddedPostgresOptions): Promise<EmbeddedPostgres> => {
  const { logger, waitMs = startTimeoutMs, guest = false } = options
  const place = placeIn(options.dataDir)
  await makeDataDir(place.dataDir)
  const deadline = performance.now() + waitMs
  const use = guest ? null : await joinUsers(place, waitMs)
  if (use === null && !guest) throw new Error(heldText(place, waitMs))
  try {
    for (;;) {
      const lock = guest ? null : takeLock(place)
      if (lock !== null) {
        try {
          const { url, cluster } = await bringUp(place, options)
          return supervise({ place, options, url, owned: { lock, cluster }, use })
        } catch (error) {
          lock.release()
          throw error
        }
      }
      const running = await readRunningPostgres(place.dataDir)
      if (running !== null) {
        logger?.info({ dataDir: place.dataDir }, 'using the embedded PostgreSQL of another process')
        return supervise({ place, options, url: running.url, owned: null, use })
      }
      if (performance.now() > deadline) throw new Error(heldText(place, waitMs))
      await delay(lockPollMs)
    }
  } catch (error) {
    use?.release()
    throw error
  }
}

const heldText = (place: Place, waitMs: number): string =>
  `Another process has held ${place.lock} for ${Math.round(waitMs / 1000)} s without its PostgreSQL answering. ` +
  `See what it says in ${place.log}; or stop it (lsof ${place.lock} names it), or use another DATA_DIR than ${place.dataDir}.`
