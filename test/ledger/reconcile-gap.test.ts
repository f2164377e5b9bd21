/** Reconciliation of a ledger that cannot be read completely. */
import { expect, test } from 'vitest'
import { EventsUnreadable } from '../../src/event-log/port.ts'
import { reconcileLedger } from '../../src/ledger/check/reconcile.ts'

test('missing events are a difference of their ledger, and do not end the reconciliation of the others', async () => {
  const missing = new EventsUnreadable({
    stream: 'ledger-a',
    firstRevision: 2,
    lastRevision: 4,
    why: 'they are missing from the event log',
  })
  const result = await reconcileLedger(
    { read: () => Promise.reject(missing) },
    {
      organizationId: 'a',
      books: [],
      from: 0,
      until: 10n,
      fromMs: 0,
      toMs: 1,
      rowRevision: null,
      compare: async () => [],
      rerated: async () => null,
    },
  )
  expect(result).toMatchObject({ differences: 1, named: [missing.message], through: -1 })
})
