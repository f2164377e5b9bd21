import { randomUUID } from 'node:crypto'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { formatCredits } from '../../src/billing/money.ts'
import { type Balance, noticeOf } from '../../src/webhooks/notices.ts'
import { deliveriesOf } from '../../src/webhooks/outbox.ts'
import { decoded, organization } from './events.ts'

type Step =
  | { readonly kind: 'move'; readonly by: bigint }
  | { readonly kind: 'set'; readonly to: bigint | null }

const steps: fc.Arbitrary<Step[]> = fc.array(
  fc.oneof(
    fc.record({ kind: fc.constant('move' as const), by: fc.bigInt({ min: -30n, max: 30n }) }),
    fc.record({
      kind: fc.constant('set' as const),
      to: fc.option(fc.bigInt({ min: 0n, max: 40n }), { nil: null }),
    }),
  ),
  { maxLength: 60 },
)

const eventOf = (step: Step, n: number) => {
  if (step.kind === 'set')
    return decoded(
      {
        type: 'BalanceThresholdSet',
        data: { amount: step.to === null ? null : formatCredits(step.to * 1_000_000n) },
      },
      n,
    )
  return decoded(
    {
      type: 'CreditAdjusted',
      data: {
        ...{
          adjustment_id: organization.uuid,
          adjusts: null,
          reason: 'r',
          rerate_run: null,
          allocations: [],
        },
        ...{ overdraft_repaid: '0', kind: 'adjustment', fills: [], reference: null, charged_at: null },
        amount: formatCredits(step.by * 1_000_000n),
      },
    },
    n,
  )
}

/** By the definition alone: the places at which the balance is below the threshold and was not before. */
const crossings = (all: readonly Step[]): string[] => {
  let balance = 0n
  let threshold: bigint | null = null
  let low = false
  return all.flatMap((step, n) => {
    if (step.kind === 'set') threshold = step.to
    else balance += step.by
    const isLow: boolean = threshold !== null && balance < threshold
    const crosses = isLow && !low
    low = isLow
    return crosses ? [String(n)] : []
  })
}

describe('balance.low', () => {
  test('is told once for every time the balance falls below the threshold, however the log is cut into batches', () => {
    fc.assert(
      fc.property(steps, fc.array(fc.nat(60)), (all, cuts) => {
        const events = all.map(eventOf)
        let kept = new Map<string, Balance>()
        const told: string[] = []
        events.forEach((event, n) => {
          // A batch begins with what was written down at the end of the one before.
          if (cuts.includes(n)) kept = new Map(kept)
          const notice = noticeOf(event, kept)
          if (notice?.event === 'balance.low') told.push(notice.source)
        })
        expect(told).toEqual(
          crossings(all).map((n) => eventOf({ kind: 'set', to: null }, Number(n)).recorded.id),
        )
      }),
    )
  })

  test('says balance and threshold', () => {
    const balances = new Map<string, Balance>()
    noticeOf(eventOf({ kind: 'move', by: 5n }, 0), balances)
    expect(noticeOf(eventOf({ kind: 'set', to: 10n }, 1), balances)).toMatchObject({
      event: 'balance.low',
      organizationId: organization.id,
      data: { balance: '5', threshold: '10' },
    })
  })
})

describe('price.changed', () => {
  test('a price book concerns everyone, and says from when', () => {
    const book = {
      ...{ version: 3, effective_from: '2026-12-01T00:00:00.000Z', rules: [], approver: 'ada' },
      ...{ proposal: 1, digest: null },
    }
    const event = decoded(
      { type: 'PriceBookPublished', data: { ...book, proposal: null, digest: null } },
      0,
      'pricebook',
    )
    expect(noticeOf(event, new Map())).toMatchObject({
      event: 'price.changed',
      organizationId: null,
      data: { change: 'price_book', price_book_version: 3, effective_from: book.effective_from },
    })
  })

  test('that a book is withdrawn before it came into force concerns everyone too', () => {
    const event = decoded({ type: 'PriceBookWithdrawn', data: { version: 3, reason: 'r' } }, 0, 'pricebook')
    expect(noticeOf(event, new Map())).toMatchObject({
      organizationId: null,
      data: { change: 'price_book_withdrawn', price_book_version: 3 },
    })
  })

  test('a price of one organization concerns that one', () => {
    const data = {
      ...{ sku: 'ip_lookup', amount: '0.5', effective_from: '2026-12-01T00:00:00.000Z' },
      ...{ override_id: randomUUID(), reason: null },
    }
    expect(noticeOf(decoded({ type: 'PriceOverrideSet', data }, 0), new Map())).toMatchObject({
      event: 'price.changed',
      organizationId: organization.id,
      data: { change: 'override', sku: 'ip_lookup', amount: '0.5' },
    })
  })
})

describe('checkpoint', () => {
  test('a signed checkpoint is told to everyone as it is', () => {
    const note = 'origin\n7\nroot\n\n— origin signature\n'
    const data = { origin: 'origin', size: 7, root: 'root', position: '7', note }
    const event = decoded({ type: 'LogCheckpointed', data }, 0, 'checkpoint')
    expect(noticeOf(event, new Map())).toMatchObject({
      event: 'checkpoint',
      organizationId: null,
      data: { size: 7, note },
    })
  })
})

describe('who is told', () => {
  const notice = {
    ...{ event: 'price.changed' as const, organizationId: null, source: 'a', at: '2026-01-01T00:00:00.000Z' },
    ...{ recordedAtMs: Date.parse('2026-01-01T00:00:00.000Z'), data: { change: 'price_book' } },
  }
  const listener = (organizationId: string | null, createdAtMs = 0, events = ['price.changed' as const]) => ({
    webhook_id: `wh_${organizationId}`,
    organization_id: organizationId,
    events,
    created_at: new Date(createdAtMs),
  })
  const nowMs = notice.recordedAtMs + 1_000
  const told = (more: object, listeners: Parameters<typeof deliveriesOf>[1]) =>
    deliveriesOf([{ ...notice, ...more }], listeners, nowMs).map(({ webhookId }) => webhookId)

  test('everyone of what concerns everyone, under the name of each organization', () => {
    const all = deliveriesOf([notice], [listener('a'), listener('b')], nowMs)
    expect(all.map(({ payload }) => JSON.parse(payload).data.organization_id)).toEqual(['a', 'b'])
    expect(new Set(all.map(({ deliveryId }) => deliveryId)).size).toBe(2)
  })

  test('one organization of what concerns it', () => {
    expect(told({ organizationId: 'b' }, [listener('a'), listener('b'), listener(null)])).toEqual(['wh_b'])
  })

  test('no one of what happened before they listened, nor of what is a month old', () => {
    expect(told({}, [listener('a', notice.recordedAtMs + 1)])).toEqual([])
    expect(deliveriesOf([notice], [listener('a')], nowMs + 31 * 24 * 3_600_000)).toEqual([])
  })

  test('the same of the same under the same id', () => {
    const ids = [1, 2].map(() => deliveriesOf([notice], [listener('a')], nowMs)[0]?.deliveryId)
    expect(ids[0]).toBe(ids[1])
    expect(ids[0]).toMatch(/^msg_[0-9a-f]{32}$/)
  })
})
