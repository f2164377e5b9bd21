import { mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises'
import { type AddressInfo, createServer } from 'node:net'
import { join } from 'node:path'
import fastify from 'fastify'
import pino from 'pino'
import { describe, expect, test } from 'vitest'
import { ConfigError, parseConfig } from '../../src/config.ts'
import { makeDataDir } from '../../src/foundation/data-dir.ts'
import { openFoundation } from '../../src/foundation/foundation.ts'
import { listen } from '../../src/start/listen.ts'
import { checkPorts, checkSurroundings } from '../../src/start/preflight.ts'
import { directoryForFile } from '../support/directory.ts'
import {
  cli,
  compileCache,
  eventually,
  failedStart,
  root,
  serviceCommand,
  startChild,
  startService,
} from '../support/service.ts'

/** An invalid variable prevents the start with one line that names it, with exit code 2 and without a stack trace. */

const dir = await directoryForFile()
await writeFile(join(dir, 'file'), 'no directory')

const password = 'geheimnis'

test('HOST=192.0.2.77 stops the service with one line', async () => {
  const printed = await failedStart({ DATA_DIR: join(dir, 'data'), HOST: '192.0.2.77' })
  const [first, ...lines] = printed.trimEnd().split('\n')
  expect(first).toBe('the service ended with 2 before it answered:')
  expect(lines).toEqual([
    expect.stringContaining('Configuration: HOST: "192.0.2.77" is not an address of this machine'),
  ])
})

test.each([
  ['HOST', 'no host', '"no host" does not resolve'],
  ['METRICS_HOST', '192.0.2.77', '"192.0.2.77" is not an address of this machine'],
  ['GEOIP_CITY_DB', join(dir, 'none.mmdb'), `${join(dir, 'none.mmdb')} does not exist`],
])('%s=%s is refused', async (variable, value, reason) => {
  const checked = checkSurroundings(parseConfig({ DATA_DIR: join(dir, 'data'), [variable]: value }))
  await expect(checked).rejects.toThrow(ConfigError)
  await expect(checked).rejects.toThrow(`${variable}: ${reason}`)
})

test('a taken port is reported before anything is created', async () => {
  const other = createServer()
  await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve))
  const { port } = other.address() as AddressInfo
  const dataDir = join(dir, 'never-made')
  const taken = `port ${port} on 127.0.0.1 is taken.`
  try {
    await expect(startService({ DATA_DIR: dataDir, API_PORT: `${port}` })).rejects.toThrow(
      `Configuration: API_PORT: ${taken}`,
    )
    const config = parseConfig({ DATA_DIR: dataDir, API_PORT: '0', DASHBOARD_PORT: `${port}` })
    await expect(checkPorts(config)).rejects.toThrow(`DASHBOARD_PORT: ${taken}`)
  } finally {
    other.close()
  }
  await expect(stat(dataDir)).rejects.toThrow('ENOENT')
})

test('a process that may open only a few files is refused before anything is created', async () => {
  const dataDir = join(dir, 'never-made')
  const command = ['/bin/sh', '-c', 'ulimit -n 256 && exec "$0" "$@"', ...serviceCommand] as const
  await expect(startService({ DATA_DIR: dataDir }, { command })).rejects.toThrow(
    'Configuration: this process may open only 256 files, and needs at least 512. Raise the limit',
  )
  await expect(stat(dataDir)).rejects.toThrow('ENOENT')
})

test('a misspelt variable is named next to the error, without its value', async () => {
  const printed = await failedStart({
    DATA_DIR: join(dir, 'data'),
    API_PORT: 'abc',
    DATABSE_URL: `postgres://user:${password}@db/x`,
  })
  expect(printed.trimEnd().split('\n').slice(1)).toEqual([
    'Configuration: API_PORT: a port number from 0 to 65535 (it is "abc")',
    'Warning: DATABSE_URL is not a variable of this service, so it is ignored; did you mean DATABASE_URL?',
  ])
})

test.each([
  ['DATA_DIR', '<dir>/file', 'a part of it is a file'],
  ['DATA_DIR', '<dir>/file/below', 'a part of it is a file'],
  ['DATABASE_URL', `postgres://user:${password}@127.0.0.1:1/nothing`, '127.0.0.1:1: connect ECONNREFUSED'],
  [
    'DATABASE_URL',
    `postgres://user:${password}#@host:5432/nothing`,
    'a URL in which special characters in the password are encoded',
  ],
  ['DATABASE_URL', `postgres://user:${password}@host:port/nothing`, 'it is not a valid database URL'],
  ['REDIS_URL', 'x', 'a URL such as redis://'],
])('the command line with %s=%s prints one line', async (variable, value, reason) => {
  const { code, out, err } = await cli(['org', 'list'], {
    DATA_DIR: join(dir, 'data'),
    SECRET_KEY: 'a secret of the test, long enough to be one',
    [variable]: value.replace('<dir>', dir),
  })
  expect({ code, out, lines: err.trimEnd().split('\n').length }).toEqual({ code: 2, out: '', lines: 1 })
  expect(err).toContain(`${variable}: `)
  expect(err).toContain(reason)
  expect(err).not.toContain(password)
})

