import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { cliJson, eventually, exportLedger, lookup, type Service, startService } from '../support/service.ts'

/**
 * The embedded PostgreSQL dies under load. The service logs that and exits with 1. After a restart, every answered call is in the
 * ledger with its charge, once, and refused calls are not in it.
 */

const callers = 8
/** The longest time until calls are answered. A busy machine starts a service slowly. */
const underWayWithinMs = 60_000

let dataDir = ''
let service: Service
let demo: { organization_id: string; api_key: string }
let environment: Record<string, string>

beforeEach(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'dead-database-'))
  environment = { DATA_DIR: dataDir, EMAIL_PROBE: 'off' }
})

afterEach(async () => {
  await service?.end('SIGTERM')
  await rm(dataDir, { recursive: true, force: true })
})

const start = async (): Promise<void> => {
  service = await startService(environment)
  demo = JSON.parse(await readFile(join(dataDir, 'demo.json'), 'utf8'))
}

/** Each caller makes look-ups one after the other and records each outcome, until the service accepts no more. */
const underLoad = () => {
  const told: { readonly status: number; readonly requestId: string }[] = []
  let broken = 0
  const call = async (caller: number): Promise<void> => {
    for (let i = 0; ; i++) {
      const answer = await lookup(service.apiUrl, demo.api_key, `8.${caller}.${i % 250}.8`).catch(() => null)
      if (answer === null) {
        broken++
        return
      }
      const { status, body } = answer
      told.push({ status, requestId: String(body.request_id) })
      if (status === 200) continue
      expect([
        [503, 'SYS_002'],
        [504, 'SYS_003'],
      ]).toContainEqual([status, body.code])
    }
  }
  const calling = Promise.all(Array.from({ length: callers }, (_, caller) => call(caller)))
  const idsWith = (wanted: number) =>
    told.filter(({ status }) => status === wanted).map(({ requestId }) => requestId)
  return { idsWith, broken: () => broken, calling }
}

const postmaster = async (): Promise<number> =>
  Number((await readFile(join(dataDir, 'postgres', 'postmaster.pid'), 'utf8')).split('\n')[0])

test('after kill -9 under load, the service exits with 1; after a restart, every charge is correct', async () => {
  await start()
  const load = underLoad()
  await eventually(async () => (load.idsWith(200).length >= 200 ? true : undefined), underWayWithinMs)
  const exited = new Promise((resolve) => service.child.once('exit', resolve))
  process.kill(await postmaster(), 'SIGKILL')
  expect(await exited).toBe(1)
  await load.calling
  expect(service.output()).toContain(`The embedded PostgreSQL in ${dataDir}/postgres stopped unexpectedly`)
  expect(service.output()).not.toMatch(/secretKey|connectionParameters/)
  await start()
  const events = await exportLedger(demo.organization_id, environment)
  const charges = events.filter(({ type }) => type === 'CreditCharged')
  const charged = charges.map(({ metadata }) => metadata.request_id ?? '')
  const [answered, refused, unknown] = [200, 503, 504].map(load.idsWith)
  expect(new Set(charged).size).toBe(charged.length)
  expect(answered?.filter((requestId) => !charged.includes(requestId))).toEqual([])
  expect(refused?.filter((requestId) => charged.includes(requestId))).toEqual([])
  const untold = (unknown?.length ?? 0) + load.broken()
  expect(charged.length - (answered?.length ?? 0)).toBeLessThanOrEqual(untold)
  expect(await cliJson(['ledger', 'verify', demo.organization_id], environment)).toMatchObject({ ok: true })
  expect((await lookup(service.apiUrl, demo.api_key, '8.8.8.8')).status).toBe(200)
})
