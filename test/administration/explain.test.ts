/** A call is explained from the read models, from the ledger alone, and even if the read models are wrong. */
import { describe, expect, test } from 'vitest'
import { explainCall } from '../../src/administration/ledgers/explain.ts'
import { emailValidation } from '../../src/capabilities/email-validation/index.ts'
import { ipLookup } from '../../src/capabilities/ip-lookup/index.ts'
import { profile } from '../../src/capabilities/profile/index.ts'
import { appendNext } from '../../src/event-log/append-next.ts'
import { encodeEvent, eventIdOf } from '../../src/event-log/stored-event.ts'
import { profileStream } from '../../src/events/streams.ts'
import { houseForFile, type Partner, places } from '../support/house.ts'

const house = await houseForFile()

const lookedUp = async (partner: Partner, ip: string, headers = {}): Promise<string> =>
  String((await house.lookup(partner, { ip }, headers)).headers.get('x-request-id'))

describe('a call', () => {
  test('has the same explanation from the ledger alone as with the read models', async () => {
    const partner = await house.partner({ credits: '1.5', overdraft: '3' })
    const by = { actor: 'cli', atMs: Date.now() }
    const ids = [await lookedUp(partner, places.london), await lookedUp(partner, places.unknown)]
    await house.foundation.ledger.submit(partner.organizationId, {
      ...by,
      key: 'price',
      kind: 'override_price',
      sku: 'ip_lookup',
      amount: 1_250_000n,
      effectiveFrom: '2026-01-01T00:00:00.000Z',
      reason: 'agreed',
    } as const)
    ids.push(await lookedUp(partner, places.munich, { 'idempotency-key': 'k' }))
    ids.push(await lookedUp(partner, places.munich, { 'idempotency-key': 'k' }))
    const charges = (await house.eventsOf(partner.organizationId)).filter(
      ({ type }) => type === 'CreditCharged',
    )
    const adjusts = String(charges[1]?.data.charge_id)
    await house.foundation.ledger.submit(partner.organizationId, {
      ...by,
      key: 'back',
      kind: 'adjust',
      adjusts,
      amount: 250_000n,
      reason: 'a mistake',
      rerateRun: null,
      correction: 'refund',
    } as const)
    for (const requestId of ids) {
      const early = await explainCall(house.foundation, { requestId, organizationId: partner.organizationId })
      await house.projected()
      const late = await explainCall(house.foundation, { requestId })
      expect(late).toEqual(await explainCall(house.foundation, { requestId, whole: true }))
      expect(early).toEqual(late)
    }
    expect(await explainCall(house.foundation, { requestId: ids[2] ?? '' })).toMatchObject({
      cost: { charged: '1.25', now: '1' },
      overdraft: '0.75',
      balance: { before: '0.5', after: '-0.75' },
      replays: [{ request_id: ids[3] }],
    })
  })

  test('has the price that was set last, whether or not its revision has more digits', async () => {
    const partner = await house.partner({ credits: '100' })
    const requests: string[] = []
    for (let n = 1; n <= 5; n++) {
      await house.foundation.ledger.submit(partner.organizationId, {
        actor: 'cli',
        atMs: Date.now(),
        key: `price ${n}`,
        kind: 'override_price',
        sku: 'ip_lookup',
        amount: BigInt(n) * 1_000_000n,
        effectiveFrom: '2026-01-01T00:00:00.000Z',
        reason: 'agreed',
      } as const)
      requests.push(await lookedUp(partner, places.london))
    }
    await house.projected()
    for (const requestId of requests)
      expect(await explainCall(house.foundation, { requestId })).toEqual(
        await explainCall(house.foundation, { requestId, whole: true }),
      )
  })

  test('is found in the ledger if the read models lack it or have it in the wrong place', async () => {
    const partner = await house.partner()
    const lost = await lookedUp(partner, places.london)
    const moved = await lookedUp(partner, places.london)
    await house.projected()
    await house.query(`delete from ledger_lines_v2 where request_id = $1`, [lost])
    await house.query(`update ledger_lines_v2 set request_id = 'elsewhere' where request_id = $1`, [moved])
    for (const requestId of [lost, moved])
      expect((await explainCall(house.foundation, { requestId })).events).toHaveLength(2)
    const bounded = explainCall(house.foundation, { requestId: lost, bounded: true })
    await expect(bounded).rejects.toThrow('no ledger contains an individual record')
  })

  test('if the read models have the place of another event, that place is ignored', async () => {
    const partner = await house.partner()
    const one = await lookedUp(partner, places.london)
    const other = await lookedUp(partner, places.unknown)
    await house.projected()
    await house.query(`update ledger_lines_v2 set request_id = $2 where request_id = $1`, [
      other,
      `0${one.slice(1)}X`,
    ])
    await house.query(`update ledger_lines_v2 set request_id = $2 where request_id = $1`, [one, other])
    expect((await explainCall(house.foundation, { requestId: other })).facts).toMatchObject({
      success: false,
    })
  })

  test('that is in no ledger is not found, with a hint about what is recorded; an invalid request id is refused', async () => {
    const unknown = explainCall(house.foundation, { requestId: '01JB2ZQ5V7N3K2M4P6R8T0W1X2' })
    await expect(unknown).rejects.toThrow(/RateLimitExceeded.+CallsRefused/)
    await expect(explainCall(house.foundation, { requestId: 'x' })).rejects.toThrow('is not a request id')
  })
})

