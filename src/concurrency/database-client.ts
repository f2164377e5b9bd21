import pg from 'pg'

type Settle = (error: Error | null, result?: pg.QueryResult) => void

/**
 * A client of PostgreSQL that releases a statement when it is answered. `query` and `query_timeout` are as in pg, except that copy streams
 * have no time limit.
 *
 * pg itself assigns a closure to a property of each statement that has a promise or a time limit. V8 allocates such closures in the old generation,
 * so the parameters and rows of every statement would stay in memory until a full garbage collection, which delays the calls in progress.
 */
export class DatabaseClient extends pg.Client {
  constructor({ query_timeout: answerMaxMs = 0, ...config }: pg.ClientConfig = {}) {
    super(config)
    const send = (...given: unknown[]): unknown => Reflect.apply(pg.Client.prototype.query, this, given)
    const query = (statement: object | string, ...rest: unknown[]): unknown => {
      if (typeof statement === 'object' && 'submit' in statement) return send(statement, ...rest)
      const last = rest.at(-1)
      if (typeof last === 'function')
        return send(
          statement,
          ...rest.slice(0, -1),
          inTime(answerMaxMs, (error, result) => last(error, result)),
        )
      return new Promise((resolve, reject) =>
        send(
          statement,
          ...rest,
          inTime(answerMaxMs, (error, result) => (error ? reject(error) : resolve(result))),
        ),
      ).catch((error: Error) => {
        // The stack of the error leads to the socket. This one leads to the caller.
        Error.captureStackTrace(error)
        throw error
      })
    }
    Reflect.set(this, 'query', query)
  }
}

/** Settles with an error if there is no answer after `answerMaxMs`. The promise and the pool ignore a later answer. 0: there is no time limit. */
const inTime = (answerMaxMs: number, settle: Settle): Settle => {
  if (answerMaxMs === 0) return settle
  const timer = setTimeout(() => settle(new Error('Query read timeout')), answerMaxMs)
  return (error, result) => {
    clearTimeout(timer)
    settle(error, result)
  }
}
