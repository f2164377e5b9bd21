/**
 * Invariants of credits over random histories with grants, calls, expiries, voids, refunds, adjustments and re-rates: credits are
 * never created or lost, and every fold of the ledger has the same result.
 */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { type AccountState, evolve as evolveRow, initialState } from '../../projections/account-state.ts'
import type { ProjectedEvent } from '../../projections/projection.ts'
import { formatCredits, type MicroCredits, parseCredits } from '../../src/billing/money.ts'
import { defaultPriceBook, priceBookOf } from '../../src/billing/price-book.ts'
import type { DecodedEvent } from '../../src/event-log/stored-event.ts'
import {
  checkEventData,
  currentVersion,
  type DomainEventOf,
  type LedgerEvent,
} from '../../src/events/catalogue.ts'
import {
  type Account,
  availableOf,
  balanceOf,
  draftOf,
  evolve,
  newAccount,
} from '../../src/ledger/account.ts'
import type { CallToRecord, Instruction } from '../../src/ledger/command.ts'
import { decideCommand, isRefusal } from '../../src/ledger/decide.ts'
import { balanceOfFold, foldBalance, newBalanceFold } from '../../src/ledger/explain/balance-at.ts'
import { drawnStill, type GrantedLot, grantedLotOf } from '../../src/ledger/granted-lot.ts'
import { randomCases } from '../support/exhaustive.ts'

const organizationId = 'org_01J8ZQ5V7N3K2M4P6R8T0W1X2Y'
const runs = { seed: 20_261_122, numRuns: randomCases(100) }
const dayMs = 86_400_000
const startMs = Date.UTC(2026, 0, 20)

const amount = fc.bigInt({ min: 1n, max: 80n }).map((quarters) => quarters * 250_000n)
/** The index of an existing item, chosen when the operation runs. */
const which = fc.nat({ max: 50 })

const happening = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant('grant' as const),
      amount,
      priority: fc.nat({ max: 2 }),
      days: fc.option(fc.integer({ min: 1, max: 50 }), { nil: null }),
    }),
  },
  { weight: 8, arbitrary: fc.record({ kind: fc.constant('call' as const), price: amount }) },
  {
    weight: 5,
    arbitrary: fc.record({
      kind: fc.constant('refund' as const),
      which,
      quarters: fc.integer({ min: 1, max: 4 }),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('reversal' as const), which }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('void' as const), which }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('sweep' as const) }) },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constantFrom('adjustment' as const, 'rerate' as const),
      amount: fc.tuple(amount, fc.boolean()).map(([size, takes]) => (takes ? -size : size)),
    }),
  },
)
type Happening = typeof happening extends fc.Arbitrary<infer T> ? T : never

const histories = ({ skewMs }: { skewMs: number }) =>
  fc.record({
    overdraftLimit: fc.constantFrom(0n, 7_500_000n),
    steps: fc.array(
      fc.record({
        what: happening,
        /** The time that passes before the operation. */
        waitMs: fc.oneof(fc.constant(0), fc.nat({ max: 9 * dayMs })),
        /** The clock error of the process that decides the operation. */
        skewMs: fc.integer({ min: -skewMs, max: skewMs }),
      }),
      { minLength: 5, maxLength: 40 },
    ),
  })
type History = ReturnType<typeof histories> extends fc.Arbitrary<infer T> ? T : never

const book = (price: MicroCredits) =>
  priceBookOf({
    ...defaultPriceBook,
    rules: defaultPriceBook.rules.map((rule) =>
      rule.sku === null ? rule : { ...rule, amount: formatCredits(price) },
    ),
  })
const lookup: CallToRecord = {
  keyId: 'Hq3Zk9Lw2Xc7Vb1N',
  capability: 'ip_lookup',
  outcome: 'answered',
  facts: { kind: 'ip_lookup', success: true, country_code: 'GB', address_hmac: 'x'.repeat(43) },
}
const idOf = (n: number): string => `00000000-0000-5000-8000-${String(n).padStart(12, '0')}`

