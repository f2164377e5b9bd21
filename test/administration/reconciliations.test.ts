/** Where the next reconciliation continues, and where this is recorded. */
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { lastReconciled, recordReconciled } from '../../src/administration/ledgers/reconciliations.ts'
import { operatorStream } from '../../src/events/streams.ts'
import type { Reconciled } from '../../src/ledger/check/reconcile.ts'
import { createMemoryEventLog } from '../support/memory-event-log.ts'

/** A signature that fits only its own text. */
const signatureOf = (text: string): string => `${text.length}`.padStart(86, '0')
const checkpoints = {
  sign: async (text: string) => ({ keyId: 'k'.repeat(22), value: signatureOf(text) }),
  isSigned: async (text: string, { value }: { value: string }) => value === signatureOf(text),
} as never

const organization = (n: number): string => `org_${String(n).padStart(26, '0')}`
const agreed = (n: number, through: number): Reconciled => ({
  organizationId: organization(n),
  from: 0,
  through,
  calls: 1,
  sums: new Map(),
  differences: 0,
  named: [],
  totals: null,
})
const differing = (n: number): Reconciled => ({ ...agreed(n, 9), differences: 1, named: ['a difference'] })
const job = { whole: false, actor: 'system' }

const open = (bySigner = checkpoints) => {
  const log = createMemoryEventLog()
  return { log, foundation: { eventLog: log.client('jobs'), checkpoints: bySigner } }
}

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['Date'], now: Date.UTC(2026, 0, 31, 3) })
})
afterEach(() => {
  vi.useRealTimers()
})

test("the operators' stream contains one event of constant size, however many ledgers agreed", async () => {
  const { log, foundation } = open()
  const all = Array.from({ length: 2_500 }, (_, n) => agreed(n, n))
  await recordReconciled(foundation, [...all, differing(9_999)], job)
  const acts = log.eventsOf(operatorStream)
  expect(acts.map(({ data }) => JSON.parse(data))).toEqual([
    {
      whole: false,
      ledgers: [],
      ledger_count: 2_500,
      calls: 2_501,
      differences: 1,
      signed: null,
      named: [`${organization(9_999)}: a difference`],
    },
  ])
  expect(log.eventsOf('reconciled-202601')).toHaveLength(3)
  expect(await lastReconciled(foundation)).toEqual(new Map(all.map((one, n) => [one.organizationId, n])))
})

test('ledgers without new events continue where they agreed, in every later month', async () => {
  const { foundation } = open()
  await recordReconciled(foundation, [agreed(1, 5), agreed(2, 6)], job)
  for (const month of [1, 2, 3]) {
    vi.setSystemTime(Date.UTC(2026, month, 1, 3))
    await recordReconciled(foundation, [agreed(2, 6 + month), differing(3)], job)
    expect(await lastReconciled(foundation)).toEqual(
      new Map([
        [organization(1), 5],
        [organization(2), 6 + month],
      ]),
    )
  }
})

test('reads the streams of two months only; a ledger without a record there is compared from its beginning', async () => {
  const { foundation } = open()
  await recordReconciled(foundation, [agreed(1, 5)], job)
  vi.setSystemTime(Date.UTC(2026, 2, 1))
  expect(await lastReconciled(foundation)).toEqual(new Map())
})

test('records no revisions without the signing key', async () => {
  const { log, foundation } = open({ sign: async () => null } as never)
  await recordReconciled(foundation, [agreed(1, 5)], job)
  expect(log.eventsOf('reconciled-202601')).toEqual([])
  expect(log.eventsOf(operatorStream)).toHaveLength(1)
})
