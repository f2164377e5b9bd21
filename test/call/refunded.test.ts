/** A refund leaves the call's Idempotency-Key used up. Calls that a stopping process has logged can be refunded. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { refund } from '../../src/administration/credits/refunds.ts'
import { requestIdsIn, reverseCalls } from '../../src/administration/credits/reverse-calls.ts'
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
      await house.query('delete from idempotent_calls where organization_id = $1', [partner.organizationId])
    }
    expect((await typesOf(partner)).filter((type) => type === 'CreditCharged')).toHaveLength(1)
  },
)

test('of the calls that a stopped process listed, the charged ones are refunded once', async () => {
  const partner = await house.partner({ credits: '10' })
  const charged = await house.lookup(partner, { ip: places.london })
  const free = await house.lookup(partner, { ip: places.private })
  await house.projected()
  const notRecorded = '01M7YKBQZN92PN3ABTVNQE6E12'
  const requestIds = [charged, free].map(({ body }) => String(body.request_id)).concat(notRecorded)
  const reverse = (dryRun: boolean) =>
    reverseCalls(house.foundation, { requestIds, dryRun, actor: 'cli:test', onProgress: () => undefined })
  const expected = { total: parseCredits('1'), kinds: ['reversed', 'left', 'not_recorded'] }
  for (const dryRun of [true, false]) {
    const { calls, total } = await reverse(dryRun)
    expect({ total, kinds: calls.map(({ kind }) => kind) }).toEqual(expected)
    expect((await typesOf(partner)).includes('CreditAdjusted')).toBe(!dryRun)
  }
  const again = await reverse(false)
  expect({ total: again.total, kinds: again.calls.map(({ kind }) => kind) }).toEqual({
    total: 0n,
    kinds: ['left', 'left', 'not_recorded'],
  })
  expect(remaining(await lookup(partner, 'after'))).toBe('9')
})

test('a file of request ids reports the number of an invalid line, and must be neither empty nor too long', () => {
  const id = '01M7YKBQZN92PN3ABTVNQE6E12'
  expect(requestIdsIn(`${id}\r\n\n ${id}\n`)).toEqual([id])
  expect(() => requestIdsIn(`${id}\nabc`)).toThrow('line 2, "abc"')
  expect(() => requestIdsIn('\n')).toThrow('0 request ids')
})
