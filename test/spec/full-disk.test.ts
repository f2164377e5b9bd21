import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest'
import { type House, openHouse, type Partner } from '../support/house.ts'

/** When the disk is nearly full, new calls are refused before PostgreSQL fails during calls in progress. */

let house: House
let partner: Partner
beforeAll(async () => {
  house = await openHouse()
  partner = await house.partner({ credits: '10' })
})
afterEach(() => void vi.restoreAllMocks())
afterAll(() => house?.close())

const fill = (): void => {
  const { diskSpace } = house.foundation
  vi.spyOn(diskSpace, 'isFull').mockReturnValue(true)
  const space = { freeBytes: 5e6, totalBytes: 1e9, freeRatio: 0.005 }
  vi.spyOn(diskSpace, 'seen').mockReturnValue({ space, state: 'full' })
}

test('new calls get 503 SYS_002 with Retry-After and leave no record, and those in flight are answered', async () => {
  const blocked = await house.blockLog()
  const inFlight = house.lookup(partner, { ip: '81.2.69.142' })
  await blocked.waiting()
  fill()
  const refused = await Promise.all([
    house.lookup(partner, { ip: '81.2.69.142' }),
    house.lookup(partner, { ip: '81.2.69.142' }, { 'idempotency-key': 'full-disk' }),
    house.whoami(partner),
  ])
  for (const { status, body, headers } of refused) {
    expect([status, body.code, headers.get('retry-after')]).toEqual([503, 'SYS_002', '30'])
    expect(headers.get('x-request-id')).toBe(body.request_id)
  }
  await blocked.release()
  expect((await inFlight).status).toBe(200)
  vi.restoreAllMocks()
  const recorded = await house.eventsOf(partner.organizationId)
  expect(recorded.filter(({ type }) => type === 'KeyUsed')).toHaveLength(1)
  const again = await house.lookup(partner, { ip: '81.2.69.142' }, { 'idempotency-key': 'full-disk' })
  expect([again.status, again.headers.get('idempotent-replayed')]).toEqual([200, null])
})

test('a caller without a valid key gets that error first', async () => {
  fill()
  const stranger = { ...partner, apiKey: `${partner.apiKey.slice(0, -4)}AAAA` }
  expect((await house.lookup(stranger, { ip: '81.2.69.142' })).status).toBe(401)
})

test('readiness names only the disk, and the service is ready again once there is room', async () => {
  fill()
  const full = await fetch(`${house.apiUrl}/readyz`)
  expect([
    full.status,
    ((await full.json()) as { checks: Record<string, unknown> }).checks.disk_space,
  ]).toEqual([503, { status: 'failed' }])
  vi.restoreAllMocks()
  expect((await fetch(`${house.apiUrl}/readyz`)).status).toBe(200)
})