test('a service whose output is closed starts and answers, with any locale, time zone, directory and variables of PostgreSQL', async () => {
  const dataDir = join(dir, `dätä 'x' "y" $z`)
  const { child, ended, end } = startChild([...serviceCommand], {
    cwd: root,
    env: {
      ...compileCache,
      PATH: process.env.PATH,
      LANG: 'tr_TR.UTF-8',
      LC_ALL: 'tr_TR.UTF-8',
      TZ: 'Asia/Kathmandu',
      PGHOST: '192.0.2.1',
      PGSSLMODE: 'verify-full',
      PGOPTIONS: '-c search_path=elsewhere',
      DATA_DIR: dataDir,
      API_PORT: '0',
      DASHBOARD_PORT: '0',
      METRICS_PORT: '0',
    },
  })
  child.stdout?.destroy()
  child.stderr?.destroy()
  const stopped = ended.then((code) => {
    throw new Error(`the service ended with ${code}`)
  })
  try {
    const demo = eventually(
      () => readFile(join(dataDir, 'demo.json'), 'utf8').then(JSON.parse, () => undefined),
      60_000,
    )
    const { api_url, api_key } = (await Promise.race([demo, stopped])) as Record<string, string>
    const answer = await fetch(`${api_url}/v1/ip/lookup`, {
      method: 'POST',
      headers: { 'x-api-key': api_key ?? '', 'content-type': 'application/json' },
      body: '{"ip":"8.8.8.8"}',
    })
    expect([answer.status, answer.headers.get('credits-charged')]).toEqual([200, '1'])
  } finally {
    stopped.catch(() => undefined)
    expect(await end('SIGTERM')).toBe(0)
  }
})

describe('the data directory', () => {
  test('is created with its missing parent folders, for its owner alone', async () => {
    const path = join(dir, 'a', 'b', 'c')
    await Promise.all([makeDataDir(path), makeDataDir(path), makeDataDir(path)])
    for (const made of ['a', 'a/b', 'a/b/c']) expect((await stat(join(dir, made))).mode & 0o777).toBe(0o700)
    await makeDataDir(path)
  })

  test('is left unchanged if it exists', async () => {
    const path = join(dir, 'existing')
    await mkdir(path, { mode: 0o755 })
    await makeDataDir(path)
    expect((await stat(path)).mode & 0o777).toBe(0o755)
  })

  test('with data but without their key stops the start, and no new key is made', async () => {
    const path = join(dir, 'keyless')
    await mkdir(join(path, 'postgres'), { recursive: true })
    await writeFile(join(path, 'postgres', 'PG_VERSION'), '18\n')
    const opened = openFoundation(parseConfig({ DATA_DIR: path }), { logger: pino({ level: 'silent' }) })
    await expect(opened).rejects.toThrow(/^SECRET_KEY: .*secret_key is missing.*Restore that file/)
    expect(await readdir(path)).toEqual(['postgres'])
  })

  test.runIf(process.platform === 'linux')(
    'is refused on a file system that cannot create folders, without repeated attempts',
    async () => {
      const { code, err } = await cli(['org', 'list'], { DATA_DIR: '/proc/nope' })
      expect(code).toBe(2)
      expect(err).toMatch(/^DATA_DIR: \/proc\/nope cannot be created or written to/)
    },
  )
})

test('a port on which this user may not listen is reported with the variable that sets it', async () => {
  const failing = (error: Error) => Object.assign(fastify(), { listen: () => Promise.reject(error) })
  const place = { variable: 'API_PORT', address: '127.0.0.1', port: 80 } as const
  const denied = Object.assign(new Error('listen EACCES'), { code: 'EACCES', port: 80 })
  await expect(listen(failing(denied), place)).rejects.toThrow(ConfigError)
  await expect(listen(failing(denied), place)).rejects.toThrow(
    'API_PORT: this user is not allowed to listen on port 80',
  )
  const other = new Error('something else')
  await expect(listen(failing(other), place)).rejects.toBe(other)
})
