import { randomBytes, randomUUID } from 'node:crypto'
import { chmod, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import pino, { type Logger } from 'pino'
import { defaultPriceBook, priceBookOf } from '../../src/billing/price-book.ts'
import { parseConfig } from '../../src/config.ts'
import { startEmbeddedPostgres } from '../../src/foundation/embedded/server.ts'
import { type Foundation, openFoundation } from '../../src/foundation/foundation.ts'
import type { Ledger } from '../../src/ledger/write/ledger.ts'
import { postmasterOf } from './processor-time.ts'

/** The stores of one installation, shared by a benchmark's processes. */
export type Store = {
  /** The environment of each of the benchmark's processes. */
  readonly environment: Readonly<Record<string, string>>
  readonly dataDir: string
  /** The PostgreSQL server's process, or 0 if it runs on another machine. */
  readonly postgresPid: number
  close(): Promise<void>
}

/**
 * A new database on the server in `DATABASE_URL`, whose role must be able to create one. Without `DATABASE_URL`, a new PostgreSQL
 * with the settings of the embedded default. Without `eventLogUrl`, the event log is in the new database.
 */
export const openStore = async (eventLogUrl?: string): Promise<Store> => {
  const dataDir = await newDataDir()
  const given = process.env.DATABASE_URL
  const postgres =
    given === undefined ? await startEmbeddedPostgres({ dataDir }) : await createDatabase(given)
  if (given === undefined) await querying(postgres.url, createWalFiles)
  return {
    environment: {
      DATA_DIR: dataDir,
      KEY_DIR: join(dataDir, 'keys'),
      SECRET_KEY: randomBytes(32).toString('base64url'),
      DATABASE_URL: postgres.serviceUrl,
      ...(postgres.url === postgres.serviceUrl ? {} : { DATABASE_MIGRATION_URL: postgres.url }),
      ...(eventLogUrl === undefined ? {} : { EVENT_LOG_URL: eventLogUrl }),
    },
    dataDir,
    postgresPid: await querying(postgres.url, postmasterOf),
    close: async () => {
      await postgres.stop()
      await rm(dataDir, { recursive: true, force: true })
    },
  }
}

/** The number that PostgreSQL keeps with the settings of the embedded default (`min_wal_size`). */
const walFiles = 16

/**
 * Creates WAL files, which PostgreSQL then uses again and again. The creation of one stops all commits for up to 50 ms. A new server creates
 * them under load, but one that has run for a while has enough of them.
 */
const createWalFiles = async (client: pg.Client): Promise<void> => {
  for (let n = 0; n < walFiles; n++)
    await client.query(`select pg_logical_emit_message(false, 'bench', ''), pg_switch_wal()`)
  await client.query('checkpoint')
}

const createDatabase = async (server: string) => {
  const name = `bench_${randomBytes(6).toString('hex')}`
  await querying(server, (client) => client.query(`create database ${name}`))
  const url = new URL(server)
  url.pathname = `/${name}`
  return {
    url: url.href,
    serviceUrl: url.href,
    stop: async () => {
      await querying(server, (client) => client.query(`drop database ${name} with (force)`))
    },
  }
}

const querying = async <Result>(
  url: string,
  use: (client: pg.Client) => Promise<Result>,
): Promise<Result> => {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  try {
    return await use(client)
  } finally {
    await client.end()
  }
}

export const newDataDir = async (): Promise<string> => {
  const dir = await mkdtemp(join(tmpdir(), 'bench-'))
  // If we are root, PostgreSQL runs under another account.
  await chmod(dir, 0o755)
  return dir
}

export const logger = pino({ level: 'warn' }, pino.destination(2))

export const withFoundation = async <Result>(
  use: (opened: { foundation: Foundation; store: Store; logger: Logger }) => Promise<Result>,
  eventLogUrl?: string,
): Promise<Result> => {
  const store = await openStore(eventLogUrl)
  try {
    const foundation = await openFoundation(parseConfig(store.environment), { logger })
    try {
      return await use({ foundation, store, logger })
    } finally {
      await foundation.close()
    }
  } finally {
    await store.close()
  }
}

const book = priceBookOf(defaultPriceBook)

/** A call that costs one credit. */
export const commitCall = (ledger: Ledger, organizationId: string) =>
  ledger.submit(organizationId, {
    key: randomUUID(),
    atMs: Date.now(),
    actor: 'system',
    kind: 'record',
    book,
    call: {
      keyId: 'key_bench',
      capability: 'ip_lookup',
      outcome: 'answered',
      facts: { kind: 'ip_lookup', success: true, country_code: 'DE', address_hmac: 'h' },
    },
  })

export const msOf = async (work: () => Promise<unknown>): Promise<number> => {
  const startedAt = performance.now()
  await work()
  return performance.now() - startedAt
}

/** Keeps `width` runs of `work` in progress until the time is over. Resolves with the rate per second. */
export const keepBusy = async (
  { width, seconds }: { width: number; seconds: number },
  work: (lane: number) => Promise<number>,
): Promise<number> => {
  const startedAt = performance.now()
  const endsAt = startedAt + seconds * 1_000
  let done = 0
  await Promise.all(
    Array.from({ length: width }, async (_, lane) => {
      while (performance.now() < endsAt) {
        const more = await work(lane)
        // `done += await …` would add to the value from before the wait.
        done += more
      }
    }),
  )
  return (done * 1_000) / (performance.now() - startedAt)
}