type Charge = DomainEventOf<'CreditCharged'>['data']
type Recorded = LedgerEvent & Pick<DecodedEvent, 'metadata' | 'recorded'>

type TestLedger = {
  readonly account: Account
  readonly events: Recorded[]
  /** The account before each event, and after the last one. */
  readonly accounts: Account[]
  readonly charges: { readonly charge: Charge; givenBack: MicroCredits; readonly fills: Fill[] }[]
  readonly lots: Map<string, GrantedLot>
  nowMs: number
}
type Fill = DomainEventOf<'CreditAdjusted'>['data']['fills'][number]

const decided = (ledger: TestLedger, instruction: Instruction, atMs: number): readonly LedgerEvent[] => {
  const { account, events } = ledger
  const base = events.length
  const command = { ...instruction, key: `command/${base}`, atMs, actor: 'test' }
  const decision = decideCommand(draftOf(account), command, (index) => idOf(base + index), ledger.nowMs)
  if (isRefusal(decision)) return []
  for (const event of decision) {
    const { type, data } = event
    expect(checkEventData(type, currentVersion(type), data), 'fits its schema').toEqual(data)
    const revision = events.length
    evolve(account, event, revision)
    account.recordedAtMs = Math.max(account.recordedAtMs, ledger.nowMs)
    const opened = grantedLotOf(event, revision)
    if (opened !== null) ledger.lots.set(opened.grant_id, opened)
    const metadata = {
      schema_version: 1,
      actor: 'test',
      effective_at: new Date(atMs).toISOString(),
      recorded_at: new Date(account.recordedAtMs).toISOString(),
    }
    const recorded = {
      id: idOf(revision),
      type: event.type,
      data: '',
      metadata: '',
      position: BigInt(revision + 1),
      stream: `ledger-${organizationId}`,
      revision,
      recordedAtMs: 0,
    }
    events.push({ ...event, metadata, recorded } as Recorded)
    ledger.accounts.push(draftOf(account))
  }
  return decision
}

const sweep = (ledger: TestLedger): void => {
  for (const { grantId, expiresAtMs } of [...ledger.account.lots])
    if (expiresAtMs <= ledger.nowMs) decided(ledger, { kind: 'expire', grantId }, expiresAtMs)
}

const correct = (
  ledger: TestLedger,
  atMs: number,
  what: Happening & { kind: 'refund' | 'reversal' },
): void => {
  const called = ledger.charges[what.which % Math.max(1, ledger.charges.length)]
  if (called === undefined) return
  const { charge, fills } = called
  const left = parseCredits(charge.amount) - called.givenBack
  const part = what.kind === 'refund' ? (left * BigInt(what.quarters)) / 4n : left
  if (part === 0n) return
  const into = drawnStill(charge.allocations, fills).map(({ grant_id, amount: most }): Fill => {
    const lot = ledger.lots.get(grant_id)
    if (lot === undefined) throw new Error(`no event opens lot ${grant_id}`)
    const { priority, expires_at, revision, granted } = lot
    return { grant_id, amount: most, priority, expires_at, revision, granted }
  })
  const adjust = { kind: 'adjust', adjusts: charge.charge_id, amount: part, rerateRun: null } as const
  const [event] = decided(
    ledger,
    { ...adjust, correction: what.kind, reason: 'test', ...(what.kind === 'refund' ? { into } : {}) },
    atMs,
  )
  if (event?.type !== 'CreditAdjusted') throw new Error('a refund was refused')
  called.givenBack += part
  fills.push(...event.data.fills)
}

