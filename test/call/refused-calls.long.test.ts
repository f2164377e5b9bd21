/** Refused calls are combined in the ledger, and each is counted exactly once. */
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { defaultPriceBook, priceBookOf } from '../../src/billing/price-book.ts'
import { createRefusedCalls } from '../../src/call/refused-calls.ts'
import { decodeEvent } from '../../src/event-log/stored-event.ts'
import { ledgerStream } from '../../src/events/streams.ts'
import type { DirectoryKey } from '../../src/guard/key-directory.ts'
import { verifyLedger } from '../../src/ledger/check/verify.ts'
import { createLedger, type Ledger } from '../../src/ledger/write/ledger.ts'
import { logger } from '../support/logger.ts'
import { type AppendFault, createMemoryEventLog, type MemoryEventLog } from '../support/memory-event-log.ts'

const organizationId = 'org_01K9ZZZZZZZZZZZZZZZZZZZZZZ'
const minuteMs = Date.parse('2026-03-01T12:00:00.000Z')
const key: DirectoryKey = {
  keyId: 'K9abcdefghijklmn',
  organizationId,
  organizationName: 'Example',
  name: 'a key',
  secretHmac: 'A'.repeat(43),
  last4: 'abcd',
  permissions: [],
  limits: { requests_per_minute: 1, requests_per_day: 1, email_validations_per_second: 10 },
  allowedCidrs: [],
  createdAt: '2026-02-01T00:00:00.000Z',
  expiresAt: null,
  successorId: null,
  graceUntil: null,
  revokedAt: null,
  endsAtMs: Number.POSITIVE_INFINITY,
  allowed: null,
}

let log: MemoryEventLog
let ledger: Ledger
/** Decides the outcome of the next appends. While an append gets no answer, the log cannot be read. */
let fault: AppendFault | undefined

beforeEach(async () => {
  fault = undefined
  log = createMemoryEventLog()
  let nowMs = minuteMs
  ledger = createLedger({
    eventLog: log.client('one', {
      onAppend: () => {
        nowMs += 60
        return fault
      },
      onRead: () => {
        if (fault === undefined) return undefined
        nowMs += 60
        return 'unavailable'
      },
    }),
    snapshot: async () => null,
    logger,
    clock: { now: () => nowMs },
    limits: { retryPauseMs: 0, unknownRetryMs: 100, unavailableRetryMs: 100, callerWaitMaxMs: 100 },
  })
  await ledger.submit(organizationId, {
    key: 'register',
    atMs: minuteMs,
    actor: 'system',
    kind: 'register',
    name: 'Example',
    overdraftLimit: 0n,
  })
})

afterEach(async () => {
  expect((await verifyLedger(log.client('verifier'), organizationId)).fault).toBeNull()
})

const book = priceBookOf(defaultPriceBook)
const prices = {
  at: () => book,
  caughtUp: Promise.resolve(),
  failure: () => null,
  doubtful: () => 0,
  stop: () => Promise.resolve(),
}

const recorder = (instanceId = 'instance') => createRefusedCalls({ ledger, prices, logger, instanceId })

const recorded = (): unknown[] =>
  log
    .eventsOf(ledgerStream(organizationId))
    .map(decodeEvent)
    .flatMap(({ type, data }) => (type === 'RateLimitExceeded' || type === 'CallsRefused' ? [data] : []))

const exceeded = (count: number, windowMs = minuteMs) => ({
  key_id: key.keyId,
  policy: 'minute',
  window: new Date(windowMs).toISOString(),
  count,
})

test('refusals of one key, policy and minute are one event; another minute is another event', async () => {
  const record = recorder()
  for (const secondsMs of [0, 1_000, 59_999, 60_000]) record.rateLimited(key, 'minute', minuteMs + secondsMs)
  await record.flush()
  expect(recorded()).toEqual([exceeded(3), exceeded(1, minuteMs + 60_000)])
  await record.flush()
  expect(recorded()).toHaveLength(2)
})

