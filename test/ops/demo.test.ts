import { mkdtemp, readFile, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { cli, cliJson, type Service, startService } from '../support/service.ts'

/** What the service says of its demo is true, whatever was done to it since. */

let dataDir = ''
let service: Service | undefined

beforeAll(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'demo-'))
  service = await startService({ DATA_DIR: dataDir })
}, 90_000)

afterAll(async () => {
  await service?.end('SIGTERM')
  await rm(dataDir, { recursive: true, force: true })
})

const written = async (): Promise<Record<string, string>> =>
  JSON.parse(await readFile(join(dataDir, 'demo.json'), 'utf8')) as Record<string, string>

const restarted = async (): Promise<string> => {
  await service?.end('SIGTERM')
  service = await startService({ DATA_DIR: dataDir })
  return service.output()
}

test('a demo seeded anew is what the next start prints and demo.json holds', async () => {
  const before = await written()
  const seeded = await cliJson<Record<string, string>>(['seed'], { DATA_DIR: dataDir })
  expect(seeded.dashboard_password).not.toBe(before.dashboard_password)
  expect(await written()).toEqual(seeded)
  expect((await stat(join(dataDir, 'demo.json'))).mode & 0o777).toBe(0o600)
  const next = await restarted()
  expect(next).toContain(`password ${seeded.dashboard_password}`)
  expect(next).toContain(`x-api-key: ${seeded.api_key}`)
  expect(next).not.toContain(before.dashboard_password)
}, 120_000)

test('the command says that demo.json was written', async () => {
  const { out } = await cli(['seed'], { DATA_DIR: dataDir })
  expect(out).toContain(`${join(dataDir, 'demo.json')} tells of this organization now`)
}, 60_000)

test('a password changed in another way is not printed any more', async () => {
  const { dashboard_password: old = '' } = await written()
  expect((await cli(['user', 'create', 'demo'], { DATA_DIR: dataDir })).code).toBe(0)
  const next = await restarted()
  expect(next).not.toContain(old)
  expect(next).toContain('whose password was changed since')
}, 120_000)
