import { spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import pg from 'pg'
import pino from 'pino'
import { afterAll, expect, test } from 'vitest'
import { loggedError } from '../../src/foundation/logger.ts'
import { testDatabase } from '../support/postgres.ts'

const database = await testDatabase()
afterAll(() => database.drop())

const logged = (error: unknown): string => {
  let written = ''
  const write = (line: string): void => {
    written += line
  }
  const logger = pino({ serializers: { err: loggedError } }, { write })
  logger.warn({ err: error }, 'it failed')
  return written
}

test('a lost connection is logged without the client, which contains the key that cancels its statements', async () => {
  const pool = new pg.Pool({ connectionString: database.url, max: 1 })
  const lost = new Promise<Error>((resolve) => pool.on('error', resolve))
  const { rows } = await pool.query<{ pid: number }>('select pg_backend_pid() as pid')
  const other = new pg.Client({ connectionString: database.url })
  await other.connect()
  await other.query('select pg_terminate_backend($1)', [rows[0]?.pid])
  await other.end()
  const error = await lost
  expect(Object.keys(error)).toContain('client')
  for (const wrapped of [
    error,
    new Error('outer', { cause: error }),
    new AggregateError([error, new AggregateError([error])]),
    Object.assign(new Error('outer'), { inner: error }),
  ]) {
    const line = logged(wrapped)
    expect(line).toMatch(/terminating connection|Connection terminated/)
    expect(line).not.toMatch(/secretKey|processID|connectionParameters/)
    expect(line.length).toBeLessThan(6_000)
  }
  await pool.end()
})

test('a value that a library throws instead of an error is logged as text, without its members', () => {
  const error = Object.assign(new Error('timeout exceeded when trying to connect'), {
    client: { secretKey: 42 },
  })
  // pg-boss throws values like this.
  const line = logged({
    ...error,
    message: error.message,
    stack: error.stack,
    queue: 'checkpoint',
    worker: 'w',
  })
  expect(JSON.parse(line).err).toEqual({ message: error.message, stack: error.stack, queue: 'checkpoint' })
  expect(JSON.parse(logged({ reason: 'a secret' })).err).toBe('an object with the members reason')
  expect(JSON.parse(logged('a word')).err).toBe('a word')
  const cause = { message: 'why', detail: 'a row' }
  expect(JSON.parse(logged(new Error('outer', { cause }))).err.message).toContain('outer')
})

test('a refused row is logged with its constraint, without its content', async () => {
  const client = new pg.Client({ connectionString: database.url })
  await client.connect()
  const name = randomUUID()
  const insert = () =>
    client.query(`insert into users (name, password_phc, role) values ($1, 'x', 'viewer')`, [name])
  await insert()
  const line = logged(await insert().catch((error: unknown) => error))
  expect(line).toContain('users_pkey')
  expect(line).toContain('23505')
  expect(line).not.toContain(name)
  await client.end()
})

/** A process that runs the code with a `logger`, after the test has prepared the reader of its log. */
const loggingProcess = (code: string) => {
  const path = new URL('../../src/foundation/logger.ts', import.meta.url).href
  const program = `
    import { once } from 'node:events'
    import { createLogger } from ${JSON.stringify(path)}
    const logger = createLogger('info')
    await once(process.stdin, 'data')
    ${code}
    process.stdout.write('done', () => process.exit(0))`
  return spawn(process.execPath, ['--input-type=module', '-e', program])
}

const endOf = async (child: ReturnType<typeof loggingProcess>): Promise<unknown[]> => {
  let printed = ''
  child.stdout.on('data', (text: Buffer) => {
    printed += text
  })
  child.stdin.write('go')
  const timer = setTimeout(() => child.kill('SIGKILL'), 60_000)
  const [code] = await once(child, 'exit')
  clearTimeout(timer)
  return [code, printed]
}

test('a process whose log is no longer read continues, and ends', async () => {
  const child = loggingProcess(`
    logger.info('one')
    logger.fatal('two')
    logger.info('three')`)
  child.stderr.destroy()
  await once(child.stderr, 'close')
  expect(await endOf(child)).toEqual([0, 'done'])
})

test('a process whose log is read too slowly continues, and the lines that are read are complete', async () => {
  const child = loggingProcess("for (let n = 0; n < 20_000; n++) logger.error('a'.repeat(1_000))")
  let text = ''
  child.stderr.on('data', (chunk: Buffer) => {
    text += chunk
  })
  child.stderr.pause()
  const closed = once(child, 'close')
  expect(await endOf(child)).toEqual([0, 'done'])
  await closed
  const lines = text.slice(0, text.lastIndexOf('\n')).split('\n')
  expect(lines.length).toBeGreaterThan(10)
  for (const line of lines) expect(JSON.parse(line)).toMatchObject({ msg: 'a'.repeat(1_000) })
})
