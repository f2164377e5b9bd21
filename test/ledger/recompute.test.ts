/**
 * Charges are recomputed from the ledger's own events. Each case rewrites the whole chain, as the database's owner could: the
 * digests are right, but some events are wrong.
 */
import { pino } from 'pino'
import { describe, expect, test } from 'vitest'
import { parseCredits } from '../../src/billing/money.ts'
import { defaultPriceBook, type PriceBook, priceBookOf } from '../../src/billing/price-book.ts'
import { chain } from '../../src/event-log/hash-chain.ts'
import type { NewEvent, RecordedEvent } from '../../src/event-log/port.ts'
import type { CallFacts } from '../../src/events/calls.ts'
import { ledgerStream } from '../../src/events/streams.ts'
import { verifyLedger } from '../../src/ledger/check/verify.ts'
import type { Instruction } from '../../src/ledger/command.ts'
import { createLedger } from '../../src/ledger/write/ledger.ts'
import { createMemoryEventLog } from '../support/memory-event-log.ts'

const org = 'org_01K9ZZZZZZZZZZZZZZZZZZZZZZ'
const stream = ledgerStream(org)
const atMs = Date.parse('2026-03-01T12:00:00.000Z')
const later = '2026-03-01T12:00:30.000Z'

const first = priceBookOf(defaultPriceBook)
const dearer = priceBookOf({
  ...defaultPriceBook,
  version: 2,
  effective_from: later,
  rules: defaultPriceBook.rules.map((rule) => (rule.sku === 'ip_lookup' ? { ...rule, amount: '3' } : rule)),
})
const books = [first, dearer]
const lookup = (success: boolean): CallFacts => ({
  kind: 'ip_lookup',
  success,
  country_code: success ? 'DE' : null,
  address_hmac: 'A'.repeat(43),
})

const [free, cheapFact, cheapCharge, dearFact, dearCharge, ownCharge] = [2, 3, 4, 5, 6, 9]

const log = createMemoryEventLog()
let nowMs = atMs - 20_000
const ledger = createLedger({
  eventLog: log.client('writer'),
  snapshot: async () => null,
  logger: pino({ level: 'silent' }),
  clock: { now: () => nowMs },
})
const submit = (instruction: Instruction) => {
  nowMs += 10_000
  const key = `request-${nowMs}`
  return ledger.submit(org, { key, requestId: key, atMs: nowMs, actor: 'system', ...instruction })
}
const call = (success: boolean, book: PriceBook) =>
  submit({
    kind: 'record',
    call: {
      keyId: 'K9abcdefghijklmn',
      capability: 'ip_lookup',
      outcome: 'answered',
      facts: lookup(success),
    },
    book,
  })
await submit({ kind: 'register', name: 'Example', overdraftLimit: 0n })
await submit({
  kind: 'grant',
  amount: parseCredits('100'),
  priority: 1,
  expiresAt: null,
  reason: 'test',
})
await call(false, first)
await call(true, first)
await call(true, dearer)
await submit({
  kind: 'override_price',
  sku: 'ip_lookup',
  amount: parseCredits('0.5'),
  effectiveFrom: new Date(nowMs).toISOString(),
})
await call(true, dearer)
const events = log.eventsOf(stream)

/** The ledger with some events changed or removed, and every digest recomputed. */
const rewritten = (change: (event: RecordedEvent) => RecordedEvent | null) => {
  let previous = ''
  const all = events
    .flatMap((event) => change(event) ?? [])
    .map((event, revision): RecordedEvent => {
      const open = event.metadata.slice(0, event.metadata.indexOf(',"recorded_at"'))
      const bare: NewEvent = { ...event, metadata: `${open}}` }
      const chained = chain(bare, { stream, revision, previous }, '2026-03-01T12:02:00.000Z')
      previous = chained.digest
      return { ...event, ...chained.event, revision }
    })
  return {
    read: async (_: string, { from = 0, max }: { from?: number; max: number }) => all.slice(from, from + max),
    lastRevision: async () => all.length - 1,
  }
}
const textOf = (revision: number, from: string, to: string) => (event: RecordedEvent) =>
  event.revision === revision ? { ...event, data: event.data.replace(from, to) } : event

const verdictOf = (change: (event: RecordedEvent) => RecordedEvent | null, of = books) =>
  verifyLedger(rewritten(change), org, { books: of })

test('the recorded charges are those that the rules produce', async () => {
  expect(await verdictOf((event) => event)).toMatchObject({ fault: null, events: 10, contradicted: [] })
})

