import { afterEach, expect, test } from 'vitest'
import { projections } from '../../projections/index.ts'
import { openEventStoreDb } from '../../src/event-log/eventstoredb/index.ts'
import { logStart } from '../../src/event-log/port.ts'
import { appendUntilKnown, newEvents } from '../contract/event-log.ts'
import { startEventStoreDouble } from '../support/eventstore-double.ts'
import { logger } from '../support/logger.ts'
import { testDatabase } from '../support/postgres.ts'
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
 * The event log, in a double of EventStoreDB 23.10, is restored from an older copy under two running processes and load. The log
 * no longer contains the charges made after that copy. Until an operator has decided, calls must not exceed the credits.
 */

let services: Service[] = []
let closing: (() => Promise<void>)[] = []

afterEach(async () => {
  await Promise.all(services.map((service) => service.end('SIGTERM')))
  for (const close of closing.reverse()) await close()
  services = []
  closing = []
})

/** Other clients write to the restored server until its log is longer than before the restore. */
const outgrow = async (url: string, end: bigint): Promise<void> => {
  const others = openEventStoreDb({ url, logger })
  for (let n = 0; (await others.head().catch(() => logStart)) <= end; n++)
    await appendUntilKnown(others, `orders-${n}`, 'none', newEvents(100))
  await others.close()
}

test('calls do not exceed the credits, even after a restart; then the documented remedy works', async () => {
  const database = await testDatabase()
  const double = await startEventStoreDouble({ version: '23.10' })
  const log = openEventStoreDb({ url: double.url, logger })
  closing.push(database.drop, double.close, log.close)
  const environment = {
    DATABASE_URL: database.url,
    EVENT_LOG_URL: double.url,
    SECRET_KEY: 'a secret of the test, long enough to be one',
  }
  services = [await startService(environment), await startService({ ...environment, ROLES: 'api' })]
  const partner = await createPartner('60', environment)
  const leaked = await cliJson<{ api_key: string; api_key_id: string }>(
    ['key', 'issue', partner.organizationId],
    environment,
  )
  const call = async (i: number, apiKey = partner.apiKey): Promise<number> =>
    (await lookup(services[i % services.length]?.apiUrl ?? '', apiKey, `8.8.${i % 250}.8`)).status
  for (const i of [0, 1])
    await eventually(async () => ((await call(i, leaked.api_key)) === 200 ? true : undefined))
  const many = async (count: number): Promise<Record<number, number>> => {
    const counts: Record<number, number> = {}
    for (const status of await Promise.all(Array.from({ length: count }, (_, i) => call(i))))
      counts[status] = (counts[status] ?? 0) + 1
    return counts
  }
  const copied = await log.head()
  expect(await many(30)).toEqual({ 200: 30 })
  await cliJson(['key', 'revoke', leaked.api_key_id, '--reason', 'leaked', '--yes'], environment)
  await eventually(async () => {
    const listed = await cliJson<{ behind: string }[]>(['projection', 'list'], environment)
    return listed.every(({ behind }) => behind === '0') ? true : undefined
  })

  const end = await log.head()
  await double.restore(copied)
  await outgrow(double.url, end)
  const after = await many(200)
  expect(after[200] ?? 0, JSON.stringify(after)).toBe(0)
  for (const { apiUrl } of services) {
    await eventually(async () => ((await fetch(`${apiUrl}/readyz`)).status === 503 ? true : undefined))
    expect((await fetch(`${apiUrl}/livez`)).status).toBe(200)
  }
  expect(services[0]?.output()).toContain('the event log has lost events that this process has read')

  const listed = await cli(['projection', 'list'], environment)
  expect(listed.code).toBe(1)
  expect(listed.out).toContain('restored from an older copy')
  const verified = await cli(['ledger', 'verify', '--json'], environment)
  expect(verified.code).toBe(1)
  expect(JSON.parse(verified.out)).toMatchObject({
    ok: false,
    read_models: expect.stringContaining('restored from an older copy'),
    ledgers: [{ ok: false, fault: { fault: expect.stringContaining('its end is missing') } }],
  })

  // Both services end normally, and neither can be started again.
  expect(await Promise.all(services.map((service) => service.end('SIGTERM')))).toEqual([0, 0])
  services = []
  await expect(startService(environment)).rejects.toThrow(/ended with 2 [\s\S]*restored from an older copy/)
  const granted = await cli(['credits', 'grant', partner.organizationId, '5'], environment)
  expect(granted).toMatchObject({ code: 2, err: expect.stringContaining('projection rebuild --all') })

  const asked = await cli(['projection', 'rebuild', '--all'], environment)
  expect(asked.code).toBe(1)
  expect(asked.err).toContain(`key_revoked  ${leaked.api_key_id}`)
  expect(asked.err).toMatch(/charge {2}30 lines {2}org_\w+ {2}-30 credits/)
  expect((await cli(['projection', 'list'], environment)).out).toContain('restored from an older copy')
  const [, digest = ''] = /--accept-loss (\w+)/.exec(asked.err) ?? []
  for (const consent of [['--yes'], ['--yes', '--accept-loss', 'another']]) {
    const refused = await cli(['projection', 'rebuild', '--all', ...consent, '--json'], environment)
    expect([refused.code, refused.out]).toEqual([1, ''])
    expect(JSON.parse(refused.err.trim().split('\n').at(-1) ?? '')).toMatchObject({
      code: 'needs_yes',
      field: 'accept-loss',
      remedy: expect.stringContaining(digest),
      would: expect.arrayContaining([expect.stringMatching(/charge {2}30 lines {2}org_\w+ {2}-30 credits/)]),
    })
  }
  expect((await cli(['projection', 'list'], environment)).out).toContain('restored from an older copy')
  await cliJson(['projection', 'rebuild', '--all', '--accept-loss', digest], environment)
  expect(await cliJson(['ledger', 'verify'], environment)).toMatchObject({ ok: true, read_models: null })
  await cliJson(['key', 'revoke', leaked.api_key_id, '--reason', 'leaked', '--yes'], environment)

  services = [await startService(environment)]
  expect(await call(0, leaked.api_key)).toBe(401)
  expect(await many(70)).toEqual({ 200: 58, 402: 12 })
  expect(await cliJson(['projection', 'verify', '--all'], environment)).toEqual(
    projections.map(({ name }) => expect.objectContaining({ name, ok: true })),
  )
}, 240_000)
