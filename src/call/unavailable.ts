import pg from 'pg'
import { Unavailable } from '../event-log/port.ts'

/**
 * For `catch`: a database that cannot be reached is an outage, which the caller is told to wait out; one that refuses
 * the statement is a bug of ours, and stays what it is.
 */
export const unavailableWhenAway = (error: unknown): never => {
  const sqlState = error instanceof pg.DatabaseError ? (error.code ?? '') : ''
  if (error instanceof Unavailable || (error instanceof pg.DatabaseError && !/^(08|53|57)/.test(sqlState)))
    throw error
  throw new Unavailable('the database cannot be asked now', { cause: error })
}
