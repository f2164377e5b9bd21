import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import pg from 'pg'
import { afterEach, expect, test } from 'vitest'
import { parseConfig } from '../../src/config.ts'
import { createClosing } from '../../src/foundation/closing.ts'
import { openDatabase } from '../../src/foundation/database.ts'
import { createLogger } from '../../src/foundation/logger.ts'
import { emptyDatabase, type TestDatabase } from '../support/postgres.ts'

let cleanUp: (() => unknown)[] = []
afterEach(async () => {
  for (const clean of cleanUp.reverse()) await clean()
  cleanUp = []
})

const ownDatabase = async (): Promise<TestDatabase> => {
  const database = await emptyDatabase()
  cleanUp.push(database.drop)
  return database
}

const open = async (urls: { DATABASE_URL: string; DATABASE_MIGRATION_URL?: string }): Promise<unknown> => {
  const closing = createClosing()
  try {
    const config = parseConfig({ ...urls, SECRET_KEY: 'a secret of the test, long enough to be one' })
    return await openDatabase(config, { logger: createLogger('silent'), waitMs: 0, closing })
  } finally {
    await closing.close()
  }
}

const int32 = (value: number): Buffer => {
  const bytes = Buffer.alloc(4)
  bytes.writeInt32BE(value)
  return bytes
}

const startupPacket = (parameters: Record<string, string>): Buffer => {
  const body = Buffer.from(
    `${Object.entries(parameters)
      .map(([name, value]) => `${name}\0${value}\0`)
      .join('')}\0`,
  )
  return Buffer.concat([int32(body.length + 8), int32(196_608), body])
}

/** The server is idle, and in no transaction. */
const idle = Buffer.from([0x5a, 0, 0, 0, 5, 0x49])
const authenticated = Buffer.concat([Buffer.from('R'), int32(8), int32(0), idle])

type Upstream = { readonly socket: Socket; client: Socket | undefined }

/**
 * Like PgBouncer with `options` in ignore_startup_parameters. In transaction mode, clients take turns on the server connections. In session
 * mode, each client keeps one.
 */
const startPooler = async (
  url: string,
  { mode, servers }: { readonly mode: 'session' | 'transaction'; readonly servers: number },
): Promise<string> => {
  const target = new URL(url)
  const idleServers: Upstream[] = []
  const waiting: ((upstream: Upstream) => void)[] = []
  const sockets = new Set<Socket>()
  const free = (upstream: Upstream): void => {
    upstream.client = undefined
    const next = waiting.shift()
    if (next === undefined) idleServers.push(upstream)
    else next(upstream)
  }
  const openServer = (): void => {
    const socket = connect(Number(target.port), target.hostname)
    sockets.add(socket)
    const upstream: Upstream = { socket, client: undefined }
    let started = false
    socket.on('error', () => undefined)
    socket.on('data', (bytes) => {
      const isIdle = bytes.subarray(-6).equals(idle)
      if (!started && isIdle) {
        started = true
        return free(upstream)
      }
      upstream.client?.write(bytes)
      if (started && isIdle && mode === 'transaction') free(upstream)
    })
    socket.write(startupPacket({ user: target.username, database: target.pathname.slice(1) }))
  }
  const server = createServer((client) => {
    sockets.add(client)
    let mine: Upstream | undefined
    let isNew = true
    client.on('error', () => undefined)
    client.on('data', (bytes) => {
      if (isNew) {
        isNew = false
        client.write(authenticated)
        return
      }
      // The client leaves.
      if (bytes[0] === 0x58) return client.end()
      if (mine?.client === client) return mine.socket.write(bytes)
      const take = (upstream: Upstream): void => {
        mine = upstream
        upstream.client = client
        upstream.socket.write(bytes)
      }
      const upstream = idleServers.shift()
      if (upstream === undefined) waiting.push(take)
      else take(upstream)
    })
    client.on('close', () => {
      if (mine?.client === client) free(mine)
    })
  })
  await new Promise<void>((ready) => server.listen(0, '127.0.0.1', ready))
  for (let n = 0; n < servers; n++) openServer()
  cleanUp.push(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  target.port = String((server.address() as AddressInfo).port)
  return target.href
}

test.each([1, 2, 3])(
  'a pooler that changes the server connection after each transaction is refused (server connections: %i)',
  async (servers) => {
    const { url } = await ownDatabase()
    const pooled = await startPooler(url, { mode: 'transaction', servers })
    const refusal =
      /a pooler at 127\.0\.0\.1:\d+ gives transactions of one connection different connections to PostgreSQL.+pool_mode = session/
    await expect(open({ DATABASE_URL: pooled })).rejects.toThrow(refusal)
    await expect(open({ DATABASE_URL: pooled })).rejects.toThrow(/^DATABASE_URL: /)
    await expect(open({ DATABASE_URL: url, DATABASE_MIGRATION_URL: pooled })).rejects.toThrow(
      /^DATABASE_MIGRATION_URL: a pooler/,
    )
  },
)

test('a pooler that keeps one server connection for each client is accepted', async () => {
  const { url } = await ownDatabase()
  const pooled = await startPooler(url, { mode: 'session', servers: 6 })
  await expect(open({ DATABASE_URL: pooled })).resolves.toBeDefined()
})

test('a pooler that ignores the settings of connections is refused if the database has other settings', async () => {
  const { url } = await ownDatabase()
  const name = new URL(url).pathname.slice(1)
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  await client.query(`alter database ${name} set timezone = 'America/St_Johns'`)
  await client.query(`alter database ${name} set datestyle = 'German'`)
  await client.end()
  const pooled = await startPooler(url, { mode: 'session', servers: 6 })
  await expect(open({ DATABASE_URL: url })).resolves.toBeDefined()
  await expect(open({ DATABASE_URL: pooled })).rejects.toThrow(
    /^DATABASE_URL: .+: alter role "postgres" set timezone = 'UTC'; alter role "postgres" set datestyle = 'ISO,YMD';/,
  )
})

test('a server that accepts no writes is refused with a sentence', async () => {
  const { url } = await ownDatabase()
  const name = new URL(url).pathname.slice(1)
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  await client.query(`alter database ${name} set default_transaction_read_only = on`)
  await client.end()
  await expect(open({ DATABASE_URL: url })).rejects.toThrow(
    /^DATABASE_URL: the server at 127\.0\.0\.1:\d+ does not accept writes: it is a standby or read-only\. Use the address of the primary server$/,
  )
})
