import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { rotate } from '../../src/administration/keys/api-keys.ts'
import { graceDaysMax } from '../../src/keys/key-state.ts'
import { type House, openHouse } from '../support/house.ts'

let house: House
beforeAll(async () => {
  house = await openHouse()
})
afterAll(() => house?.close())

test('the longest grace period is accepted even if the clock advances between readings', async () => {
  const { keyId } = await house.partner()
  let readings = 0
  const laterMs = Date.now() + 1_000
  const reading = vi.spyOn(Date, 'now').mockImplementation(() => laterMs + readings++)
  try {
    const graceMs = graceDaysMax * 86_400_000
    const { graceUntil } = await rotate(house.foundation, { keyId, graceMs, actor: 'cli' })
    expect(graceUntil).toMatch(/Z$/)
  } finally {
    reading.mockRestore()
  }
})
