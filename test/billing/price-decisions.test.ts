/** Decisions about price books: each reason for a refusal, and the events of each accepted decision. */
import { describe, expect, test } from 'vitest'
import { defaultPriceBook, priceBookOf, soundPriceBookOf } from '../../src/billing/price-book.ts'
import {
  approveProposal,
  isOpen,
  type PriceDecision,
  proposeBook,
  withdrawBook,
  withdrawProposal,
} from '../../src/billing/price-decisions.ts'
import { patchedRules, ruleChanges, rulesDigest } from '../../src/billing/price-rules.ts'
import { evolvePrices, noPrices, type Prices, publishedAt, standingBooks } from '../../src/billing/prices.ts'
import type { PriceBookRule } from '../../src/events/prices.ts'

const nowMs = Date.UTC(2026, 10, 22, 12)
const at = (secondsAhead: number): string => new Date(nowMs + secondsAhead * 1000).toISOString()
const priced = (amount: string): PriceBookRule[] =>
  defaultPriceBook.rules.map((rule) => (rule.sku === 'ip_lookup' ? { ...rule, amount } : rule))

type Act = Exclude<PriceDecision, { refused: string }>
const folded = (prices: Prices, act: Act, { by = 'user:ada', when = at(0) } = {}): Prices =>
  evolvePrices(prices, { ...act, metadata: { actor: by, effective_at: when } })

const done = <One extends Act>(decision: PriceDecision<One>): One => {
  if ('refused' in decision) throw new Error(decision.refused)
  return decision
}
const refusal = (decision: PriceDecision): string | null => ('refused' in decision ? decision.refused : null)

const start = folded(noPrices, { type: 'PriceBookPublished', data: defaultPriceBook }, { by: 'system' })
const wanted = { effectiveFrom: at(3600), reason: 'a contract', proposer: 'user:ada', nowMs }
const propose = (prices: Prices, rules: PriceBookRule[], more: Partial<typeof wanted> = {}) =>
  proposeBook(prices, { ...wanted, rules, ...more })
const approve = (prices: Prices, proposal: number, ms = nowMs) =>
  approveProposal(prices, { proposal, approver: 'user:bob', nowMs: ms })
const withProposal = (prices: Prices, rules: PriceBookRule[], more: Partial<typeof wanted> = {}): Prices =>
  folded(prices, done(propose(prices, rules, more)))

describe('a proposal', () => {
  test('contains the whole book, its author, the reason, and the differences', () => {
    expect(propose(start, priced('2'))).toEqual({
      type: 'PriceBookProposed',
      data: {
        proposal: 1,
        effective_from: at(3600),
        rules: priced('2'),
        digest: rulesDigest(priced('2')),
        base: 1,
        reason: 'a contract',
        proposer: 'user:ada',
      },
    })
  })

  test.each([
    ['for now', at(0)],
    ['for a date less than 5 s ahead', at(4.999)],
    ['for a date in the past', at(-1)],
  ])('%s is refused', (_, effectiveFrom) => {
    expect(propose(start, priced('2'), { effectiveFrom })).toEqual({
      refused: `${effectiveFrom} must be at least 5 s in the future, because prices never change for the past`,
      field: 'from',
    })
  })

  test('5 s before its date is accepted', () => {
    expect(refusal(propose(start, priced('2'), { effectiveFrom: at(5) }))).toBeNull()
  })

  test('of the book that is in force at that date is refused, in any order of its rules', () => {
    expect(refusal(propose(start, priced('1').toReversed()))).toBe(
      'price book 1, which is in force then, already has exactly these rules',
    )
    const later = folded(withProposal(start, priced('2')), done(approve(withProposal(start, priced('2')), 1)))
    expect(refusal(propose(later, priced('2'), { effectiveFrom: at(7200) }))).toContain('price book 2')
    expect(refusal(propose(later, priced('1'), { effectiveFrom: at(7200) }))).toBeNull()
    expect(refusal(propose(later, priced('2'), { effectiveFrom: at(60) }))).toBeNull()
  })

  test('of an open proposal is refused, and accepted after that proposal is withdrawn or expired', () => {
    const prices = withProposal(start, priced('2'))
    const again = { effectiveFrom: at(7200) }
    expect(refusal(propose(prices, priced('2'), again))).toBe(
      'proposal p1 has exactly these rules and is still open',
    )
    const withdrawn = folded(prices, done(withdrawProposal(prices, { proposal: 1, reason: 'a mistake' })))
    expect(done(propose(withdrawn, priced('2'), again)).data.proposal).toBe(2)
    expect(refusal(propose(prices, priced('2'), { ...again, nowMs: nowMs + 3_596_000 }))).toBeNull()
  })
})

