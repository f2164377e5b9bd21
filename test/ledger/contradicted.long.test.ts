/**
 * The behaviour of a ledger with a modified snapshot, with a log restored from an older copy, and with an engine that contradicts
 * itself, never answers, or accepts no appends.
 */
import { pino } from 'pino'
import { beforeEach, describe, expect, test } from 'vitest'
import { formatCredits, parseCredits } from '../../src/billing/money.ts'
import { AppendConflict, type EventLog, Unavailable } from '../../src/event-log/port.ts'
import { operatorStream } from '../../src/events/streams.ts'
import { type Account, balanceOf } from '../../src/ledger/account.ts'
import { LedgerUnavailable } from '../../src/ledger/command.ts'
import { createLedger, type Ledger } from '../../src/ledger/write/ledger.ts'
import type { LedgerLimits } from '../../src/ledger/write/options.ts'
import type { AccountSnapshot } from '../../src/ledger/write/reader.ts'
import { atMs, call, openLedger, org, stream } from '../support/ledger-commands.ts'
import { createMemoryEventLog, type MemoryEventLog } from '../support/memory-event-log.ts'

let log: MemoryEventLog
beforeEach(() => {
  log = createMemoryEventLog({ now: () => atMs })
})

const processOf = (
  name: string,
  {
    eventLog = log.client(name),
    snapshot = async () => null,
    limits = {},
  }: { eventLog?: EventLog; snapshot?: AccountSnapshot; limits?: Partial<LedgerLimits> } = {},
): Ledger =>
  createLedger({
    eventLog,
    snapshot,
    logger: pino({ level: 'silent' }),
    clock: { now: Date.now, monotonic: () => performance.now() },
    limits: { retryPauseMs: 1, unknownRetryMs: 300, unavailableRetryMs: 100, ...limits },
  })

const opened = (credits: string): Promise<void> => openLedger(processOf('opener'), credits)

/** Makes calls. Returns how many were paid and how many the ledger refused to accept. */
const make = async (
  ledger: Ledger,
  count: number,
  name = 'call',
): Promise<{ paid: number; refused: number }> => {
  const made = await Promise.allSettled(
    Array.from({ length: count }, (_, i) => ledger.submit(org, call(`${name}-${i}`))),
  )
  const paid = made.filter(
    (one) => one.status === 'fulfilled' && one.value.events.some(({ type }) => type === 'CreditCharged'),
  )
  const refused = made.filter((one) => one.status === 'rejected' && one.reason instanceof LedgerUnavailable)
  return { paid: paid.length, refused: refused.length }
}

describe('a snapshot', () => {
  /** A snapshot modified by someone who can sign it, so only the digest reveals the change. */
  const generous = (change: Partial<Account>): AccountSnapshot => {
    const honest = processOf('honest').account(org)
    return async () => {
      const account = await honest
      return {
        ...account,
        lots: account.lots.map((lot) => ({ ...lot, remaining: lot.remaining + parseCredits('5') })),
        ...change,
      }
    }
  }

  test.each([
    ['of another digest', { digest: 'x'.repeat(43) }],
    ['ahead of the ledger', { revision: 40 }],
    ['of an event that has another digest', { revision: 0 }],
  ])(
    'sealed, and %s: the log has lost events the projector read, and the organization is refused',
    async (_, change) => {
      await opened('10')
      const ledger = processOf('a', { snapshot: generous(change) })
      await expect(ledger.lastSeen(org)).rejects.toThrow(LedgerUnavailable)
      expect(await make(ledger, 15)).toEqual({ paid: 0, refused: 15 })
      // Only this organization's ledger fails, because other ledgers can be intact.
      expect(ledger.failure()).toBeNull()
    },
  )

  test("without the projector's seal is ignored: the ledger is folded from its start", async () => {
    await opened('10')
    expect(await make(processOf('a', { snapshot: async () => 'not sealed' }), 15)).toEqual({
      paid: 10,
      refused: 0,
    })
  })
})

