import pg from 'pg'
import type { Logger } from 'pino'
import { createGate, type Gate, GateShut } from '../concurrency/gate.ts'
import type { Config } from '../config.ts'
import { type EventLog, Unavailable } from '../event-log/port.ts'
import { priceBookStream } from '../events/streams.ts'

/** One gate for each server that calls depend on. If the event log is in the database, both are the same gate. */
export type Gates = { readonly database: Gate; readonly eventLog: Gate }

/** For connecting and for the query, each. Longer than the gate waits, because a late answer is also an answer. */
const askedMs = 3_000

type GatesOptions = {
  readonly url: string
  readonly eventLog: Pick<EventLog, 'read'>
  readonly logger: Logger
}

export const openGates = (
  { EVENT_LOG_URL: eventLogUrl }: Pick<Config, 'EVENT_LOG_URL'>,
  { url, eventLog, logger }: GatesOptions,
): Gates & { close(): void } => {
  const database = createGate({ what: 'the database', ask: () => askDatabase(url), logger })
  if (eventLogUrl === undefined) return { database, eventLog: database, close: database.close }
  const ask = eventLogUrl.startsWith('postgres')
    ? () => askDatabase(eventLogUrl)
    : () => eventLog.read(priceBookStream, { max: 1 })
  const log = createGate({ what: 'the event log', ask, logger })
  const close = (): void => {
    database.close()
    log.close()
  }
  return { database, eventLog: log, close }
}

/** On a separate connection: one that was made before an outage may never answer again. */
const askDatabase = async (url: string): Promise<void> => {
  const client = new pg.Client({
    connectionString: url,
    connectionTimeoutMillis: askedMs,
    query_timeout: askedMs,
    application_name: 'gate',
  })
  client.on('error', () => undefined)
  try {
    await client.connect()
    await client.query('select 1')
  } catch (error) {
    // An error from the server is an answer, for example that it has no connection left. Starting and stopping are not.
    if (!(error instanceof pg.DatabaseError) || error.code?.startsWith('57P') === true) throw error
  } finally {
    client.end().catch(() => undefined)
  }
}

/** The same pool, which refuses queries while the database does not answer. Both are closed together. */
export const gatedPool = (pool: pg.Pool, gate: Gate): pg.Pool => {
  const gated =
    <Given extends unknown[], Value>(ask: (...given: Given) => Promise<Value>) =>
    (...given: Given): Promise<Value> =>
      gate.refuses() === null ? ask(...given) : Promise.reject(new GateShut('the database does not answer'))
  return Object.create(pool, {
    query: { value: gated((...given: [pg.QueryConfig]) => gate.watch(pool.query(...given))) },
    // An idle connection is returned without asking the server, so getting one does not show that the server answers.
    connect: { value: gated(() => pool.connect()) },
  })
}

/** The same log, whose requests the gate watches. Appends are sent even if the gate is shut: see `ledger/write/commit.ts`. */
export const watchedLog = (eventLog: EventLog, gate: Gate): EventLog => ({
  ...eventLog,
  append: (...given) => gate.watch(eventLog.append(...given)),
  read: (...given) => gate.watch(eventLog.read(...given)),
  head: () => gate.watch(eventLog.head()),
  at: (...given) => gate.watch(eventLog.at(...given)),
})

/** The same log for code that answers requests: it is not asked while it does not answer. */
export const gatedLog = (eventLog: EventLog, gate: Gate): EventLog => {
  const gated =
    <Given extends unknown[], Value>(ask: (...given: Given) => Promise<Value>) =>
    (...given: Given): Promise<Value> =>
      gate.refuses() === null
        ? ask(...given)
        : Promise.reject(new Unavailable('the event log does not answer'))
  return {
    ...eventLog,
    read: gated(eventLog.read),
    head: gated(eventLog.head),
    at: gated(eventLog.at),
    lookBack: gated(eventLog.lookBack),
    lastRevision: gated(eventLog.lastRevision),
    streams: gated(eventLog.streams),
  }
}
