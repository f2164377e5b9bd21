/** The embedded PostgreSQL: the processes that start, share and stop it, and its recovery after a crash. */
import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { chown, mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { createServer, type Server } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as delay } from 'node:timers/promises'
import { promisify } from 'node:util'
import pg from 'pg'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import {
  type EmbeddedPostgres,
  runningPostgres,
  startEmbeddedPostgres,
} from '../../src/foundation/embedded/server.ts'
import { compileCache } from '../support/service.ts'

const FAST = { fsync: 'off', shared_buffers: '16MB' }
const MODULE = new URL('../../src/foundation/embedded/server.ts', import.meta.url).href

/** A data directory whose server has been stopped. Copying it is five times as fast as creating a cluster. */
let pristine = ''
const directories: string[] = []
const children: ChildProcess[] = []

beforeAll(async () => {
  pristine = await mkdtemp(join(tmpdir(), 'enrichment-ops-'))
  const postgres = await startEmbeddedPostgres({ dataDir: pristine, settings: FAST })
  await query(postgres.url, 'create table kept as select 42 as answer')
  await postgres.stop()
})

afterEach(async () => {
  for (const child of children.splice(0)) await killed(child)
  for (const dataDir of directories.splice(0)) {
    // Taking over a server that a test left running also stops it.
    if (await exists(join(dataDir, 'postgres', 'postmaster.pid'))) await (await startIn(dataDir)).stop()
    await rm(dataDir, { recursive: true, force: true })
  }
})

afterAll(() => rm(pristine, { recursive: true, force: true }))

describe('alone', () => {
  test('an empty "postgres" directory becomes a cluster with the database "enrichment", in Unicode, on the loopback interface only', async () => {
    const dataDir = await emptyDirectory()
    await mkdir(join(dataDir, 'postgres'))
    const postgres = await startIn(dataDir)
    try {
      expect(postgres.role).toBe('owner')
      const [row] = await query(
        postgres.url,
        `select current_database() as database, upper('é') as upper, current_setting('listen_addresses') as listens,
                current_setting('password_encryption') as password, current_setting('server_encoding') as encoding`,
      )
      expect(row).toEqual({
        database: 'enrichment',
        upper: 'É',
        listens: '127.0.0.1',
        password: 'scram-sha-256',
        encoding: 'UTF8',
      })
      const wrong = new URL(postgres.url)
      wrong.password = 'wrong'
      await expect(query(wrong.href, 'select 1')).rejects.toThrow(/password authentication failed/)
    } finally {
      await postgres.stop()
    }
  })

  test('while it runs, postgres.json contains its address; other users cannot read the file or the password', async () => {
    const dataDir = await usedDirectory()
    const postgres = await startIn(dataDir)
    const running = JSON.parse(await readFile(join(dataDir, 'postgres.json'), 'utf8'))
    expect(running).toEqual({
      url: postgres.url,
      port: Number(new URL(postgres.url).port),
      pid: await serverPid(dataDir),
      owner: 'command',
      owner_pid: process.pid,
      started_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/),
    })
    for (const name of ['postgres.json', 'postgres.password', 'postgres.log', 'postgres.lock']) {
      expect([name, (await stat(join(dataDir, name))).mode & 0o777]).toEqual([name, 0o600])
    }
    expect(await runningUrl(dataDir)).toBe(postgres.url)
    await postgres.stop()
    expect(await exists(join(dataDir, 'postgres.json'))).toBe(false)
    expect(await runningUrl(dataDir)).toBeNull()
  })

  test('rows and password survive a restart, and stopping twice has no further effect', async () => {
    const dataDir = await usedDirectory()
    const first = await startIn(dataDir)
    await query(first.url, 'insert into kept values (43)')
    await Promise.all([first.stop(), first.stop()])
    await first.stop()
    const second = await startIn(dataDir)
    expect(await query(second.url, 'select answer from kept order by 1')).toEqual([
      { answer: 42 },
      { answer: 43 },
    ])
    expect(new URL(second.url).password).toBe(new URL(first.url).password)
    await second.stop()
  })

  test('a port that was taken in the meantime is replaced by another', async () => {
    const dataDir = await usedDirectory()
    const taken = await listening()
    const offered = [portOf(taken), portOf(taken)]
    const unused = await unusedPort()
    const postgres = await startEmbeddedPostgres({
      dataDir,
      settings: FAST,
      pickPort: () => offered.shift() ?? unused,
    })
    expect(Number(new URL(postgres.url).port)).not.toBe(portOf(taken))
    expect(offered).toEqual([])
    await postgres.stop()
    taken.close()
  })
})

