import type pg from 'pg'
import type { Logger } from 'pino'
import { startListening } from '../../event-log/postgres/wake-up.ts'

/**
 * Notifies other processes, through PostgreSQL, that this process's appends to a ledger conflict repeatedly. Without a notice, a process
 * whose appends always succeed would never pause. If a notice is lost, appends only take longer.
 */
export type Competition = {
  notify(organizationId: string): void
  /** Starts listening for notices from other processes. */
  listen(competed: (organizationId: string) => void): void
  close(): Promise<void>
}

const channel = 'ledger_competition'

export function openCompetition({
  pool,
  url,
  logger,
}: {
  readonly pool: Pick<pg.Pool, 'query'>
  readonly url: string
  readonly logger: Logger
}): Competition {
  let listener: ReturnType<typeof startListening> | undefined
  return {
    notify: (organizationId) => {
      pool.query('select pg_notify($1, $2)', [channel, organizationId]).catch(() => undefined)
    },
    listen: (competed) => {
      listener ??= startListening({
        url,
        channel,
        logger,
        listening: () => undefined,
        notified: (organizationId) => competed(organizationId),
      })
    },
    close: async () => listener?.close(),
  }
}
