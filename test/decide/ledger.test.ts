/** Given a history, when a command arrives, then the ledger decides exactly these events. */
import { describe, expect, test } from 'vitest'
import { defaultPriceBook, type PriceBook, priceBookOf } from '../../src/billing/price-book.ts'
import { NoRule } from '../../src/billing/tariff.ts'
import type { CallFacts } from '../../src/events/calls.ts'
import { checkEventData, currentVersion, type LedgerEvent } from '../../src/events/catalogue.ts'
import { type Account, balanceOf, draftOf, evolve, newAccount } from '../../src/ledger/account.ts'
import type { CallToRecord } from '../../src/ledger/command.ts'
import { adjustCredits, expireLot } from '../../src/ledger/corrections.ts'
import {
  type Decision,
  grantCredits,
  outcomeOfCall,
  overridePrice,
  recordCall,
  recordRateLimit,
  registerOrganization,
} from '../../src/ledger/decide.ts'

const organizationId = 'org_01J8ZQ5V7N3K2M4P6R8T0W1X2Y'
const keyId = 'Hq3Zk9Lw2Xc7Vb1N'
const uuid = (n: number): string => `00000000-0000-5000-8000-${String(n).padStart(12, '0')}`
const [charge1, grantA, grantB, grantC] = [uuid(1), uuid(0xa), uuid(0xb), uuid(0xc)]

const day = (n: number): string => new Date(Date.UTC(2026, 8, n)).toISOString()
const ms = (n: number): number => Date.UTC(2026, 8, n)
/** Reverses a charge in full. */
const adjust = (
  account: Account,
  { chargeId, ...rest }: { adjustmentId: string; chargeId: string; amount: bigint; reason: string },
): Decision => adjustCredits(account, { ...rest, adjusts: chargeId, rerateRun: null, atMs: noon })
/** Every command below arrives at noon on the 14th unless it has another time. */
const noon = Date.UTC(2026, 8, 14, 12)

const book = priceBookOf(defaultPriceBook)
const bookAt = (amount: string): PriceBook =>
  priceBookOf({
    ...defaultPriceBook,
    version: 2,
    rules: defaultPriceBook.rules.map((rule) => (rule.sku === null ? rule : { ...rule, amount })),
  })

const registered = (overdraftLimit = '0'): LedgerEvent => ({
  type: 'OrganizationRegistered',
  data: { organization_id: organizationId, name: 'Acme', overdraft_limit: overdraftLimit },
})
const granted = (
  grantId: string,
  amount: string,
  own: { priority?: number; expires?: string | null; repaid?: string } = {},
): LedgerEvent => ({
  type: 'CreditGranted',
  data: {
    grant_id: grantId,
    amount,
    priority: own.priority ?? 10,
    expires_at: own.expires ?? null,
    reason: 'plan',
    overdraft_repaid: own.repaid ?? '0',
    reference: null,
  },
})
const charged = (
  amount: string,
  allocations: [string, string][] = [],
  own: { id?: string; book?: number; digest?: string } = {},
): LedgerEvent => ({
  type: 'CreditCharged',
  data: {
    charge_id: own.id ?? charge1,
    sku: 'ip_lookup',
    amount,
    lines: [{ sku: 'ip_lookup', amount, rule: 'ip_lookup.located', rule_version: 1 }],
    rule: 'ip_lookup.located',
    rule_version: 1,
    price_book_version: own.book ?? 1,
    allocations: allocations.map(([grant_id, part]) => ({ grant_id, amount: part })),
    price_book_digest: own.digest ?? book.digest,
  },
})
const expired = (grantId: string, amount: string): LedgerEvent => ({
  type: 'CreditExpired',
  data: { grant_id: grantId, amount },
})
const overridden = (amount: string | null, from: string, sku = 'ip_lookup'): LedgerEvent => ({
  type: 'PriceOverrideSet',
  data: { sku, amount, effective_from: from, override_id: uuid(0x0f), reason: null },
})
const adjusted = (
  amount: string,
  own: { allocations?: [string, string][]; repaid?: string; id?: string } = {},
): LedgerEvent => ({
  type: 'CreditAdjusted',
  data: {
    adjustment_id: own.id ?? uuid(0xad),
    adjusts: charge1,
    amount,
    reason: 'correction',
    rerate_run: null,
    allocations: (own.allocations ?? []).map(([grant_id, part]) => ({ grant_id, amount: part })),
    overdraft_repaid: own.repaid ?? '0',
    kind: 'adjustment',
    fills: [],
    reference: null,
    charged_at: null,
  },
})
const used = (call: CallToRecord, freeBy?: string): LedgerEvent => ({
  type: 'KeyUsed',
  data: {
    key_id: call.keyId,
    capability: call.capability,
    outcome: call.outcome,
    ...(call.code === undefined ? {} : { code: call.code }),
    facts: call.facts,
    ...(freeBy === undefined ? {} : { free_by: { rule: freeBy, rule_version: 1 } }),
    ...(call.idempotent === true ? { idempotent: true } : {}),
  },
})