const happen = (ledger: TestLedger, what: Happening, atMs: number): void => {
  switch (what.kind) {
    case 'grant': {
      const expiresAt = what.days === null ? null : new Date(ledger.nowMs + what.days * dayMs).toISOString()
      const { priority } = what
      decided(ledger, { kind: 'grant', amount: what.amount, priority, expiresAt, reason: 'test' }, atMs)
      return
    }
    case 'call': {
      const isPaid = what.price <= availableOf(ledger.account, atMs)
      const events = decided(ledger, { kind: 'record', call: lookup, book: book(what.price) }, atMs)
      const charges = events.flatMap(({ type, data }) => (type === 'CreditCharged' ? [data] : []))
      expect(charges.map(({ amount: charged }) => charged)).toEqual(isPaid ? [formatCredits(what.price)] : [])
      for (const charge of charges) ledger.charges.push({ charge, givenBack: 0n, fills: [] })
      return
    }
    case 'void': {
      const lot = ledger.account.lots[what.which % Math.max(1, ledger.account.lots.length)]
      if (lot !== undefined) decided(ledger, { kind: 'void', grantId: lot.grantId, reason: 'test' }, atMs)
      return
    }
    case 'sweep':
      sweep(ledger)
      return
    case 'adjustment':
    case 'rerate': {
      const rerateRun = what.kind === 'rerate' ? 'a-run' : null
      const { amount: signed, kind: correction } = what
      decided(
        ledger,
        { kind: 'adjust', adjusts: null, amount: signed, reason: 'test', rerateRun, correction },
        atMs,
      )
      return
    }
    case 'refund':
    case 'reversal':
      correct(ledger, atMs, what)
  }
}

const play = ({ overdraftLimit, steps }: History): TestLedger => {
  const account = newAccount(organizationId)
  const empty: TestLedger['events'] = []
  const ledger: TestLedger = {
    account,
    events: empty,
    accounts: [draftOf(account)],
    charges: [],
    lots: new Map(),
    nowMs: startMs,
  }
  decided(ledger, { kind: 'register', name: 'Acme', overdraftLimit }, startMs)
  for (const { what, waitMs, skewMs } of steps) {
    ledger.nowMs += waitMs
    happen(ledger, what, ledger.nowMs + skewMs)
  }
  // A month is closed only some time after its end.
  ledger.nowMs += dayMs
  sweep(ledger)
  return ledger
}

const movementOf = ({ type, data }: LedgerEvent): MicroCredits => {
  if (type === 'CreditGranted' || type === 'CreditAdjusted') return parseCredits(data.amount)
  if (type === 'CreditCharged' || type === 'CreditExpired') return -parseCredits(data.amount)
  return 0n
}
const sumOf = (amounts: readonly MicroCredits[]): MicroCredits => amounts.reduce((sum, one) => sum + one, 0n)
const effectiveMs = ({ metadata }: Recorded): number => Date.parse(metadata.effective_at)
const foldOf = (events: readonly Recorded[], atMs: number, knownAtMs = Number.POSITIVE_INFINITY) => {
  const fold = newBalanceFold()
  for (const event of events) foldBalance(fold, event, { atMs, knownAtMs })
  return fold
}
const balanceAtOf = (events: readonly Recorded[], atMs: number): MicroCredits =>
  balanceOfFold(foldOf(events, atMs), { atMs })

const monthEnds = Array.from({ length: 14 }, (_, month) => Date.UTC(2026, month, 1) - 1)

