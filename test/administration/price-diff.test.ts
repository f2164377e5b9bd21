/** The cost of one month's calls under two price books, computed from the ledgers' own facts. */
import { beforeEach, describe, expect, test } from 'vitest'
import { comparePrices, lastMonth, rulesNamed } from '../../src/administration/prices/price-diff.ts'
import { defaultPriceBook } from '../../src/billing/price-book.ts'
import { chain, genesisDigest } from '../../src/event-log/hash-chain.ts'
import type { EventLog } from '../../src/event-log/port.ts'
import { encodeEvent, eventIdOf } from '../../src/event-log/stored-event.ts'
import type { CallFacts } from '../../src/events/calls.ts'
import { ledgerStream } from '../../src/events/streams.ts'
import { newAccount } from '../../src/ledger/account.ts'
import { recordedCalls } from '../../src/ledger/explain/recorded-calls.ts'
import type { Ledger } from '../../src/ledger/write/ledger.ts'
import { createMemoryEventLog } from '../support/memory-event-log.ts'

const unregistered = 'org_01K9ZZZZZZZZZZZZZZZZZZZZZN'
const [acme, other] = ['org_01K9ZZZZZZZZZZZZZZZZZZZZZA', 'org_01K9ZZZZZZZZZZZZZZZZZZZZZB']
let eventLog: EventLog

beforeEach(() => {
  eventLog = createMemoryEventLog().client('one')
})

const located: CallFacts = {
  kind: 'ip_lookup',
  success: true,
  country_code: 'GB',
  address_hmac: 'A'.repeat(43),
} as CallFacts
const notLocated = { ...located, success: false, country_code: null } as CallFacts

let calls = 0
/** A call that was recorded when it was made. */
const call = async (organizationId: string, at: string, facts: CallFacts = located): Promise<void> => {
  const stream = ledgerStream(organizationId)
  const event = encodeEvent(
    {
      type: 'KeyUsed',
      data: { key_id: 'A'.repeat(16), capability: 'ip_lookup', outcome: 'answered', facts },
    },
    { id: eventIdOf(stream, `call ${calls++}`, 0), actor: 'key:a', effectiveAt: at },
  )
  const [last] = await eventLog.read(stream, { direction: 'backwards', max: 1 }).catch(() => [])
  const place = { stream, revision: (last?.revision ?? -1) + 1, previous: genesisDigest }
  await eventLog.append(stream, last?.revision ?? 'none', [chain(event, place, at).event])
}

/** A double of the ledger: its accounts have no credits and the current `overrides`. */
const ledger = (
  ofAcme: ReadonlyMap<string, { revision: number; amount: bigint; fromMs: number }[]> = new Map(),
) =>
  ({
    account: async (id: string) => ({
      ...newAccount(id),
      registered: id !== unregistered,
      ...(id === acme ? { overrides: new Map(ofAcme) } : {}),
    }),
  }) as unknown as Ledger

const rules = (amount: string) =>
  defaultPriceBook.rules.map((rule) => (rule.sku === 'ip_lookup' ? { ...rule, amount } : rule))

const compare = (
  overrides?: Parameters<typeof ledger>[0],
  to = rules('1.25'),
  organizations: readonly string[] = [acme, other, 'org_01K9ZZZZZZZZZZZZZZZZZZZZZC'],
) =>
  comparePrices(
    { eventLog, ledger: ledger(overrides) },
    {
      from: { name: '1', rules: defaultPriceBook.rules },
      to: { name: 'p1', rules: to },
      month: '2026-10',
      organizations,
      onProgress: () => undefined,
    },
  )

const history = async (): Promise<void> => {
  await call(acme, '2026-09-30T23:59:59.999Z')
  await call(acme, '2026-10-01T00:00:00.000Z')
  await call(acme, '2026-10-15T00:00:00.000Z', notLocated)
  await call(acme, '2026-10-31T23:59:59.999Z')
  await call(acme, '2026-11-01T00:00:00.000Z')
  await call(other, '2026-10-02T00:00:00.000Z')
  await call(other, '2026-12-02T00:00:00.000Z')
}

describe('the cost of a month with other prices', () => {
  test('counts the calls of that month in UTC, by organization and SKU, including free ones', async () => {
    await history()
    const { organizations, sum, changes } = await compare()
    expect(organizations).toMatchObject([
      { organizationId: acme, from: { calls: 3, total: 2_000_000n }, to: { calls: 3, total: 2_500_000n } },
      { organizationId: other, from: { calls: 1, total: 1_000_000n }, to: { calls: 1, total: 1_250_000n } },
    ])
    expect(sum.to).toEqual({
      calls: 4,
      unrated: 0,
      total: 3_750_000n,
      skus: new Map([['ip_lookup', { lines: 3, amount: 3_750_000n }]]),
    })
    expect(changes.map(({ rule }) => rule)).toEqual(['ip_lookup.located'])
  })

  test('is refused for an unknown organization', async () => {
    await expect(compare(undefined, undefined, [unregistered])).rejects.toThrow(
      `there is no organization ${unregistered}`,
    )
  })

  test('uses an organization’s own prices, from their date on', async () => {
    await history()
    const overrides = new Map([
      ['ip_lookup', [{ revision: 0, amount: 500_000n, fromMs: Date.UTC(2026, 9, 20) }]],
    ])
    const { organizations } = await compare(overrides)
    expect(organizations[0]).toMatchObject({ from: { total: 1_500_000n }, to: { total: 1_750_000n } })
  })

  test('counts calls without a rule in the book separately, not as free', async () => {
    await history()
    const without = defaultPriceBook.rules.filter(({ rule }) => !rule.startsWith('ip_lookup'))
    expect((await compare(undefined, without)).sum.to).toMatchObject({ calls: 4, unrated: 4, total: 0n })
  })
})

test('the calls in a range are found anywhere in the ledger', async () => {
  const hour = (n: number): string => new Date(Date.UTC(2026, 0, 1, n)).toISOString()
  for (let n = 0; n < 60; n++) await call(acme, hour(n))
  for (const [from, until] of [
    [0, 60],
    [0, 1],
    [17, 18],
    [17, 43],
    [59, 60],
    [58, 99],
    [30, 30],
    [60, 99],
  ] as const) {
    const found: string[] = []
    const range = { fromMs: Date.parse(hour(from)), untilMs: Date.parse(hour(until)) }
    for await (const page of recordedCalls(eventLog, acme, range))
      found.push(...page.map(({ metadata }) => metadata.effective_at))
    expect(found).toEqual(
      Array.from({ length: Math.max(0, Math.min(until, 60) - from) }, (_, i) => hour(from + i)),
    )
  }
})

test.each([
  ['2026-11-22T00:00:00.000Z', '2026-10'],
  ['2026-11-30T23:59:59.999Z', '2026-10'],
  ['2027-01-01T00:00:00.000Z', '2026-12'],
])('the last month at %s is %s', (now, month) => {
  expect(lastMonth(Date.parse(now))).toBe(month)
})

test('the given rules can be only the changes to the other book', async () => {
  const document = [{ rule: 'ip_lookup.located', amount: '3' }]
  const over = { field: 'to', over: rules('2') }
  const { rules: read } = await rulesNamed({ eventLog }, { kind: 'rules', document }, over)
  expect(read).toEqual(rules('3'))
  await expect(rulesNamed({ eventLog }, { kind: 'proposal', number: 7 }, over)).rejects.toThrow(
    'there is no proposal p7',
  )
})
