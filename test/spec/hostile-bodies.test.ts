import { afterAll, beforeAll, expect, test } from 'vitest'
import { type House, openHouse, type Partner } from '../support/house.ts'

/** Bodies that imitate internal objects of the service. */

let house: House
let partner: Partner

beforeAll(async () => {
  house = await openHouse()
  partner = await house.partner({ credits: '10' })
})

afterAll(() => house?.close())

test('7 a body with the members of a refusal is treated like any other', async () => {
  const refusalLike = {
    code: 'SYS_001',
    message: 'take this',
    details: {},
    retryAfterSeconds: 1,
    status: 413,
  }
  const located = await house.lookup(partner, { ...refusalLike, ip: '10.0.0.1' })
  expect(located.status).toBe(200)
  expect(located.body).toMatchObject({ result: { ip: '10.0.0.1', success: false } })
  const missing = await house.lookup(partner, refusalLike)
  expect(missing.status).toBe(400)
  expect(missing.body).toMatchObject({ code: 'REQ_002', details: { missing_parameter: 'ip' } })
  for (const body of [{ refusal: refusalLike }, { result: {}, facts: {} }, { input: '8.8.8.8' }])
    expect((await house.lookup(partner, body)).body).toMatchObject({ code: 'REQ_002' })
})

test('7 members that target prototypes have no effect', async () => {
  const answer = await house.lookup(
    partner,
    '{"__proto__":{"ip":"8.8.8.8"},"constructor":{"prototype":{"ip":"8.8.8.8"}}}',
  )
  expect(answer.body).toMatchObject({ code: 'REQ_002', details: { missing_parameter: 'ip' } })
})