describe('any operations on credits', () => {
  test('allocations and overdraft add up to every charge, no lot is below zero or above its grant, and lots minus overdraft equal the sum of all movements', () => {
    fc.assert(
      fc.property(histories({ skewMs: 3_000 }), (history) => {
        const { events, accounts, charges } = play(history)
        for (const [revision, event] of events.entries()) {
          const [before, after] = [accounts[revision], accounts[revision + 1]]
          if (before === undefined || after === undefined) throw new Error('an account is missing')
          if (event.type === 'CreditCharged') {
            const drawn = sumOf(event.data.allocations.map((one) => parseCredits(one.amount)))
            expect(drawn + after.overdrawn - before.overdrawn).toBe(parseCredits(event.data.amount))
            expect(availableOf(after, effectiveMs(event))).toBeGreaterThanOrEqual(0n)
          }
          expect(after.overdrawn).toBeGreaterThanOrEqual(0n)
          for (const { remaining, granted } of after.lots) {
            expect(remaining).toBeGreaterThan(0n)
            expect(remaining).toBeLessThanOrEqual(granted)
          }
          const inLots = sumOf(after.lots.map(({ remaining }) => remaining))
          expect(inLots - after.overdrawn).toBe(sumOf(events.slice(0, revision + 1).map(movementOf)))
        }
        for (const { charge, givenBack } of charges)
          expect(givenBack).toBeLessThanOrEqual(parseCredits(charge.amount))
      }),
      runs,
    )
  })

  test('opening balance plus movements equals the closing balance, for every month and every part of a range', () => {
    fc.assert(
      fc.property(
        histories({ skewMs: 3_000 }),
        fc.array(fc.nat({ max: 400 * dayMs }), { maxLength: 4 }),
        (history, cuts) => {
          const { events, nowMs } = play(history)
          const ends = [...monthEnds, ...cuts.map((cut) => startMs + cut), nowMs - dayMs]
            .filter((end) => end < nowMs)
            .sort((a, b) => a - b)
          let [openedMs, opening] = [startMs - dayMs, 0n]
          for (const end of ends) {
            const closing = balanceAtOf(events, end)
            const within = events.filter(
              (event) => effectiveMs(event) > openedMs && effectiveMs(event) <= end,
            )
            expect(opening + sumOf(within.map(movementOf))).toBe(closing)
            openedMs = Math.max(end, openedMs)
            opening = closing
          }
        },
      ),
      runs,
    )
  })

  test('a balance at one instant, as known at another, equals the balance of the account folded up to then', () => {
    fc.assert(
      fc.property(
        histories({ skewMs: 0 }),
        fc.nat({ max: 400 * dayMs }),
        fc.nat({ max: 400 * dayMs }),
        (history, at, knownAt) => {
          const { events } = play(history)
          const [atMs, knownAtMs] = [startMs + at, startMs + knownAt]
          const account = newAccount(organizationId)
          let revision = -1
          for (const event of events) {
            if (Date.parse(event.metadata.recorded_at ?? '') > knownAtMs) continue
            revision = event.recorded.revision
            if (effectiveMs(event) <= atMs) evolve(account, event, revision)
          }
          const fold = foldOf(events, atMs, knownAtMs)
          expect(balanceOfFold(fold, { atMs })).toBe(balanceOf(account, atMs))
          expect(fold.revision).toBe(revision)
        },
      ),
      runs,
    )
  })

  test('the accounts projection has the same account as the ledger, even if refunds reopen empty lots', () => {
    let reopened = 0
    fc.assert(
      fc.property(histories({ skewMs: 3_000 }), (history) => {
        const { events, accounts } = play(history)
        const state: AccountState = initialState(organizationId)
        for (const event of events) {
          const { revision } = event.recorded
          if (event.type === 'CreditAdjusted')
            reopened += event.data.fills.filter(({ grant_id }) => !state.lots.has(grant_id)).length
          const { type, data, metadata } = event
          evolveRow(state, {
            type,
            data,
            metadata,
            revision,
            id: event.recorded.id,
            stream: event.recorded.stream,
          } as ProjectedEvent)
          const account = accounts[revision + 1]
          expect(state.overdrawn).toBe(account?.overdrawn)
          expect(lotsOf([...state.lots.values()])).toEqual(lotsOf(account?.lots ?? []))
        }
      }),
      runs,
    )
    expect(reopened).toBeGreaterThan(randomCases(20))
  })
})

/** Lots by id, with the expiry in the same format for both folds. */
const lotsOf = (
  lots: readonly {
    grantId: string
    expiresAtMs: number | null
    priority: number
    revision: number
    granted: bigint
    remaining: bigint
  }[],
) =>
  lots
    .map(({ grantId, expiresAtMs, priority, revision, granted, remaining }) => ({
      grantId,
      priority,
      revision,
      granted,
      remaining,
      expiresAtMs: expiresAtMs === Number.POSITIVE_INFINITY ? null : expiresAtMs,
    }))
    .sort((a, b) => (a.grantId < b.grantId ? -1 : 1))
