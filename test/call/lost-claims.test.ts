/**
 * Rows in `idempotent_calls` can be lost. The ledger still shows what was paid under an Idempotency-Key and for which request, so
 * a different request under that key always gets IDEMP_001.
 */
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { claimOf, createIdempotency } from '../../src/call/idempotency.ts'
import { verifyLedger } from '../../src/ledger/check/verify.ts'
import { createKeyedEvents } from '../../src/ledger/write/keyed-events.ts'
import { chargesOf, forget } from '../spec/ledger-scene.ts'
import { expectCredits, expectErrorObject } from '../spec/wire.ts'
import { type Answer, type House, openHouse, type Partner, places, send, until } from '../support/house.ts'

let house: House

beforeAll(async () => {
  house = await openHouse()
})
afterAll(() => house?.close())

const key = 'an-old-key'

const post = ({ apiKey }: Partner, path: string, body: unknown): Promise<Answer> =>
  send(`${house.apiUrl}${path}`, {
    headers: { 'x-api-key': apiKey, 'content-type': 'application/json', 'idempotency-key': key },
    body,
  })
const lookup = (partner: Partner, ip: string) => post(partner, '/v1/ip/lookup', { ip })

const loseRows = ({ organizationId }: Partner) =>
  house.query('delete from idempotent_calls where organization_id = $1', [organizationId])

const projected = async ({ organizationId }: Partner): Promise<boolean> =>
  (
    await house.query(
      'select 1 from ledger_lines where organization_id = $1 and charge_id is not null and idempotent',
      [organizationId],
    )
  ).length > 0

/** Stops the projection until the returned function is called. */
const holdProjection = async (): Promise<() => Promise<void>> => {
  const holder = new pg.Client({ connectionString: house.foundation.migrationUrl })
  holder.on('error', () => undefined)
  await holder.connect()
  await holder.query('begin')
  await holder.query('lock table ledger_lines_v2 in share row exclusive mode')
  return async () => {
    await holder.query('rollback')
    await holder.end()
  }
}

const mismatch = { status: 422, error: 'validation_error', code: 'IDEMP_001', details: {} }

const expectOwnOnly = async (partner: Partner): Promise<void> => {
  for (let n = 0; n < 2; n++) {
    await loseRows(partner)
    for (let again = 0; again < 2; again++) {
      const other = await lookup(partner, places.munich)
      expectErrorObject(other, mismatch)
      expectCredits(other, '0', '9')
    }
    expectErrorObject(await post(partner, '/v1/email/validate', { email: 'a@example.com' }), mismatch)
    const own = await lookup(partner, places.london)
    expect({ status: own.status, replayed: own.headers.get('idempotent-replayed') }).toEqual({
      status: 200,
      replayed: 'true',
    })
    expectCredits(own, '0', '9')
    expectErrorObject(await lookup(partner, places.munich), mismatch)
  }
  expect(await chargesOf(house, partner)).toHaveLength(1)
  expect((await verifyLedger(house.foundation.eventLog, partner.organizationId)).fault).toBeNull()
}

const paid = async (): Promise<Partner> => {
  const partner = await house.partner({ permissions: ['ip_lookup', 'email_validation'], credits: '10' })
  expectCredits(await lookup(partner, places.london), '1', '9')
  return partner
}

describe('after its row is lost, a paid key answers its own request free, and no other request', () => {
  test('before the charge is in a projection', async () => {
    const release = await holdProjection()
    try {
      const partner = await paid()
      await expectOwnOnly(partner)
      expect(await projected(partner)).toBe(false)
    } finally {
      await release()
    }
  })

  test('after the charge is projected', async () => {
    const partner = await paid()
    await until('the charge is projected', () => projected(partner))
    await expectOwnOnly(partner)
  })

  test('also if a process died before it sent IDEMP_001 to another request', async () => {
    const partner = await paid()
    const { organizationId } = partner
    const rowOf = () =>
      house.query('select body_hash from idempotent_calls where organization_id = $1', [organizationId])
    const own = await rowOf()
    const another = fingerprintFor(partner, places.munich)
    // Turns the row into a claim that is more than a minute old, made by a process that has ended.
    const leave = () =>
      house.query(
        `update idempotent_calls set body_hash = $2, status = null, answer = null, answered_at = null,
                claimed_at = now() - interval '2 min' where organization_id = $1`,
        [organizationId, another],
      )
    await leave()
    expectCredits(await lookup(partner, places.london), '0', '9')
    expect(await rowOf()).toEqual(own)
    await leave()
    expectErrorObject(await lookup(partner, places.munich), mismatch)
    expectCredits(await lookup(partner, places.london), '0', '9')
    expect(await rowOf()).toEqual(own)
    expect(await chargesOf(house, partner)).toHaveLength(1)
  })
})

