/** Decision 15: repeating a call with the same Idempotency-Key and body returns the first answer and charges nothing again. */

import fc from 'fast-check'
import pg from 'pg'
import { describe, expect, test } from 'vitest'
import { commandKeyOf } from '../../src/call/key-lookup.ts'
import { randomCases } from '../support/exhaustive.ts'
import { type Answer, houseForFile, type Partner, places, send, sendRaw } from '../support/house.ts'
import { chargesOf, forget, loseAnswers, replayFact } from './ledger-scene.ts'
import {
  bare,
  expectCredits,
  expectErrorObject,
  expectRefusedCall,
  jsonType,
  rateLimitsOf,
  refusalFact,
} from './wire.ts'

const house = await houseForFile()

const lookup = (partner: Partner, ip: unknown, key: string) =>
  house.lookup(partner, { ip }, { 'idempotency-key': key })

const sendLookup = (partner: Partner, ip: string, key: string): Promise<Answer> =>
  send(`${house.apiUrl}/v1/ip/lookup`, {
    headers: { 'x-api-key': partner.apiKey, 'content-type': 'application/json', 'idempotency-key': key },
    body: { ip },
  })

describe('the same key and body repeated', () => {
  test('is the first answer byte for byte, marked as replayed, and charged once', async () => {
    const partner = await house.partner({ credits: '10' })
    const first = await lookup(partner, places.london, 'order-1')
    expectCredits(first, '1', '9')
    expect(first.headers.get('idempotent-replayed')).toBeNull()
    expect(first.events.map(({ type }) => type)).toEqual(['KeyUsed', 'CreditCharged'])
    expect(first.events[0]?.data.idempotent).toBe(true)
    for (let i = 0; i < 3; i++) {
      const again = await lookup(partner, places.london, 'order-1')
      expect({ status: again.status, text: again.text }).toEqual({ status: 200, text: first.text })
      expect(again.headers.get('idempotent-replayed')).toBe('true')
      expect(again.headers.get('content-type')).toBe(jsonType)
      expectCredits(again, '0', '9')
      expect(Object.keys(rateLimitsOf(again))).toEqual(['minute', 'day'])
      // A replay is a separate call: it has its own request id in the header and in its fact.
      expect(bare(again.events)).toEqual([replayFact(partner)])
      expect(again.events[0]?.metadata.request_id).toBe(again.headers.get('x-request-id'))
      expect(again.headers.get('x-request-id')).not.toBe(first.headers.get('x-request-id'))
    }
    expect(await chargesOf(house, partner)).toHaveLength(1)
  })

  test('is the first answer even if it was a refusal', async () => {
    const partner = await house.partner({ credits: '10' })
    const first = await lookup(partner, '256.1.1.1', 'wrong')
    expect(first.body.code).toBe('IP_001')
    const again = await lookup(partner, '256.1.1.1', 'wrong')
    expect({ status: again.status, text: again.text }).toEqual({ status: 400, text: first.text })
    expect(again.headers.get('idempotent-replayed')).toBe('true')
    expectCredits(again, '0', '10')
  })

  test('belongs to the organization: all its keys get the first answer, and no key of another organization does', async () => {
    const partner = await house.partner({ credits: '10' })
    const colleague = await house.key(partner.organizationId)
    const stranger = await house.partner({ credits: '10' })
    const first = await lookup(partner, places.london, 'shared')
    expect((await lookup(colleague, places.london, 'shared')).text).toBe(first.text)
    const other = await lookup(stranger, places.london, 'shared')
    expect(other.text).not.toBe(first.text)
    expectCredits(other, '1', '9')
  })

  test('under two organizations leaves no equal values: neither can use the other’s stored answer', async () => {
    const [partner, stranger] = [
      await house.partner({ credits: '10' }),
      await house.partner({ credits: '10' }),
    ]
    const own = await lookup(partner, places.london, 'shared')
    const other = await lookup(stranger, places.london, 'shared')
    const ids = [partner.organizationId, stranger.organizationId]
    for (const column of ['key_hash', 'body_hash'])
      expect(
        await house.query(
          `select count(distinct ${column})::int as different from idempotent_calls where organization_id = any ($1)`,
          [ids],
        ),
        column,
      ).toEqual([{ different: 2 }])
    // Simulates that one organization's row was copied over the row of another.
    await house.query(
      `update idempotent_calls set answer = (select answer from idempotent_calls where organization_id = $1)
        where organization_id = $2`,
      ids,
    )
    const again = await lookup(stranger, places.london, 'shared')
    expect(again.text).not.toBe(own.text)
    expect(again.body.result).toEqual(other.body.result)
    expectCredits(again, '0', '9')
    expect(bare(again.events)).toEqual([replayFact(stranger, 'ip_lookup')])
  })

  test('the quotes around a key are not part of it', async () => {
    const partner = await house.partner({ credits: '10' })
    const first = await lookup(partner, places.london, '"quoted-1"')
    expect(first.status).toBe(200)
    expect((await lookup(partner, places.london, 'quoted-1')).text).toBe(first.text)
    expect(await chargesOf(house, partner)).toHaveLength(1)
  })
})

