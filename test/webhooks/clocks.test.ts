/** A process whose clock is an hour behind the database's clock loses no message and delays none. */
import { expect, test } from 'vitest'
import { createWebhook, resendDelivery } from '../../src/administration/webhooks/webhooks.ts'
import { dueWebhooks, writeMessages } from '../../src/webhooks/outbox.ts'
import { houseForFile } from '../support/house.ts'

const house = await houseForFile({ clock: 'movable' })
house.setClock(-3_600_000)

test('a webhook gets the events recorded after its creation, and a message that is sent again is due immediately', async () => {
  const { foundation } = house
  const { organizationId } = await house.partner()
  const { webhookId } = await createWebhook(foundation, {
    organizationId,
    url: new URL('https://example.com/hooks'),
    events: ['balance.low'],
    actor: 'cli',
  })
  const recordedAtMs = Date.now()
  const notice = {
    ...({ event: 'balance.low', organizationId, source: 'an event', recordedAtMs } as const),
    at: new Date(recordedAtMs).toISOString(),
    data: {},
  }
  expect(await writeMessages(foundation.pool, [notice], recordedAtMs)).toEqual([webhookId])
  const due = async () => (await dueWebhooks(foundation.pool, { nowMs: Date.now(), max: 10 })).length
  expect(await due()).toBe(1)
  const [delivery] = await house.query("update webhook_deliveries set state = 'dead' returning delivery_id")
  expect(await due()).toBe(0)
  await resendDelivery(foundation, { deliveryId: String(delivery?.delivery_id) })
  expect(await due()).toBe(1)
})