test.each<[string, AppendFault, () => void]>([
  ['was written although its reply was lost', 'lose-reply', () => undefined],
  ['arrives after it was abandoned', 'late', () => log.deliverLate()],
  ['never arrives', 'lose-request', () => undefined],
])(
  'a record whose append %s is in the ledger once after the next flush, no matter how many follow',
  async (_, lost, meanwhile) => {
    const record = recorder()
    record.rateLimited(key, 'minute', minuteMs)
    record.rateLimited(key, 'minute', minuteMs)
    fault = lost
    await record.flush()
    meanwhile()
    fault = undefined
    for (let n = 0; n < 3; n++) await record.flush()
    while (log.late.length > 0) expect(log.deliverLate()).toBe(false)
    expect(recorded()).toEqual([exceeded(2)])
  },
)

test('it is there once even if the process folded it into its account before it tried again', async () => {
  const record = recorder()
  record.rateLimited(key, 'minute', minuteMs)
  fault = 'lose-reply'
  await record.flush()
  fault = undefined
  // This reads the end of the ledger, which contains the record whose reply was lost.
  await ledger.account(organizationId)
  await ledger.lastSeen(organizationId)
  await record.flush()
  expect(recorded()).toEqual([exceeded(1)])
})

describe('calls refused for another reason', () => {
  const refusal = (code: string, capability: 'ip_lookup' | 'whoami' = 'ip_lookup') =>
    ({ code, outcome: 'refused', capability }) as const
  const refused = (code: string, counts: Partial<Record<'ip_lookup' | 'whoami', number>>) => ({
    key_id: key.keyId,
    code,
    outcome: 'refused',
    window: new Date(minuteMs).toISOString(),
    counts: Object.entries(counts).map(([capability, count]) => ({ capability, count })),
    free_by: { rule: 'refusal', rule_version: 1 },
  })

  test('the first 60 of a key and minute are recorded one by one, for any codes', () => {
    const record = recorder()
    const other = { ...key, keyId: 'K9abcdefghijklmo' }
    const singles = (of: DirectoryKey, atMs: number) =>
      Array.from({ length: 100 }, () => record.single(of, atMs)).filter(Boolean).length
    expect([singles(key, minuteMs), singles(key, minuteMs + 59_999), singles(other, minuteMs)]).toEqual([
      60, 0, 60,
    ])
    expect(singles(key, minuteMs + 60_000)).toBe(60)
    // A late call of the previous minute does not start a new count for that minute.
    expect(singles(key, minuteMs)).toBe(0)
  })

  test('the others are one event per code and minute, which counts them by capability', async () => {
    const record = recorder()
    for (let n = 0; n < 5; n++) record.refused(key, refusal('AUTH_003'), minuteMs + n)
    for (let n = 0; n < 3; n++) record.refused(key, refusal('AUTH_003', 'whoami'), minuteMs + n)
    record.refused(key, refusal('AUTH_002'), minuteMs)
    await record.flush()
    expect(recorded()).toEqual([
      refused('AUTH_003', { ip_lookup: 5, whoami: 3 }),
      refused('AUTH_002', { ip_lookup: 1 }),
    ])
  })

  test('several processes each record their own counts of the same key, code and minute', async () => {
    const records = ['one', 'two', 'three'].map(recorder)
    for (const [n, record] of records.entries())
      for (let times = 0; times <= n; times++) record.refused(key, refusal('AUTH_003'), minuteMs)
    await Promise.all(records.map((record) => record.flush()))
    expect(recorded()).toHaveLength(3)
    expect(recorded()).toEqual(
      expect.arrayContaining([1, 2, 3].map((count) => refused('AUTH_003', { ip_lookup: count }))),
    )
  })

  test('a call that ends after its minute was recorded is still counted', async () => {
    const record = recorder()
    record.refused(key, refusal('PROFNET_002'), minuteMs)
    await record.flush()
    record.refused(key, refusal('PROFNET_002'), minuteMs)
    await record.flush()
    expect(recorded()).toEqual(Array(2).fill(refused('PROFNET_002', { ip_lookup: 1 })))
  })

  test('a lost append is recorded once, and calls counted in the meantime are recorded too', async () => {
    const record = recorder()
    record.refused(key, refusal('AUTH_003'), minuteMs)
    fault = 'lose-reply'
    await record.flush()
    record.refused(key, refusal('AUTH_003'), minuteMs)
    record.refused(key, refusal('AUTH_003'), minuteMs)
    await record.flush()
    fault = undefined
    await Promise.all([record.flush(), record.flush()])
    expect(recorded()).toEqual([refused('AUTH_003', { ip_lookup: 1 }), refused('AUTH_003', { ip_lookup: 2 })])
  })
})