describe('the same key with another body', () => {
  test.each([
    ['of another address', { ip: places.munich }],
    ['that is refused itself', { ip: 'nonsense' }],
  ])('%s gets IDEMP_001, recorded and free', async (_, body) => {
    const partner = await house.partner({ credits: '10' })
    const first = await lookup(partner, places.london, 'order-1')
    const answer = await house.lookup(partner, body, { 'idempotency-key': 'order-1' })
    expectRefusedCall(answer, partner, {
      status: 422,
      error: 'validation_error',
      code: 'IDEMP_001',
      details: {},
    })
    expectCredits(answer, '0', '9')
    expect((await lookup(partner, places.london, 'order-1')).text).toBe(first.text)
  })
})

describe('the same key used simultaneously', () => {
  test('gets IDEMP_002 while the first call is being processed, recorded and free', async () => {
    const partner = await house.partner({ credits: '10' })
    const before = (await house.eventsOf(partner.organizationId)).length
    const blocked = await house.blockLog()
    const holder = new pg.Client({ connectionString: house.foundation.migrationUrl })
    holder.on('error', () => undefined)
    await holder.connect()
    const [first, refused] = await (async () => {
      try {
        const one = sendLookup(partner, places.london, 'twice')
        await blocked.waiting()
        // The claim of the first call cannot end until the second call is answered.
        await holder.query('begin')
        const claim = 'select from idempotent_calls where organization_id = $1 for update'
        expect((await holder.query(claim, [partner.organizationId])).rowCount).toBe(1)
        const two = sendLookup(partner, places.london, 'twice')
        await blocked.release()
        return [one, await two]
      } finally {
        await holder.end()
        await blocked.release()
      }
    })()
    expect((await first).status).toBe(200)
    expectErrorObject(refused, { status: 409, error: 'conflict', code: 'IDEMP_002', details: {} })
    expect(refused.headers.get('retry-after')).toMatch(/^[1-9]\d*$/)
    expectCredits(refused, '0', '9')
    const events = (await house.eventsOf(partner.organizationId)).slice(before)
    expect(events.map(({ type }) => type).sort()).toEqual(['CreditCharged', 'KeyUsed', 'KeyUsed'])
    expect(bare(events)).toContainEqual(refusalFact(partner, 'IDEMP_002'))
    expect((await lookup(partner, places.london, 'twice')).text).toBe((await first).text)
  })

  test('only one of 30 simultaneous calls is charged; the others get its answer, or IDEMP_002', async () => {
    const partner = await house.partner({ credits: '100' })
    const answers = await Promise.all(
      Array.from({ length: 30 }, () => sendLookup(partner, places.london, 'all')),
    )
    const firsts = answers.filter(
      ({ status, headers }) => status === 200 && headers.get('idempotent-replayed') === null,
    )
    expect(firsts).toHaveLength(1)
    for (const { status, text, headers } of answers) {
      expect([200, 409]).toContain(status)
      if (status === 200) expect(text).toBe(firsts[0]?.text)
      expect(headers.get('credits-charged')).toBe(
        text === firsts[0]?.text && !headers.has('idempotent-replayed') ? '1' : '0',
      )
    }
    expect(await chargesOf(house, partner)).toHaveLength(1)
  })
})

describe('an invalid key', () => {
  const refusal = {
    status: 400,
    error: 'validation_error',
    code: 'REQ_003',
    details: { parameter: 'Idempotency-Key', expected: 'one key of 1 to 255 visible ASCII characters' },
  }

  test.each([
    ['empty', ''],
    ['of 256 characters', 'x'.repeat(256)],
    ['with a space', 'a b'],
    ['with a character beyond ASCII', 'schlüssel'],
  ])('%s gets REQ_003, recorded and free', async (_, key) => {
    const partner = await house.partner({ credits: '10' })
    expectRefusedCall(await lookup(partner, places.london, key), partner, refusal)
  })

  test('sent twice gets REQ_003, recorded and free', async () => {
    const partner = await house.partner({ credits: '10' })
    const before = (await house.eventsOf(partner.organizationId)).length
    const body = JSON.stringify({ ip: places.london })
    const [answer] = await sendRaw(
      house.apiUrl,
      `POST /v1/ip/lookup HTTP/1.1\r\nHost: x\r\nx-api-key: ${partner.apiKey}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\nIdempotency-Key: a\r\nIdempotency-Key: a\r\n\r\n${body}`,
    )
    if (answer === undefined) throw new Error('no answer')
    const events = (await house.eventsOf(partner.organizationId)).slice(before)
    expectRefusedCall({ ...answer, events }, partner, refusal)
  })
})

