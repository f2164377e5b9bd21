/**
 * The whole service in this process: its own database, both hosts listening on free ports, and every partner's ledger as read
 * from the event log.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import pino, { type Logger } from 'pino'
import { afterAll, vi } from 'vitest'
import { projections } from '../../projections/index.ts'
import { revoke } from '../../src/administration/keys/api-keys.ts'
import { type Config, parseConfig } from '../../src/config.ts'
import { appendChained } from '../../src/event-log/append-chained.ts'
import { type ReadOptions, type RecordedEvent, StreamMissing, Unavailable } from '../../src/event-log/port.ts'
import { decodeEvent, encodeEvent, eventIdOf } from '../../src/event-log/stored-event.ts'
import type { PriceBookPublished } from '../../src/events/prices.ts'
import { ledgerStream, priceBookStream } from '../../src/events/streams.ts'
import { type Foundation, openFoundation } from '../../src/foundation/foundation.ts'
import { createMetrics } from '../../src/metrics/metrics.ts'
import { type App, startApp } from '../../src/start/app.ts'
import type { AnyCapability } from '../../src/start/capabilities.ts'
import { type MmdbValue, writeMmdb } from './mmdb-writer.ts'
import { anotherKey, openOrganization, openPartner, type Partner, type PartnerOptions } from './partners.ts'
import { preparedDatabase } from './postgres.ts'
import { recordedEvents } from './segments.ts'

export type LedgerFact = {
  readonly type: string
  readonly data: Readonly<Record<string, unknown>>
  readonly id: string
  readonly revision: number
  readonly metadata: {
    readonly request_id?: string | undefined
    readonly causation_id?: string | undefined
    readonly actor: string
    readonly effective_at: string
  }
}

export type { Partner, PartnerOptions }

export type Answer = {
  readonly status: number
  readonly headers: Headers
  readonly text: string
  /** The JSON object in the body, or an empty object. */
  readonly body: Readonly<Record<string, unknown>>
}

export type AnswerAndFacts = Answer & {
  /** The events added to the partner's ledger between request and answer. */
  readonly events: readonly LedgerFact[]
}

export type Question = {
  readonly method?: string
  readonly path?: string
  /** The host that gets the request. Default: the API host. */
  readonly on?: 'api' | 'dashboard'
  readonly headers?: Readonly<Record<string, string>>
  /** Text is sent unchanged, other values as JSON. */
  readonly body?: unknown
}

export type House = {
  readonly apiUrl: string
  readonly dashboardUrl: string
  readonly metricsUrl: string
  readonly foundation: Foundation
  readonly config: Config
  readonly app: App
  /** Simulates a second process of this installation: an API process that shares the foundation, except for the given parts. */
  another(own?: {
    readonly config?: Partial<Config>
    readonly foundation?: Partial<Foundation>
    readonly logger?: Logger
  }): Promise<App>
  partner(options?: PartnerOptions): Promise<Partner>
  /** Another key for the same organization. */
  key(organizationId: string, options?: PartnerOptions): Promise<Partner>
  eventsOf(organizationId: string): Promise<LedgerFact[]>
  /** Returns every event of the log, from all streams. */
  recorded(): Promise<RecordedEvent[]>
  /** Sends a request with the partner's key. If calls of one organization overlap, their `events` are mixed. */
  ask(partner: Partner, question: Question): Promise<AnswerAndFacts>
  post(
    partner: Partner,
    path: string,
    body: unknown,
    headers?: Readonly<Record<string, string>>,
  ): Promise<AnswerAndFacts>
  lookup(partner: Partner, body: unknown, headers?: Readonly<Record<string, string>>): Promise<AnswerAndFacts>
  whoami(partner: Partner): Promise<AnswerAndFacts>
  publishPriceBook(book: Pick<PriceBookPublished, 'effective_from' | 'rules'>): Promise<number>
  /** Resolves when the hosts have received every key event recorded so far. */
  heard(): Promise<void>
  /** Resolves when every read model has folded all events recorded so far. */
  projected(): Promise<void>
  /** Advances all clocks of this process; only with `clock: 'movable'`. A negative value sets the time of day back. */
  moveClock(ms: number): void
  /** Changes the time of day by this much, without letting time pass for other clocks. A negative value sets it back. */
  setClock(ms: number): void
  /** Blocks appends, but not reads. */
  blockLog(): Promise<BlockedLog>
  /** Makes appends fail, as with a full disk, until the returned function is called. */
  breakLog(): Promise<() => Promise<void>>
  query(text: string, values?: readonly unknown[]): Promise<Record<string, unknown>[]>
  /** Stops the hosts as SIGTERM does. The ledgers can still be read. */
  end(): Promise<void>
  close(): Promise<void>
}

