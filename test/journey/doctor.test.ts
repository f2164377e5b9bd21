import { chmod, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { type AddressInfo, createServer, type Server } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { priceBookStream } from '../../src/events/streams.ts'
import { writeMmdb } from '../support/mmdb-writer.ts'
import { changeEvent } from '../support/segments.ts'
import { cli, eventually, lookup, type Service, startService } from '../support/service.ts'

/** "doctor" next to a real service reports no false fault, and names each planted fault with its remedy. */

type Finding = {
  readonly about: string
  readonly level: 'ok' | 'warning' | 'fault'
  readonly says: string
  readonly remedy: string | null
}

let dir = ''
let service: Service | undefined
let stranger: Server
let environment: Record<string, string>

const hourMs = 3_600_000

const mmdb = async (name: string, builtMs: number): Promise<string> => {
  const path = join(dir, name)
  await writeFile(
    path,
    writeMmdb({
      ipVersion: 6,
      networks: { '8.8.8.0/24': { country: { iso_code: 'US', names: { en: 'United States' } } } },
      buildEpoch: Math.floor(builtMs / 1_000),
    }),
  )
  return path
}

const doctor = async (
  more: Record<string, string> = {},
): Promise<{ code: number; findings: readonly Finding[]; seconds: number; out: string }> => {
  const startedMs = performance.now()
  const { code, out, err } = await cli(['doctor', '--json'], { ...environment, ...more })
  expect(err).toBe('')
  const seconds = (performance.now() - startedMs) / 1_000
  const { findings, ok, faults, warnings } = JSON.parse(out)
  expect(ok).toBe(faults === 0)
  expect(warnings).toBe(findings.filter(({ level }: Finding) => level === 'warning').length)
  return { code, findings, seconds, out }
}

const wrong = (findings: readonly Finding[]): Finding[] =>
  // The lists in the packages get older as time passes.
  findings.filter(({ level, about }) => level !== 'ok' && about !== 'lists')

const withOwner = async (work: (client: pg.Client) => Promise<void>): Promise<void> => {
  const { url } = JSON.parse(await readFile(join(dir, 'data', 'postgres.json'), 'utf8')) as { url: string }
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  await work(client).finally(() => client.end())
}

const asOwner = (...statements: string[]): Promise<void> =>
  withOwner(async (client) => {
    for (const statement of statements) await client.query(statement)
  })

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'doctor-'))
  environment = {
    DATA_DIR: join(dir, 'data'),
    KEY_DIR: join(dir, 'keys'),
    GEOIP_CITY_DB: await mmdb('now.mmdb', Date.now()),
    EMAIL_PROBE: 'off',
  }
  stranger = createServer((socket) => socket.on('error', () => undefined).end('220 this is no HTTP\r\n'))
  await new Promise<void>((resolve) => stranger.listen(0, '127.0.0.1', resolve))
  service = await startService({ ...environment, METRICS_PROT: 'geheimnis' })
})
afterAll(async () => {
  await service?.end('SIGTERM')
  stranger?.close()
  await rm(dir, { recursive: true, force: true })
})

test('a healthy installation has no fault and no warning, and every line states what was found', async () => {
  const { api_key: apiKey } = JSON.parse(await readFile(join(dir, 'data', 'demo.json'), 'utf8'))
  expect((await lookup(service?.apiUrl ?? '', apiKey, '8.8.8.8')).status).toBe(200)
  const { findings, code } = await doctor()
  // The service was started with a variable that this command does not get.
  expect(service?.output()).toContain('METRICS_PROT is not a variable of this service, and nothing reads it')
  expect(service?.output()).not.toContain('geheimnis')
  expect(wrong(findings)).toEqual([])
  expect(code).toBe(0)
  expect(findings.length).toBeGreaterThan(25)
  for (const { level, remedy } of findings) if (level === 'ok') expect(remedy).toBeNull()
  const said = findings.map(({ about }) => about)
  for (const about of [
    'environment',
    'service',
    'disk of DATA_DIR',
    'database',
    'migrations',
    'event log',
    'projections',
  ])
    expect(said).toContain(about)
  const { out } = await cli(['doctor'], environment)
  expect(out).toMatch(/^ok +environment: every variable is known/m)
  expect(out).toMatch(/\n\d+ checks: 0 faults, \d warnings?\n$/)
})

