import pg from 'pg'
import { GateShut } from '../concurrency/gate.ts'
import type { GatheringOptions } from '../concurrency/gathering.ts'
import { Unavailable } from '../event-log/port.ts'

/**
 * SQLSTATE of a server that cannot work now (PostgreSQL, appendix A): connections (08), resources such as a full disk (53),
 * operators and a start that is under way (57), errors of its files (58), and a read-only standby (25006). Any other
 * code means that the statement is wrong.
 */
const awaySqlState = /^(08|53|57|58)|^25006$/

/** Messages of pg, without a code, for a connection that breaks or cannot be made in time. */
const awayMessage =
  /^(Connection terminated|timeout exceeded when trying to connect|Query read timeout|Client has encountered a connection error|Client was closed)/
const awayCode = /^(ECONNREFUSED|ECONNRESET|EPIPE|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|ENOTFOUND|EAI_AGAIN)$/

/** Whether an error of any origin means that the database cannot be asked now. */
export const isDatabaseAway = (error: unknown): boolean => {
  if (error instanceof AggregateError && error.errors.length > 0) return error.errors.every(isDatabaseAway)
  if (error instanceof pg.DatabaseError) return awaySqlState.test(error.code ?? '')
  if (!(error instanceof Error)) return false
  if (error instanceof GateShut) return true
  return awayMessage.test(error.message) || ('code' in error && awayCode.test(String(error.code)))
}

/**
 * For `catch` behind a question to the database: one that cannot be reached is an outage, which the caller is asked to wait
 * out; one that refuses the statement is a bug of ours, and is thrown as it is.
 */
export const unavailableWhenAway = (error: unknown): never => {
  if (error instanceof Unavailable || (error instanceof pg.DatabaseError && !isDatabaseAway(error)))
    throw error
  throw new Unavailable('the database cannot be asked now', { cause: error })
}

/** The same for work that does more than ask the database: other errors are thrown as they are. */
export const unavailableIfAway = (error: unknown): never => {
  throw isDatabaseAway(error) ? new Unavailable('the database cannot be asked now', { cause: error }) : error
}

/** Calls of one statement; those that wait for the next, and how long at most. */
const sharedStatementCallsMax = 128
const sharedStatementWaitingMax = 2_048
const sharedStatementWaitMaxMs = 1_000
/** Of the pool's connections, which others need as well. */
const sharedStatementsUnderWayMax = 2

/**
 * For statements that calls share: how many calls go into one, and when a call is refused instead of waiting longer for the
 * database.
 */
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
