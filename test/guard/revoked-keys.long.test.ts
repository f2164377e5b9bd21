/** If a key was revoked, every process refuses it, even if its rows show a valid key or its revocation is missing or unreadable in the log. */
import { randomBytes } from 'node:crypto'
import { type Logger, pino } from 'pino'
import { describe, expect, test } from 'vitest'
import { changeLimits, revoke, rotate } from '../../src/administration/keys/api-keys.ts'
import { createOrganization } from '../../src/administration/organizations/organizations.ts'
import type { NewEvent } from '../../src/event-log/port.ts'
import { uuidV5 } from '../../src/event-log/stored-event.ts'
import { keyStream } from '../../src/events/streams.ts'
import { composeApiKey } from '../../src/keys/api-key.ts'
import { CommandRefused } from '../../src/ledger/command.ts'
import type { App } from '../../src/start/app.ts'
import { houseForFile, send, until } from '../support/house.ts'

const logger = pino({ level: 'silent' })

const house = await houseForFile({ environment: { ROLES: 'api,dashboard,projector' } })
const created = await createOrganization(house.foundation, { name: 'A', overdraftLimit: 0n, actor: 'cli' })
const organizationId = created.organizationId

type Made = { readonly apiKey: string; readonly keyId: string; readonly secret: string }
type Written = Pick<NewEvent, 'type' | 'data' | 'metadata'>

const at = '2026-03-01T00:00:00.000Z'
const envelope = (version = 1): string =>
  JSON.stringify({ schema_version: version, actor: 'cli', effective_at: at })

const issued = ({ keyId, secret, apiKey }: Made): Written => ({
  type: 'ApiKeyIssued',
  metadata: envelope(),
  data: JSON.stringify({
    key_id: keyId,
    organization_id: organizationId,
    organization_name: 'A',
    name: 'backend',
    secret_hmac: house.foundation.secrets.apiKeyHmac(secret),
    last4: apiKey.slice(-4),
    permissions: ['ip_lookup'],
    limits: { requests_per_minute: 6_000, requests_per_day: 1_000_000, email_validations_per_second: 10 },
    allowed_cidrs: [],
    expires_at: null,
  }),
})
const revoked = ({ keyId }: Made): Written => ({
  type: 'ApiKeyRevoked',
  metadata: envelope(),
  data: JSON.stringify({ key_id: keyId, reason: 'leaked' }),
})
const append = async (key: Made, events: readonly Written[], from: number): Promise<void> => {
  for (const [i, event] of events.entries()) {
    const revision = from + i
    await house.foundation.eventLog.append(keyStream(key.keyId), revision === 0 ? 'none' : revision - 1, [
      { ...event, id: uuidV5(`${key.keyId} ${revision}`) },
    ])
  }
}

const whoami = async (url: string | null, { apiKey }: Made): Promise<number> =>
  (await send(`${url}/whoami`, { method: 'GET', headers: { 'x-api-key': apiKey } })).status

const another = (own = logger): Promise<App> =>
  house.another({ config: { ROLES: ['dashboard'] }, logger: own })

const listening = (): { logger: Logger; fatal: string[] } => {
  const fatal: string[] = []
  const hooks = { logMethod: (args: unknown[]) => void fatal.push(JSON.stringify(args)) }
  return { logger: pino({ level: 'fatal', hooks }), fatal }
}

test('a key whose revocation was deleted from the event log is refused by a process that starts later, and reported', async () => {
  const [key, other] = [composeApiKey(randomBytes(256)), composeApiKey(randomBytes(256))]
  await append(key, [issued(key), revoked(key)], 0)
  await append(other, [issued(other)], 0)
  await house.projected()
  await house.query('update api_keys set revoked_at = null where key_id = $1', [key.keyId])
  await house.query(
    `delete from log_segments g using log_streams s where s.id = g.stream_id and s.name = $1 and g.last_revision = 1`,
    [keyStream(key.keyId)],
  )
  const { logger: own, fatal } = listening()
  const started = await another(own)
  try {
    expect(await whoami(started.dashboardUrl, key)).toBe(401)
    expect(await whoami(started.dashboardUrl, other)).toBe(200)
    expect(fatal.join()).toContain(keyStream(key.keyId))
  } finally {
    await started.close()
  }
})

test('if several operators change one key at the same moment, a revocation stays effective, and no successor is left behind', async () => {
  const request = { name: 'B', overdraftLimit: 0n, actor: 'cli' }
  const { organizationId: own } = await createOrganization(house.foundation, request)
  const handedOut: string[] = []
  for (let round = 0; round < 5; round++) {
    const { keyId } = await house.key(own, { permissions: [] })
    const of = { keyId, actor: 'cli' }
    const [revocation, ...others] = await Promise.allSettled([
      revoke(house.foundation, { ...of, reason: 'leaked' }),
      rotate(house.foundation, { ...of, graceMs: 3_600_000 }),
      rotate(house.foundation, { ...of, graceMs: 3_600_000 }),
      changeLimits(house.foundation, { ...of, limits: { requests_per_minute: 1 } }),
    ])
    expect(revocation).toMatchObject({ status: 'fulfilled' })
    for (const one of others)
      if (one.status === 'rejected') expect(one.reason).toBeInstanceOf(CommandRefused)
      else if ('keyId' in one.value) handedOut.push(one.value.keyId)
  }
  await house.projected()
  const live = await house.query(
    'select key_id from api_keys where organization_id = $1 and revoked_at is null order by key_id',
    [own],
  )
  expect(live.map(({ key_id }) => key_id)).toEqual(handedOut.sort())
})

describe('an event of a key that the projector parked', () => {
  const readyOf = async (url: string | null): Promise<{ status: number; api_keys: unknown }> => {
    const { status, body } = await send(`${url}/readyz`, { method: 'GET', headers: {} })
    return { status, api_keys: (body.checks as { api_keys?: { status: unknown } }).api_keys?.status }
  }
  const doubtful = async (url: string): Promise<string | undefined> =>
    /^enrichment_doubtful_streams\{model="api_keys"\} (\d+)$/m.exec(
      (await send(`${url}/metrics`, { method: 'GET', headers: {} })).text,
    )?.[1]

  test('is reported by running and starting processes with a fatal line and a metric, and they stay ready for other keys; a revocation resolves it', async () => {
    await house.query(`delete from parked_events`)
    const key = composeApiKey(randomBytes(256))
    await append(key, [issued(key)], 0)
    const running = listening()
    const old = await another(running.logger)
    expect(await readyOf(old.dashboardUrl)).toEqual({ status: 200, api_keys: 'ok' })
    await append(key, [{ ...revoked(key), metadata: envelope(99) }], 1)
    await house.projected()
    const starting = listening()
    const young = await another(starting.logger)
    try {
      for (const [app, { fatal }] of [
        [old, running],
        [young, starting],
      ] as const) {
        expect(await whoami(app.dashboardUrl, key)).toBe(401)
        expect(await readyOf(app.dashboardUrl)).toEqual({ status: 200, api_keys: 'ok' })
        expect(await doubtful(app.metricsUrl ?? '')).toBe('1')
        expect(fatal.join()).toContain(keyStream(key.keyId))
      }
      await revoke(house.foundation, { keyId: key.keyId, reason: 'its stream cannot be read', actor: 'cli' })
      for (const app of [old, young]) {
        await until('resolved', async () => (await doubtful(app.metricsUrl ?? '')) === '0')
        expect(await whoami(app.dashboardUrl, key)).toBe(401)
      }
    } finally {
      await old.close()
      await young.close()
    }
  })
})