describe('an approval', () => {
  const prices = withProposal(start, priced('2'))

  test('publishes exactly the proposed book, under its digest', () => {
    const { data } = done(approve(prices, 1))
    expect(data).toEqual({
      version: 2,
      effective_from: at(3600),
      rules: priced('2'),
      approver: 'user:bob',
      proposal: 1,
      digest: priceBookOf(data).digest,
    })
    const next = folded(prices, { type: 'PriceBookPublished', data })
    expect(publishedAt(next, nowMs + 3_599_999)?.version).toBe(1)
    expect(publishedAt(next, nowMs + 3_600_000)?.version).toBe(2)
    expect(next.proposals.map((one) => isOpen(one, nowMs))).toEqual([false])
  })

  test('must be given at least 5 s before the effective date', () => {
    expect(refusal(approve(prices, 1, nowMs + 3_595_000))).toBeNull()
    expect(refusal(approve(prices, 1, nowMs + 3_595_001))).toBe(
      `p1 takes effect at ${at(3600)}, and it is too late to approve it: that is possible until 5 s before. Propose it again with a later --from`,
    )
  })

  test('is given once, to an existing proposal that was not withdrawn', () => {
    const published = folded(prices, done(approve(prices, 1)))
    expect(refusal(approve(published, 1))).toBe('p1 is already approved: it is price book 2')
    expect(refusal(approve(prices, 2))).toBe('there is no proposal p2; see "price show"')
    const withdrawn = folded(prices, done(withdrawProposal(prices, { proposal: 1, reason: 'no' })))
    expect(refusal(approve(withdrawn, 1))).toBe(`p1 was withdrawn at ${at(0)}`)
  })

  test('never undoes a change that another book made in the meantime', () => {
    const both = withProposal(withProposal(start, priced('2')), priced('3'), { effectiveFrom: at(7200) })
    const published = folded(both, done(approve(both, 1)))
    expect(refusal(approve(published, 2))).toBe(
      'p2 was proposed as a change to price book 1, but another book (2) will be in force then. Propose it again',
    )
  })

  test('is not given if a later book that was approved in the meantime would undo its change', () => {
    const both = withProposal(withProposal(start, priced('2')), priced('3'), { effectiveFrom: at(7200) })
    const published = folded(both, done(approve(both, 2)))
    expect(refusal(approve(published, 1))).toBe(
      `price book 2, which takes effect at ${at(7200)}, does not contain the changes of p1 and would undo them. Withdraw p1, and propose it again`,
    )
    const again = withProposal(published, priced('4'))
    expect(refusal(approve(again, 3))).toBeNull()
    const withdrawn = done(withdrawBook(published, { version: 2, reason: 'not signed', nowMs }))
    expect(refusal(approve(folded(published, withdrawn), 1))).toBeNull()
  })

  test('is refused if the rules are not the proposed ones', () => {
    const [proposal] = prices.proposals
    if (proposal === undefined) throw new Error('no proposal')
    const changed = { ...prices, proposals: [{ ...proposal, rules: priced('0.1') }] }
    expect(refusal(approve(changed, 1))).toContain('the rules of p1 were changed after it was proposed')
  })
})

