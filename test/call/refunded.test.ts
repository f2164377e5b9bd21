/** A call that was refunded, and its Idempotency-Key: the key stays used up, so its answer is given again and nothing is charged. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { refund } from '../../src/administration/refunds.ts'
import { parseCredits } from '../../src/billing/money.ts'
import { type Answer, type House, openHouse, type Partner, places, send } from '../support/house.ts'

let house: House
beforeAll(async () => {
  house = await openHouse()
})
afterAll(() => house?.close())

const lookup = (partner: Partner, key: string): Promise<Answer> =>
  send(`${house.apiUrl}/v1/ip/lookup`, {
    headers: { 'x-api-key': partner.apiKey, 'content-type': 'application/json', 'idempotency-key': key },
    body: { ip: places.london },
  })

const typesOf = async ({ organizationId }: Partner): Promise<string[]> =>
  (await house.eventsOf(organizationId)).map(({ type }) => type)

const remaining = ({ headers }: Answer): string | null => headers.get('credits-remaining')

test.each([
  { refunded: 'a part', amount: parseCredits('0.25'), left: '9.25' },
  { refunded: 'all', amount: undefined, left: '10' },
])(
  '$refunded of it was refunded: a repetition is answered and charged nothing, also after a day',
  async ({ amount, left }) => {
    const partner = await house.partner({ credits: '10' })
    const requestId = String((await lookup(partner, 'refunded')).body.request_id)
    await house.projected()
    await refund(house.foundation, {
      requestId,
      amount,
      reason: 'wrong country',
      actor: 'cli:test',
      dryRun: false,
    })
    for (let n = 0; n < 3; n++) {
      const again = await lookup(partner, 'refunded')
      const replayed = again.headers.get('idempotent-replayed')
      expect({ status: again.status, remaining: remaining(again), replayed }).toEqual({
        status: 200,
        remaining: left,
        replayed: 'true',
      })
      // Its answer is no longer kept.
      await house.query('delete from idempotent_calls where organization_id = $1', [partner.organizationId])
    }
    expect((await typesOf(partner)).filter((type) => type === 'CreditCharged')).toHaveLength(1)
  },
)
