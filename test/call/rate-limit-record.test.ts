/** Refusals by a rate limit, on their way into the ledger: coalesced, and never written twice. */
import { pino } from 'pino'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { createRateLimitRecord } from '../../src/call/rate-limit-record.ts'
import { decodeEvent } from '../../src/event-log/stored-event.ts'
import { ledgerStream } from '../../src/events/streams.ts'
import type { DirectoryKey } from '../../src/guard/key-directory.ts'
import { createLedger, type Ledger } from '../../src/ledger/commit.ts'
import { registerOrganization } from '../../src/ledger/decide.ts'
import { verifyLedger } from '../../src/ledger/verify.ts'
import { type AppendFault, createMemoryEventLog, type MemoryEventLog } from '../support/memory-event-log.ts'

const organizationId = 'org_01K9ZZZZZZZZZZZZZZZZZZZZZZ'
const minuteMs = Date.parse('2026-03-01T12:00:00.000Z')
const logger = pino({ level: 'silent' })
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
/** What happens to the next appends; the log cannot be read while one gets no answer. */
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
      onRead: () => (fault === undefined ? undefined : 'unavailable'),
    }),
    snapshot: async () => null,
    logger,
    clock: { now: () => nowMs },
    limits: { retryPauseMs: 0, unknownRetryMs: 100, unavailableRetryMs: 100 },
  })
  await ledger.submit(organizationId, {
    key: 'register',
    atMs: minuteMs,
    actor: 'system',
    decide: (account) => registerOrganization(account, { name: 'Example', overdraftLimit: 0n }),
  })
})

afterEach(async () => {
  expect((await verifyLedger(log.client('verifier'), organizationId)).fault).toBeNull()
})

const recorder = () => createRateLimitRecord({ ledger, logger, instanceId: 'instance' })

const recorded = (): unknown[] =>
  log
    .eventsOf(ledgerStream(organizationId))
    .map(decodeEvent)
    .flatMap(({ type, data }) => (type === 'RateLimitExceeded' ? [data] : []))

const exceeded = (count: number, windowMs = minuteMs) => ({
  key_id: key.keyId,
  policy: 'minute',
  window: new Date(windowMs).toISOString(),
  count,
})

test('refusals of one key, policy and minute are one event; another minute is another', async () => {
  const record = recorder()
  for (const secondsMs of [0, 1_000, 59_999, 60_000]) record.count(key, 'minute', minuteMs + secondsMs)
  await record.flush()
  expect(recorded()).toEqual([exceeded(3), exceeded(1, minuteMs + 60_000)])
  await record.flush()
  expect(recorded()).toHaveLength(2)
})

test.each<[string, AppendFault, () => void]>([
  ['was written although nobody heard of it', 'lose-reply', () => undefined],
  ['arrives after it was given up', 'late', () => log.deliverLate()],
  ['never arrives', 'lose-request', () => undefined],
])(
  'a record whose append %s stands once after the next flush, however many follow',
  async (_, lost, meanwhile) => {
    const record = recorder()
    record.count(key, 'minute', minuteMs)
    record.count(key, 'minute', minuteMs)
    fault = lost
    await record.flush()
    meanwhile()
    fault = undefined
    for (let n = 0; n < 3; n++) await record.flush()
    while (log.late.length > 0) expect(log.deliverLate()).toBe(false)
    expect(recorded()).toEqual([exceeded(2)])
  },
)

test('it stands once also where the process has folded it into its account before it asks again', async () => {
  const record = recorder()
  record.count(key, 'minute', minuteMs)
  fault = 'lose-reply'
  await record.flush()
  fault = undefined
  // Reads the tail, in which the lost record stands.
  await ledger.account(organizationId)
  await ledger.lastSeen(organizationId)
  await record.flush()
  expect(recorded()).toEqual([exceeded(1)])
})

test('it stands once also where the same minute was counted on meanwhile', async () => {
  const record = recorder()
  record.count(key, 'minute', minuteMs)
  fault = 'lose-reply'
  await record.flush()
  fault = undefined
  record.count(key, 'minute', minuteMs)
  await record.flush()
  expect(recorded()).toHaveLength(1)
})
