/** Commands that go to the process that writes the ledger, and what becomes of them where that process fails. */
import { pino } from 'pino'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { formatCredits, parseCredits } from '../../src/billing/money.ts'
import { decodeEvent } from '../../src/event-log/stored-event.ts'
import { balanceOf } from '../../src/ledger/account.ts'
import { answerPeers } from '../../src/ledger/answer-peers.ts'
import type { Instruction } from '../../src/ledger/command.ts'
import {
  CommandRefused,
  createLedger,
  type Ledger,
  LedgerUnavailable,
  type LocalLedger,
} from '../../src/ledger/commit.ts'
import { passOn } from '../../src/ledger/pass-on.ts'
import { verifyLedger } from '../../src/ledger/verify.ts'
import {
  atMs,
  book,
  call,
  command,
  located as facts,
  grantOf,
  openLedger,
  org,
  stream,
} from '../support/ledger-commands.ts'
import { type ClientFaults, createMemoryEventLog, type MemoryEventLog } from '../support/memory-event-log.ts'
import { createPeerDouble, type Journey, type PeerDouble } from '../support/peer-double.ts'

const logger = pino({ level: 'silent' })
const patienceMs = 60

/** Time passes by itself while something is waited for, and in no other way. */
const soon = async <Value>(promise: Promise<Value>): Promise<Value> => {
  let settled = false
  const settle = (): void => {
    settled = true
  }
  promise.then(settle, settle)
  while (!settled) await vi.advanceTimersByTimeAsync(1)
  return promise
}
const pass = (ms: number): Promise<unknown> => vi.advanceTimersByTimeAsync(ms)
const until = async (met: () => boolean): Promise<void> => {
  for (let ms = 0; ms < 5_000 && !met(); ms++) await pass(1)
  expect(met()).toBe(true)
}

let log: MemoryEventLog
let owner: LocalLedger
let own: LocalLedger
let peer: PeerDouble
let ledger: Ledger
/** How the next messages travel, in turn; afterwards each arrives at once. */
let journeys: Journey[]
let passedBy: string[]
let ownerFaults: ClientFaults
let ownFaults: ClientFaults

const processOf = (name: string, faults: ClientFaults): LocalLedger =>
  createLedger({
    eventLog: log.client(name, faults),
    snapshot: async () => null,
    logger,
    clock: { now: () => atMs, monotonic: () => performance.now() },
    limits: { retryPauseMs: 0, abandonedCheckMs: 20, unknownRetryMs: 30, unavailableRetryMs: 0 },
  })

beforeEach(async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] })
  log = createMemoryEventLog()
  journeys = []
  passedBy = []
  ownerFaults = {}
  ownFaults = {}
  owner = processOf('owner', {
    onAppend: (attempt) => ownerFaults.onAppend?.(attempt),
    onRead: (...read) => ownerFaults.onRead?.(...read),
  })
  own = processOf('own', {
    onAppend: (attempt) => ownFaults.onAppend?.(attempt),
    onRead: (...read) => ownFaults.onRead?.(...read),
  })
  peer = createPeerDouble({
    id: 'owner',
    answer: answerPeers(owner, { logger }),
    journey: () => journeys.shift() ?? [0],
    later: (ms, run) => setTimeout(run, ms),
  })
  ledger = passOn({
    local: own,
    owners: {
      opening: () => null,
      others: () => true,
      ownerOf: () => (passedBy.length === 0 ? peer : null),
      passBy: (id) => passedBy.push(id),
    },
    monotonic: () => performance.now(),
    patience: { silenceMs: patienceMs, answerMs: 4 * patienceMs },
  })
  await soon(openLedger(owner, '10'))
})

afterEach(async () => {
  vi.useRealTimers()
  expect((await verifyLedger(log.client('verifier'), org)).fault).toBeNull()
})

const types = (): string[] => log.eventsOf(stream).map(({ type }) => type)
const charges = (): number => types().filter((type) => type === 'CreditCharged').length
const writers = (): string[] => [...new Set(log.attempts.map(({ client }) => client))]
const balance = async (): Promise<string> =>
  formatCredits(balanceOf(await processOf('reader', {}).account(org), atMs))