describe('a log restored from an older copy under a running process', () => {
  test.each([
    ['shorter than the account', 0],
    ['of the same length as the account', 4],
    ['longer than the account', 9],
  ])('%s: no more calls are accepted, and draining ends', async (_, others) => {
    await opened('10')
    const ledger = processOf('a')
    expect(await make(ledger, 4)).toEqual({ paid: 4, refused: 0 })
    log.restore(4)
    if (others > 0) await make(processOf('another'), others, 'other')
    const standing = log.eventsOf(stream).length
    const before = log.attempts.length
    const after = await ledger.submit(org, call('after')).catch((error: unknown) => error)
    // This log in memory does not detect an append at exactly the old revision. The engines do (contract, 47).
    if (others !== 4) {
      expect(after).toBeInstanceOf(LedgerUnavailable)
      expect(ledger.failure()).toMatchObject({ kind: 'rewritten' })
      expect(log.eventsOf(stream)).toHaveLength(standing)
      expect(log.attempts.length - before).toBeLessThan(5)
      await expect(ledger.lastSeen(org)).rejects.toThrow(LedgerUnavailable)
      await expect(ledger.account(org)).rejects.toThrow(LedgerUnavailable)
    }
    await ledger.drain()
  })

  test('a reader that detects the restore also stops the ledger from accepting calls', async () => {
    await opened('10')
    const ledger = processOf('a')
    expect(await make(ledger, 1)).toEqual({ paid: 1, refused: 0 })
    ledger.giveUp(new Error('a subscription found another log'))
    expect(await make(ledger, 3)).toEqual({ paid: 0, refused: 3 })
    expect(ledger.failure()).toMatchObject({ kind: 'rewritten' })
  })
})

test('if an engine refuses every append but shows no newer event, the append is retried a limited number of times', async () => {
  await opened('10')
  const client = log.client('a')
  let appends = 0
  const ledger = processOf('a', {
    eventLog: {
      ...client,
      append: async (name, expected) => {
        appends++
        throw new AppendConflict(name, expected, 99)
      },
      lastRevision: async () => 99,
    },
  })
  expect(await make(ledger, 3)).toEqual({ paid: 0, refused: 3 })
  expect(appends).toBeLessThan(8)
  await ledger.drain()
  expect(ledger.failure()).toMatchObject({ kind: 'appends_fail' })
})

test('a caller gets an answer in time although the append hangs, and a later charge is reversed', async () => {
  await opened('10')
  const client = log.client('a')
  const held = Promise.withResolvers<void>()
  const ledger = processOf('a', {
    eventLog: {
      ...client,
      append: async (...append) => {
        await held.promise
        return client.append(...append)
      },
    },
    limits: { callerWaitMaxMs: 50, unknownRetryMs: 60_000 },
  })
  // One call is in the append, further calls are decided after it, and the rest wait. Every caller gets an answer.
  const calls = [ledger.submit(org, call('one'))]
  await new Promise((resolve) => setImmediate(resolve))
  for (const key of ['two', 'three']) calls.push(ledger.submit(org, call(key)))
  const reasons = (await Promise.allSettled(calls)).map(
    (outcome) => 'reason' in outcome && outcome.reason.name,
  )
  expect(reasons).toEqual(['LedgerOutcomeUnknown', 'LedgerUnavailable', 'LedgerUnavailable'])
  held.resolve()
  await expect.poll(async () => formatCredits(balanceOf(await ledger.account(org), atMs))).toBe('10')
  await ledger.drain()
  const kinds = log.eventsOf(stream).map(({ type }) => type)
  expect(kinds.filter((type) => type === 'CreditAdjusted')).toHaveLength(
    kinds.filter((type) => type === 'CreditCharged').length,
  )
})

test('failing appends are reported until one succeeds, which is noticed without a call', async () => {
  await opened('10')
  const client = log.client('a')
  let full = true
  const ledger = processOf('a', {
    eventLog: {
      ...client,
      append: async (...append) => {
        if (full) throw new Unavailable('could not extend file: No space left on device')
        return client.append(...append)
      },
    },
  })
  expect(ledger.failure()).toBeNull()
  expect(await make(ledger, 2)).toEqual({ paid: 0, refused: 2 })
  expect(ledger.failure()).toMatchObject({ kind: 'appends_fail' })
  full = false
  await expect.poll(() => ledger.failure()).toBeNull()
  expect(log.eventsOf(operatorStream).map(({ type }) => type)).toEqual(['AppendsResumed'])
  expect(await make(ledger, 2)).toEqual({ paid: 2, refused: 0 })
})
