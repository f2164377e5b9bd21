import { expect, test } from 'vitest'
import { parseCredits } from '../../src/billing/money.ts'
import { defaultPriceBook, priceBookOf } from '../../src/billing/price-book.ts'
import type { CallFacts } from '../../src/events/calls.ts'
import {
  figuresMessage,
  readAnswer,
  readQuestion,
  reserveMessage,
  submitMessage,
} from '../../src/ledger/passing.ts'

/** What one process asks another, as it arrives there. */

const book = priceBookOf(defaultPriceBook)
const named = book.digest
const arrives = (message: object) => readQuestion(JSON.parse(JSON.stringify(message)))

/** As capabilities ask for them before they know whom an answer will be about. */
const unknownYet: readonly CallFacts[] = [
  { kind: 'profile', source: 'fresh', age_seconds: 0, subject_id: '' },
  {
    ...{ kind: 'email_validation', status: 'valid', sub_status: 'accepted', decision_row: 17 },
    ...{ company_status: 'found', domain: null, address_hmac: '' },
  },
]

test.each(unknownYet)('facts that are only priced may lack what is not known yet: $kind', (facts) => {
  expect(arrives(reserveMessage('org', { facts, book, atMs: 1 }, { id: 1, named }))).toMatchObject({
    cost: { facts },
  })
  const question = { atMs: 1, cost: { facts, book, held: parseCredits('2') } }
  expect(arrives(figuresMessage('org', question, named))).toMatchObject({ cost: { facts, held: 2_000_000n } })
  const refused = { kind: 'refusal', code: 'CREDIT_001' } as const
  const call = { keyId: 'k', capability: 'profile', outcome: 'refused', facts: refused } as const
  const command = { key: 'k', atMs: 1, actor: 'system', kind: 'refuse', call, book, held: 0n } as const
  const options = { serial: 1, bookName: named, absentUpTo: 0, fresh: true, waitMaxMs: 1 }
  expect(arrives(submitMessage('org', { ...command, dearest: facts }, options))).toMatchObject({
    instruction: { dearest: facts },
  })
})

test.each(unknownYet)('facts that are recorded are whole: $kind', (facts) => {
  const call = { keyId: 'k', capability: 'profile', outcome: 'answered', facts } as const
  const command = { key: 'k', atMs: 1, actor: 'system', kind: 'record', call, book } as const
  const options = { serial: 1, bookName: named, absentUpTo: 0, fresh: true, waitMaxMs: 1 }
  expect(arrives(submitMessage('org', command, options))).toBeNull()
})

test.each([null, 'profile', {}, { kind: 'no such' }, { kind: ['profile'] }])(
  'facts of no kind that has a price are not understood: %j',
  (facts) => {
    const cost = { facts, book: named }
    expect(arrives({ ask: 'reserve', organizationId: 'org', id: 1, atMs: 1, cost })).toBeNull()
  },
)

test('a trace is passed on, and only as one', () => {
  const call = {
    keyId: 'k',
    capability: 'profile',
    outcome: 'refused',
    facts: { kind: 'refusal', code: 'CREDIT_001' },
  } as const
  const command = { key: 'k', atMs: 1, actor: 'system', kind: 'record', call, book } as const
  const options = { serial: 1, bookName: named, absentUpTo: 0, fresh: true, waitMaxMs: 1 }
  const traceId = '4bf92f3577b34da6a3ce929d0e0e4736'
  expect(arrives(submitMessage('org', { ...command, traceId }, options))).toMatchObject({
    command: { traceId },
  })
  expect(arrives(submitMessage('org', command, options))).not.toHaveProperty('command.traceId')
  // It is written into the envelope as it is.
  expect(arrives(submitMessage('org', { ...command, traceId: '","actor":"cli' }, options))).toBeNull()
})

test('events that another process tells have a type and members, or they are not understood', () => {
  const told = (events: unknown): unknown =>
    readAnswer({ is: 'committed', revision: 3, balance: '1', repeated: false, events })
  expect(told([{ type: 'KeyUsed', data: { free_by: null } }])).toMatchObject({ revision: 3, balance: 1n })
  for (const data of [undefined, null, 1, 'text', ['free_by']])
    expect(told([{ type: 'KeyUsed', data }])).toBeNull()
  for (const events of [{}, [null], [{ data: {} }], [{ type: 1, data: {} }]]) expect(told(events)).toBeNull()
})
