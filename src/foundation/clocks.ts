import type pg from 'pg'
import type { OutageLogger } from '../concurrency/outage.ts'
import { CommandRefused } from '../ledger/command.ts'

/** The maximum difference between this host's clock and the database's. If it is larger, one of them is wrong. */
const differenceMaxMs = 15 * 60_000

export const databaseNowMs = async (pool: Pick<pg.Pool, 'query'>): Promise<number> => {
  const { rows } = await pool.query<{ now: Date }>('select clock_timestamp() as now')
  return rows[0]?.now.getTime() ?? Number.NaN
}

/**
 * Throws `CommandRefused` if the clocks differ by too much. Called before steps that cannot be undone, so that a wrong clock cannot cause them.
 * `refused` is the step that is refused, such as "no month is closed".
 */
export const requireAgreement = (
  { nowMs, databaseMs }: { readonly nowMs: number; readonly databaseMs: number },
  refused: string,
): void => {
  const differenceMs = Math.abs(databaseMs - nowMs)
  if (differenceMs <= differenceMaxMs) return
  throw new CommandRefused(
    `this host's clock and the database's clock differ by ${Math.round(differenceMs / 1_000)} s; correct the wrong one, because ${refused} until they agree`,
  )
}

/** Returns this host's time. Throws like `requireAgreement`. */
export const agreedNowMs = async (pool: Pick<pg.Pool, 'query'>, refused: string): Promise<number> => {
  requireAgreement({ nowMs: Date.now(), databaseMs: await databaseNowMs(pool) }, refused)
  return Date.now()
}

/** Compares this host's clock with the database's while the process answers calls. */
export type ClockWatch = {
  /** Compares the clocks now, and then repeatedly until `close`. Never rejects. */
  watch(): Promise<void>
  /** The reason why calls must be refused, or null. The clocks count as different until the first comparison. */
  failure(): Error | null
  close(): void
}

const compareMs = 1_000

/** Does not decide which clock is wrong, because a call at a wrong time can use expired credits or be charged in the wrong month. */
export const createClockWatch = ({
  pool,
  logger,
}: {
  readonly pool: Pick<pg.Pool, 'query'>
  readonly logger: OutageLogger
}): ClockWatch => {
  /** The database's time when the monotonic clock of this process began. */
  let databaseOriginMs: number | undefined
  let timer: NodeJS.Timeout | undefined
  let watching: Promise<void> | undefined
  let closed = false
  let hasFailed = false

  const failure = (): Error | null => {
    if (databaseOriginMs === undefined) return new Error("the database's clock has not been read yet")
    const aheadMs = Date.now() - databaseOriginMs - performance.now()
    return Math.abs(aheadMs) <= differenceMaxMs ? null : new Error(differenceText(aheadMs))
  }
  const report = (): void => {
    const error = failure()
    if (error !== null && !hasFailed) logger.error({ err: error }, `clock: ${error.message}`)
    if (error === null && hasFailed)
      logger.info({}, "clock: this host's clock and the database's agree; calls are accepted")
    hasFailed = error !== null
  }
  const compare = async (): Promise<void> => {
    const askedMs = performance.now()
    try {
      const databaseMs = await databaseNowMs(pool)
      databaseOriginMs = databaseMs - (askedMs + performance.now()) / 2
    } catch {
      // Other checks report that the database is unavailable. The last comparison remains valid.
    }
    report()
    if (!closed) timer = setTimeout(() => void compare(), compareMs).unref()
  }
  return {
    watch: () => (watching ??= compare()),
    failure,
    close: () => {
      closed = true
      clearTimeout(timer)
    },
  }
}

const differenceText = (aheadMs: number): string => {
  const seconds = Math.round(Math.abs(aheadMs) / 1_000)
  return `this host's clock is ${seconds} s ${aheadMs > 0 ? 'ahead of' : 'behind'} the database's, so this process refuses calls until they agree. If every host reports this, correct the clock of the database's host; otherwise, correct this host's clock`
}
