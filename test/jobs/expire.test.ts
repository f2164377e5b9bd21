/** Lots whose expiry has come, written off by the clock. */
import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { parseCredits } from '../../src/billing/money.ts'
import { ledgerStream } from '../../src/events/streams.ts'
import { expireCredits } from '../../src/jobs/expire.ts'
import { type House, openHouse } from '../support/house.ts'

let house: House

beforeAll(async () => {
  house = await openHouse()
})
afterAll(() => house?.close())

test('a ledger that cannot be read keeps no other one waiting, and is named', async () => {
  const { ledger, eventLog } = house.foundation
  const partners = [await house.partner(), await house.partner()]
  for (const [n, { organizationId }] of partners.entries()) {
    const expiresAt = `2026-01-0${n + 1}T00:00:00.000Z`
    const grant = {
      kind: 'grant',
      amount: parseCredits('2'),
      priority: 1,
      expiresAt,
      reason: 'plan',
    } as const
    const from = { key: `grant/${n}`, atMs: Date.parse('2026-01-01T00:00:00.000Z'), actor: 'cli' }
    await ledger.submit(organizationId, { ...from, ...grant })
  }
  await house.projected()
  // The one whose lot expired first.
  const [broken = '', other = ''] = partners.map(({ organizationId }) => organizationId)
  const revision = await eventLog.lastRevision(ledgerStream(broken))
  await eventLog.append(ledgerStream(broken), revision ?? 'none', [
    { id: randomUUID(), type: 'OfALaterRelease', data: '{}', metadata: '{"schema_version":1}' },
  ])
  await expect(expireCredits(house.foundation)).rejects.toThrow(`lots of ${broken} could not be written off`)
  const events = await house.eventsOf(other)
  expect(events.at(-1)).toMatchObject({
    type: 'CreditExpired',
    data: { amount: '2' },
    metadata: { effective_at: '2026-01-02T00:00:00.000Z' },
  })
})
