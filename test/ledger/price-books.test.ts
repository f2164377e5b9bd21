/** The price book that prices calls in each process. A withdrawn book never prices calls. If a book cannot be trusted, no calls are priced. */
import { afterEach, beforeEach, expect, test } from 'vitest'
import { approvePriceBook, proposePriceBook, withdrawPrices } from '../../src/administration/prices/prices.ts'
import { defaultPriceBook } from '../../src/billing/price-book.ts'
import { appendNext } from '../../src/event-log/append-next.ts'
import type { EventLog } from '../../src/event-log/port.ts'
import { encodeEvent } from '../../src/event-log/stored-event.ts'
import type { PriceBookPublished } from '../../src/events/prices.ts'
import { priceBookStream } from '../../src/events/streams.ts'
import { keepPriceBookComplete } from '../../src/foundation/own-event-log.ts'
import { openPriceBooks, type PriceBooks } from '../../src/ledger/prices/price-books.ts'
import { logger } from '../support/logger.ts'
import { createMemoryEventLog } from '../support/memory-event-log.ts'

let eventLog: EventLog
const opened: PriceBooks[] = []

beforeEach(async () => {
  eventLog = createMemoryEventLog().client('one')
  await keepPriceBookComplete(eventLog, logger)
})
afterEach(async () => {
  for (const books of opened.splice(0)) await books.stop()
})

const open = async (): Promise<PriceBooks> => {
  const books = openPriceBooks({ eventLog, logger })
  opened.push(books)
  await books.caughtUp
  return books
}

const hourMs = 3_600_000
const rules = (amount: string) =>
  defaultPriceBook.rules.map((rule) => (rule.sku === 'ip_lookup' ? { ...rule, amount } : rule))

const propose = async (amount: string, effectiveFrom: string): Promise<number> =>
  (
    await proposePriceBook(
      { eventLog },
      { rulesOver: () => rules(amount), effectiveFrom, reason: null, actor: 'user:ada' },
    )
  ).proposal

const approve = (proposal: number, actor = 'user:bob') =>
  approvePriceBook({ eventLog }, { proposal, actor, twoPerson: true })

const versionHeard = async (books: PriceBooks, atMs: number, version: number): Promise<void> => {
  await expect.poll(() => books.at(atMs).version).toBe(version)
}

test('a proposed book prices nothing; an approved one prices from its effective time on; a withdrawn one never does', async () => {
  const from = new Date(Date.now() + hourMs).toISOString()
  const fromMs = Date.parse(from)
  const live = await open()
  const proposal = await propose('2', from)
  expect((await open()).at(fromMs).version).toBe(1)
  await approve(proposal)
  await versionHeard(live, fromMs, 2)
  expect(live.at(fromMs - 1).version).toBe(1)
  expect((await open()).at(fromMs).rules.get('ip_lookup.located')?.amount).toBe(2_000_000n)

  await withdrawPrices(
    { eventLog },
    { name: { kind: 'book', number: 2 }, reason: 'not signed', actor: 'user:ada', twoPerson: true },
  )
  await versionHeard(live, fromMs, 1)
  expect((await open()).at(fromMs + hourMs).version).toBe(1)
})

test('a book whose rules were changed in the log stops pricing instead of being skipped', async () => {
  const live = await open()
  const book: PriceBookPublished = {
    ...defaultPriceBook,
    version: 2,
    rules: rules('0.1'),
    effective_from: new Date(Date.now() + hourMs).toISOString(),
    digest: 'A'.repeat(43),
  }
  await appendNext(eventLog, priceBookStream, [
    encodeEvent(
      { type: 'PriceBookPublished', data: book },
      {
        id: '6f1c1f0e-8a1b-5c2d-9e3f-0123456789ab',
        actor: 'user:bob',
        effectiveAt: new Date().toISOString(),
      },
    ),
  ])
  await expect.poll(() => live.doubtful()).toBe(1)
  expect(() => live.at(Date.now())).toThrow('pricebook cannot be read at revision 1')
  await expect(open()).rejects.toThrow('price book 2 was changed after it was published')
})

test('with two people, the proposer, a label and the command line cannot approve', async () => {
  const proposal = await propose('2', new Date(Date.now() + hourMs).toISOString())
  await expect(approve(proposal, 'user:ada')).rejects.toThrow('ada proposed it: another person')
  await expect(approve(proposal, 'cli:bob')).rejects.toThrow('"cli:bob" is an unverified name')
  await expect(approve(proposal, 'cli')).rejects.toThrow('"cli" is an unverified name')
  await expect(
    withdrawPrices(
      { eventLog },
      { name: { kind: 'book', number: 1 }, reason: 'x', actor: 'cli', twoPerson: true },
    ),
  ).rejects.toThrow('"cli" is an unverified name')
  expect((await approve(proposal)).approver).toBe('user:bob')
})

test('one person alone approves, and the book shows that the approver is a label', async () => {
  const proposal = await propose('2', new Date(Date.now() + hourMs).toISOString())
  const alone = { proposal, actor: 'cli:bob', twoPerson: false }
  expect((await approvePriceBook({ eventLog }, alone)).approver).toBe('cli:bob')
})

test('of two concurrent approvals one succeeds, and so does one of two identical proposals', async () => {
  const from = new Date(Date.now() + hourMs).toISOString()
  const proposals = await Promise.allSettled([propose('2', from), propose('2', from)])
  expect(proposals.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected'])
  const approvals = await Promise.allSettled([approve(1), approve(1, 'user:carol')])
  expect(approvals.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected'])
  expect((await open()).at(Date.parse(from)).version).toBe(2)
})