describe('after a crash', () => {
  test('a cluster that root copied is handed over to the account that the server uses', async ({ skip }) => {
    if (process.getuid?.() !== 0) skip('only root can lend an account')
    const dataDir = await usedDirectory()
    const copied = await readdir(join(dataDir, 'postgres'), { recursive: true })
    for (const name of ['', ...copied]) await chown(join(dataDir, 'postgres', name), 0, 0)
    const postgres = await startIn(dataDir)
    expect((await stat(join(dataDir, 'postgres', 'PG_VERSION'))).uid).not.toBe(0)
    await postgres.stop()
  })

  test('a directory whose creation was interrupted by a kill is created again', async () => {
    const dataDir = await emptyDirectory()
    const child = ownerProcess(dataDir)
    const unfinished = async () => (await readdir(dataDir)).find((name) => name.startsWith('postgres.tmp-'))
    const half = await until(async () => {
      const name = await unfinished()
      return name !== undefined && (await exists(join(dataDir, name, 'PG_VERSION'))) ? name : null
    }, 0)
    await killed(child)
    expect(await exists(join(dataDir, 'postgres'))).toBe(false)
    const postgres = await startIn(dataDir)
    expect(await query(postgres.url, 'select 1 as one')).toEqual([{ one: 1 }])
    expect(await exists(join(dataDir, half))).toBe(false)
    await postgres.stop()
  })

  test('a foreign "postgres" directory is refused and left unchanged', async () => {
    const foreign = await emptyDirectory()
    await mkdir(join(foreign, 'postgres'))
    await writeFile(join(foreign, 'postgres', 'PG_VERSION'), '18\n')
    await expect(startIn(foreign)).rejects.toThrow(
      `${foreign}/postgres is not a complete PostgreSQL cluster. Restore it, or move it away`,
    )
    expect(await readdir(join(foreign, 'postgres'))).toEqual(['PG_VERSION'])
  })

  test('a killed owner’s server is taken over, keeps its connections, and stops with its new owner', async () => {
    const dataDir = await usedDirectory()
    const child = ownerProcess(dataDir)
    const { url } = await said(child)
    const session = await connected(url)
    await killed(child)
    const pid = await serverPid(dataDir)

    const postgres = await startIn(dataDir)
    expect(postgres).toMatchObject({ url, role: 'owner' })
    expect(await serverPid(dataDir)).toBe(pid)
    expect(JSON.parse(await readFile(join(dataDir, 'postgres.json'), 'utf8'))).toMatchObject({
      pid,
      owner_pid: process.pid,
    })
    expect((await session.query('select answer from kept')).rows).toEqual([{ answer: 42 }])
    await session.end()
    await postgres.stop()
    expect(await exists(join(dataDir, 'postgres', 'postmaster.pid'))).toBe(false)
    expect(await runningUrl(dataDir)).toBeNull()
  })

  test('if owner and server are both killed, the next start recovers the committed rows', async () => {
    const dataDir = await usedDirectory()
    const child = ownerProcess(dataDir)
    const { url } = await said(child)
    await query(url, 'insert into kept values (44)')
    const pid = await serverPid(dataDir)
    await killed(child)
    process.kill(pid, 'SIGKILL')
    const postgres = await startIn(dataDir)
    expect(await serverPid(dataDir)).not.toBe(pid)
    expect(await query(postgres.url, 'select answer from kept order by 1')).toEqual([
      { answer: 42 },
      { answer: 44 },
    ])
    await postgres.stop()
  })

  test('a pid file whose pid now belongs to another program neither prevents a start nor harms that program', async () => {
    const dataDir = await usedDirectory()
    const { uid, gid } = await stat(join(dataDir, 'postgres'))
    // Runs under the server's account, so that PostgreSQL itself would mistake this process for a running server.
    const other = spawn('sleep', ['600'], process.getuid?.() === 0 ? { uid, gid } : {})
    children.push(other)
    const pidFile = join(dataDir, 'postgres', 'postmaster.pid')
    await writeFile(pidFile, `${other.pid}\n${dataDir}/postgres\n1700000000\n54321\n\n127.0.0.1\n\nready\n`, {
      mode: 0o644,
    })
    const postgres = await startIn(dataDir)
    expect(await serverPid(dataDir)).not.toBe(other.pid)
    await postgres.stop()
    expect([other.exitCode, other.signalCode]).toEqual([null, null])
  })

  test('a copy of a directory in use gets its own server, and no other server is stopped', async () => {
    const dataDir = await usedDirectory()
    const original = await startIn(dataDir)
    const copyDir = await emptyDirectory()
    await promisify(execFile)('cp', ['-a', '--', `${dataDir}/.`, copyDir])
    const copy = await startIn(copyDir)
    expect(copy.role).toBe('owner')
    expect(await serverPid(copyDir)).not.toBe(await serverPid(dataDir))
    await copy.stop()
    expect(await query(original.url, 'select answer from kept')).toEqual([{ answer: 42 }])
    await original.stop()
  })
})