const located = {
  kind: 'ip_lookup',
  success: true,
  country_code: 'CZ',
  address_hmac: 'q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA',
} satisfies CallFacts
const lookup: CallToRecord = { keyId, capability: 'ip_lookup', outcome: 'answered', facts: located }
const unpaid = used(
  { ...lookup, outcome: 'refused', code: 'CREDIT_001', facts: { kind: 'refusal', code: 'CREDIT_001' } },
  'refusal',
)

const call =
  (own: Partial<CallToRecord> = {}, by: { book?: PriceBook; atMs?: number } = {}) =>
  (account: Account): Decision =>
    recordCall(
      account,
      { ...lookup, ...own },
      { book: by.book ?? book, chargeId: () => charge1, atMs: by.atMs ?? noon },
    )

const fold = (events: readonly LedgerEvent[]): Account => {
  const account = newAccount(organizationId)
  events.forEach((event, revision) => {
    evolve(account, event, revision)
  })
  return account
}

/** `given(events).when(command).then(events)`. A refusal is compared by its text. */
const given = (...history: LedgerEvent[]) => ({
  when: (command: (account: Account) => Decision) => {
    const account = fold(history)
    const before = draftOf(account)
    const decision = command(account)
    expect(account, 'deciding changes nothing').toEqual(before)
    return {
      // biome-ignore lint/suspicious/noThenProperty: given, when, then; no code awaits it.
      then: (...events: LedgerEvent[]) => {
        expect(decision).toEqual(events)
        for (const { type, data } of events)
          expect(checkEventData(type, currentVersion(type), data), 'fits its schema').toEqual(data)
        // The ledger must accept the events that it decides.
        fold([...history, ...events])
      },
      refused: (why: string) => expect(decision).toEqual({ refused: why }),
    }
  },
  balance: (atMs = noon): bigint => balanceOf(fold(history), atMs),
})

describe('a call that costs nothing', () => {
  test.each<[string, Partial<CallToRecord>, string]>([
    ['whoami', { capability: 'whoami', facts: { kind: 'whoami' } }, 'whoami'],
    [
      'an address that was not located',
      { facts: { ...located, success: false, country_code: null } },
      'ip_lookup.not_located',
    ],
    ['an answer that went out again', { facts: { kind: 'replay' }, idempotent: true }, 'replay'],
    [
      'a refusal',
      { outcome: 'refused', code: 'REQ_002', facts: { kind: 'refusal', code: 'REQ_002' } },
      'refusal',
    ],
    [
      'a failure',
      { outcome: 'failed', code: 'SYS_001', facts: { kind: 'refusal', code: 'SYS_001' } },
      'refusal',
    ],
  ])('%s names the rule that made it free', (_, own, rule) => {
    given(registered(), granted(grantA, '10'))
      .when(call(own))
      .then(used({ ...lookup, ...own }, rule))
  })

  test('is recorded even for an organization without credits', () => {
    given(registered())
      .when(call({ capability: 'whoami', facts: { kind: 'whoami' } }))
      .then(used({ ...lookup, capability: 'whoami', facts: { kind: 'whoami' } }, 'whoami'))
  })

  test('because its price is zero names the rule that would have charged', () => {
    given(registered())
      .when(call({}, { book: bookAt('0') }))
      .then(used(lookup, 'ip_lookup.located'))
  })
})

