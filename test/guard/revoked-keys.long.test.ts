/**
 * If a key is no longer valid according to its stream, every process refuses it, even if its rows show a valid key. The tests also
 * use edited rows, and logs that only a fault can produce.
 */
import { randomBytes } from 'node:crypto'
import fc from 'fast-check'
import { type Logger, pino } from 'pino'
import { describe, expect, test } from 'vitest'
import { changeLimits, revoke, rotate } from '../../src/administration/keys/api-keys.ts'
import { createOrganization } from '../../src/administration/organizations/organizations.ts'
import type { NewEvent } from '../../src/event-log/port.ts'
import { uuidV5 } from '../../src/event-log/stored-event.ts'
import { keyStream } from '../../src/events/streams.ts'
import { composeApiKey } from '../../src/keys/api-key.ts'
import { CommandRefused } from '../../src/ledger/write/commit.ts'
import type { App } from '../../src/start/app.ts'
import { houseForFile, send, until } from '../support/house.ts'

const logger = pino({ level: 'silent' })

const house = await houseForFile({ environment: { ROLES: 'api,dashboard,projector' } })
const created = await createOrganization(house.foundation, { name: 'A', overdraftLimit: 0n, actor: 'cli' })
const organizationId = created.organizationId

type Made = { readonly apiKey: string; readonly keyId: string; readonly secret: string }
type Written = Pick<NewEvent, 'type' | 'data' | 'metadata'>

const at = '2026-03-01T00:00:00.000Z'
const envelope = (version = 1, effectiveAt = at): string =>
  JSON.stringify({ schema_version: version, actor: 'cli', effective_at: effectiveAt })

const issued = ({ keyId, secret, apiKey }: Made, name = 'backend'): Written => ({
  type: 'ApiKeyIssued',
  metadata: envelope(),
  data: JSON.stringify({
    key_id: keyId,
    organization_id: organizationId,
    organization_name: 'A',
    name,
    secret_hmac: house.foundation.secrets.apiKeyHmac(secret),
    last4: apiKey.slice(-4),
    permissions: ['ip_lookup'],
    limits: { requests_per_minute: 6_000, requests_per_day: 1_000_000, email_validations_per_second: 10 },
    allowed_cidrs: [],
    expires_at: null,
  }),
})
const revoked = ({ keyId }: Made, reason: unknown = 'leaked'): Written => ({
  type: 'ApiKeyRevoked',
  metadata: envelope(),
  data: JSON.stringify({ key_id: keyId, reason }),
})
const rotated = ({ keyId }: Made, graceUntil: string): Written => ({
  type: 'ApiKeyRotated',
  metadata: envelope(),
  data: JSON.stringify({ key_id: keyId, successor_id: 'A0b1C2d3E4f5G6h7', grace_until: graceUntil }),
})

/** `open`: the key still works. `ends`: the key is refused. `doubt`: the stream cannot be read, so the key is refused. */
type Meaning = 'open' | 'ends' | 'doubt'
const happenings: Record<string, { readonly meaning: Meaning; readonly event: (key: Made) => Written }> = {
  revoked: { meaning: 'ends', event: (key) => revoked(key) },
  'revoked, reason with U+0000': { meaning: 'ends', event: (key) => revoked(key, 'leaked\0') },
  'revoked, reason with half a character': {
    meaning: 'ends',
    event: (key) => ({ ...revoked(key), data: `{"key_id":"${key.keyId}","reason":"\\ud800"}` }),
  },
  'revoked, reason too long': { meaning: 'ends', event: (key) => revoked(key, 'x'.repeat(5_000)) },
  'revoked, without a reason': { meaning: 'ends', event: (key) => revoked(key, undefined) },
  'revoked by an unknown later version': {
    meaning: 'ends',
    event: (key) => ({ ...revoked(key), metadata: envelope(99) }),
  },
  'revoked, broken off': { meaning: 'ends', event: (key) => ({ ...revoked(key), data: '{"key_id":"' }) },
  'revoked, in the name of another key': {
    meaning: 'ends',
    event: (key) => revoked({ ...key, keyId: '0000000000000000' }),
  },
  'revoked at an invalid time': {
    meaning: 'ends',
    event: (key) => ({ ...revoked(key), metadata: envelope(1, '2026-99-99T00:00:00.000Z') }),
  },
  'revoked in the future': {
    meaning: 'ends',
    event: (key) => ({ ...revoked(key), metadata: envelope(1, '2999-01-01T00:00:00.000Z') }),
  },
  'rotated, grace over': { meaning: 'ends', event: (key) => rotated(key, '2026-03-01T00:00:00.000Z') },
  'rotated, in grace': { meaning: 'open', event: (key) => rotated(key, '2999-03-01T00:00:00.000Z') },
  'issued again': { meaning: 'open', event: (key) => issued(key) },
  'issued again with U+0000': { meaning: 'open', event: (key) => issued(key, 'again\0') },
  'limits changed': {
    meaning: 'open',
    event: ({ keyId }) => ({
      type: 'ApiKeyLimitsChanged',
      metadata: envelope(),
      data: JSON.stringify({
        key_id: keyId,
        limits: { requests_per_minute: 600, requests_per_day: 1_000, email_validations_per_second: 1 },
      }),
    }),
  },
  'an event of tomorrow': {
    meaning: 'doubt',
    event: () => ({ type: 'ApiKeyPutToSleep', metadata: envelope(), data: '{}' }),
  },
  'an event of another family': {
    meaning: 'doubt',
    event: () => ({ type: 'PixelBlocked', metadata: envelope(), data: '{}' }),
  },
}