describe('a server that dies while the service runs', () => {
  test.each(['its own', 'one it took over'])(
    '%s: the service is notified once, and the next start recovers the committed rows',
    async (whose) => {
      const dataDir = await usedDirectory()
      if (whose === 'one it took over') {
        const child = ownerProcess(dataDir)
        await said(child)
        await killed(child)
      }
      const lost: Error[] = []
      const service = await startIn(dataDir, { onLost: (error) => lost.push(error) })
      await query(service.url, 'insert into kept values (45)')
      process.kill(await serverPid(dataDir), 'SIGKILL')
      await until(async () => (lost.length > 0 ? true : null))
      expect(lost.map(({ message }) => message)).toEqual([
        expect.stringContaining(
          `The embedded PostgreSQL in ${dataDir}/postgres stopped unexpectedly. End of`,
        ),
      ])
      await service.stop()
      expect(lost).toHaveLength(1)
      const next = await startIn(dataDir)
      expect(await query(next.url, 'select answer from kept order by 1')).toEqual([
        { answer: 42 },
        { answer: 45 },
      ])
      await next.stop()
    },
  )
})

describe('several processes', () => {
  test('of three services that start at the same time in a missing directory, one runs and the others are refused', async () => {
    const dataDir = join(await emptyDirectory(), 'not', 'there', 'yet')
    directories.unshift(dataDir)
    const services = [1, 2, 3].map(() => ownerProcess(dataDir, { as: 'service' }))
    const started = await Promise.all(services.map(said))
    const refused = expect.stringMatching(/^DATA_DIR: another service \(pid \d+\) uses /)
    expect(started.filter(({ role }) => role === 'owner')).toHaveLength(1)
    expect(started.filter(({ error }) => error !== undefined)).toEqual([
      { error: refused },
      { error: refused },
    ])
  })

  test('a command that stops, exits or is killed does not stop a running service’s server', async () => {
    const dataDir = await usedDirectory()
    const service = await startIn(dataDir, { onLost: () => undefined })
    for (const farewell of ['stop', 'exit', 'kill'] as const) {
      const guest = ownerProcess(dataDir)
      expect(await said(guest)).toEqual({ url: service.url, role: 'guest' })
      if (farewell === 'kill') await killed(guest)
      else await sendOrder(guest, farewell)
      expect(await query(service.url, 'select answer from kept')).toEqual([{ answer: 42 }])
    }
    await service.stop()
    await expect(query(service.url, 'select 1')).rejects.toThrow()
  })

  test('a service waits for the command that started the server, and commands wait for each other', async () => {
    const dataDir = await usedDirectory()
    const command = ownerProcess(dataDir)
    await said(command)
    const pid = await serverPid(dataDir)
    for (const onLost of [undefined, () => undefined])
      await expect(startIn(dataDir, { onLost, waitMs: 10 })).rejects.toThrow(
        `Another process has held ${dataDir}/postgres.lock`,
      )
    const starting = startIn(dataDir, { onLost: () => undefined })
    await sendOrder(command, 'stop')
    const service = await starting
    expect(service.role).toBe('owner')
    expect(await serverPid(dataDir)).not.toBe(pid)
    await service.stop()
  })

  test('a service that starts while another one stops waits, and then starts the server again; both had a server all the time', async () => {
    const dataDir = await usedDirectory()
    const lost: Error[] = []
    const first = await startIn(dataDir, { onLost: (error) => lost.push(error) })
    const stopped = first.stop()
    await until(async () => ((await exists(join(dataDir, 'postgres.json'))) ? null : true))
    const second = await startIn(dataDir, { onLost: (error) => lost.push(error) })
    await stopped
    expect(second.role).toBe('owner')
    expect(await query(second.url, 'select answer from kept')).toEqual([{ answer: 42 }])
    await second.stop()
    expect(lost).toEqual([])
  })

  test('signals to the whole process group do not reach the server: the owner drains while its database still runs', async () => {
    const dataDir = await usedDirectory()
    const child = ownerProcess(dataDir, { ownGroup: true })
    const { url } = await said(child)
    const session = await connected(url)
    for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
      const heard = nextLine(child)
      process.kill(-pidOf(child), name)
      expect(await heard).toBe(name)
      expect((await session.query('select answer from kept')).rows).toEqual([{ answer: 42 }])
    }
    await session.end()
    await sendOrder(child, 'stop')
    expect(await exists(join(dataDir, 'postgres', 'postmaster.pid'))).toBe(false)
  })

  test('if an owner exits without stopping the server, the server still stops', async () => {
    const dataDir = await usedDirectory()
    const child = ownerProcess(dataDir)
    await said(child)
    await sendOrder(child, 'exit')
    expect(await exists(join(dataDir, 'postgres.json'))).toBe(false)
    await until(async () => ((await exists(join(dataDir, 'postgres', 'postmaster.pid'))) ? null : 'gone'))
  })
})

