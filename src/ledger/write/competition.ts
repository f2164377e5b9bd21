import type pg from 'pg'
import type { Logger } from 'pino'
import { startListening } from '../../event-log/postgres/wake-up.ts'

/**
 * How a process that loses its appends to a ledger makes itself known. One that wins them all, close to the log and never idle,
 * would otherwise never learn of it, and never pause. PostgreSQL carries the notice. It affects cost, never meaning: where it is
 * lost, the ledger is written as slowly as without it.
 */
export type Competition = {
  tell(organizationId: string): void
  /** Begins to listen to the other processes. */
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
    tell: (organizationId) => {
      pool.query('select pg_notify($1, $2)', [channel, organizationId]).catch(() => undefined)
    },
    listen: (competed) => {
      listener ??= startListening({
        ...{ url, channel, logger },
        listening: () => undefined,
        notified: (organizationId) => competed(organizationId),
      })
    },
    close: async () => listener?.close(),
  }
}
