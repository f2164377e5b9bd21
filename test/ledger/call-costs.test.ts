/** The cost of a call after refunds. */
import { describe, expect, test } from 'vitest'
import { type DecodedEvent, decodeEvent, encodeEvent, eventIdOf } from '../../src/event-log/stored-event.ts'
import type { LedgerEvent } from '../../src/events/catalogue.ts'
import type { CreditAdjusted } from '../../src/events/credits.ts'
import { costsOf } from '../../src/ledger/explain/call-costs.ts'
import { createMemoryEventLog } from '../support/memory-event-log.ts'

const org = 'org_01K9ZZZZZZZZZZZZZZZZZZZZZZ'
const sources = { eventLog: createMemoryEventLog().client('reader') }
const id = (key: string): string => eventIdOf(org, key, 0)

type Written = { event: LedgerEvent; key: string; requestId?: string; causedBy?: string }

const ledger = (written: readonly Written[]): DecodedEvent[] =>
  written.map(({ event, key, requestId, causedBy }, revision) =>
    decodeEvent({
      ...encodeEvent(event, {
        id: id(key),
        actor: 'test',
        effectiveAt: '2026-03-01T12:00:00.000Z',
        requestId,
        causationId: causedBy === undefined ? undefined : id(causedBy),
      }),
      stream: `ledger-${org}`,
      revision,
      position: BigInt(revision),
      recordedAtMs: 0,
    }),
  )

const used = (requestId: string): Written => ({
  key: `${requestId}/used`,
  requestId,
  event: {
    type: 'KeyUsed',
    data: {
      key_id: 'a'.repeat(16),
      capability: 'ip_lookup',
      outcome: 'answered',
      facts: { kind: 'ip_lookup', success: true, country_code: 'DE', address_hmac: 'h'.repeat(43) },
    },
  },
})

const charged = (requestId: string, amount: string): Written => ({
  key: `${requestId}/charged`,
  requestId,
  causedBy: `${requestId}/used`,
  event: {
    type: 'CreditCharged',
    data: {
      charge_id: id(`${requestId}/charged`),
      sku: 'ip_lookup',
      amount,
      lines: [{ sku: 'ip_lookup', amount, rule: 'ip_lookup.located', rule_version: 1 }],
      rule: 'ip_lookup.located',
      rule_version: 1,
      price_book_version: 1,
      allocations: [],
      price_book_digest: 'D'.repeat(43),
    },
  },
})

const adjusted = (key: string, requestId: string | null, change: Partial<CreditAdjusted>): Written => ({
  key,
  event: {
    type: 'CreditAdjusted',
    data: {
      adjustment_id: id(key),
      adjusts: requestId === null ? null : id(`${requestId}/charged`),
      amount: '1',
      reason: 'test',
      rerate_run: null,
      allocations: [],
      overdraft_repaid: '0',
      kind: 'refund',
      fills: [],
      reference: null,
      charged_at: null,
      ...change,
    },
  },
})

describe('the current cost of a call', () => {
  const events = ledger([
    used('one'),
    charged('one', '5'),
    used('two'),
    charged('two', '3'),
    adjusted('a', 'one', { amount: '1.5' }),
    adjusted('b', 'two', { amount: '3', kind: 'reversal' }),
    used('free'),
    adjusted('c', 'one', { amount: '0.5' }),
    adjusted('d', null, { amount: '100', kind: 'adjustment' }),
  ])

  test('is its charge minus its refunds, in ledger order', async () => {
    const cost = await costsOf(events, { requestId: 'one' }, sources)
    expect(cost).toMatchObject({
      charge: { revision: 1, micro: 5_000_000n },
      adjustments: [
        { revision: 4, kind: 'refund', amount: 1_500_000n },
        { revision: 7, kind: 'refund', amount: 500_000n },
      ],
      now: 3_000_000n,
    })
  })

  test("can also be found by the charge's id", async () => {
    expect(await costsOf(events, { chargeId: id('two/charged') }, sources)).toMatchObject({
      call: { revision: 2, requestId: 'two' },
      adjustments: [{ kind: 'reversal' }],
      now: 0n,
    })
  })

  test('is zero for a free call', async () => {
    expect(await costsOf(events, { requestId: 'free' }, sources)).toMatchObject({
      charge: null,
      adjustments: [],
      now: 0n,
    })
  })

  test('includes events up to the last one passed in', async () => {
    expect(await costsOf(events.slice(0, 5), { requestId: 'one' }, sources)).toMatchObject({
      now: 3_500_000n,
    })
  })

  test('is not returned for an unknown call', async () => {
    expect(await costsOf(events, { requestId: 'none' }, sources)).toBeNull()
    expect(await costsOf(events, { chargeId: id('none') }, sources)).toBeNull()
  })

  test("is refused if a re-rate's event cannot be read", async () => {
    const rerated = ledger([
      used('one'),
      charged('one', '5'),
      adjusted('r', null, { rerate_run: 'lost', kind: 'rerate' }),
    ])
    await expect(costsOf(rerated, { requestId: 'one' }, sources)).rejects.toThrow('re-rate lost')
  })
})