describe('with every digest recomputed, the contradicting event is identified', () => {
  test.each([
    [
      'another amount',
      dearCharge,
      (event: RecordedEvent) =>
        textOf(
          dearCharge,
          '"amount":"3"',
          '"amount":"2"',
        )(textOf(dearCharge, '"amount":"3"', '"amount":"2"')(event)),
      'charges 2 (ip_lookup 2 by ip_lookup.located version 1), but its facts, the tariff and price book 2 result in 3 (ip_lookup 3 by ip_lookup.located version 1)',
    ],
    [
      'other facts of a charged call',
      cheapCharge,
      textOf(cheapFact, '"success":true,"country_code":"DE"', '"success":false,"country_code":null'),
      'charges 1 (ip_lookup 1 by ip_lookup.located version 1), but its facts, the tariff and price book 1 result in 0 ()',
    ],
    [
      'other facts of a free call',
      free,
      textOf(free, '"success":false,"country_code":null', '"success":true,"country_code":"DE"'),
      'is free by ip_lookup.not_located version 1, but its facts, the tariff and the prices result in 1 (ip_lookup 1 by ip_lookup.located version 1)',
    ],
    [
      'another rule that makes a call free',
      free,
      textOf(free, '"rule":"ip_lookup.not_located"', '"rule":"whoami"'),
      'is free by whoami version 1, but its facts, the tariff and the prices result in free by ip_lookup.not_located version 1',
    ],
    [
      'a charged call recorded as free',
      dearFact,
      textOf(dearFact, '"facts":', '"free_by":{"rule":"ip_lookup.not_located","rule_version":1},"facts":'),
      'is free by ip_lookup.not_located version 1, but its facts, the tariff and the prices result in 3 (ip_lookup 3 by ip_lookup.located version 1)',
    ],
    [
      'another price book',
      dearCharge,
      (event: RecordedEvent) =>
        textOf(
          dearCharge,
          `"price_book_digest":"${dearer.digest}"`,
          `"price_book_digest":"${first.digest}"`,
        )(textOf(dearCharge, '"price_book_version":2', '"price_book_version":1')(event)),
      'was priced by price book 1, but price book 2 was in force',
    ],
    [
      'a price book that was never published',
      dearCharge,
      textOf(dearCharge, '"price_book_version":2', '"price_book_version":7'),
      'was priced by price book 7, which does not exist',
    ],
    [
      'another price of the organization itself',
      ownCharge,
      textOf(ownCharge - 2, '"amount":"0.5"', '"amount":"0.25"'),
      'charges 0.5 (ip_lookup 0.5 by ip_lookup.located version 1), but its facts, the tariff and price book 2 result in 0.25 (ip_lookup 0.25 by ip_lookup.located version 1)',
    ],
  ])('%s', async (_, revision, change, fault) => {
    expect((await verdictOf(change)).fault).toMatchObject({ revision, fault })
  })

  test('a charge that was removed', async () => {
    const { fault } = await verdictOf((event) => (event.revision === cheapCharge ? null : event))
    expect(fault).toMatchObject({ revision: cheapCharge, type: 'KeyUsed' })
    expect(fault?.fault).toBe(
      `the previous event is the call ${events[cheapFact]?.id}, which is neither charged nor free`,
    )
  })

  test('an event with an earlier recording time than the event before it', async () => {
    const back = (event: RecordedEvent) => event
    const ledger = rewritten(back)
    const [one, ...rest] = await ledger.read(stream, { max: 100 })
    if (one === undefined) throw new Error('no events')
    const bare = { ...one, metadata: `${one.metadata.slice(0, one.metadata.indexOf(',"recorded_at"'))}}` }
    const late = chain(bare, { stream, revision: 0, previous: '' }, '2027-01-01T00:00:00.000Z')
    const next = rest[0]
    if (next === undefined) throw new Error('no second event')
    const bareNext = {
      ...next,
      metadata: `${next.metadata.slice(0, next.metadata.indexOf(',"recorded_at"'))}}`,
    }
    const early = chain(bareNext, { stream, revision: 1, previous: late.digest }, '2026-03-01T12:00:00.000Z')
    const two = [
      { ...one, ...late.event },
      { ...next, ...early.event },
    ]
    const verdict = await verifyLedger({ read: async () => two, lastRevision: async () => 1 }, org, { books })
    expect(verdict.fault).toMatchObject({
      revision: 1,
      fault: 'has an earlier recording time than the previous event',
    })
  })
})

test('a changed price book is reported with the charges it contradicts, without a fault in the ledger', async () => {
  const cheaper = priceBookOf({
    ...defaultPriceBook,
    version: 2,
    effective_from: later,
    rules: defaultPriceBook.rules.map((rule) => (rule.sku === 'ip_lookup' ? { ...rule, amount: '2' } : rule)),
  })
  expect(await verdictOf((event) => event, [first, cheaper])).toMatchObject({
    fault: null,
    contradicted: [
      {
        priceBookVersion: 2,
        charges: 2,
        first: { revision: dearCharge, requestId: expect.stringMatching(/^request-/) },
      },
    ],
  })
})