describe('a call that costs something', () => {
  test('is recorded as a fact, followed immediately by its charge with rule, price book and lots', () => {
    given(registered(), granted(grantA, '10'))
      .when(call())
      .then(used(lookup), charged('1', [[grantA, '1']]))
  })

  test("includes the caller's Idempotency-Key", () => {
    given(registered(), granted(grantA, '10'))
      .when(call({ idempotent: true }))
      .then(used({ ...lookup, idempotent: true }), charged('1', [[grantA, '1']]))
  })

  test('names the price book that priced it', () => {
    given(registered(), granted(grantA, '10'))
      .when(call({}, { book: bookAt('0.000001') }))
      .then(
        used(lookup),
        charged('0.000001', [[grantA, '0.000001']], { book: 2, digest: bookAt('0.000001').digest }),
      )
  })

  test('uses the lot with the lowest priority number first, no matter when lots expire', () => {
    given(
      registered(),
      granted(grantA, '10', { priority: 5, expires: day(15) }),
      granted(grantB, '10', { priority: 1 }),
    )
      .when(call())
      .then(used(lookup), charged('1', [[grantB, '1']]))
  })

  test('uses the lot that expires first if priorities are equal', () => {
    given(
      registered(),
      granted(grantA, '10'),
      granted(grantB, '10', { expires: day(30) }),
      granted(grantC, '10', { expires: day(20) }),
    )
      .when(call())
      .then(used(lookup), charged('1', [[grantC, '1']]))
  })

  test('uses the older lot if priority and expiry are equal', () => {
    given(
      registered(),
      granted(grantB, '10', { expires: day(20) }),
      granted(grantA, '10', { expires: day(20) }),
    )
      .when(call())
      .then(used(lookup), charged('1', [[grantB, '1']]))
  })

  test('uses several lots in order, each until it is empty', () => {
    given(
      registered(),
      granted(grantA, '10'),
      granted(grantB, '0.25', { expires: day(20) }),
      granted(grantC, '0.5', { priority: 1 }),
    )
      .when(call())
      .then(
        used(lookup),
        charged('1', [
          [grantC, '0.5'],
          [grantB, '0.25'],
          [grantA, '0.25'],
        ]),
      )
  })

  test('uses the credits that earlier charges left', () => {
    given(
      registered(),
      granted(grantA, '1.5'),
      granted(grantB, '5'),
      used(lookup),
      charged('1', [[grantA, '1']], { id: uuid(7) }),
    )
      .when(call())
      .then(
        used(lookup),
        charged('1', [
          [grantA, '0.5'],
          [grantB, '0.5'],
        ]),
      )
  })

  test('uses no credits from a lot after its expiry, whether it was written off or not', () => {
    const history = [
      registered(),
      granted(grantA, '10', { expires: day(14) }),
      granted(grantB, '10', { expires: day(15) }),
    ]
    given(...history)
      .when(call({}, { atMs: ms(14) - 1 }))
      .then(used(lookup), charged('1', [[grantA, '1']]))
    given(...history)
      .when(call({}, { atMs: ms(14) }))
      .then(used(lookup), charged('1', [[grantB, '1']]))
    given(...history)
      .when(call({}, { atMs: ms(15) }))
      .then(unpaid)
  })

  test('spends the last micro-credit, and not one more', () => {
    given(registered(), granted(grantA, '1'))
      .when(call())
      .then(used(lookup), charged('1', [[grantA, '1']]))
    given(registered(), granted(grantA, '0.999999')).when(call()).then(unpaid)
    given(registered(), granted(grantA, '1'), used(lookup), charged('1', [[grantA, '1']]))
      .when(call())
      .then(unpaid)
  })

  test('without a matching rule is a bug, not a free call', () => {
    expect(() => given(registered()).when(call({}, { book: { ...book, rules: new Map() } }))).toThrow(NoRule)
  })
})

describe('a call that cannot be paid', () => {
  test('is recorded as refused with CREDIT_001, without the facts that were found, and costs nothing', () => {
    given(registered()).when(call()).then(unpaid)
    expect(unpaid.data).toEqual({
      key_id: keyId,
      capability: 'ip_lookup',
      outcome: 'refused',
      code: 'CREDIT_001',
      facts: { kind: 'refusal', code: 'CREDIT_001' },
      free_by: { rule: 'refusal', rule_version: 1 },
    })
  })

  test('includes its Idempotency-Key', () => {
    given(registered())
      .when(call({ idempotent: true }))
      .then({ ...unpaid, data: { ...unpaid.data, idempotent: true } } as LedgerEvent)
  })

  test('needs no charge id', () => {
    const account = fold([registered()])
    const chargeId = (): string => {
      throw new Error('a charge id was asked for')
    }
    expect(recordCall(account, lookup, { book, chargeId, atMs: noon })).toEqual([unpaid])
  })

  test('is refused the same way for an organization that is not registered', () => {
    given().when(call()).then(unpaid)
  })
})