test('if a row is missing from the statement, nothing is charged again, because the claim contains the place of the charge', async () => {
  const partner = await paid()
  const { organizationId } = partner
  await forget(house, partner)
  // This call is the statement's last line. If the charge came after the statement's end, it would be found in the log.
  await send(`${house.apiUrl}/v1/ip/lookup`, {
    headers: { 'x-api-key': partner.apiKey, 'content-type': 'application/json' },
    body: { ip: places.private },
  })
  const end = (await house.eventsOf(organizationId)).length - 1
  const linesTo = () =>
    house.query('select 1 from ledger_lines where organization_id = $1 and revision = $2', [
      organizationId,
      end,
    ])
  await until('all is projected', async () => (await linesTo()).length > 0)
  await house.query('delete from ledger_lines_v2 where ledger = ledger_key($1) and idempotent', [
    organizationId,
  ])
  const { pool, eventLog, secrets, epochKeys } = house.foundation
  const idempotency = createIdempotency({
    pool,
    eventLog,
    keyedEvents: createKeyedEvents(eventLog),
    secrets,
    sealer: epochKeys.sealer('idempotent-answer'),
  })
  const claim = { organizationId, key, fingerprint: fingerprintFor(partner, places.london) }
  expect(await idempotency.claim(claim)).toMatchObject({ kind: 'charged' })
})

const fingerprintFor = ({ organizationId }: Partner, ip: string): Buffer =>
  claimOf(
    house.foundation.secrets,
    { organizationId, key },
    { route: 'POST /v1/ip/lookup', body: JSON.stringify({ ip }) },
  ).fingerprint

test('a process that stopped for minutes does not give its answer to a later request with its key, and does not end that claim', async () => {
  const partner = await house.partner()
  const { organizationId } = partner
  const { pool, eventLog, secrets, epochKeys } = house.foundation
  const idempotency = createIdempotency({
    ...{ pool, eventLog, secrets, sealer: epochKeys.sealer('idempotent-answer') },
    keyedEvents: createKeyedEvents(eventLog),
  })
  const [own, later] = [places.london, places.munich].map((ip) => ({
    ...{ organizationId, key, fingerprint: fingerprintFor(partner, ip) },
  }))
  if (own === undefined || later === undefined) throw new Error('there are no claims')
  expect(await idempotency.claim(own)).toMatchObject({ kind: 'first' })
  // Another process has taken the stale claim over, and its call failed.
  await loseRows(partner)
  expect(await idempotency.claim(later)).toMatchObject({ kind: 'first' })
  await idempotency.finish(own, { status: 200, body: '{}', paidRevision: null })
  await idempotency.release(own)
  await idempotency.handBack(own)
  expect(await idempotency.claim(later)).toEqual({ kind: 'in_flight' })
})

test.each([
  ['another revision', 1],
  ['a revision that the ledger does not have', 1_000_000],
  ['no place', null],
] as const)('a row that names %s is ignored, and nothing is charged again', async (_, revision) => {
  const partner = await paid()
  await forget(house, partner)
  await house.query('update idempotent_calls set paid_revision = $2 where organization_id = $1', [
    partner.organizationId,
    revision,
  ])
  const again = await lookup(partner, places.london)
  expect(again.headers.get('idempotent-replayed')).toBe('true')
  expectCredits(again, '0', '9')
  expect(await chargesOf(house, partner)).toHaveLength(1)
})

test("the ledger does not contain a request's text, and equal requests under two keys leave nothing in common", async () => {
  const partners = [await paid(), await paid()]
  const fingerprints = await Promise.all(
    partners.map(async ({ organizationId }) =>
      (await house.eventsOf(organizationId)).flatMap(({ data }) => data.request_fingerprint ?? []),
    ),
  )
  expect(fingerprints.map((one) => one.length)).toEqual([1, 1])
  expect(new Set(fingerprints.flat()).size).toBe(2)
})
