/** Events that another program or a person wrote into a ledger, and that this service would never write. */
import { randomUUID } from 'node:crypto'
import { pino } from 'pino'
import { beforeEach, describe, expect, test } from 'vitest'
import { evolve, initialState } from '../../projections/account-state.ts'
import { walkLedger } from '../../src/ledger/ledger-calls.ts'
import { monthsFrom, readStatement } from '../../src/ledger/months/months.ts'
import { createLedger } from '../../src/ledger/write/ledger.ts'
import { decodeBatch } from '../../src/projector/batch.ts'
import { atMs, command, grantOf, openLedger, org, stream } from '../support/ledger-commands.ts'
import { createMemoryEventLog, type MemoryEventLog } from '../support/memory-event-log.ts'

let log: MemoryEventLog
beforeEach(() => {
  log = createMemoryEventLog({ now: () => atMs })
})

const processOf = (name: string) =>
  createLedger({
    eventLog: log.client(name),
    snapshot: async () => null,
    logger: pino({ level: 'silent' }),
    clock: { now: () => atMs, monotonic: () => performance.now() },
  })

/** Writes an event as the next one of a ledger that contains one lot of 5 credits. Returns the id of the lot. */
const written = async (type: string, data: (lot: string) => unknown, effectiveAt: string): Promise<void> => {
  await openLedger(processOf('opener'), '5')
  const other = log.client('other')
  const [, grant] = await other.read(stream, { from: 0, max: 2 })
  const lot = (JSON.parse(grant?.data ?? '') as { readonly grant_id: string }).grant_id
  const metadata = JSON.stringify({ schema_version: 1, actor: 'other', effective_at: effectiveAt })
  await other.append(stream, 1, [{ id: randomUUID(), type, data: JSON.stringify(data(lot)), metadata }])
}

const at = '2026-03-01T12:00:00.000Z'
const granted = {
  grant_id: randomUUID(),
  amount: '7',
  priority: 100,
  expires_at: null,
  reason: 'by hand',
  overdraft_repaid: '0',
  reference: null,
}
const charged = {
  charge_id: randomUUID(),
  price_book: null,
  lines: [],
  amount: '1',
  allocations: [],
}
const of = (lot: string, amount: string) => [{ grant_id: lot, amount }]

const events = [
  ['a grant without members', 'CreditGranted', () => ({}), /grant_id: text is expected; it is missing/],
  [
    'a grant of a negative amount',
    'CreditGranted',
    () => ({ ...granted, amount: '-3' }),
    /amount: not of the form/,
  ],
  [
    'a grant with an invalid expiry',
    'CreditGranted',
    () => ({ ...granted, expires_at: 'soon' }),
    /expires_at: not of/,
  ],
  ['a lot that exists', 'CreditGranted', (lot: string) => ({ ...granted, grant_id: lot }), /granted twice/],
  [
    'a grant that repays no overdraft',
    'CreditGranted',
    () => ({ ...granted, overdraft_repaid: '1' }),
    /repays more/,
  ],
  [
    'a grant that repays more than it grants',
    'CreditGranted',
    () => ({ ...granted, overdraft_repaid: '8' }),
    /repays more/,
  ],
  ['a negative charge', 'CreditCharged', () => ({ ...charged, amount: '-5' }), /than are charged/],
  [
    'a charge that takes more',
    'CreditCharged',
    (lot: string) => ({ ...charged, allocations: of(lot, '2') }),
    /than are charged/,
  ],
  [
    'a charge that fills a lot',
    'CreditCharged',
    (lot: string) => ({ ...charged, allocations: of(lot, '-2') }),
    /cannot be taken|are taken from lot/,
  ],
  ['a charge without data', 'CreditCharged', () => null, /not an object/],
  ['a fence without data', 'LedgerFenced', () => null, /not an object/],
] as const

describe.each(events)('%s', (_, type, data, fault) => {
  test('is not folded: the organization is refused, with the stream, the revision and the fault', async () => {
    await written(type, data, at)
    const refused = await processOf('a')
      .submit(org, command('later', grantOf('1'), { actor: 'cli' }))
      .then(
        () => null,
        (error: Error) => error,
      )
    expect(refused?.name).toBe('LedgerUnavailable')
    expect(String((refused?.cause as Error | undefined)?.message)).toMatch(
      new RegExp(`^event 2 of ${stream} \\(${type}\\) is invalid: .*(${fault.source}).*ledger verify`),
    )
    await expect(walkLedger(log.client('reader'), org, { call: () => undefined })).rejects.toThrow(
      `event 2 of ${stream} (${type}) is invalid`,
    )
  })
})

test.each([
  ...events.map(([name, type, data]) => [name, type, data, at] as const),
  ['a grant at an invalid time', 'CreditGranted', () => granted, 'yesterday'] as const,
  ['a call without data', 'KeyUsed', () => null, at] as const,
])('the rows of a ledger, from which processes continue, do not include %s', async (_, type, data, time) => {
  await written(type, data, time)
  const decoded = decodeBatch(await log.client('projector').read(stream, { from: 0, max: 10 }))
  const state = initialState(org)
  const refused = decoded.unreadable.map(({ event }) => event.revision)
  for (const event of decoded.events)
    try {
      evolve(state, event)
    } catch {
      refused.push(event.revision)
    }
  expect(refused).toEqual([2])
})

test('a grant at an invalid time is neither counted nor left out of a statement without an error', async () => {
  await written('CreditGranted', () => granted, 'yesterday')
  const fault = `event 2 of ${stream} (CreditGranted) is invalid: effective_at: "yesterday" is not an instant`
  await expect(processOf('a').account(org)).rejects.toMatchObject({
    cause: expect.objectContaining({ message: expect.stringContaining(fault) }),
  })
  const months = monthsFrom({ after: '', opening: 0n, revision: 0, prices: [] })
  const onLines = async () => undefined
  await expect(
    readStatement(log.client('reader'), org, {
      month: '2026-03',
      months,
      opening: 0n,
      to: undefined,
      onLines,
    }),
  ).rejects.toThrow(fault)
})
