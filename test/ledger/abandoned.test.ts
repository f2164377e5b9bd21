/** Reversals: a charge whose caller was refused is given back once, whoever asks for that how often. */
import { pino } from 'pino'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { formatCredits, parseCredits } from '../../src/billing/money.ts'
import { eventIdOf } from '../../src/event-log/event-id.ts'
import { decodeEvent } from '../../src/event-log/stored-event.ts'
import { type Reversal, reversalCommand, settlementKeyOf } from '../../src/ledger/abandoned.ts'
import { balanceOf } from '../../src/ledger/account.ts'
import { createLedger, type Ledger, type LedgerLimits, LedgerUnavailable } from '../../src/ledger/commit.ts'
import { verifyLedger } from '../../src/ledger/verify.ts'
import { atMs, book, call, command, openLedger, org, stream } from '../support/ledger-commands.ts'
import { type ClientFaults, createMemoryEventLog, type MemoryEventLog } from '../support/memory-event-log.ts'

const logger = pino({ level: 'silent' })

let log: MemoryEventLog
let nowMs: number

beforeEach(async () => {
  log = createMemoryEventLog()
  nowMs = atMs
  await openLedger(processOf('opener'), '10')
})

afterEach(async () => {
  expect((await verifyLedger(log.client('verifier'), org)).fault).toBeNull()
})

const processOf = (name: string, faults: ClientFaults = {}, limits: Partial<LedgerLimits> = {}): Ledger =>
  createLedger({
    eventLog: log.client(name, faults),
    snapshot: async () => null,
    logger,
    clock: { now: () => nowMs },
    limits: { retryPauseMs: 0, ...limits },
  })

const adjusted = (): unknown[] =>
  log
    .eventsOf(stream)
    .map(decodeEvent)
    .flatMap(({ type, data }) => (type === 'CreditAdjusted' ? [data.adjusts] : []))

const balance = async (): Promise<string> =>
  formatCredits(balanceOf(await processOf('reader').account(org), nowMs))

/** What a process that refused a call asks for, once it has seen the call's charge arrive. */
const reversalOf = (key: string, absentUpTo: number): Reversal => ({
  chargeId: eventIdOf(org, key, 1),
  amount: parseCredits('1'),
  firstEventId: eventIdOf(org, key, 0),
  absentUpTo,
})
const reverse = (ledger: Ledger, reversal: Reversal) => ledger.submit(org, reversalCommand(reversal, nowMs))

describe('a reversal asked for twice', () => {
  test('by one process, at once or later, is written once', async () => {
    const ledger = processOf('a')
    const { revision } = await ledger.submit(org, call('first'))
    const reversal = reversalOf('first', revision - 2)
    await Promise.all([reverse(ledger, reversal), reverse(ledger, reversal)])
    expect(await reverse(ledger, reversal)).toMatchObject({ repeated: true })
    expect(adjusted()).toEqual([reversal.chargeId])
    expect(await balance()).toBe('10')
  })

  test('by processes that know nothing of each other is written once', async () => {
    const { revision } = await processOf('a').submit(org, call('first'))
    const reversal = reversalOf('first', revision - 2)
    const ledgers = Array.from({ length: 5 }, (_, n) => processOf(`process-${n}`))
    // Each has folded the ledger up to the charge, so that all of them write at the same place.
    await Promise.all(ledgers.map((ledger) => ledger.lastSeen(org)))
    await Promise.all(ledgers.map((ledger) => reverse(ledger, reversal)))
    expect(adjusted()).toEqual([reversal.chargeId])
    expect(await balance()).toBe('10')
  })

  test('by a process that has folded the first reversal into its account without asking for it, is written once', async () => {
    const { revision } = await processOf('a').submit(org, call('first'))
    const reversal = reversalOf('first', revision - 2)
    await reverse(processOf('a'), reversal)
    const late = processOf('b')
    await late.submit(org, call('second'))
    expect(await reverse(late, reversal)).toMatchObject({ repeated: true })
    expect(adjusted()).toEqual([reversal.chargeId])
    expect(await balance()).toBe('9')
  })

  test('because the first reversal got no answer, is written once', async () => {
    let losing: 'lose-reply' | undefined
    let reachable = true
    const ledger = processOf(
      'a',
      {
        onAppend: () => {
          nowMs += 60
          if (losing !== undefined) reachable = false
          return losing
        },
        onRead: () => (reachable ? undefined : 'unavailable'),
      },
      { unknownRetryMs: 100, unavailableRetryMs: 100 },
    )
    const { revision } = await ledger.submit(org, call('first'))
    const reversal = reversalOf('first', revision - 2)
    losing = 'lose-reply'
    await expect(reverse(ledger, reversal)).rejects.toThrow(LedgerUnavailable)
    expect(adjusted()).toHaveLength(1)
    losing = undefined
    reachable = true
    expect(await reverse(ledger, reversal)).toMatchObject({ repeated: true })
    expect(adjusted()).toEqual([reversal.chargeId])
    expect(await balance()).toBe('10')
  })
})

