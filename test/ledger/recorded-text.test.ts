/** What is read off an event's text is what decoding it says. */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { parseCredits } from '../../src/billing/money.ts'
import { chain, genesisDigest } from '../../src/event-log/hash-chain.ts'
import type { RecordedEvent } from '../../src/event-log/port.ts'
import { decodeEvent, encodeEvent } from '../../src/event-log/stored-event.ts'
import type { LedgerEvent } from '../../src/events/catalogue.ts'
import { chargedBy, effectiveAtOf, recordOf } from '../../src/ledger/recorded-text.ts'

const id = '11111111-2222-5333-8444-555555555555'
const recorded = (
  event: LedgerEvent,
  own: { actor: string } & Partial<Record<'requestId' | 'repeats' | 'traceId', string | undefined>>,
): RecordedEvent => ({
  ...chain(
    encodeEvent(event, { id, effectiveAt: '2026-01-31T23:59:59.999Z', causationId: id, ...own }),
    { stream: 'ledger-x', revision: 7, previous: genesisDigest },
    '2026-02-01T00:00:00.000Z',
  ).event,
  stream: 'ledger-x',
  revision: 7,
  position: 8n,
  recordedAtMs: 0,
})

/** Texts that look like what is looked for. */
const text = fc.oneof(
  fc.constantFrom(
    '"',
    '\\',
    ',"effective_at":"',
    ',"facts":{',
    ',"free_by":{',
    ',"allocations":[',
    '"amount":"9"',
  ),
  fc.string({ maxLength: 30 }),
)
const amount = fc.constantFrom('1', '0.5', '12.000001')
const line = fc.record({ sku: text, amount, rule: text, rule_version: fc.integer({ min: 1, max: 3 }) })

const charge = fc
  .record({
    lines: fc.array(line, { minLength: 1, maxLength: 3 }),
    total: amount,
    book: fc.integer({ min: 1, max: 9 }),
  })
  .map(
    ({ lines, total, book }): LedgerEvent => ({
      type: 'CreditCharged',
      data: {
        charge_id: id,
        sku: lines[0]?.sku ?? '',
        amount: total,
        lines,
        rule: lines[0]?.rule ?? '',
        rule_version: 1,
        price_book_version: book,
        allocations: [{ grant_id: id, amount: '1' }],
        price_book_digest: null,
      },
    }),
  )

const call = fc
  .record({
    code: fc.option(text),
    rule: fc.option(text),
    idempotent: fc.boolean(),
    fingerprint: fc.boolean(),
    country: text,
  })
  .map(
    ({ code, rule, idempotent, fingerprint, country }): LedgerEvent => ({
      type: 'KeyUsed',
      data: {
        key_id: 'K9abcdefghijklmn',
        capability: 'ip_lookup',
        outcome: 'answered',
        ...(code === null ? {} : { code }),
        facts: { kind: 'ip_lookup', success: true, country_code: country, address_hmac: 'A'.repeat(43) },
        ...(rule === null ? {} : { free_by: { rule, rule_version: 2 } }),
        ...(idempotent ? { idempotent: true } : {}),
        ...(fingerprint ? { request_fingerprint: 'B'.repeat(43) } : {}),
      },
    }),
  )

/** Facts, the lots that paid and what an Idempotency-Key was used for are on no statement. */
const said = (data: object): object => ({
  ...data,
  facts: undefined,
  idempotent: undefined,
  request_fingerprint: undefined,
  allocations: undefined,
  price_book_digest: undefined,
})

describe('calls and charges', () => {
  test('whatever their texts hold', () => {
    fc.assert(
      fc.property(
        fc.oneof(charge, call),
        text,
        fc.option(text),
        fc.option(text),
        fc.boolean(),
        (event, actor, requestId, repeats, traced) => {
          const one = recorded(event, {
            actor,
            requestId: requestId ?? undefined,
            repeats: repeats ?? undefined,
            traceId: traced ? 'a1'.repeat(16) : undefined,
          })
          const decoded = decodeEvent(one)
          const { digest: _, ...metadata } = decoded.metadata
          const record = recordOf(one)
          expect({ ...record.metadata, digest: undefined }).toEqual({ ...metadata, digest: undefined })
          expect(said(record.data)).toEqual(said(decoded.data))
          expect(effectiveAtOf(one)).toBe(decoded.metadata.effective_at)
          if (decoded.type === 'CreditCharged') expect(chargedBy(one)).toBe(parseCredits(decoded.data.amount))
        },
      ),
      { seed: 20_261_122, numRuns: 500 },
    )
  })

  test('of a newer release are refused', () => {
    const one = recorded({ type: 'CreditExpired', data: { grant_id: id, amount: '1' } }, { actor: 'a' })
    for (const type of ['CreditCharged', 'KeyUsed', 'CreditExpired'])
      for (const version of [0, 3, 9, 12])
        expect(() =>
          recordOf({
            ...one,
            type,
            metadata: one.metadata.replace(/"schema_version":1/, `"schema_version":${version}`),
          }),
        ).toThrow('is not known to this release')
  })
})
