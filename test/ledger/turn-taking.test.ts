/**
 * Writers of one ledger that know nothing of each other, on a clock of the test: each answers as many callers as the others,
 * and each decision, read and append takes as long as it would.
 */
import { pino } from 'pino'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { parseCredits } from '../../src/billing/money.ts'
import { defaultPriceBook, priceBookOf } from '../../src/billing/price-book.ts'
import type { EventLog } from '../../src/event-log/port.ts'
import { createLedger, type Ledger, type LedgerCommand } from '../../src/ledger/commit.ts'
import { afterLoss, freeTurn, limitsOf, type Turn } from '../../src/ledger/turn-taking.ts'
import { verifyLedger } from '../../src/ledger/verify.ts'
import { seededRandom } from '../ip-lookup/seeded-random.ts'
import { time } from '../simulation/time.ts'
import { createMemoryEventLog } from '../support/memory-event-log.ts'

const organizationId = 'org_01K9SSSSSSSSSSSSSSSSSSSSSA'
const book = priceBookOf(defaultPriceBook)
const logger = pino({ level: 'silent' })
const callers = 64
const forMs = 1_000

describe('the rule', () => {
  const lost = (...batches: readonly number[]): Turn => batches.reduce(afterLoss, freeTurn)
  const limits = { batchCommandsMax: 256, batchBytesMax: 1 }

  test('without a loss, and after one, a batch holds what it always holds', () => {
    expect(limitsOf(freeTurn, limits)).toBe(limits)
    expect(limitsOf(lost(40), limits)).toBe(limits)
  })

  test('from the second loss in a row on it holds half of the one that was lost, and never nothing', () => {
    expect(limitsOf(lost(40, 40), limits)).toEqual({ batchCommandsMax: 20, batchBytesMax: 1 })
    expect(lost(40, 40, 20, 10).commandsMax).toBe(5)
    expect(lost(40, 40, 20, 10, 5, 2, 1, 1, 1).commandsMax).toBe(1)
  })

  test('it never holds more than it may', () => {
    expect(limitsOf(lost(256, 1_000), limits)).toBe(limits)
  })
})

describe('competing writers', () => {
  beforeEach(() => {
    vi.stubGlobal('setImmediate', (happen: () => void) => void time.wait(0).then(happen))
    vi.stubGlobal('setTimeout', (happen: () => void, ms = 0) => {
      const timer = { unref: () => timer, stopped: false }
      void time.wait(ms).then(() => timer.stopped || happen())
      return timer
    })
    vi.stubGlobal('clearTimeout', (timer?: { stopped: boolean }) => {
      if (timer !== undefined) timer.stopped = true
    })
  })
  afterEach(() => {
    vi.unstubAllGlobals()
  })

  test.each([2, 4])(
    'each of %i answers at least half as many calls as the others do on average',
    async (count) => {
      const answered = await compete(count)
      const mean = answered.reduce((sum, one) => sum + one, 0) / count
      expect(mean).toBeGreaterThan(100)
      expect(Math.min(...answered) / mean).toBeGreaterThanOrEqual(0.5)
    },
  )
})

/** Calls that each process answered in a second, for callers who call again as soon as they are answered. */
const compete = async (count: number): Promise<number[]> => {
  time.reset(Date.parse('2026-03-01T12:00:00.000Z'))
  const random = seededRandom(count)
  const log = createMemoryEventLog({ now: () => time.nowMs })
  const about = (ms: number): Promise<void> => time.wait(ms * (0.5 + random.next()))
  /** The way there and back takes about as long each time; what is decided, hashed or folded, exactly as long. */
  const slow = (name: string): EventLog => {
    const client = log.client(name)
    return {
      ...client,
      append: async (stream, expected, events) => {
        await time.wait(0.4 + events.length * 0.03)
        await about(0.5)
        try {
          return await client.append(stream, expected, events)
        } finally {
          await about(0.7)
        }
      },
      read: async (stream, options) => {
        await about(0.4)
        const events = await client.read(stream, options)
        await about(0.4)
        await time.wait(events.length * 0.02)
        return events
      },
    }
  }
  const ledgers = Array.from({ length: count }, (_, i) =>
    createLedger({
      eventLog: slow(`${i}`),
      snapshot: async () => null,
      logger,
      clock: { now: () => time.nowMs },
    }),
  )
  const answered = ledgers.map(() => 0)
  let calls = 0
  const keepCalling = async (ledger: Ledger, at: number, untilMs: number): Promise<void> => {
    while (time.nowMs < untilMs) {
      await ledger.submit(organizationId, call(++calls))
      answered[at] = (answered[at] ?? 0) + 1
      await about(2)
    }
  }
  const all = async (): Promise<void> => {
    await ledgers[0]?.submit(organizationId, opening('register'))
    await ledgers[0]?.submit(organizationId, opening('grant'))
    const untilMs = time.nowMs + forMs
    await Promise.all(
      Array.from({ length: callers }, (_, n) => {
        const at = n % count
        const ledger = ledgers[at]
        return ledger === undefined ? undefined : keepCalling(ledger, at, untilMs)
      }),
    )
  }
  let over = false
  const running = all().finally(() => {
    over = true
  })
  await time.run(() => over)
  await running
  expect(await verifyLedger(log.client('verifier'), organizationId)).toMatchObject({ fault: null })
  expect(answered.reduce((sum, one) => sum + one, 0)).toBe(calls)
  return answered
}

const opening = (kind: 'register' | 'grant'): LedgerCommand => ({
  key: kind,
  atMs: time.nowMs,
  actor: 'cli',
  ...(kind === 'register'
    ? { kind, name: 'Example', overdraftLimit: 0n }
    : { kind, amount: parseCredits('1000000'), priority: 0, expiresAt: null, reason: 'test' }),
})

const call = (n: number): LedgerCommand => ({
  key: `request-${n}`,
  requestId: `request-${n}`,
  atMs: time.nowMs,
  actor: 'key:K9abcdefghijklmn',
  kind: 'record',
  call: {
    keyId: 'K9abcdefghijklmn',
    capability: 'ip_lookup',
    outcome: 'answered',
    facts: { kind: 'ip_lookup', success: true, country_code: 'DE', address_hmac: 'A'.repeat(43) },
  },
  book,
})
