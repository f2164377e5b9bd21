import { mkdir, readdir, readFile, rename, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { directoryForFile } from '../support/directory.ts'
import { writeMmdb } from '../support/mmdb-writer.ts'
import { cli, eventually, lookup, type Service, startService } from '../support/service.ts'

/** "doctor" next to a real service: it reports no false fault, and its checks do not change the installation. */

type Finding = {
  readonly about: string
  readonly level: 'ok' | 'warning' | 'fault'
  readonly says: string
  readonly remedy: string | null
}

let service: Service | undefined

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

const expectFinding = (
  findings: readonly Finding[],
  about: string,
  level: Finding['level'],
  says: RegExp,
): void =>
  expect(findings).toContainEqual(
    expect.objectContaining({ about, level, says: expect.stringMatching(says) }),
  )

const wrong = (findings: readonly Finding[]): Finding[] =>
  // The lists in the packages get older as time passes.
  findings.filter(({ level, about }) => level !== 'ok' && about !== 'lists')

const dir = await directoryForFile()
const environment = {
  DATA_DIR: join(dir, 'data'),
  KEY_DIR: join(dir, 'keys'),
  GEOIP_CITY_DB: await mmdb('now.mmdb', Date.now()),
  EMAIL_PROBE: 'off',
}
service = await startService({ ...environment, METRICS_PROT: 'geheimnis' })
afterAll(() => service?.end('SIGTERM'))

test('a healthy installation has no fault and no warning, and every line states what was found', async () => {
  const { api_key: apiKey } = JSON.parse(await readFile(join(dir, 'data', 'demo.json'), 'utf8'))
  expect((await lookup(service?.apiUrl ?? '', apiKey, '8.8.8.8')).status).toBe(200)
  expect((await cli(['event-log', 'checkpoint'], environment)).code).toBe(0)
  // The ports are taken, by the service itself.
  const { findings, code } = await doctor({
    API_PORT: new URL(service?.apiUrl ?? '').port,
    DASHBOARD_PORT: new URL(service?.dashboardUrl ?? '').port,
  })
  // The service was started with a variable that this command does not get.
  expect(service?.output()).toContain('METRICS_PROT is not a variable of this service, so it is ignored')
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
  expectFinding(findings, 'checkpoints', 'ok', /the last was/)
  expectFinding(findings, 'signing key', 'ok', /as announced by the event log/)
  const { out } = await cli(['doctor'], environment)
  expect(out).toMatch(/^ok +environment: every variable is known/m)
  expect(out).toMatch(/\n\d+ checks: 0 faults, \d warnings?\n$/)
})

test('next to a running service, planted faults are found; another SECRET_KEY is not adopted, and no key is created', async () => {
  const file = join(dir, 'file')
  await writeFile(file, '')
  const SECRET_KEY = 'another one of the test, long enough for it'
  const GEOIP_CITY_DB = await mmdb('old.mmdb', Date.now() - 400 * 24 * hourMs)
  const foreign = await doctor({ SECRET_KEY, GEOIP_CITY_DB, KEY_DIR: file })
  expect(foreign.code).toBe(1)
  expectFinding(foreign.findings, 'location files', 'warning', /^old.mmdb: built .* 400 days ago/)
  expectFinding(foreign.findings, 'SECRET_KEY', 'fault', /another key/)
  expectFinding(foreign.findings, 'KEY_DIR', 'fault', /ENOTDIR/)

  const empty = join(dir, 'empty')
  await mkdir(empty, { mode: 0o700 })
  const lost = await doctor({ KEY_DIR: empty })
  expect(lost.code).toBe(1)
  expectFinding(lost.findings, 'epoch keys', 'fault', /is not in/)
  expectFinding(lost.findings, 'signing key', 'fault', /does not contain/)
  expectFinding(lost.findings, 'SECRET_KEY', 'ok', /./)
  expect(await readdir(empty)).toEqual([])
})

test('a database that hangs is a fault within seconds; so is a stopped one, and it is not started', async () => {
  const pid = Number((await readFile(join(dir, 'data', 'postgres', 'postmaster.pid'), 'utf8')).split('\n')[0])
  process.kill(pid, 'SIGSTOP')
  try {
    const { code, findings, seconds } = await doctor()
    expect(code).toBe(1)
    expectFinding(findings, 'database', 'fault', /does not answer/)
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
    expectFinding(findings, 'database', 'fault', /is not running/)
    return true
  })
  expect(await readdir(join(dir, 'data'))).not.toContain('postgres.json')
}, 180_000)

test('without a database, a lost SECRET_KEY or KEY_DIR is still found', async () => {
  const secret = join(dir, 'data', 'secret_key')
  await rename(secret, join(dir, 'lost'))
  try {
    const { code, findings } = await doctor({ KEY_DIR: join(dir, 'no-keys') })
    expect(code).toBe(1)
    expectFinding(findings, 'surroundings', 'fault', /SECRET_KEY: .*secret_key is missing/)
    expectFinding(findings, 'KEY_DIR', 'warning', /no-keys does not exist, but .* of an earlier start/)
  } finally {
    await rename(join(dir, 'lost'), secret)
  }
})

test('on a machine where nothing was ever started, nothing is created', async () => {
  const { code, findings } = await doctor({ DATA_DIR: join(dir, 'none'), KEY_DIR: join(dir, 'no-keys') })
  expect(code).toBe(0)
  expectFinding(findings, 'database', 'ok', /the first start creates it/)
  expect(await readdir(dir)).not.toContain('none')
  expect(await readdir(dir)).not.toContain('no-keys')
})
