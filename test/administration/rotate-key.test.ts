import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { rotate } from '../../src/administration/keys/api-keys.ts'
import { graceMsOf } from '../../src/administration/keys/key-request.ts'
import { type House, openHouse } from '../support/house.ts'

let house: House
beforeAll(async () => {
  house = await openHouse()
})
afterAll(() => house?.close())

test('the longest grace period is taken, however slow the clock is read', async () => {
  const { keyId } = await house.partner()
  let readings = 0
  const laterMs = Date.now() + 1_000
  const reading = vi.spyOn(Date, 'now').mockImplementation(() => laterMs + readings++)
  try {
    const { graceUntil } = await rotate(house.foundation, { keyId, graceMs: graceMsOf('90d'), actor: 'cli' })
    expect(graceUntil).toMatch(/Z$/)
  } finally {
    reading.mockRestore()
  }
})