describe('an overdraft', () => {
  test('covers the part that no lot covers, up to the limit', () => {
    given(registered('0.5'), granted(grantA, '0.5'))
      .when(call())
      .then(used(lookup), charged('1', [[grantA, '0.5']]))
    given(registered('1')).when(call()).then(used(lookup), charged('1'))
  })

  test('is refused if the call would exceed the limit by one micro-credit', () => {
    given(registered('0.5'), granted(grantA, '0.499999')).when(call()).then(unpaid)
    given(registered('0.999999')).when(call()).then(unpaid)
    given(registered('1.999999'), charged('1')).when(call()).then(unpaid)
    given(registered('2'), charged('1', [], { id: uuid(7) }))
      .when(call())
      .then(used(lookup), charged('1'))
  })

  test('makes the balance negative', () => {
    expect(given(registered('2'), granted(grantA, '0.5'), charged('1', [[grantA, '0.5']])).balance()).toBe(
      -500_000n,
    )
  })

  test('cannot use a lot that has expired', () => {
    given(registered('0.5'), granted(grantA, '100', { expires: day(10) }))
      .when(call())
      .then(unpaid)
    given(registered('1'), granted(grantA, '100', { expires: day(10) }))
      .when(call())
      .then(used(lookup), charged('1'))
  })

  test('is repaid by the next grant before anything else', () => {
    const history = [registered('5'), charged('3', [])]
    given(...history)
      .when((account) =>
        grantCredits(account, {
          grantId: grantA,
          amount: 10_000_000n,
          priority: 10,
          expiresAt: null,
          reason: 'plan',
        }),
      )
      .then(granted(grantA, '10', { repaid: '3' }))
    given(...history)
      .when((account) =>
        grantCredits(account, {
          grantId: grantA,
          amount: 2_000_001n,
          priority: 10,
          expiresAt: null,
          reason: 'plan',
        }),
      )
      .then(granted(grantA, '2.000001', { repaid: '2.000001' }))
    expect(given(...history, granted(grantA, '10', { repaid: '3' })).balance()).toBe(7_000_000n)
    expect(given(...history, granted(grantA, '2', { repaid: '2' })).balance()).toBe(-1_000_000n)
  })

  test('leaves only the rest of the grant after the repayment', () => {
    given(registered('5'), charged('3', [], { id: uuid(7) }), granted(grantA, '3.75', { repaid: '3' }))
      .when(call({}, { book: bookAt('5') }))
      .then(used(lookup), charged('5', [[grantA, '0.75']], { book: 2, digest: bookAt('5').digest }))
  })
})

describe('an organization', () => {
  test('is registered once', () => {
    const register = (account: Account) =>
      registerOrganization(account, { name: 'Acme', overdraftLimit: 2_500_000n })
    given().when(register).then(registered('2.5'))
    given(registered()).when(register).refused(`organization ${organizationId} is already registered`)
  })

  test.each<[string, (account: Account) => Decision]>([
    [
      'grant',
      (account) =>
        grantCredits(account, { grantId: grantA, amount: 1n, priority: 1, expiresAt: null, reason: 'plan' }),
    ],
    [
      'own price',
      (account) =>
        overridePrice(account, {
          overrideId: uuid(0x0f),
          sku: 'ip_lookup',
          amount: 1n,
          effectiveFrom: day(1),
        }),
    ],
    [
      'reversal',
      (account) => adjust(account, { adjustmentId: grantA, chargeId: charge1, amount: 1n, reason: 'late' }),
    ],
    [
      'rate limit',
      (account) => recordRateLimit(account, { key_id: keyId, policy: 'day', window: day(1), count: 1 }),
    ],
  ])('that is not registered is refused: %s', (_, command) => {
    given().when(command).refused(`organization ${organizationId} is not registered; see "org list"`)
  })
})

describe('a grant', () => {
  test('creates a lot on its terms, with all its credits left', () => {
    given(registered())
      .when((account) =>
        grantCredits(account, {
          grantId: grantA,
          amount: 1_500_000n,
          priority: 3,
          expiresAt: day(30),
          reason: 'plan',
        }),
      )
      .then(granted(grantA, '1.5', { priority: 3, expires: day(30) }))
    expect(fold([registered(), granted(grantA, '1.5', { priority: 3, expires: day(30) })]).lots).toEqual([
      {
        grantId: grantA,
        priority: 3,
        expiresAtMs: ms(30),
        revision: 1,
        granted: 1_500_000n,
        remaining: 1_500_000n,
      },
    ])
  })
})

