import type pg from 'pg'
import { CommandRefused } from '../ledger/write/commit.ts'

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
