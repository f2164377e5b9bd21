/** The billing rules in Specification 4.1, as decisions 8 to 14 apply them to the IP lookup. */
import { describe, expect, test } from 'vitest'
import {
  priceOverrides,
  setPriceOverride,
  withdrawPriceOverride,
} from '../../src/administration/prices/price-overrides.ts'
import { formatCredits, parseCredits } from '../../src/billing/money.ts'
import { defaultPriceBook } from '../../src/billing/price-book.ts'
import {
  type AnswerAndFacts,
  houseForFile,
  type LedgerFact,
  type Partner,
  places,
  until,
} from '../support/house.ts'
import { bare, expectCredits, expectRefusedCall } from './wire.ts'

const hourMs = 3_600_000

const house = await houseForFile({ clock: 'movable' })

const chargesIn = (events: readonly LedgerFact[]): LedgerFact[] =>
  events.filter(({ type }) => type === 'CreditCharged')

const total = (amounts: readonly unknown[]): string =>
  formatCredits(amounts.reduce<bigint>((sum, amount) => sum + parseCredits(String(amount)), 0n))

const override = (partner: Partner, amount: string | null, effectiveFrom = new Date().toISOString()) =>
  setPriceOverride(house.foundation, {
    organizationId: partner.organizationId,
    sku: 'ip_lookup',
    amount: amount === null ? null : parseCredits(amount),
    effectiveFrom,
    reason: 'contract',
    actor: 'cli',
  })

/** Repeats a call that is refused with 503, which costs nothing. A process refuses calls while its database stalls. */
const lookupWhenAvailable = async (partner: Partner, body: unknown): Promise<AnswerAndFacts> => {
  const answers: AnswerAndFacts[] = []
  await until('the lookup is answered', async () => {
    answers.push(await house.lookup(partner, body))
    return answers.at(-1)?.body.code !== 'SYS_002'
  })
  return answers.at(-1) ?? expect.unreachable()
}

const outOfCredits = (required: string, available: string) => ({
  status: 402,
  error: 'payment_required',
  code: 'CREDIT_001',
  details: { required, available },
})

test('decision 11: the headers of all answers add up to the charges in the ledger', async () => {
  const partner = await house.partner({ credits: '6', overdraft: '1' })
  const bodies = [places.london, 'x', places.munich, '10.0.0.1', places.londonIPv6, places.unknown]
  const answers = []
  for (const ip of [...bodies, ...bodies, ...bodies]) answers.push(await house.lookup(partner, { ip }))
  answers.push(await house.whoami(partner))
  const events = await house.eventsOf(partner.organizationId)
  const headers = total(answers.map(({ headers }) => headers.get('credits-charged')))
  expect(headers).toBe('7')
  expect(total(chargesIn(events).map(({ data }) => data.amount))).toBe(headers)
  expect(answers.at(-1)?.headers.get('credits-remaining')).toBe('-1')
  const { balance } = await house.foundation.ledger
    .account(partner.organizationId)
    .then(({ lots, overdrawn }) => ({
      balance: lots.reduce((sum, { remaining }) => sum + remaining, 0n) - overdrawn,
    }))
  expect(formatCredits(balance)).toBe('-1')
})

describe('decision 13: the balance does not go below the overdraft limit', () => {
  test('CREDIT_001 states the required and available credits; the call is recorded and free', async () => {
    const partner = await house.partner({ credits: '1' })
    expectCredits(await house.lookup(partner, { ip: places.london }), '1', '0')
    const refused = await house.lookup(partner, { ip: places.london })
    expectRefusedCall(refused, partner, outOfCredits('1', '0'))
    expectCredits(refused, '0', '0')
    expect(refused.body).not.toHaveProperty('result')
    expect(refused.text).not.toContain('London')
  })

  test('free calls are answered without any credits', async () => {
    const partner = await house.partner({ credits: '0' })
    expectCredits(await house.lookup(partner, { ip: '10.0.0.1' }), '0', '0')
    expectRefusedCall(await house.lookup(partner, { ip: places.london }), partner, outOfCredits('1', '0'))
  })

  test('50 credits pay for exactly 50 of 200 simultaneous calls', async () => {
    const partner = await house.partner({ credits: '50' })
    const before = (await house.eventsOf(partner.organizationId)).length
    const minute = () => Math.floor(performance.now() / 60_000)
    const begunIn = minute()
    const answers = await Promise.all(
      Array.from({ length: 200 }, (_, i) => lookupWhenAvailable(partner, { ip: `81.2.69.${i}` })),
    )
    const paid = answers.filter(({ status }) => status === 200)
    const refused = answers.filter(({ status }) => status === 402)
    expect({ paid: paid.length, refused: refused.length }).toEqual({ paid: 50, refused: 150 })
    for (const { headers, body } of paid) {
      expect(headers.get('credits-charged')).toBe('1')
      expect(body.result).toMatchObject({ success: true })
    }
    for (const { headers, body } of refused) {
      expect(headers.get('credits-charged')).toBe('0')
      expect(body).toMatchObject({ code: 'CREDIT_001', details: { required: '1', available: '0' } })
      expect(body).not.toHaveProperty('result')
    }
    const remaining = paid.map(({ headers }) => Number(headers.get('credits-remaining')))
    expect(remaining.sort((a, b) => a - b)).toEqual(Array.from({ length: 50 }, (_, i) => i))
    const events = (await house.eventsOf(partner.organizationId)).slice(before)
    const unpaid = events.filter(({ type, data }) => type === 'KeyUsed' && data.code === 'CREDIT_001')
    expect(unpaid.length).toBeGreaterThanOrEqual(60)
    // More than 60 calls were refused in this minute, so further refusals are counted, and recorded in one event when the minute
    // is over.
    for (let n = 0; n < 5; n++)
      expect((await lookupWhenAvailable(partner, { ip: '81.2.69.1' })).status).toBe(402)
    const later = (await house.eventsOf(partner.organizationId)).slice(before + events.length)
    if (minute() === begunIn) expect(later).toEqual([])
    expect(events.filter(({ type }) => type === 'KeyUsed')).toHaveLength(50 + unpaid.length)
    expect(chargesIn(events)).toHaveLength(50)
    // Each charge directly follows its call and names it. The request id in each paid answer belongs to a call.
    const called = new Map(
      events.flatMap((event) => (event.type === 'KeyUsed' ? [[event.revision, event]] : [])),
    )
    for (const charge of chargesIn(events))
      expect(charge.metadata.causation_id).toBe(called.get(charge.revision - 1)?.id)
    const requestIds = (of: readonly { body: Readonly<Record<string, unknown>> }[]) =>
      new Set(of.map(({ body }) => body.request_id))
    const recorded = new Set<unknown>([...called.values()].map(({ metadata }) => metadata.request_id))
    expect(recorded.isSubsetOf(requestIds(answers))).toBe(true)
    expect(recorded.isSupersetOf(requestIds(paid))).toBe(true)
  })
})