describe('a withdrawal', () => {
  const proposed = withProposal(start, priced('2'))
  const prices = folded(proposed, done(approve(proposed, 1)))
  const withdraw = (version: number, ms = nowMs) =>
    withdrawBook(prices, { version, reason: 'not signed', nowMs: ms })

  test('of a scheduled book leaves the previous one in force', () => {
    const next = folded(prices, done(withdraw(2)))
    expect(publishedAt(next, nowMs + 86_400_000)?.version).toBe(1)
    expect(standingBooks(next).map(({ version }) => version)).toEqual([1])
    expect(refusal(withdrawBook(next, { version: 2, reason: 'again', nowMs }))).toContain('was withdrawn at')
  })

  test('does not free its version for another book', () => {
    const next = folded(prices, done(withdraw(2)))
    const again = withProposal(next, priced('4'))
    expect(done(approve(again, 2)).data.version).toBe(3)
  })

  test('is refused in the last 5 s, and after the book is in force', () => {
    expect(refusal(withdraw(2, nowMs + 3_595_000))).toBeNull()
    expect(refusal(withdraw(2, nowMs + 3_595_001))).toContain('takes effect in less than 5 s')
    expect(refusal(withdraw(2, nowMs + 3_600_000))).toContain(
      `price book 2 has been in force since ${at(3600)}`,
    )
    expect(refusal(withdraw(1))).toContain('price book 1 has been in force since')
    expect(refusal(withdraw(9))).toBe('there is no price book 9; see "price show"')
  })

  test('that was written too late has no effect: the book has priced calls', () => {
    const late = folded(prices, done(withdraw(2)), { when: at(3600) })
    expect(publishedAt(late, nowMs + 3_600_000)?.version).toBe(2)
  })

  test('of a proposal is refused after its approval', () => {
    expect(refusal(withdrawProposal(prices, { proposal: 1, reason: 'late' }))).toBe(
      'p1 is already approved: it is price book 2',
    )
  })
})

test('repeated events change nothing', () => {
  const acts: Act[] = [
    { type: 'PriceBookPublished', data: defaultPriceBook },
    done(propose(start, priced('2'))),
    done(approve(withProposal(start, priced('2')), 1)),
    { type: 'PriceBookWithdrawn', data: { version: 2, reason: 'no' } },
  ]
  const once = acts.reduce((prices, act) => folded(prices, act), noPrices)
  expect(acts.reduce((prices, act) => folded(prices, act), once)).toEqual(once)
})

describe('rules', () => {
  test('a patch changes the rules it names, adds new ones, and leaves the rest', () => {
    const [first, second, ...rest] = priced('1')
    if (first === undefined || second === undefined) throw new Error('no rules')
    const changed = { ...second, amount: '7' }
    expect(patchedRules([first, second], [changed, ...rest])).toEqual([first, changed, ...rest])
  })

  test('differences name rules that were changed, added or removed', () => {
    const [one, two] = [priced('1'), priced('2')]
    expect(ruleChanges(one, one.toReversed())).toEqual([])
    expect(ruleChanges(one, two)).toEqual([
      {
        rule: 'ip_lookup.located',
        from: { rule: 'ip_lookup.located', rule_version: 1, sku: 'ip_lookup', amount: '1' },
        to: { rule: 'ip_lookup.located', rule_version: 1, sku: 'ip_lookup', amount: '2' },
      },
    ])
    expect(ruleChanges(one.slice(1), one)).toEqual([{ rule: one[0]?.rule, from: null, to: one[0] }])
    expect(ruleChanges(one, one.slice(1))).toEqual([{ rule: one[0]?.rule, from: one[0], to: null }])
  })

  test('the digest depends on the rules, not on their order', () => {
    expect(rulesDigest(priced('2').toReversed())).toBe(rulesDigest(priced('2')))
    expect(rulesDigest(priced('2'))).not.toBe(rulesDigest(priced('1')))
  })
})

test('a book that does not match its digest cannot be read', () => {
  const { data } = done(approve(withProposal(start, priced('2')), 1))
  expect(soundPriceBookOf(data)).toEqual(priceBookOf(data))
  expect(() => soundPriceBookOf({ ...data, rules: priced('0.1') })).toThrow(
    'price book 2 was changed after it was published: its content does not match its digest',
  )
})