describe("an organization's own price", () => {
  const history = [
    registered(),
    granted(grantA, '100'),
    overridden('0.5', day(10)),
    overridden('0.25', day(20)),
    overridden(null, day(25)),
  ]

  test('is recorded as an event', () => {
    given(registered())
      .when((account) =>
        overridePrice(account, {
          overrideId: uuid(0x0f),
          sku: 'ip_lookup',
          amount: 500_000n,
          effectiveFrom: day(10),
        }),
      )
      .then(overridden('0.5', day(10)))
    given(registered())
      .when((account) =>
        overridePrice(account, {
          overrideId: uuid(0x0f),
          sku: 'ip_lookup',
          amount: null,
          effectiveFrom: day(25),
        }),
      )
      .then(overridden(null, day(25)))
  })

  test.each<[string, number, string]>([
    ["the book's before the first", ms(10) - 1, '1'],
    ['from its date on', ms(10), '0.5'],
    ['until the next', ms(20) - 1, '0.5'],
    ['then the next', ms(20), '0.25'],
    ["and the book's again once returned", ms(25), '1'],
  ])('applies by date: %s', (_, atMs, amount) => {
    given(...history)
      .when(call({}, { atMs }))
      .then(used(lookup), charged(amount, [[grantA, amount]]))
  })

  test('applies by its date, not by the time when it was set; if two have the same date, the later one applies', () => {
    given(registered(), granted(grantA, '100'), overridden('0.25', day(12)), overridden('0.5', day(10)))
      .when(call())
      .then(used(lookup), charged('0.25', [[grantA, '0.25']]))
    given(registered(), granted(grantA, '100'), overridden('0.25', day(10)), overridden('0.5', day(10)))
      .when(call())
      .then(used(lookup), charged('0.5', [[grantA, '0.5']]))
  })

  test('for another SKU changes nothing', () => {
    given(registered(), granted(grantA, '100'), overridden('0.5', day(10), 'company_data'))
      .when(call())
      .then(used(lookup), charged('1', [[grantA, '1']]))
  })

  test('of zero makes the call free under the rule that would have charged it', () => {
    given(registered(), overridden('0', day(10)))
      .when(call())
      .then(used(lookup, 'ip_lookup.located'))
  })

  test('above the book price also applies, including to the check whether the call can be paid', () => {
    given(registered(), granted(grantA, '1'), overridden('1.000001', day(10)))
      .when(call())
      .then(unpaid)
  })
})

describe('a reversal', () => {
  const reverse = (amount: bigint) => (account: Account) =>
    adjust(account, { adjustmentId: uuid(0xad), chargeId: charge1, amount, reason: 'correction' })

  test('returns a charge as credits that never expire and are used first', () => {
    const history = [
      registered(),
      granted(grantA, '10', { priority: 0, expires: day(20) }),
      charged('1', [[grantA, '1']]),
    ]
    given(...history)
      .when(reverse(1_000_000n))
      .then(adjusted('1'))
    given(...history, adjusted('1'))
      .when(call({}, { atMs: ms(21) }))
      .then(used(lookup), charged('1', [[uuid(0xad), '1']]))
    expect(given(...history, adjusted('1')).balance()).toBe(10_000_000n)
  })

  test('of an overdrawn charge repays the overdraft first', () => {
    given(registered('5'), granted(grantA, '0.25'), charged('1', [[grantA, '0.25']]))
      .when(reverse(1_000_000n))
      .then(adjusted('1', { repaid: '0.75' }))
    expect(given(registered('5'), charged('1'), adjusted('1', { repaid: '1' })).balance()).toBe(0n)
  })
})

describe('folding adjustments', () => {
  test('a negative adjustment takes credits from the lots that it names; the rest becomes overdraft', () => {
    const history = [registered('5'), granted(grantA, '2'), adjusted('-3', { allocations: [[grantA, '2']] })]
    expect(given(...history).balance()).toBe(-1_000_000n)
    expect(fold(history)).toMatchObject({ lots: [], overdrawn: 1_000_000n })
  })

  test('an adjustment of zero changes no balance and creates no lot', () => {
    expect(fold([registered(), granted(grantA, '2'), adjusted('0')]).lots).toHaveLength(1)
  })
})