export type BlockedLog = {
  /** Resolves when an append is waiting for the block to end. */
  waiting(): Promise<void>
  /** Cuts the connection of the blocked append, so its writer cannot know the outcome. */
  cut(): Promise<void>
  /** Can be repeated. */
  release(): Promise<void>
}

const london: MmdbValue = {
  city: { names: { en: 'London', de: 'London' } },
  continent: { code: 'EU', names: { en: 'Europe', de: 'Europa' } },
  country: {
    iso_code: 'GB',
    is_in_european_union: false,
    names: { en: 'United Kingdom', de: 'Vereinigtes Königreich' },
  },
  location: { latitude: 51.514249, longitude: -0.093051, accuracy_radius: 10 },
  postal: { code: 'EC4N' },
  subdivisions: [
    { iso_code: 'ENG', names: { en: 'England' } },
    { iso_code: 'LND', names: { en: 'Greater London' } },
  ],
}
const munich: MmdbValue = {
  city: { names: { en: 'Munich' } },
  continent: { code: 'EU', names: { en: 'Europe' } },
  country: { iso_code: 'DE', is_in_european_union: true, names: { en: 'Germany' } },
  location: { latitude: 48.1374, longitude: 11.5755 },
  postal: { code: '80331' },
  subdivisions: [{ iso_code: 'BY', names: { en: 'Bavaria' } }],
}
/** A record in which only the country is known; every other string is empty. */
const canadaOnly: MmdbValue = {
  city: { names: { en: '' } },
  continent: { code: '', names: { en: '' } },
  country: { iso_code: 'CA', names: { en: '' } },
  location: {},
  postal: { code: '' },
  subdivisions: [{ iso_code: '', names: { en: '' } }],
}
const nobody: MmdbValue = { continent: { code: 'EU', names: { en: 'Europe' } } }

export const places = {
  london: '81.2.69.142',
  munich: '5.1.80.7',
  countryOnly: '24.48.0.1',
  /** An address with a record that has no country. */
  nowhere: '62.1.1.1',
  /** An address without a record. */
  unknown: '9.9.9.9',
  /** A private address that has a record. */
  private: '10.1.2.3',
  londonIPv6: '2a02:c7c:1::7',
} as const

/**
 * The networks are wide, because at its start the service searches for a thousand addresses of each family with a record. If few
 * addresses had a record, that search would take almost half of the processor time of a start.
 */
const fixture = (): Buffer =>
  writeMmdb({
    ipVersion: 6,
    databaseType: 'GeoIP2-City',
    networks: {
      '64.0.0.0/2': london,
      '128.0.0.0/1': munich,
      '5.0.0.0/8': munich,
      '24.0.0.0/8': canadaOnly,
      '62.0.0.0/8': nobody,
      '10.0.0.0/8': munich,
      '2400::/12': london,
      '2600::/12': london,
      '2a02:c00::/24': london,
      '2a08::/13': london,
      '2001:db8::/32': munich,
    },
  })

/** Writes a small location database to the directory, because opening the package's own file takes half a second of processor time. */
export const writeCityFile = async (directory: string): Promise<string> => {
  const path = join(directory, 'city.mmdb')
  await writeFile(path, fixture())
  return path
}

const silent = pino({ level: 'silent' })
const secretKey = 'a secret of at least thirty-two characters'
const conditionDeadlineMs = 60_000
const ledgerEventsMax = 10_000