describe('a key may be any text, even one from which the ledger derives ids', () => {
  test('a key is never in the event log', async () => {
    const partner = await house.partner({ credits: '10' })
    await lookup(partner, places.london, 'a-secret-of-the-partner')
    expect(JSON.stringify(await house.eventsOf(partner.organizationId))).not.toContain(
      'a-secret-of-the-partner',
    )
  })
})

describe('after the stored answer is deleted', () => {
  test('a charged call is made again and not charged again', async () => {
    const partner = await house.partner({ credits: '10' })
    const first = await lookup(partner, places.london, 'old')
    await forget(house, partner)
    const again = await lookup(partner, places.london, 'old')
    expect(again.status).toBe(200)
    expect(again.body.result).toEqual(first.body.result)
    expect(again.headers.get('idempotent-replayed')).toBe('true')
    expectCredits(again, '0', '9')
    expect(bare(again.events)).toEqual([replayFact(partner, 'ip_lookup')])
    expect(await chargesOf(house, partner)).toHaveLength(1)
  })

  test('the key of a free call can be used for another call, which is charged once', async () => {
    const partner = await house.partner({ credits: '10' })
    expectCredits(await lookup(partner, places.unknown, 'free'), '0', '10')
    expect((await lookup(partner, places.london, 'free')).body.code).toBe('IDEMP_001')
    await forget(house, partner)
    for (const charged of ['1', '0'])
      expectCredits(await lookup(partner, places.london, 'free'), charged, '9')
    expect(await chargesOf(house, partner)).toHaveLength(1)
  })

  test('the key of a charged call can never be used for another call', async () => {
    const partner = await house.partner({ credits: '10' })
    await lookup(partner, places.london, 'taken')
    await forget(house, partner)
    expect((await lookup(partner, places.unknown, 'taken')).body.code).toBe('IDEMP_001')
    await house.query('delete from idempotent_calls where organization_id = $1', [partner.organizationId])
    expect((await lookup(partner, places.unknown, 'taken')).body.code).toBe('IDEMP_001')
    expect(await chargesOf(house, partner)).toHaveLength(1)
  })

  test('a call that was refused for lack of credits is not free', async () => {
    const partner = await house.partner({ credits: '0' })
    expect((await lookup(partner, places.london, 'unpaid')).status).toBe(402)
    await forget(house, partner)
    const again = await lookup(partner, places.london, 'unpaid')
    // A result is sent only with a charge, and there are no credits to charge.
    expect(again.status).toBe(402)
    expect(again.text).not.toContain('London')
    expect(await chargesOf(house, partner)).toEqual([])
  })
})

describe('after the process died before it answered', () => {
  test('a charged call is answered and not charged again', async () => {
    const partner = await house.partner({ credits: '10' })
    const first = await lookup(partner, places.london, 'lost')
    await loseAnswers(house, partner)
    const again = await lookup(partner, places.london, 'lost')
    expect(again.status).toBe(200)
    expect(again.body.result).toEqual(first.body.result)
    expectCredits(again, '0', '9')
    expect(await chargesOf(house, partner)).toHaveLength(1)
    expect((await lookup(partner, places.london, 'lost')).text).toBe(again.text)
  })
})

test('15 no partner’s key equals another key, a request id, or the name of an internal command', () => {
  const key = fc.string({ unit: fc.constantFrom('a', '/', '1', '2', '-', ':'), minLength: 1, maxLength: 12 })
  fc.assert(
    fc.property(key, key, (one, other) => {
      fc.pre(one !== other)
      expect(commandKeyOf(one)).not.toBe(commandKeyOf(other))
      expect(commandKeyOf(one)).not.toBe(other)
    }),
    { seed: 1, numRuns: randomCases(1_000) },
  )
  for (const own of ['refunded/', 'failed/', 'fence/', 'refused/'])
    expect(commandKeyOf(own)).not.toMatch(`^${own}`)
})