describe('a command of another process', () => {
  test('is written by the owner, and answered as if it had been written here', async () => {
    const committed = await soon(ledger.submit(org, call('one')))
    expect(committed).toMatchObject({ revision: 3, repeated: false, balance: parseCredits('9') })
    expect(committed.events.map(({ type }) => type)).toEqual(['KeyUsed', 'CreditCharged'])
    expect(
      log
        .eventsOf(stream)
        .slice(2)
        .map(decodeEvent)
        .map(({ data }) => data),
    ).toEqual(committed.events.map(({ data }) => data))
    expect(writers()).toEqual(['owner'])
    expect(ledger.knownBalance(org)).toBe(parseCredits('9'))
  })

  test('takes its price book along only where it is not known there', async () => {
    for (const key of ['one', 'two', 'three']) await soon(ledger.submit(org, call(key)))
    expect(peer.asked.filter((asked) => JSON.stringify(asked).includes('effective_from'))).toHaveLength(1)
  })

  test.each([
    ['a grant', grantOf('2.5')],
    [
      'a price',
      {
        kind: 'override_price',
        sku: 'ip_lookup',
        amount: parseCredits('0.25'),
        effectiveFrom: new Date(atMs).toISOString(),
      },
    ],
    [
      'an adjustment',
      { kind: 'adjust', adjusts: null, amount: parseCredits('-1'), reason: 'test', rerateRun: null },
    ],
    ['an expiry', { kind: 'expire', grantId: 'none' }],
    [
      'a refusal',
      {
        kind: 'refuse',
        call: {
          keyId: 'K9abcdefghijklmn',
          capability: 'ip_lookup',
          outcome: 'refused',
          code: 'CREDIT_001',
          facts: { kind: 'refusal', code: 'CREDIT_001' },
        },
        book,
        dearest: facts,
        held: parseCredits('10'),
      },
    ],
    [
      'counted rate limits',
      {
        kind: 'count_rate_limited',
        exceeded: {
          key_id: 'K9abcdefghijklmn',
          policy: 'minute',
          window: new Date(atMs).toISOString(),
          count: 3,
        },
      },
    ],
    [
      'counted refusals',
      {
        kind: 'count_refused',
        refused: {
          key_id: 'K9abcdefghijklmn',
          code: 'IP_001',
          outcome: 'refused',
          window: new Date(atMs).toISOString(),
          counts: [{ capability: 'ip_lookup', count: 2 }],
        },
        book,
      },
    ],
  ] satisfies [string, Instruction][])('%s means the same there', async (_name, instruction) => {
    const there = await soon(ledger.submit(org, command('there', instruction)))
    const here = createMemoryEventLog()
    const alone = createLedger({
      eventLog: here.client('alone'),
      snapshot: async () => null,
      logger,
      clock: { now: () => atMs },
    })
    await alone.submit(org, command('register', { kind: 'register', name: 'Example', overdraftLimit: 0n }))
    await alone.submit(org, command('grant', grantOf('10')))
    expect(there).toEqual(await alone.submit(org, command('there', instruction)))
    expect(log.eventsOf(stream).map(({ metadata }) => metadata)).toEqual(
      here.eventsOf(stream).map(({ metadata }) => metadata),
    )
    expect(writers()).toEqual(['owner'])
  })

  test('that the rules forbid is refused with the reason', async () => {
    await expect(
      soon(ledger.submit(org, command('again', { kind: 'register', name: 'Example', overdraftLimit: 0n }))),
    ).rejects.toThrow(CommandRefused)
  })

  test('whose question cannot be understood is dropped there and written here', async () => {
    await soon(ledger.submit(org, call('first')))
    const odd = { ...call('odd'), actor: 'x'.repeat(2_000) }
    expect(await soon(ledger.submit(org, odd))).toMatchObject({ repeated: false })
    expect(charges()).toBe(2)
  })
})