/** Polls every 5 ms until the condition is true. */
export const until = async (what: string, condition: () => Promise<boolean>): Promise<void> => {
  for (const end = performance.now() + conditionDeadlineMs; ; ) {
    if (await condition()) return
    if (performance.now() > end) throw new Error(`not within ${conditionDeadlineMs} ms: ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
}

const objectIn = (text: string): Readonly<Record<string, unknown>> => {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {}
  } catch {
    return {}
  }
}

/** Resolves when every read model has folded all events recorded so far. */
export const foldedBy = async ({ eventLog, pool }: Pick<Foundation, 'eventLog' | 'pool'>): Promise<void> => {
  const head = await eventLog.head()
  await until('every read model has folded what is recorded', async () => {
    const { rows } = await pool.query<{ position: string }>('select position from projection_checkpoints')
    return rows.length === projections.length && rows.every(({ position }) => BigInt(position) >= head)
  })
}

/** Sends one HTTP request with exactly the given headers. There is no default content type. */
export const send = async (
  url: string,
  { method = 'POST', headers = {}, body }: Omit<Question, 'path' | 'on'>,
): Promise<Answer> => {
  const text = body === undefined ? null : typeof body === 'string' ? body : JSON.stringify(body)
  const response = await fetch(url, {
    method,
    headers: { ...headers },
    // The body is sent as bytes, because fetch adds a content type to a string.
    body: text === null ? null : new TextEncoder().encode(text),
  })
  const answered = await response.text()
  return { status: response.status, headers: response.headers, text: answered, body: objectIn(answered) }
}

export type RawConnection = {
  write(bytes: string | Buffer): void
  /** Resolves after this many complete answers, or when the server closes the connection. */
  answers(count: number): Promise<Answer[]>
  /** Ends this side of the connection; answers can still arrive. */
  end(): void
  close(): void
}

/** Opens a connection that sends exactly the given bytes. */
export const openRaw = (url: string): RawConnection => {
  const { hostname, port } = new URL(url)
  const socket = connect(Number(port), hostname)
  let received = ''
  let ended: Error | true | undefined
  let look = (): void => undefined
  socket.on('data', (chunk) => {
    received += chunk.toString('utf8')
    look()
  })
  socket.on('end', () => {
    ended ??= true
    look()
  })
  // If a server closes before it has read everything, the connection is reset. The bytes that the server sent before are still
  // used.
  socket.on('error', (error) => {
    ended ??= error
    look()
  })
  return {
    write: (bytes) => socket.write(bytes),
    answers: (count) =>
      new Promise((resolve, reject) => {
        const timer = setTimeout(
          () => reject(new Error(`no ${count} answers, only ${JSON.stringify(received)}`)),
          conditionDeadlineMs,
        )
        look = () => {
          const answers = answersIn(received)
          if (answers.length < count && ended === undefined) return
          clearTimeout(timer)
          if (ended instanceof Error && answers.length === 0) reject(ended)
          else resolve(answers)
        }
        look()
      }),
    end: () => socket.end(),
    close: () => socket.destroy(),
  }
}

/** Sends bytes on a new connection and reads the answers. */
export const sendRaw = async (url: string, bytes: string | Buffer, count = 1): Promise<Answer[]> => {
  const connection = openRaw(url)
  try {
    connection.write(bytes)
    return await connection.answers(count)
  } finally {
    connection.close()
  }
}

/** The complete answers in the received text. A chunked answer would get an empty text, but our service sends none. */
const answersIn = (received: string): Answer[] => {
  const answers: Answer[] = []
  for (let rest = received; ; ) {
    const headEnd = rest.indexOf('\r\n\r\n')
    if (headEnd === -1) return answers
    const [statusLine = '', ...lines] = rest.slice(0, headEnd).split('\r\n')
    const headers = new Headers(
      lines.map((line): [string, string] => {
        const colon = line.indexOf(':')
        return [line.slice(0, colon), line.slice(colon + 1).trim()]
      }),
    )
    const status = Number(statusLine.split(' ')[1])
    const bytes = Buffer.from(rest.slice(headEnd + 4))
    const length = headers.has('transfer-encoding')
      ? (bytes.indexOf('0\r\n\r\n') + 1 || Number.POSITIVE_INFINITY) + 4
      : Number(headers.get('content-length') ?? 0)
    if (bytes.length < length) return answers
    const text = headers.has('transfer-encoding') ? '' : bytes.subarray(0, length).toString()
    answers.push({ status, headers, text, body: objectIn(text) })
    rest = bytes.subarray(length).toString()
  }
}

export const openHouse = async ({
  clock = 'real',
  host = '127.0.0.1',
  environment = {},
  logger = silent,
  capabilities,
}: {
  clock?: 'real' | 'movable'
  host?: string
  /** Environment variables that are added to the defaults or replace them. */
  environment?: Readonly<Record<string, string>>
  logger?: Logger
  /** Replacements for the service's own capabilities. */
  capabilities?: readonly AnyCapability[]
} = {}): Promise<House> => {
  // This must run before any module stores a reference to Date.
  if (clock === 'movable') vi.useFakeTimers({ toFake: ['Date', 'performance'], shouldAdvanceTime: true })
  const database = await preparedDatabase({ separated: true })
  const directory = await mkdtemp(join(tmpdir(), 'house-'))
  const geoPath = await writeCityFile(directory)
  const config = parseConfig({
    // As in production, the service's role can only append to the event log.
    DATABASE_URL: database.serviceUrl,
    DATABASE_MIGRATION_URL: database.url,
    SECRET_KEY: secretKey,
    DATA_DIR: directory,
    GEOIP_CITY_DB: geoPath,
    HOST: host,
    API_PORT: '0',
    DASHBOARD_PORT: '0',
    ROLES: 'api,dashboard,projector',
    ...environment,
  })
  const opened = await openFoundation(config, { logger })
  // The database's clock does not move with the others.
  const foundation =
    clock === 'movable'
      ? { ...opened, clockWatch: { ...opened.clockWatch, watch: async () => undefined, failure: () => null } }
      : opened
  const app = await startApp(foundation, config, logger, createMetrics(), capabilities)
  const aside = new pg.Pool({
    connectionString: database.url,
    max: 2,
    // A test that makes the database read-only must be able to undo that.
    options: '-c default_transaction_read_only=off',
  })
  aside.on('error', () => undefined)
  return createHouse({
    foundation,
    config,
    app,
    aside,
    url: database.url,
    dispose: async () => {
      await foundation.close()
      await aside.end()
      await database.drop()
      await rm(directory, { recursive: true, force: true })
      if (clock === 'movable') vi.useRealTimers()
    },
  })
}

/** The service for all tests of a file. It closes after the last test. */
export const houseForFile = async (options: Parameters<typeof openHouse>[0] = {}): Promise<House> => {
  const house = await openHouse(options)
  afterAll(() => house.close())
  return house
}

const createHouse = ({
  foundation,
  config,
  app,
  aside,
  url,
  dispose,
}: {
  foundation: Foundation
  config: Config
  app: App
  aside: pg.Pool
  url: string
  dispose: () => Promise<void>
}): House => {
  const { apiUrl, dashboardUrl, metricsUrl } = app
  if (apiUrl === null || dashboardUrl === null || metricsUrl === null)
    throw new Error('the house has no hosts')
  let ended = false
  let canary: Promise<string> | undefined

  const readOnce = (organizationId: string, options: ReadOptions): Promise<RecordedEvent[]> =>
    foundation.eventLog.read(ledgerStream(organizationId), options).catch((error: unknown) => {
      if (error instanceof StreamMissing) return []
      throw error
    })

  /** Retries while the log is unavailable, so that assertions also succeed on a busy machine. */
  const read = async (organizationId: string, options: ReadOptions): Promise<RecordedEvent[]> => {
    for (const end = performance.now() + conditionDeadlineMs; ; ) {
      try {
        return await readOnce(organizationId, options)
      } catch (error) {
        if (!(error instanceof Unavailable) || performance.now() > end) throw error
      }
      await new Promise((resolve) => setTimeout(resolve, 5))
    }
  }

  const eventsOf = async (organizationId: string, from = 0): Promise<LedgerFact[]> =>
    (await read(organizationId, { from, max: ledgerEventsMax })).map((one) => {
      const { type, data, metadata } = decodeEvent(one)
      return { type, data, metadata, id: one.id, revision: one.revision }
    })

  const whoamiOf = (apiKey: string): Promise<Answer> =>
    send(`${dashboardUrl}/whoami`, { method: 'GET', headers: { 'x-api-key': apiKey } })

  /**
   * The key directory receives events in order, so a revoked key that it refuses proves that it has received all earlier events.
   * A new key proves less, because a key that the directory does not contain is read from the log.
   */
  const heard = async (): Promise<void> => {
    canary ??= openOrganization(foundation, 'Canary')
    const { apiKey, keyId } = await anotherKey(foundation, await canary)
    await until('a new key is let in', async () => (await whoamiOf(apiKey)).status === 200)
    await revoke(foundation, { keyId, reason: 'heard', actor: 'cli' })
    await until('it is out', async () => (await whoamiOf(apiKey)).status === 401)
  }

  const ask: House['ask'] = async (partner, { path = '/v1/ip/lookup', on = 'api', headers, ...question }) => {
    const [last] = await read(partner.organizationId, { direction: 'backwards', max: 1 })
    const answer = await send(`${on === 'api' ? apiUrl : dashboardUrl}${path}`, {
      ...question,
      headers: { 'x-api-key': partner.apiKey, ...headers },
    })
    return { ...answer, events: await eventsOf(partner.organizationId, (last?.revision ?? -1) + 1) }
  }

  const post: House['post'] = (partner, path, body, headers = {}) =>
    ask(partner, { path, body, headers: { 'content-type': 'application/json', ...headers } })

  const end = async (): Promise<void> => {
    if (ended) return
    ended = true
    await app.close()
  }

  return {
    apiUrl,
    dashboardUrl,
    metricsUrl,
    foundation,
    config,
    app,
    another: (own = {}) =>
      startApp(
        { ...foundation, ...own.foundation },
        { ...config, ROLES: ['api'], ...own.config },
        own.logger ?? silent,
      ),
    eventsOf,
    recorded: () => recordedEvents(aside),
    key: (organizationId, options) => anotherKey(foundation, organizationId, options),
    ask,
    post,
    heard,
    projected: () => foldedBy(foundation),
    partner: (options) => openPartner(foundation, options),
    lookup: (partner, body, headers) => post(partner, '/v1/ip/lookup', body, headers),
    whoami: (partner) => ask(partner, { method: 'GET', path: '/whoami', on: 'dashboard' }),
    publishPriceBook: async (book) => {
      const books = await foundation.eventLog.read(priceBookStream, { max: 1_000 })
      const version = books.length + 1
      await appendChained(foundation.eventLog, priceBookStream, books.length - 1, [
        encodeEvent(
          {
            type: 'PriceBookPublished',
            data: { version, ...book, approver: 'finance', proposal: null, digest: null },
          },
          {
            id: eventIdOf(priceBookStream, String(version), 0),
            actor: 'cli',
            effectiveAt: new Date().toISOString(),
          },
        ),
      ])
      return version
    },
    moveClock: (ms) => {
      // When time passes, all clocks advance. Setting the time back changes only the time of day.
      if (ms > 0) vi.advanceTimersByTime(ms)
      else vi.setSystemTime(Date.now() + ms)
    },
    setClock: (ms) => {
      vi.setSystemTime(Date.now() + ms)
    },
    blockLog: () => blockLog(url, aside),
    breakLog: async () => {
      await aside.query(`
        create function refuse_events() returns trigger language plpgsql as
        $$ begin raise exception 'could not extend file: no space left on device' using errcode = '53100'; end $$;
        create trigger refuse_events before insert on log_segments execute function refuse_events()`)
      return async () => {
        await aside.query('drop trigger refuse_events on log_segments; drop function refuse_events()')
      }
    },
    query: async (text, values = []) => (await aside.query<Record<string, unknown>>(text, [...values])).rows,
    end,
    close: async () => {
      await end()
      await dispose()
    },
  }
}

const blockLog = async (url: string, aside: pg.Pool): Promise<BlockedLog> => {
  const holder = new pg.Client({ connectionString: url })
  await holder.connect()
  await holder.query('begin')
  await holder.query('select position from log_mark for update')
  const waiters = async (what: string): Promise<number> =>
    (
      await aside.query(
        `select ${what} from pg_stat_activity
          where datname = current_database() and application_name = 'event-log-append' and wait_event_type = 'Lock'`,
      )
    ).rowCount ?? 0
  let released: Promise<void> | undefined
  const waiting = (): Promise<void> => until('an append waits', async () => (await waiters('pid')) > 0)
  return {
    waiting,
    cut: async () => {
      await waiting()
      await waiters('pg_terminate_backend(pid)')
    },
    release: () => (released ??= holder.end()),
  }
}