describe('faults planted next to a running service', () => {
  test('twelve at the same time are all found', async () => {
    await asOwner(
      `update projection_checkpoints set state = 'halted', error = 'an event of another release' where name = 'key_usage'`,
      `insert into parked_events (projection, position, stream, error) values ('profile_cache', 1, 'profile-x', 'unreadable')`,
      `insert into pgboss.job (name, state, started_on, completed_on, output)
       values ('reconcile', 'failed', now(), now(), '{"message":"canceling statement due to statement timeout"}')`,
      `insert into webhook_endpoints (webhook_id, url, events, sealed_secret, disabled_at)
       values ('wh_01ARZ3NDEKTSV4RRFFQ69G5FAV', 'https://example.com/', '{checkpoint}', 'x', now())`,
      // Simulates a process whose clock is an hour fast.
      `create function public.ahead() returns trigger language plpgsql as $$ begin new.clock_ahead_ms := 3600000; return new; end $$`,
      'create trigger ahead before insert or update on processes for each row execute function public.ahead()',
    )
    // The log is older than the hourly checkpoint is allowed to be, but has none.
    await withOwner((client) =>
      changeEvent(client, { stream: priceBookStream, revision: 0 }, ({ metadata, recordedAtMs }) => ({
        metadata: metadata.replaceAll(
          new Date(recordedAtMs).toISOString(),
          new Date(recordedAtMs - 30 * hourMs).toISOString(),
        ),
      })),
    )
    await eventually(async () =>
      (await doctor()).findings.some(({ about, level }) => about === 'clocks' && level === 'fault')
        ? true
        : undefined,
    )
    for (const name of await readdir(join(dir, 'keys'))) await chmod(join(dir, 'keys', name), 0o644)
    const { findings, code, out } = await doctor({
      API_PORTS: 'geheimnis',
      METRICS_PORT: String((stranger.address() as AddressInfo).port),
      GEOIP_CITY_DB: await mmdb('old.mmdb', Date.now() - 400 * 24 * hourMs),
      REDIS_URL: 'redis://user:geheimnis@127.0.0.1:1',
      DATABASE_MIGRATION_URL: 'postgres://postgres:postgres@127.0.0.1:1/x',
    })
    expect(code).toBe(1)
    expect(out).not.toContain('geheimnis')
    const found = wrong(findings).map(({ level, about, says }) => `${level} ${about}: ${says}`)
    for (const planted of [
      /^warning environment: API_PORTS is not a variable .* did you mean API_PORT/,
      /^warning passwords: DATABASE_MIGRATION_URL: the password is a well-known one, or/,
      /^fault service: the program at http:\/\/127\.0\.0\.1:\d+ \(METRICS_PORT\) is not this service/,
      /^warning Redis: it does not answer: connect ECONNREFUSED/,
      /^warning secret files: .*\.key can be read by other users \(mode 644\)/,
      /^warning location files: old.mmdb: built .* 400 days ago/,
      /^fault projections: key_usage is halted: an event of another release/,
      /^warning events set aside: profile_cache: 1/,
      /^fault checkpoints: none yet; the event log began 30 h ago/,
      /^warning webhooks: disabled webhooks: 1/,
      /^fault clocks: the clock of process \d+ on .* is 60 min ahead of the database's/,
      /^fault jobs: reconcile failed .* ago: canceling statement due to statement timeout/,
    ])
      expect(found).toContainEqual(expect.stringMatching(planted))
    for (const { remedy } of wrong(findings)) expect(remedy).toMatch(/\S.{10,}/)
  })

  test('another SECRET_KEY is a fault, and is not adopted', async () => {
    for (let i = 0; i < 2; i++) {
      const { code, findings } = await doctor({ SECRET_KEY: 'another one of the test, long enough for it' })
      expect(code).toBe(1)
      expect(findings).toContainEqual(
        expect.objectContaining({
          about: 'SECRET_KEY',
          level: 'fault',
          says: expect.stringContaining('another key'),
        }),
      )
    }
  })

  test('a KEY_DIR that is a file, and one without the keys in use, are faults', async () => {
    expect((await cli(['event-log', 'checkpoint'], environment)).code).toBe(0)
    const signed = (await doctor()).findings
    expect(signed).toContainEqual(
      expect.objectContaining({
        about: 'checkpoints',
        level: 'ok',
        says: expect.stringContaining('the last was'),
      }),
    )
    expect(signed).toContainEqual(
      expect.objectContaining({
        about: 'signing key',
        level: 'ok',
        says: expect.stringContaining('as announced by the event log'),
      }),
    )
    const file = join(dir, 'file')
    await writeFile(file, '')
    const unreadable = await doctor({ KEY_DIR: file })
    expect(unreadable.findings).toContainEqual(
      expect.objectContaining({ about: 'KEY_DIR', level: 'fault', says: expect.stringContaining('ENOTDIR') }),
    )
    const empty = join(dir, 'empty')
    await mkdir(empty, { mode: 0o700 })
    const lost = await doctor({ KEY_DIR: empty })
    expect(lost.findings).toContainEqual(
      expect.objectContaining({
        about: 'epoch keys',
        level: 'fault',
        says: expect.stringContaining('is not in'),
      }),
    )
    expect(lost.findings).toContainEqual(
      expect.objectContaining({
        about: 'signing key',
        level: 'fault',
        says: expect.stringContaining('does not contain'),
      }),
    )
    expect(await readdir(empty)).toEqual([])
  })

  test('an invalid value is a fault and does not hide the other findings', async () => {
    const { code, findings } = await doctor({ API_PORT: 'abc', TLS_CERT: '/nowhere' })
    expect(code).toBe(1)
    const said = findings.filter(({ about }) => about === 'environment').map(({ says }) => says)
    expect(said).toEqual([
      'API_PORT: a port number from 0 to 65535 (it is "abc")',
      'TLS_KEY: TLS_CERT is set, and they only work together',
    ])
    expect(findings).toContainEqual(expect.objectContaining({ about: 'migrations', level: 'ok' }))
  })
})