describe('an owner that does not answer', () => {
  test('its question was lost: the command is written here, once', async () => {
    await soon(ledger.submit(org, call('first')))
    journeys = [[]]
    expect(await soon(ledger.submit(org, call('lost')))).toMatchObject({ revision: 5, repeated: false })
    expect(charges()).toBe(2)
    expect(passedBy).toEqual(['owner'])
  })

  test('its answer was lost: the command is found in the ledger, and is not written again', async () => {
    await soon(ledger.submit(org, call('first')))
    journeys = [[0], []]
    const found = { revision: 5, repeated: true, requestId: 'unheard' }
    expect(await soon(ledger.submit(org, call('unheard')))).toMatchObject(found)
    expect(charges()).toBe(2)
  })

  test('the connection ends: the same, at once', async () => {
    await soon(ledger.submit(org, call('first')))
    journeys = [[0], []]
    const asked = ledger.submit(org, call('cut'))
    await until(() => charges() === 2)
    peer.cut()
    expect(await soon(asked)).toMatchObject({ revision: 5, repeated: true })
    expect(charges()).toBe(2)
  })

  test('what it answers cannot be understood: the command is written here, and it is not asked for a while', async () => {
    const answer = vi.fn((_question, _from, say: (answer: unknown) => void) => say({ is: 'written' }))
    peer = createPeerDouble({ id: 'owner', answer, later: (ms, run) => setTimeout(run, ms) })
    await soon(ledger.submit(org, call('one')))
    await soon(ledger.submit(org, call('two')))
    expect({ charges: charges(), passedBy }).toEqual({ charges: 2, passedBy: ['owner'] })
    expect(answer).toHaveBeenCalledTimes(1)
  })

  test('a question that arrives late, after it was written here and read there, is recognized', async () => {
    await soon(ledger.submit(org, call('first')))
    journeys = [[6 * patienceMs]]
    const committed = await soon(ledger.submit(org, call('late')))
    await soon(owner.account(org))
    await soon(owner.submit(org, command('later', { kind: 'expire', grantId: 'none' })))
    await pass(8 * patienceMs)
    expect(committed.revision).toBe(5)
    expect(charges()).toBe(2)
  })

  test('one that is slow is waited for as long as it answers others', async () => {
    await soon(ledger.submit(org, call('first')))
    journeys = [[0], [3 * patienceMs]]
    const slow = ledger.submit(org, call('slow'))
    await until(() => journeys.length === 0)
    for (let i = 0; i < 8; i++) {
      await soon(ledger.submit(org, call(`other-${i}`)))
      await pass(patienceMs / 2)
    }
    expect(await soon(slow)).toMatchObject({ repeated: false })
    expect({ charges: charges(), passedBy, writers: writers() }).toEqual({
      charges: 10,
      passedBy: [],
      writers: ['owner'],
    })
  })

  test('what one that answers others leaves unanswered for too long is done here, and it is asked again', async () => {
    await soon(ledger.submit(org, call('first')))
    journeys = [[]]
    const lost = ledger.submit(org, call('lost'))
    for (let i = 0; i < 8; i++) {
      await soon(ledger.submit(org, call(`other-${i}`)))
      await pass(patienceMs / 2)
    }
    expect(await soon(lost)).toMatchObject({ repeated: false })
    expect({ charges: charges(), passedBy }).toEqual({ charges: 10, passedBy: [] })
  })

  test('a question that arrives twice is written once', async () => {
    await soon(ledger.submit(org, call('first')))
    journeys = [[0, 20]]
    await soon(ledger.submit(org, call('twice')))
    await pass(60)
    expect(charges()).toBe(2)
  })

  test('heard of only as a repeated one, it is known whose it is', async () => {
    await soon(ledger.submit(org, call('first')))
    journeys = [[0, 20], [], [0]]
    const told = { revision: 5, repeated: true, requestId: 'one of two' }
    expect(await soon(ledger.submit(org, call('one of two')))).toMatchObject(told)
    expect({ charges: charges(), writers: writers() }).toEqual({ charges: 2, writers: ['owner'] })
  })

  test('a first command for a ledger reads nothing of it where its owner is gone', async () => {
    for (let i = 0; i < 5; i++) await soon(owner.submit(org, call(`old-${i}`)))
    journeys = [[]]
    const reads: number[] = []
    ownFaults = { onRead: (_, { from = 0 }) => void reads.push(from) }
    expect(await soon(ledger.submit(org, call('first')))).toMatchObject({ repeated: false })
    expect(reads).toEqual([0])
  })
})