describe('expiry', () => {
  const expire =
    (grantId: string, atMs: number, nowMs = atMs) =>
    (account: Account): Decision =>
      expireLot(account, { grantId, atMs, nowMs })
  const history = [
    registered(),
    granted(grantA, '10', { expires: day(14) }),
    granted(grantB, '5', { expires: day(13), priority: 90 }),
    granted(grantC, '7'),
    charged('4', [[grantA, '4']]),
  ]

  test('writes off the rest of a lot after its expiry, and of no other lot', () => {
    given(...history)
      .when(expire(grantA, ms(14)))
      .then(expired(grantA, '6'))
    given(...history)
      .when(expire(grantB, ms(14)))
      .then(expired(grantB, '5'))
  })

  test('is refused before the lot expires, and before the clock of the appending process reaches its expiry', () => {
    given(...history)
      .when(expire(grantA, ms(14) - 1))
      .refused(
        `lot ${grantA} expires at 2026-09-14T00:00:00.000Z, so it cannot be written off as of 2026-09-13T23:59:59.999Z`,
      )
    given(...history)
      .when(expire(grantA, ms(14), ms(14) - 1))
      .refused(
        `lot ${grantA} cannot be written off as of 2026-09-14T00:00:00.000Z: the clock of the process that writes the ledger shows 2026-09-13T23:59:59.999Z`,
      )
    given(...history)
      .when(expire(grantA, ms(14), ms(14)))
      .then(expired(grantA, '6'))
    given(...history)
      .when(expire(grantC, ms(30)))
      .refused(`lot ${grantC} never expires`)
  })

  test('changes no balance: the expired lot already had no value', () => {
    expect(given(...history).balance(ms(14))).toBe(7_000_000n)
    expect(given(...history, expired(grantA, '6'), expired(grantB, '5')).balance(ms(14))).toBe(7_000_000n)
  })

  test('writes nothing off from a lot that is used up, that has already been written off, or that never existed', () => {
    const spent = [registered(), granted(grantA, '1', { expires: day(10) }), charged('1', [[grantA, '1']])]
    given(...spent)
      .when(expire(grantA, noon))
      .then()
    given(...history, expired(grantA, '6'))
      .when(expire(grantA, noon))
      .then()
    given(...history)
      .when(expire(uuid(99), noon))
      .then()
    given().when(expire(grantA, noon)).then()
  })
})

describe('folding', () => {
  test('refuses an impossible history: more credits taken from a lot than it has, or from a lot that does not exist', () => {
    const history = [registered(), granted(grantA, '1')]
    expect(() => fold([...history, charged('2', [[grantA, '1.000001']])])).toThrow(grantA)
    expect(() => fold([...history, charged('1', [[grantB, '1']])])).toThrow(grantB)
    expect(() => fold([...history, expired(grantA, '1.000001')])).toThrow(grantA)
    expect(() => fold([...history, charged('1', [[grantA, '1']]), expired(grantA, '0.000001')])).toThrow(
      grantA,
    )
  })

  test('deciding with a draft of the account does not change the account', () => {
    const account = fold([registered('5'), granted(grantA, '10'), overridden('2', day(1))])
    const before = fold([registered('5'), granted(grantA, '10'), overridden('2', day(1))])
    const draft = draftOf(account)
    evolve(draft, charged('1', [[grantA, '1']]), 3)
    evolve(draft, granted(grantB, '1', { priority: 0 }), 4)
    evolve(draft, overridden('3', day(2)), 5)
    evolve(draft, charged('9', [[grantA, '9']]), 6)
    expect(account).toEqual(before)
    expect(draft.revision).toBe(6)
  })

  test('facts and rate limits change no credits, only the revision', () => {
    const history = [registered(), granted(grantA, '10')]
    const limited: LedgerEvent = {
      type: 'RateLimitExceeded',
      data: { key_id: keyId, policy: 'minute', window: day(14), count: 3 },
    }
    expect(fold([...history, used(lookup, 'whoami'), limited])).toEqual({ ...fold(history), revision: 3 })
  })
})

test("a call's outcome can be read from its events", () => {
  expect(outcomeOfCall([used(lookup), charged('1.5', [])])).toEqual({ charged: 1_500_000n, unpaid: false })
  expect(outcomeOfCall([used(lookup, 'whoami')])).toEqual({ charged: 0n, unpaid: false })
  expect(outcomeOfCall([unpaid])).toEqual({ charged: 0n, unpaid: true })
})
