import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { directoryForFile } from '../support/directory.ts'
import { startEventStoreDouble } from '../support/eventstore-double.ts'
import {
  cli,
  cliJson,
  createPartner,
  eventually,
  lookup,
  type Service,
  startService,
} from '../support/service.ts'

/**
 * Moves the log from the embedded PostgreSQL to an EventStoreDB 23.10 with "event-log copy" and the steps that it prints. A
 * double of the server's protocol takes the place of EventStoreDB. Each test continues from the previous one.
 */

let environment: Record<string, string>
let service: Service | undefined

const started = async (): Promise<Service> => {
  service = await startService(environment)
  return service
}

const dir = await directoryForFile()
environment = { DATA_DIR: join(dir, 'data'), EMAIL_PROBE: 'off', DNS_SERVERS: '127.0.0.1:9' }
const double = await startEventStoreDouble({ version: '23.10', systemEventEvery: 5 })
const { apiUrl } = await started()
const partner = await createPartner('100', environment)
for (let n = 0; n < 20; n++)
  await eventually(async () =>
    (await lookup(apiUrl, partner.apiKey, `8.8.4.${n}`)).status === 200 ? true : undefined,
  )

afterAll(async () => {
  await service?.end('SIGTERM')
  await double.close()
})

const copy = (...args: string[]) => cli(['event-log', 'copy', '--to', double.url, ...args], environment)

const balance = async (): Promise<string> =>
  (await cliJson<{ balance: string }>(['credits', 'balance', partner.organizationId], environment)).balance

let url = ''

test('nothing is copied while the service uses the log', async () => {
  url = (JSON.parse(await readFile(join(dir, 'data', 'postgres.json'), 'utf8')) as { url: string }).url
  for (const args of [[], ['--from', url]]) {
    const { code, err } = await copy(...args)
    expect([code, err]).toEqual([1, expect.stringContaining('the service is running on this event log')])
  }
  expect(double.appends).toBe(0)
  expect(await service?.end('SIGTERM')).toBe(0)
  service = undefined
})

test('following the printed steps exactly leads to a service on the new log', async () => {
  const before = await balance()
  expect(before).toBe('80')
  const { code, out, err } = await cli(['event-log', 'copy', '--to', double.url, '--json'], environment)
  expect([code, err.split('\n').filter((line) => line.includes('"code"'))]).toEqual([0, []])
  const { next, events } = JSON.parse(out) as { next: string; events: number }
  expect(events).toBeGreaterThan(20)
  const steps = [...next.matchAll(/"([^"]+)"/g)].map(([, step = '']) => step.split(' '))
  expect([next.split(',')[0], steps]).toEqual([
    'set EVENT_LOG_URL to the target',
    [
      ['projection', 'rebuild', '--all'],
      ['ledger', 'verify'],
    ],
  ])
  environment = { ...environment, EVENT_LOG_URL: double.url }
  for (const step of steps) {
    const done = await cli(step, environment)
    expect([step, done.code, done.err]).toMatchObject([step, 0, expect.any(String)])
  }
  const { apiUrl } = await started()
  expect(await balance()).toBe(before)
  await eventually(async () =>
    (await lookup(apiUrl, partner.apiKey, '8.8.4.4')).status === 200 ? true : undefined,
  )
  expect(await balance()).toBe('79')
  expect((await fetch(`${apiUrl}/readyz`)).status).toBe(200)
  const verified = await cliJson<{ ok: boolean }>(['event-log', 'verify'], environment)
  expect(verified.ok).toBe(true)
  const { out: found } = await cli(['doctor', '--json'], environment)
  const { findings } = JSON.parse(found) as { findings: { about: string; level: string }[] }
  expect(findings.filter(({ level }) => level === 'fault')).toEqual([])
})