describe('a caller who is refused', () => {
  const away: ClientFaults = { onAppend: () => 'unavailable' }

  test('stays uncharged where the owner writes the command late', async () => {
    await soon(ledger.submit(org, call('first')))
    ownFaults = away
    journeys = [[8 * patienceMs]]
    await expect(soon(ledger.submit(org, call('late')))).rejects.toThrow(LedgerUnavailable)
    ownFaults = {}
    await until(() => charges() === 2)
    await until(() => types().includes('CreditAdjusted'))
    expect(await balance()).toBe('9')
  })

  test('is not watched any longer once the owner says that it dropped the command', async () => {
    await soon(ledger.submit(org, call('first')))
    ownFaults = away
    ownerFaults = away
    journeys = [[4 * patienceMs]]
    await expect(soon(ledger.submit(org, call('dropped')))).rejects.toThrow(LedgerUnavailable)
    ownFaults = {}
    let reads = 0
    ownFaults = { onRead: () => void reads++ }
    await pass(8 * patienceMs)
    const before = reads
    await pass(100)
    expect(reads).toBe(before)
    expect(charges()).toBe(1)
  })

  test('the owner does not give back what the sender answered', async () => {
    await soon(ledger.submit(org, call('first')))
    // The owner hears nothing of its append, and finds nothing; it arrives after all.
    ownerFaults = { onAppend: () => 'late' }
    ownFaults = { onRead: () => undefined }
    const asked = ledger.submit(org, call('both'))
    await until(() => log.late.length > 0)
    ownerFaults = {}
    log.deliverLate()
    expect(await soon(asked)).toMatchObject({ revision: 5 })
    await pass(100)
    await soon(owner.account(org))
    expect(types()).not.toContain('CreditAdjusted')
    expect(charges()).toBe(2)
  })
})

describe('what calls in progress hold', () => {
  const request = { facts, book, atMs }

  test('is counted by the owner, for all processes', async () => {
    const made = await soon(
      Promise.all(Array.from({ length: 12 }, (_, i) => (i % 2 === 0 ? ledger : owner).reserve(org, request))),
    )
    expect(made.filter(({ kind }) => kind === 'held')).toHaveLength(10)
    expect(made.find(({ kind }) => kind === 'not_enough')).toMatchObject({ held: parseCredits('10') })
    for (const one of made) if (one.kind === 'held') one.release()
    await pass(10)
    expect((await soon(ledger.reserve(org, request))).kind).toBe('held')
  })

  test('ends with the connection of the process that holds it', async () => {
    for (let i = 0; i < 10; i++) await soon(ledger.reserve(org, request))
    expect((await soon(owner.reserve(org, request))).kind).toBe('not_enough')
    peer.cut()
    expect((await soon(owner.reserve(org, request))).kind).toBe('held')
  })

  test('is held here where the owner does not answer, and given back there should it answer late', async () => {
    await soon(ledger.submit(org, call('first')))
    journeys = [[0], [], [4 * patienceMs]]
    expect((await soon(ledger.reserve(org, request))).kind).toBe('held')
  })
})

test('figures are those of the owner', async () => {
  await soon(own.account(org))
  await soon(owner.submit(org, command('more', grantOf('5'))))
  const asked = { atMs, cost: { facts, book, held: parseCredits('14.5') } }
  expect(await soon(ledger.figures(org, asked))).toMatchObject({
    revision: 2,
    balance: parseCredits('15'),
    available: parseCredits('15'),
    cost: { required: parseCredits('1'), affordability: 'unpaid' },
  })
  journeys = [[]]
  expect((await soon(ledger.figures(org, { atMs, fresh: true }))).balance).toBe(parseCredits('15'))
})