test('the ledger is looked through for a reversal from the place of its charge on, and not from its beginning', async () => {
  const writer = processOf('a')
  for (let n = 0; n < 20; n++) await writer.submit(org, call(`earlier-${n}`)).catch(() => undefined)
  const { revision } = await writer.submit(org, call('first'))
  for (let n = 0; n < 3; n++) await writer.submit(org, call(`later-${n}`))
  const asked: number[] = []
  const ledger = processOf('b', {
    onRead: (_, { from }) => {
      asked.push(from ?? 0)
      return undefined
    },
  })
  await ledger.lastSeen(org)
  asked.length = 0
  const reversal = reversalOf('first', revision - 2)
  await reverse(ledger, reversal)
  expect(Math.min(...asked)).toBe(reversal.absentUpTo + 1)
  expect(adjusted()).toEqual([reversal.chargeId])
})

describe('a charge whose caller was refused is given back or its answer is delivered, never both', () => {
  /** The answer is delivered after all: a free call of its own. */
  const deliver = (ledger: Ledger, { firstEventId }: Reversal, absentUpTo: number) =>
    ledger.submit(org, {
      ...command(settlementKeyOf(firstEventId), {
        kind: 'record',
        call: {
          keyId: 'K9abcdefghijklmn',
          capability: 'ip_lookup',
          outcome: 'answered',
          facts: { kind: 'replay' },
        },
        book,
      }),
      requestId: 'retry',
      absentUpTo,
    })

  /** The charge stands, and both processes have seen it. */
  const charged = async (): Promise<{
    one: Ledger
    other: Ledger
    reversal: Reversal
    seen: number
  }> => {
    const one = processOf('one')
    const other = processOf('other')
    const { revision } = await one.submit(org, call('first'))
    await other.lastSeen(org)
    return { one, other, reversal: reversalOf('first', revision - 2), seen: revision }
  }

  const typesOf = ({ events }: { events: readonly { type: string }[] }) => events.map(({ type }) => type)

  test('delivered by one process, the other does not give it back', async () => {
    const { one, other, reversal, seen } = await charged()
    expect(typesOf(await deliver(other, reversal, seen))).toEqual(['KeyUsed'])
    expect(typesOf(await reverse(one, reversal))).toEqual(['KeyUsed'])
    expect(adjusted()).toEqual([])
    expect(await balance()).toBe('9')
  })

  test('given back by one process after the other looked, the other learns it and delivers nothing', async () => {
    const { one, other, reversal, seen } = await charged()
    expect(typesOf(await reverse(one, reversal))).toEqual(['CreditAdjusted'])
    const told = await deliver(other, reversal, seen)
    expect(told).toMatchObject({ repeated: true, balance: parseCredits('10') })
    expect(typesOf(told)).toEqual(['CreditAdjusted'])
    expect(await balance()).toBe('10')
  })

  test('also where the other has folded the reversal into its account before', async () => {
    const { one, other, reversal, seen } = await charged()
    await reverse(one, reversal)
    await other.submit(org, call('second'))
    expect(typesOf(await deliver(other, reversal, seen))).toEqual(['CreditAdjusted'])
  })

  test.each([1, 2, 3, 4, 5, 6, 7, 8])(
    'both at once: one of them stands, and both are told which (%i)',
    async (seed) => {
      const { one, other, reversal, seen } = await charged()
      const both = [() => reverse(one, reversal), () => deliver(other, reversal, seen)]
      if (seed % 2 === 0) both.reverse()
      const begun: Promise<Awaited<ReturnType<typeof reverse>>>[] = []
      for (const begin of both) {
        begun.push(begin())
        for (let turn = 0; turn < seed >> 1; turn++) await new Promise((resolve) => setImmediate(resolve))
      }
      const [first, second] = await Promise.all(begun)
      expect(first && typesOf(first)).toEqual(second && typesOf(second))
      const id = eventIdOf(org, settlementKeyOf(reversal.firstEventId), 0)
      expect(log.eventsOf(stream).filter((event) => event.id === id)).toHaveLength(1)
      expect(await balance()).toBe(adjusted().length === 1 ? '10' : '9')
    },
  )
})