test('a database that hangs is a fault within seconds; so is a stopped one, and it is not started', async () => {
  const pid = Number((await readFile(join(dir, 'data', 'postgres', 'postmaster.pid'), 'utf8')).split('\n')[0])
  process.kill(pid, 'SIGSTOP')
  try {
    const { code, findings, seconds } = await doctor()
    expect(code).toBe(1)
    expect(findings).toContainEqual(
      expect.objectContaining({
        about: 'database',
        level: 'fault',
        says: expect.stringContaining('does not answer'),
      }),
    )
    expect(findings).toContainEqual(expect.objectContaining({ about: 'KEY_DIR' }))
    expect(seconds).toBeLessThan(30)
  } finally {
    process.kill(pid, 'SIGCONT')
  }
  await service?.end('SIGTERM')
  service = undefined
  await eventually(async () => {
    const { code, findings } = await doctor()
    expect(code).toBe(1)
    expect(findings).toContainEqual(
      expect.objectContaining({
        about: 'database',
        level: 'fault',
        says: expect.stringContaining('does not run'),
      }),
    )
    return true
  })
  expect(await readdir(join(dir, 'data'))).not.toContain('postgres.json')
}, 180_000)

test('on a machine where nothing was ever started, nothing is created', async () => {
  const { code, findings } = await doctor({ DATA_DIR: join(dir, 'none'), KEY_DIR: join(dir, 'no-keys') })
  expect(code).toBe(0)
  expect(findings).toContainEqual(
    expect.objectContaining({
      about: 'database',
      level: 'ok',
      says: expect.stringContaining('the first start creates it'),
    }),
  )
  expect(await readdir(dir)).not.toContain('none')
  expect(await readdir(dir)).not.toContain('no-keys')
})
