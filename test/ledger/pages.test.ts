/** When a long ledger is read, every closing is known before the first event that it turns into a correction. */
import { setImmediate } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { closingGapMax } from '../../src/billing/months.ts'
import type { EventLog, RecordedEvent } from '../../src/event-log/port.ts'
import { encodeEvent } from '../../src/event-log/stored-event.ts'
import { readLedger } from '../../src/ledger/months/pages.ts'

const org = 'org_01K9ZZZZZZZZZZZZZZZZZZZZZZ'
const amounts = { opening: '0', granted: '0', charged: '0', adjusted: '0', expired: '0', closing: '0' }

const eventAt = (revision: number, closing: { at: number; through: number }): RecordedEvent => ({
  ...(revision === closing.at
    ? encodeEvent(
        {
          type: 'MonthClosed',
          data: {
            month: '2026-01',
            through_revision: closing.through,
            totals: { ...amounts, calls: 0 },
            digest: 'd'.repeat(43),
            next: { revision: 0, prices: [] },
          },
        },
        {
          id: '00000000-0000-0000-0000-000000000000',
          actor: 'test',
          effectiveAt: '2026-02-01T00:15:00.000Z',
        },
      )
    : { id: '', type: 'KeyUsed', data: '{}', metadata: '{}' }),
  revision,
  stream: `ledger-${org}`,
  position: BigInt(revision),
  recordedAtMs: 0,
})

const ledgerOf = (length: number, closing: { at: number; through: number }): Pick<EventLog, 'read'> => ({
  read: async (_, { from = 0, max }) => {
    // Each read takes a whole turn of the event loop, so a result that the code does not await arrives too late.
    await setImmediate()
    const count = Math.max(0, Math.min(max, length - from))
    return Array.from({ length: count }, (__, n) => eventAt(from + n, closing))
  },
})

test.each([
  ...[0, 1, 1_999, 2_000, 3_999, 4_000, 5_000].map((through) => ({ through, gap: closingGapMax })),
  { through: 1_999, gap: 1 },
])('a closing $gap events after revision $through is known in time', async ({ through, gap }) => {
  const closing = { at: through + gap, through }
  const { closings, pages } = readLedger(ledgerOf(10_000, closing), org, { from: 0 })
  const read: number[] = []
  for await (const page of pages()) {
    read.push(...page.map(({ revision }) => revision))
    if ((page.at(-1)?.revision ?? 0) > through)
      expect(closings).toMatchObject([{ month: '2026-01', through }])
  }
  expect(read).toEqual(Array.from({ length: 10_000 }, (_, n) => n))
})

test('reading starts and ends at the given revisions', async () => {
  const { pages } = readLedger(ledgerOf(10_000, { at: 0, through: 0 }), org, { from: 4_100, to: 8_099 })
  const revisions: number[] = []
  for await (const page of pages()) for (const { revision } of page) revisions.push(revision)
  expect(revisions).toEqual(Array.from({ length: 4_000 }, (_, n) => 4_100 + n))
})

test('if a page cannot be read, the reading fails, whether that page was already requested or not', async () => {
  const broken: Pick<EventLog, 'read'> = {
    read: async (stream, options) => {
      if ((options.from ?? 0) >= 6_000) throw new Error('the log is away')
      return ledgerOf(10_000, { at: 0, through: 0 }).read(stream, options)
    },
  }
  const reading = async (): Promise<void> => {
    for await (const page of readLedger(broken, org, { from: 0 }).pages()) expect(page.length).toBe(2_000)
  }
  await expect(reading()).rejects.toThrow('the log is away')
})
