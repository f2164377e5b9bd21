import { mkdtemp, open, rm, writeFile } from 'node:fs/promises'
import { type AddressInfo, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { expect, onTestFinished, test } from 'vitest'
import { placeIn, prepareCluster, runProgram } from '../../src/foundation/embedded/cluster.ts'
import { freePort } from '../support/free-port.ts'
import { type TestDatabase, testDatabase } from '../support/postgres.ts'
import { cli, eventually, startService, startWorker } from '../support/service.ts'
import { takesAtMost } from '../support/takes-at-most.ts'

/** When a process starts, PostgreSQL is not ready, is too old, or contains a database from a release before 1.0. */

const secretKey = 'a secret of the test, long enough to be one'

/** A real recovery is too short for a test. A standby that accepts no connections returns the same errors until it is promoted. */
const recovering = async (): Promise<{ url: string; recover(): Promise<void> }> => {
  const dataDir = await mkdtemp(join(tmpdir(), 'recovering-'))
  onTestFinished(() => rm(dataDir, { recursive: true, force: true }))
  const cluster = await prepareCluster(placeIn(dataDir), { synced: false })
  const { place, password } = cluster
  const pgCtl = async (...args: string[]): Promise<void> => {
    await using log = await open(place.log, 'a')
    const ran = await runProgram('pg_ctl', args, { ...cluster, directory: place.cluster, stdout: log.fd })
    expect(ran.code).toBe(0)
  }
  await writeFile(join(place.cluster, 'standby.signal'), '')
  const port = await freePort()
  const settings = { port, hot_standby: 'off', fsync: 'off', unix_socket_directories: '' }
  const flags = Object.entries(settings).map(([name, value]) => `-c ${name}=${value}`)
  await pgCtl('start', `--options=-c listen_addresses=127.0.0.1 ${flags.join(' ')}`)
  onTestFinished(() => pgCtl('stop'))
  return {
    url: `postgres://postgres:${password}@127.0.0.1:${port}/postgres`,
    recover: () => pgCtl('promote'),
  }
}

/** The SQLSTATE with which a server refuses a connection, or none if the connection succeeds. */
const stateOf = async (url: string): Promise<string> => {
  const client = new pg.Client({ connectionString: url })
  client.on('error', () => undefined)
  try {
    await client.connect()
    return 'ready'
  } catch (error) {
    return error instanceof Error && 'code' in error ? String(error.code) : 'unknown'
  } finally {
    await client.end().catch(() => undefined)
  }
}

/** A server that accepts connections and never answers. */
const silent = async (): Promise<string> => {
  const server = createServer(() => undefined)
  await new Promise<void>((ready) => server.listen(0, '127.0.0.1', ready))
  onTestFinished(async () => void server.close())
  const { port } = server.address() as AddressInfo
  return `postgres://user@127.0.0.1:${port}/nothing`
}

test('the service waits for a recovering or silent server, and the command line gives up after ten seconds', async () => {
  const { url, recover } = await recovering()
  const environment = { DATABASE_URL: url, SECRET_KEY: secretKey, LOG_LEVEL: 'info' }
  await eventually(async () => ((await stateOf(url)) === '57P03' ? true : undefined))

  const timed = async (DATABASE_URL: string) => {
    const startedMs = performance.now()
    const command = cli(['org', 'list'], { DATABASE_URL, SECRET_KEY: secretKey })
    const { code, out, err } = await takesAtMost(20_000, command)
    const tookMs = performance.now() - startedMs
    expect({ code, out, lines: err.trimEnd().split('\n').length }).toEqual({ code: 2, out: '', lines: 1 })
    return { err, tookMs }
  }
  const commands = Promise.all([timed(url), timed(await silent())])
  const service = startWorker(environment)
  onTestFinished(async () => void (await service.end('SIGTERM')))
  const [{ err, tookMs }] = await commands
  expect(err).toMatch(/^DATABASE_URL: Cannot connect .*not (yet )?accepting connections/)
  expect(tookMs).toBeGreaterThan(10_000)
  await eventually(async () => (service.output().includes('waiting for the database') ? true : undefined))
  expect(service.output().match(/waiting for the database/g)).toHaveLength(1)
  expect(service.child.exitCode).toBeNull()

  await recover()
  await eventually(async () => (service.output().includes('projector: started') ? true : undefined), 30_000)
})

test('a version before 16 is refused at the start, in one line', async () => {
  const database: TestDatabase = await testDatabase()
  onTestFinished(() => database.drop())
  const client = new pg.Client({ connectionString: database.url })
  await client.connect()
  // The server is new enough, but in this database it reports an old version.
  await client.query(`
    create function public.current_setting(text) returns text language sql as
      $$ select case $1 when 'server_version_num' then '150014' else '15.14 (Debian 15.14-0+deb12u1)' end $$`)
  await client.query(
    `do $$ begin execute format('alter database %I set search_path = public, pg_catalog', current_database()); end $$`,
  )
  await client.end()
  const { code, out, err } = await cli(['org', 'list'], { DATABASE_URL: database.url, SECRET_KEY: secretKey })
  expect([code, out]).toEqual([2, ''])
  expect(err).toMatch(
    /^DATABASE_URL: PostgreSQL 15\.14 \(Debian [^)]+\) at 127\.0\.0\.1:\d+ is too old; use version 16 or newer\n$/,
  )
})

test('a start that cannot open the last event of the log names it in one line', async () => {
  const database = await testDatabase()
  onTestFinished(database.drop)
  const environment = { DATABASE_URL: database.url, SECRET_KEY: secretKey, ROLES: 'api' }
  expect(await (await startService(environment)).end('SIGTERM')).toBe(0)
  const client = new pg.Client({ connectionString: database.url })
  await client.connect()
  await client.query(
    `update log_segments set events = 'damaged' where last_position = (select position from log_head)`,
  )
  await client.end()
  const refused: unknown = await startService(environment).catch((error: unknown) => error)
  expect(String(refused)).toMatch(
    /\nEvent log: revisions? .* cannot be opened: .*\. Restore these events from a backup/,
  )
  expect(String(refused)).not.toMatch(/^ +at /m)
}, 60_000)
