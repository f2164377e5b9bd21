import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import {
  cli,
  cliJson,
  createPartner,
  lookup,
  type Partner,
  type Service,
  startService,
} from '../support/service.ts'

/**
 * The process is killed under load, again and again; its PostgreSQL is left behind each time and adopted by the next.
 * What was answered must stand in the ledger with its charge, and nothing may stand there twice.
 *
 * CRASH_ROUNDS sets how often; the default keeps the test suite short.
 */

const rounds = Number(process.env.CRASH_ROUNDS ?? 3)
const callers = 32
const answersBeforeKill = 300

let dataDir = ''
let service: Service
let partner: Partner
const environment = () => ({ DATA_DIR: dataDir })

beforeAll(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'crash-'))
  service = await startService(environment())
  partner = await createPartner('1000000', environment())
}, 90_000)

afterAll(async () => {
  await service?.end('SIGTERM')
  await rm(dataDir, { recursive: true, force: true })
})

type Exported = {
  type: string
  event_id: string
  data: Record<string, unknown>
  metadata: { request_id?: string }
}

test(`${rounds} times killed under load: no answered call lost its charge, none was charged twice, the chain holds`, async () => {
  const answered: string[] = []
  for (let round = 0; round < rounds; round++) {
    const enough = answered.length + answersBeforeKill
    let killed = false
    const call = async (caller: number): Promise<void> => {
      for (let i = 0; !killed; i++) {
        try {
          const { status, body } = await lookup(service.apiUrl, partner.apiKey, `8.${caller}.${i % 250}.8`)
          if (status === 200) answered.push(String(body.request_id))
          else expect([401, 503]).toContain(status)
        } catch {
          // The connection broke with the process: nobody was answered.
        }
      }
    }
    const calling = Array.from({ length: callers }, (_, caller) => call(caller))
    while (answered.length < enough) await new Promise((resolve) => setTimeout(resolve, 5))
    service.child.kill('SIGKILL')
    killed = true
    await Promise.all(calling)
    service = await startService(environment())
  }

  const { out, code } = await cli(['ledger', 'export', partner.organizationId], environment())
  expect(code).toBe(0)
  const events = out
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as Exported)
  const charges = events.filter(({ type }) => type === 'CreditCharged')
  const chargedRequests = new Set(charges.map(({ metadata }) => metadata.request_id))
  expect(answered.filter((requestId) => !chargedRequests.has(requestId))).toEqual([])
  expect(new Set(charges.map(({ data }) => data.charge_id)).size).toBe(charges.length)
  expect(new Set(charges.map(({ metadata }) => metadata.request_id)).size).toBe(charges.length)
  expect(new Set(events.map(({ event_id }) => event_id)).size).toBe(events.length)
  expect(await cliJson(['ledger', 'verify', partner.organizationId], environment())).toMatchObject({
    ok: true,
  })
  const balance = await cliJson<{ balance: string }>(
    ['credits', 'balance', partner.organizationId],
    environment(),
  )
  expect(balance.balance).toBe(String(1_000_000 - charges.length))
  const verified = await cliJson<{ ok: boolean }[]>(['projection', 'verify', '--all'], environment())
  expect(verified.every(({ ok }) => ok)).toBe(true)
}, 600_000)
