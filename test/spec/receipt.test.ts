/** GET /v1/calls/{request_id}/receipt: proves a call to anyone, offline. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { receiptResult } from '../../src/capabilities/account/contract.ts'
import { type AnswerAndFacts, type House, openHouse, type Partner, places, until } from '../support/house.ts'
import { type Receipt, verifyReceipt } from '../support/verify-receipt.ts'
import { expectCredits } from './wire.ts'

let house: House
beforeAll(async () => {
  house = await openHouse()
})
afterAll(() => house?.close())

const receiptOf = (partner: Partner, requestId: string): Promise<AnswerAndFacts> =>
  house.ask(partner, { method: 'GET', path: `/v1/calls/${requestId}/receipt` })
const called = async (partner: Partner): Promise<string> =>
  String((await house.lookup(partner, { ip: places.london })).body.request_id)

test('is 202 with Retry-After until a checkpoint covers the call, then proves it; free and recorded', async () => {
  const partner = await house.partner({ credits: '7' })
  const requestId = await called(partner)
  const early = await receiptOf(partner, requestId)
  expect(early.status).toBe(202)
  expect(Number(early.headers.get('retry-after'))).toBeGreaterThan(0)
  expect(early.body.result).toEqual({ covered: false, request_id: requestId })
  expectCredits(early, '0', '6')
  expect(early.events).toEqual([
    expect.objectContaining({
      type: 'KeyUsed',
      data: expect.objectContaining({
        facts: { kind: 'account', view: 'receipt' },
        free_by: { rule: 'account', rule_version: 1 },
      }),
    }),
  ])
  const { note } = await house.foundation.checkpoints.make()
  const answer = await receiptOf(partner, requestId)
  expect(answer.status).toBe(200)
  const receipt = receiptResult.parse(answer.body.result)
  if (!receipt.covered) throw new Error('not covered')
  expect(receipt.events.map(({ type }) => type)).toEqual(['KeyUsed', 'CreditCharged'])
  expect(receipt.events.every(({ proof }) => proof.endsWith(note))).toBe(true)
  verifyReceipt(answer.body.result as Receipt, receipt.verifier_key)
})

test('requesting it makes a checkpoint', async () => {
  const partner = await house.partner({ credits: '7' })
  const requestId = await called(partner)
  expect((await receiptOf(partner, requestId)).status).toBe(202)
  const jobs = await house.query(
    `select count(*)::int as waiting from pgboss.job where name = 'checkpoint-asked' and state in ('created', 'active')`,
  )
  expect(jobs).toEqual([{ waiting: 1 }])
})

test('of a free call covers its one event', async () => {
  const partner = await house.partner()
  const requestId = String((await house.lookup(partner, { ip: places.nowhere })).body.request_id)
  await house.foundation.checkpoints.make()
  await until('it is covered', async () => (await receiptOf(partner, requestId)).status === 200)
  const { body } = await receiptOf(partner, requestId)
  const receipt = receiptResult.parse(body.result)
  expect(receipt.covered && receipt.events.map(({ type }) => type)).toEqual(['KeyUsed'])
  verifyReceipt(body.result as Receipt)
})

test("of another organization's call, or of an unknown one, is 404", async () => {
  const [partner, other] = [await house.partner({ credits: '7' }), await house.partner()]
  for (const requestId of [await called(partner), '01JB2ZQ5V7N3K2M4P6R8T0W1X2'])
    expect(await receiptOf(other, requestId)).toMatchObject({ status: 404, body: { error: 'not_found' } })
})