async function emptyDirectory(): Promise<string> {
  const dataDir = await mkdtemp(join(tmpdir(), 'enrichment-ops-'))
  directories.push(dataDir)
  return dataDir
}

async function usedDirectory(): Promise<string> {
  const dataDir = await emptyDirectory()
  await promisify(execFile)('cp', ['-a', '--', `${pristine}/.`, dataDir])
  return dataDir
}

async function exists(path: string): Promise<boolean> {
  return (await stat(path).catch(() => null)) !== null
}

async function serverPid(dataDir: string): Promise<number> {
  return Number((await readFile(join(dataDir, 'postgres', 'postmaster.pid'), 'utf8')).split('\n')[0])
}

async function startIn(
  dataDir: string,
  options: Partial<Parameters<typeof startEmbeddedPostgres>[0]> = {},
): Promise<EmbeddedPostgres> {
  return await startEmbeddedPostgres({ dataDir, settings: FAST, ...options })
}

/** The URL of the server that runs in this directory, or null. */
async function runningUrl(dataDir: string): Promise<string | null> {
  const running = await runningPostgres(dataDir)
  return running.state === 'running' ? running.url : null
}

async function connected(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url })
  client.on('error', () => {})
  await client.connect()
  return client
}

async function query(url: string, statement: string): Promise<unknown[]> {
  const client = await connected(url)
  try {
    return (await client.query<Record<string, unknown>>(statement)).rows
  } finally {
    await client.end()
  }
}

