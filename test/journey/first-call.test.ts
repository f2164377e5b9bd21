import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startEmbeddedPostgres } from '../../src/foundation/embedded/server.ts'
import { expectAppendOnly } from '../support/append-only.ts'
import { cliJson, eventually, exportLedger, lookup, type Service, startService } from '../support/service.ts'

/** A new user's first minutes with the embedded default: one data directory, real processes, nothing prepared. */

let dataDir = ''
let service: Service
let demo: {
  organization_id: string
  api_key_id: string
  api_key: string
  api_url: string
  dashboard_url: string
}
/** Locations come from the package's own file. */
const environment = () => ({ DATA_DIR: dataDir, GEOIP_CITY_DB: '' })

beforeAll(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'journey-'))
  service = await startService(environment())
  demo = JSON.parse(await readFile(join(dataDir, 'demo.json'), 'utf8'))
})

afterAll(async () => {
  await service?.end('SIGTERM')
  await rm(dataDir, { recursive: true, force: true })
})

test('the README’s first call, copied exactly, is answered and charged', async () => {
  const readme = await readFile(new URL('../../README.md', import.meta.url), 'utf8')
  const typed = /^## First call$[\s\S]*?^```sh\n([\s\S]*?)^```$/m.exec(readme)?.[1] ?? ''
  expect(typed).toContain('localhost:3000')
  // In a directory whose .data belongs to this service, with this service's port.
  const directory = await mkdtemp(join(tmpdir(), 'reader-'))
  await symlink(dataDir, join(directory, '.data'))
  const { stdout } = await promisify(execFile)(
    'sh',
    ['-ec', typed.replaceAll('localhost:3000', new URL(demo.api_url).host)],
    { cwd: directory, timeout: 60_000 },
  )
  await rm(directory, { recursive: true })
  expect(stdout).toMatch(/^HTTP\/1\.1 200 /)
  expect(stdout.toLowerCase()).toContain('credits-charged: 1\r\n')
  expect(stdout).toContain('"country_code":"US"')
})

test('the script that the service publishes recomputes an exported ledger and finds one changed character', async () => {
  const headers = { 'x-api-key': demo.api_key }
  const directory = await mkdtemp(join(tmpdir(), 'partner-'))
  try {
    const script = join(directory, 'recompute-ledger.ts')
    const pages = join(directory, '1.jsonl')
    await writeFile(script, await (await fetch(`${demo.api_url}/docs/recompute-ledger.ts`)).text())
    const exported = await fetch(`${demo.api_url}/v1/ledger/export`, { headers })
    const remaining = exported.headers.get('credits-remaining')
    const text = await exported.text()
    await writeFile(pages, text)
    const run = () => promisify(execFile)(process.execPath, [script, pages], { timeout: 60_000 })
    expect((await run()).stdout).toContain(`balance: '${remaining}'`)
    await writeFile(pages, text.replace('located', 'Located'))
    await expect(run()).rejects.toThrow(/NOT PROVED: .* was changed/)
    await writeFile(pages, text.slice(0, text.lastIndexOf('{"kind":"end"')))
    await expect(run()).rejects.toThrow('NOT PROVED: the export is incomplete')
  } finally {
    await rm(directory, { recursive: true })
  }
})

test('a key that the command line revokes is refused here within a second', async () => {
  const key = await cliJson<{ api_key: string; api_key_id: string }>(
    ['key', 'issue', demo.organization_id],
    environment(),
  )
  const eventuallyGets = (expected: number) =>
    eventually(
      async () =>
        (await lookup(service.apiUrl, key.api_key, '10.0.0.1')).status === expected ? true : undefined,
      1_000,
    )
  await eventuallyGets(200)
  await cliJson(['key', 'revoke', key.api_key_id, '--yes'], environment())
  await eventuallyGets(401)
})

test('SIGTERM ends the service and its PostgreSQL with 0; after a restart nothing is missing', async () => {
  const before = await exportLedger(demo.organization_id, environment())
  expect(await service.end('SIGTERM')).toBe(0)
  await expect(readFile(join(dataDir, 'postgres.json'))).rejects.toThrow('ENOENT')
  // Without a running service, the command line starts the database itself and stops it afterwards.
  expect((await exportLedger(demo.organization_id, environment())).length).toBe(before.length)
  service = await startService(environment())
  const balance = await cliJson<{ balance: string }>(
    ['credits', 'balance', demo.organization_id],
    environment(),
  )
  const { headers } = await lookup(service.apiUrl, demo.api_key, '8.8.8.8')
  expect(headers.get('credits-remaining')).toBe(String(Number(balance.balance) - 1))
})

test('the embedded PostgreSQL also has a second role, which can only append to the event log', async () => {
  const guest = await startEmbeddedPostgres({ dataDir })
  await expectAppendOnly(guest.serviceUrl).finally(() => guest.stop())
})
