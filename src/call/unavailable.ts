import pg from 'pg'
import { GateShut } from '../concurrency/gate.ts'
import type { GatheringOptions } from '../concurrency/gathering.ts'
import { Unavailable } from '../event-log/port.ts'

/**
 * SQLSTATEs of an unavailable server (PostgreSQL, appendix A): connections (08), resources such as a full disk (53), shutdown and
 * startup (57), file errors (58), and a read-only standby (25006). Any other code means that the statement is wrong.
 */
const awaySqlState = /^(08|53|57|58)|^25006$/

/** Messages of pg that have no code, for a connection that breaks or cannot be opened in time. */
const awayMessage =
  /^(Connection terminated|timeout exceeded when trying to connect|Query read timeout|Client has encountered a connection error|Client was closed)/
const awayCode = /^(ECONNREFUSED|ECONNRESET|EPIPE|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|ENOTFOUND|EAI_AGAIN)$/

/** Whether an error means that the database is unavailable. */
export const isDatabaseAway = (error: unknown): boolean => {
  if (error instanceof AggregateError && error.errors.length > 0) return error.errors.every(isDatabaseAway)
  if (error instanceof pg.DatabaseError) return awaySqlState.test(error.code ?? '')
  if (!(error instanceof Error)) return false
  if (error instanceof GateShut) return true
  return awayMessage.test(error.message) || ('code' in error && awayCode.test(String(error.code)))
}

/**
 * For `catch` after a database query. The error of an unavailable database becomes `Unavailable`. The error of a refused statement
 * is a bug and is thrown unchanged.
 */
export const unavailableWhenAway = (error: unknown): never => {
  if (error instanceof Unavailable || (error instanceof pg.DatabaseError && !isDatabaseAway(error)))
    throw error
  throw new Unavailable('the database is unavailable', { cause: error })
}

/** Like `unavailableWhenAway`, for work that does more than query the database. All other errors are thrown unchanged. */
export const unavailableIfAway = (error: unknown): never => {
  throw isDatabaseAway(error) ? new Unavailable('the database is unavailable', { cause: error }) : error
}

/** Limits of a shared statement: its calls, the calls that wait for the next statement, and their longest wait. */
const sharedStatementCallsMax = 128
const sharedStatementWaitingMax = 2_048
const sharedStatementWaitMaxMs = 1_000
/** The number of the pool's connections that shared statements use; the remaining connections are for all other queries. */
const sharedStatementsUnderWayMax = 2

/** Options for statements that calls share. A call that would wait longer for the database is refused. */
export const sharedStatements = (what: string): Omit<GatheringOptions<unknown, unknown>, 'run'> => ({
  batchMax: sharedStatementCallsMax,
  underWayMax: sharedStatementsUnderWayMax,
  waitingMax: sharedStatementWaitingMax,
  waitMaxMs: sharedStatementWaitMaxMs,
  refusal: (why) =>
    new Unavailable(
      why === 'full'
        ? `${what}: ${sharedStatementWaitingMax} calls are waiting for the database`
        : `${what}: the database did not answer within ${sharedStatementWaitMaxMs} ms`,
    ),
  failsAll: isDatabaseAway,
})