describe('decision 14: every charge names its rule, its version and the price book that priced it', () => {
  test('an organization’s own price replaces the book’s from its start time until it is lifted', async () => {
    const partner = await house.partner({ credits: '100' })
    await override(partner, '0.25')
    const reduced = await house.lookup(partner, { ip: places.london })
    expectCredits(reduced, '0.25', '99.75')
    expect(chargesIn(reduced.events)[0]?.data).toMatchObject({
      amount: '0.25',
      lines: [{ sku: 'ip_lookup', amount: '0.25', rule: 'ip_lookup.located', rule_version: 1 }],
      rule: 'ip_lookup.located',
      rule_version: 1,
    })
    await override(partner, '3', new Date(Date.now() + hourMs).toISOString())
    expectCredits(await house.lookup(partner, { ip: places.london }), '0.25', '99.5')
    house.moveClock(hourMs + 1000)
    expectCredits(await house.lookup(partner, { ip: places.london }), '3', '96.5')
    await override(partner, null)
    expectCredits(await house.lookup(partner, { ip: places.london }), '1', '95.5')
  })

  test('a withdrawn own price prices no later call; earlier calls keep their price', async () => {
    const partner = await house.partner({ credits: '10' })
    const { organizationId } = partner
    const { overrideId } = await override(partner, '0.25')
    await override(partner, '4', new Date(Date.now() + hourMs).toISOString())
    expectCredits(await house.lookup(partner, { ip: places.london }), '0.25', '9.75')
    const listed = await priceOverrides(house.foundation, organizationId)
    expect(listed.map(({ amount, in_force }) => ({ amount, in_force }))).toEqual([
      { amount: '0.25', in_force: true },
      { amount: '4', in_force: false },
    ])
    expect(listed[0]).toMatchObject({ override_id: overrideId, set_by: 'cli', reason: 'contract' })
    const withdraw = () =>
      withdrawPriceOverride(house.foundation, {
        organizationId,
        overrideId,
        reason: 'a mistake',
        actor: 'user:ada',
      })
    await withdraw()
    expectCredits(await house.lookup(partner, { ip: places.london }), '1', '8.75')
    await expect(withdraw()).rejects.toThrow(`${organizationId} has no active override ${overrideId}`)
  })

  // This test is the last one because its price book stays in force.
  test('a new price book prices calls from its start time, and re-prices no earlier call', async () => {
    const partner = await house.partner({ credits: '100' })
    const watcher = await house.partner({ credits: '1000' })
    const withPrice = (amount: string) =>
      defaultPriceBook.rules.map((rule) =>
        rule.rule === 'ip_lookup.located' ? { ...rule, amount } : { ...rule },
      )
    const later = await house.publishPriceBook({
      effective_from: new Date(Date.now() + hourMs).toISOString(),
      rules: withPrice('1.000001'),
    })
    // Processes receive books in the order of publication, so a process that prices calls by this book has also received `later`.
    const now = await house.publishPriceBook({
      effective_from: new Date(Date.now() - hourMs).toISOString(),
      rules: withPrice('1'),
    })
    await until('the books are heard', async () => {
      const { events } = await house.lookup(watcher, { ip: places.london })
      return chargesIn(events)[0]?.data.price_book_version === now
    })
    const before = await house.lookup(partner, { ip: places.london })
    expectCredits(before, '1', '99')
    const history = bare(await house.eventsOf(partner.organizationId))
    house.moveClock(hourMs + 1000)
    const after = await house.lookup(partner, { ip: places.london })
    expectCredits(after, '1.000001', '97.999999')
    expect(chargesIn(after.events)[0]?.data).toMatchObject({ amount: '1.000001', price_book_version: later })
    expect(bare(await house.eventsOf(partner.organizationId)).slice(0, history.length)).toEqual(history)
  })
})