const mishaps: Record<string, (key: Made) => Promise<unknown>> = {
  none: async () => undefined,
  'revocation erased': ({ keyId }) =>
    house.query(
      `update api_keys set revoked_at = null, grace_until = null, successor_id = null, expires_at = null
        where key_id = $1`,
      [keyId],
    ),
  'row deleted': ({ keyId }) => house.query('delete from api_keys where key_id = $1', [keyId]),
  'parked event forgotten': ({ keyId }) =>
    house.query('delete from parked_events where stream = $1', [keyStream(keyId)]),
  'event parked for no reason': ({ keyId }) =>
    house.query(
      `insert into parked_events (projection, position, stream, error) values ('api_keys', 1000000 + floor(random() * 1e9), $1, 'x')`,
      [keyStream(keyId)],
    ),
}

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

test('every process refuses a key that has ended in its stream, no matter what its rows contain, and accepts a live key', async () => {
  const life = fc.record({
    happened: fc.array(fc.constantFrom(...Object.keys(happenings)), { maxLength: 4 }),
    mishap: fc.constantFrom(...Object.keys(mishaps)),
    usedBefore: fc.boolean(),
  })
  await fc.assert(
    fc.asyncProperty(
      fc.array(life, { minLength: 12, maxLength: 12 }),
      fc.constantFrom('kept' as const, 'at the beginning' as const, 'far ahead' as const),
      async (lives, checkpoint) => {
        const keys = lives.map((one) => ({ ...one, key: composeApiKey(randomBytes(256)) }))
        for (const { key, usedBefore } of keys) {
          await append(key, [issued(key)], 0)
          if (usedBefore) expect(await whoami(house.dashboardUrl, key)).toBe(200)
        }
        for (const { key, happened } of keys)
          await append(
            key,
            happened.map((name) => happenings[name]?.event(key) ?? revoked(key)),
            1,
          )
        await house.projected()
        for (const { key, mishap } of keys) await mishaps[mishap]?.(key)
        // The checkpoint is changed only while the process starts, when the projector has no events to fold and does not
        // notice.
        const moved = `update projection_checkpoints set position = $1 where name = 'api_keys'`
        const head = await house.foundation.eventLog.head()
        await house.query(moved, [
          { kept: head, 'at the beginning': 0, 'far ahead': 1_000_000_000 }[checkpoint],
        ])
        const started = await another()
        await house.query(moved, [head])
        try {
          for (const { key, happened, ...rest } of keys) {
            const ended = happened.some((name) => happenings[name]?.meaning !== 'open')
            const expected = { happened, ...rest, status: ended ? 401 : 200 }
            expect({ happened, ...rest, status: await whoami(started.dashboardUrl, key) }).toEqual(expected)
            await until(
              `the running process gives the same answer: ${happened}`,
              async () => (await whoami(house.dashboardUrl, key)) === expected.status,
            )
          }
        } finally {
          await started.close()
        }
      },
    ),
    // A run takes seconds, so the seed and the first failure are enough.
    { numRuns: 5, endOnFailure: true },
  )
})

test('a key whose revocation was deleted from the event log is refused by a process that starts later, and reported', async () => {
  const [key, other] = [composeApiKey(randomBytes(256)), composeApiKey(randomBytes(256))]
  await append(key, [issued(key), revoked(key)], 0)
  await append(other, [issued(other)], 0)
  await house.projected()
  await mishaps['revocation erased']?.(key)
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