async function listening(): Promise<Server> {
  const server = createServer()
  await new Promise<void>((ready) => server.listen(0, '127.0.0.1', ready))
  return server
}

function portOf(server: Server): number {
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('not listening on a port')
  return address.port
}

async function unusedPort(): Promise<number> {
  const server = await listening()
  const port = portOf(server)
  await new Promise((closed) => server.close(closed))
  return port
}

/** A process that starts the server and reports the result. It reports the signals that it receives, and obeys `stop` and `exit`. */
const OWNER = `
  import { createInterface } from 'node:readline'
  import { startEmbeddedPostgres } from ${JSON.stringify(MODULE)}
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(name, () => console.log(name))
  const [dataDir, settings, as] = JSON.parse(process.env.OWNER)
  const onLost = as === 'service' ? (error) => console.log(error.message) : undefined
  try {
    const postgres = await startEmbeddedPostgres({ dataDir, settings, onLost })
    console.log(JSON.stringify({ url: postgres.url, role: postgres.role }))
    createInterface({ input: process.stdin }).on('line', async (order) => {
      if (order === 'stop') await postgres.stop()
      process.exit(0)
    })
  } catch (error) {
    console.log(JSON.stringify({ error: error.message }))
  }
`

function ownerProcess(
  dataDir: string,
  { ownGroup = false, as = 'command' }: { ownGroup?: boolean; as?: 'command' | 'service' } = {},
): ChildProcess {
  const child = spawn(process.execPath, ['--input-type=module', '-e', OWNER], {
    env: { ...compileCache, PATH: process.env.PATH, OWNER: JSON.stringify([dataDir, FAST, as]) },
    stdio: ['pipe', 'pipe', 'inherit'],
    detached: ownGroup,
  })
  children.push(child)
  return child
}

function pidOf(child: ChildProcess): number {
  if (child.pid === undefined) throw new Error('the process did not start')
  return child.pid
}

async function nextLine(child: ChildProcess): Promise<string> {
  if (child.stdout === null) throw new Error('the process has no output')
  const lines = createInterface({ input: child.stdout })
  return await new Promise((heard, failed) => {
    lines.once('line', (line) => {
      lines.close()
      heard(line)
    })
    child.once('exit', (code, name) => failed(new Error(`the process ended (${code ?? name})`)))
  })
}

async function said(child: ChildProcess): Promise<{ url: string; role: string; error?: string }> {
  return JSON.parse(await nextLine(child))
}

async function sendOrder(child: ChildProcess, order: 'stop' | 'exit'): Promise<void> {
  const ended = new Promise((resolve) => child.once('exit', (code, name) => resolve(code ?? name)))
  child.stdin?.write(`${order}\n`)
  expect(await ended).toBe(0)
}

async function killed(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const ended = new Promise((resolve) => child.once('exit', resolve))
  child.kill('SIGKILL')
  await ended
}

/** Checks every 5 ms, or without a pause for conditions that are true only briefly. */
async function until<Found>(look: () => Promise<Found | null>, pauseMs = 5): Promise<Found> {
  const deadline = Date.now() + 60_000
  for (;;) {
    if (Date.now() > deadline) throw new Error('waited 60 s in vain')
    const found = await look()
    if (found !== null) return found
    await (pauseMs === 0 ? new Promise((again) => setImmediate(again)) : delay(pauseMs))
  }
}
