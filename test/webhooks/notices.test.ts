import { randomUUID } from 'node:crypto'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { formatCredits } from '../../src/billing/money.ts'
import { type Balance, noticeOf } from '../../src/webhooks/notices.ts'
import { deliveriesOf } from '../../src/webhooks/outbox.ts'
import { decoded, moved, organization } from './events.ts'

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
  return decoded(moved(step.by), n)
}

/** The crossings by definition: the steps at which the balance is below the threshold and the previous balance was not. */
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
  test('is created once each time the balance falls below the threshold, with any division of the log into batches', () => {
    fc.assert(
      fc.property(steps, fc.array(fc.nat(60)), (all, cuts) => {
        const events = all.map(eventOf)
        let kept = new Map<string, Balance>()
        const sources: string[] = []
        events.forEach((event, n) => {
          if (cuts.includes(n)) kept = new Map(kept)
          const notice = noticeOf(event, kept)
          if (notice?.event === 'balance.low') sources.push(notice.source)
        })
        expect(sources).toEqual(
          crossings(all).map((n) => eventOf({ kind: 'set', to: null }, Number(n)).recorded.id),
        )
      }),
    )
  })

  test('contains balance and threshold', () => {
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
  test('a price book concerns everyone, and contains its effective date', () => {
    const book = {
      version: 3,
      effective_from: '2026-12-01T00:00:00.000Z',
      rules: [],
      approver: 'ada',
      proposal: 1,
      digest: null,
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

  test('the withdrawal of a scheduled book concerns everyone too', () => {
    const event = decoded({ type: 'PriceBookWithdrawn', data: { version: 3, reason: 'r' } }, 0, 'pricebook')
    expect(noticeOf(event, new Map())).toMatchObject({
      organizationId: null,
      data: { change: 'price_book_withdrawn', price_book_version: 3 },
    })
  })

  test('a price of one organization concerns only that one', () => {
    const data = {
      sku: 'ip_lookup',
      amount: '0.5',
      effective_from: '2026-12-01T00:00:00.000Z',
      override_id: randomUUID(),
      reason: null,
    }
    expect(noticeOf(decoded({ type: 'PriceOverrideSet', data }, 0), new Map())).toMatchObject({
      event: 'price.changed',
      organizationId: organization.id,
      data: { change: 'override', sku: 'ip_lookup', amount: '0.5' },
    })
  })
})

describe('checkpoint', () => {
  test('a signed checkpoint is sent to everyone unchanged', () => {
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

describe('recipients', () => {
  const notice = {
    event: 'price.changed' as const,
    organizationId: null,
    source: 'a',
    at: '2026-01-01T00:00:00.000Z',
    recordedAtMs: Date.parse('2026-01-01T00:00:00.000Z'),
    data: { change: 'price_book' },
  }
  const listener = (organizationId: string | null, createdAtMs = 0, events = ['price.changed' as const]) => ({
    webhook_id: `wh_${organizationId}`,
    organization_id: organizationId,
    events,
    created_at: new Date(createdAtMs),
  })
  const nowMs = notice.recordedAtMs + 1_000
  const recipients = (more: object, listeners: Parameters<typeof deliveriesOf>[1]) =>
    deliveriesOf([{ ...notice, ...more }], listeners, nowMs).map(({ webhookId }) => webhookId)

  test('everyone gets what concerns everyone, under the name of each organization', () => {
    const all = deliveriesOf([notice], [listener('a'), listener('b')], nowMs)
    expect(all.map(({ payload }) => JSON.parse(payload).data.organization_id)).toEqual(['a', 'b'])
    expect(new Set(all.map(({ deliveryId }) => deliveryId)).size).toBe(2)
  })

  test('one organization gets what concerns it', () => {
    expect(recipients({ organizationId: 'b' }, [listener('a'), listener('b'), listener(null)])).toEqual([
      'wh_b',
    ])
  })

  test('no one gets events from before the webhook was created, or older than a month', () => {
    expect(recipients({}, [listener('a', notice.recordedAtMs + 1)])).toEqual([])
    expect(deliveriesOf([notice], [listener('a')], nowMs + 31 * 24 * 3_600_000)).toEqual([])
  })

  test('the same event becomes the same message under the same id', () => {
    const ids = [1, 2].map(() => deliveriesOf([notice], [listener('a')], nowMs)[0]?.deliveryId)
    expect(ids[0]).toBe(ids[1])
    expect(ids[0]).toMatch(/^msg_[0-9a-f]{32}$/)
  })
})