describe('the subject of a call', () => {
  const storage = () => ({ ...house.foundation, settings: house.config })
  const subject = 'sub_01J8ZQ5V7N3K2M4P6R8T0W1X2A'

  test('an IP address is recognized in any notation', async () => {
    const facts = {
      ...({ kind: 'ip_lookup', success: true, country_code: null } as const),
      address_hmac: house.foundation.secrets.addressHmac('2a02:c7c:1::7'),
    }
    for (const [text, verdict] of [
      ['2A02:0c7c:0001:0:0:0:0:7', 'yes'],
      ['2a02:c7c:1::8', 'no'],
      ['nonsense', 'no'],
    ] as const)
      expect(await ipLookup.recognizes?.(storage(), text)(facts)).toMatchObject({ verdict })
    expect(await emailValidation.recognizes?.(storage(), 'a@b.example')(facts)).toBeNull()
  })

  test('an e-mail address is recognized after normalization', async () => {
    const facts = {
      ...({ kind: 'email_validation', status: 'valid', sub_status: 'accepted', decision_row: 17 } as const),
      ...({ company_status: 'not_requested', domain: 'example.com' } as const),
      address_hmac: house.foundation.secrets.addressHmac('ada@example.com'),
    }
    for (const [text, verdict] of [
      [' Ada@Example.com. ', 'yes'],
      ['ada@example.org', 'no'],
    ] as const)
      expect(await emailValidation.recognizes?.(storage(), text)(facts)).toEqual({ verdict })
  })

  test("a profile is recognized by any of the person's identifiers; for an unknown person this is impossible", async () => {
    const facts = { kind: 'profile', source: 'cached', age_seconds: 1, subject_id: subject } as const
    const verdictOf = async (text: string) => (await profile.recognizes?.(storage(), text)(facts))?.verdict
    expect(await verdictOf('ada-lovelace')).toBe('cannot_be_told')
    const hmac = house.foundation.secrets.identifierHmac('lid:ada-lovelace')
    await appendNext(house.foundation.eventLog, profileStream(subject), [
      encodeEvent(
        {
          type: 'ProfileMissed',
          data: {
            subject_id: subject,
            provider: 'http',
            reason: 'not_found',
            observed_at: '2026-01-01T00:00:00.000Z',
            aliases: [{ kind: 'lid', hmac }],
          },
        },
        { id: eventIdOf(subject, 'missed', 0), actor: 'system', effectiveAt: '2026-01-01T00:00:00.000Z' },
      ),
    ])
    expect(await verdictOf('https://www.profnet.com/in/Ada-Lovelace')).toBe('yes')
    expect(await verdictOf('charles-babbage')).toBe('no')
  })
})
