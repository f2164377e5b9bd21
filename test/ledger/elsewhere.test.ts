/** Commands that two processes have at once: what each of them may believe of the other's appends and answers. */
import { pino } from 'pino'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { answerPeers } from '../../src/ledger/answer-peers.ts'
import {
  type Committed,
  createLedger,
  type LedgerCommand,
  type LedgerLimits,
  LedgerUnavailable,
  type LocalLedger,
} from '../../src/ledger/commit.ts'
import { passOn } from '../../src/ledger/pass-on.ts'
import { bookMessage, reserveMessage, submitMessage } from '../../src/ledger/passing.ts'
import { createReader } from '../../src/ledger/reader.ts'
import { verifyLedger } from '../../src/ledger/verify.ts'
import type { Asker, Peer } from '../../src/peers/peer.ts'
import {
  atMs,
  book,
  call,
  located as facts,
  grantOf,
  openLedger,
  org,
  stream,
} from '../support/ledger-commands.ts'
import { type ClientFaults, createMemoryEventLog, type MemoryEventLog } from '../support/memory-event-log.ts'

const logger = pino({ level: 'silent' })

let log: MemoryEventLog
let owner: LocalLedger
let sender: LocalLedger
let ownerFaults: ClientFaults
let senderFaults: ClientFaults

const processOf = (
  name: string,
  faults: () => ClientFaults,
  limits: Partial<LedgerLimits> = {},
): LocalLedger =>
  createLedger({
    eventLog: log.client(name, {
      onAppend: (attempt) => faults().onAppend?.(attempt),
      onRead: (...read) => faults().onRead?.(...read),
    }),
    snapshot: async () => null,
    logger,
    clock: { now: () => atMs, monotonic: () => performance.now() },
    limits: { retryPauseMs: 5, abandonedCheckMs: 20, unknownRetryMs: 30, unavailableRetryMs: 0, ...limits },
  })

const pass = (ms: number): Promise<unknown> => vi.advanceTimersByTimeAsync(ms)
const soon = async <Value>(promise: Promise<Value>): Promise<Value> => {
  let settled = false
  const settle = (): void => {
    settled = true
  }
  promise.then(settle, settle)
  for (let ms = 0; ms < 20_000 && !settled; ms++) await pass(1)
  expect(settled).toBe(true)
  return promise
}
/** What became of a command. */
const endOf = (promise: Promise<Committed>): Promise<Committed | Error> =>
  soon(promise.catch((error: Error) => error))

beforeEach(async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] })
  log = createMemoryEventLog()
  ownerFaults = {}
  senderFaults = {}
  owner = processOf('owner', () => ownerFaults)
  sender = processOf('sender', () => senderFaults)
  await soon(openLedger(owner, '10'))
  await soon(sender.account(org))
})
afterEach(async () => {
  vi.useRealTimers()
  expect((await verifyLedger(log.client('verifier'), org)).fault).toBeNull()
})

const grant = grantOf('10')
const here = (one: LedgerCommand): LedgerCommand => ({ ...one, passed: 'here', absentUpTo: 1, fresh: true })
const on = (one: LedgerCommand): LedgerCommand => ({ ...one, passed: 'on', absentUpTo: 1 })

const types = (): string[] => log.eventsOf(stream).map(({ type }) => type)
const count = (type: string): number => types().filter((one) => one === type).length
const away: ClientFaults = { onAppend: () => 'unavailable' }
const unheard: ClientFaults = { onAppend: () => 'lose-request' }

describe('an append of which another process wrote the beginning, byte for byte', () => {
  test('did not arrive: what was behind it is refused', async () => {
    ownerFaults = unheard
    const ends = [here(call('passed')), call('own')].map((one) => endOf(owner.submit(org, one)))
    await pass(10)
    expect(await endOf(sender.submit(org, on(call('passed'))))).toMatchObject({ revision: 3 })
    expect((await Promise.all(ends)).at(-1)).toBeInstanceOf(LedgerUnavailable)
    expect(count('CreditCharged')).toBe(1)
  })

  test('never arrives: nothing is given back for what was behind it', async () => {
    ownerFaults = unheard
    const ends = [here(call('passed')), call('own')].map((one) => endOf(owner.submit(org, one)))
    for (const end of await Promise.all(ends)) expect(end).toBeInstanceOf(LedgerUnavailable)
    ownerFaults = {}
    expect(await endOf(sender.submit(org, on(call('passed'))))).toMatchObject({ revision: 3 })
    await pass(200)
    await soon(owner.account(org))
    expect(types().slice(2)).toEqual(['KeyUsed', 'CreditCharged'])
  })
})

describe('a caller who was refused while another process had the command', () => {
  test('is given nothing back where the key came back with another request that was answered', async () => {
    senderFaults = away
    expect(await endOf(sender.submit(org, on(call('key'))))).toBeInstanceOf(LedgerUnavailable)
    senderFaults = {}
    const again = { ...call('key'), requestId: 'another', absentUpTo: 1 }
    expect(await endOf(owner.submit(org, again))).toMatchObject({ repeated: false })
    await pass(200)
    expect(types()).not.toContain('CreditAdjusted')
  })

  describe.each(['in the same append', 'afterwards'])(
    'while another process sent the same key %s',
    (when) => {
      test('stays uncharged: the other one settles the charge before it delivers anything', async () => {
        const sent = (): Promise<Committed | Error> =>
          endOf(owner.submit(org, { ...call('key'), requestId: 'another', passed: 'here', absentUpTo: 1 }))
        ownerFaults = { onAppend: () => 'late' }
        const own = endOf(owner.submit(org, { ...call('key'), absentUpTo: 1 }))
        const together = when === 'afterwards' ? null : sent()
        expect(await own).toBeInstanceOf(LedgerUnavailable)
        await together
        ownerFaults = {}
        log.deliverLate()
        if (when === 'afterwards') expect(await sent()).toMatchObject({ repeated: true, requestId: 'key' })
        await pass(200)
        expect(count('CreditCharged')).toBe(1)
        expect(count('CreditAdjusted')).toBe(1)
      })
    },
  )

  test('stays uncharged also where too many waited', async () => {
    const full = processOf('full', () => ({}), { queuedPerOrganizationMax: 0 })
    expect(await endOf(full.submit(org, on(call('one'))))).toBeInstanceOf(LedgerUnavailable)
    await endOf(owner.submit(org, here(call('one'))))
    // Its own queue takes what gives the charge back.
    await pass(200)
    expect(count('CreditAdjusted')).toBe(1)
  })

  test('stays uncharged where nothing was written here, as the account was not as the call demands', async () => {
    const demanding = { ...call('one'), only: 'free' } as const
    expect(await endOf(sender.submit(org, on(demanding)))).toBeInstanceOf(LedgerUnavailable)
    await endOf(owner.submit(org, here({ ...call('one'), only: 'paid' })))
    await pass(200)
    expect(count('CreditAdjusted')).toBe(1)
  })

  test('hears nothing of a refusal that nothing was written for here: asked again it would stand twice', async () => {
    const code = 'CREDIT_001'
    const told = { outcome: 'refused', code, facts: { kind: 'refusal', code } } as const
    const refusal = {
      ...{ ...call('one'), kind: 'refuse' as const, call: { ...call('one').call, ...told } },
      ...{ dearest: facts, held: 0n },
    }
    // Here the balance pays the call. Where calls in progress hold all of it, it does not.
    expect(await endOf(sender.submit(org, on(refusal)))).toBeInstanceOf(LedgerUnavailable)
    await endOf(owner.submit(org, here({ ...refusal, held: grant.amount })))
    expect(count('KeyUsed')).toBe(1)
  })

  test('is not watched where the other process dropped the command before he was refused', async () => {
    senderFaults = { onAppend: () => 'lose-request' }
    const end = endOf(sender.submit(org, on(call('one'))))
    await pass(5)
    sender.dropped(org, call('one'))
    await end
    let reads = 0
    senderFaults = { onRead: () => void reads++ }
    await pass(100)
    const before = reads
    await pass(100)
    // What may still arrive of his own append is looked for at one place.
    expect(reads - before).toBeLessThanOrEqual(5)
  })
})

describe('a question', () => {
  const asker = (gone = false): Asker & { end: () => void } => {
    const runs: (() => void)[] = []
    return {
      id: 'asker',
      onGone: (run) => (gone ? run() : void runs.push(run)),
      end: () => {
        for (const run of runs) run()
      },
    }
  }
  const passed = (key: string, serial: number): unknown =>
    JSON.parse(
      JSON.stringify({
        ...submitMessage(org, call(key), {
          ...{ serial, bookName: book.digest, absentUpTo: 1, fresh: true, waitMaxMs: 100 },
        }),
        book: bookMessage(book),
      }),
    )

  test('that arrives twice is acted on once: its sender believes that it was dropped', async () => {
    const answer = answerPeers(owner, { logger })
    const from = asker()
    const answers: unknown[] = []
    ownerFaults = away
    answer(passed('one', 1), from, (told) => answers.push(told))
    await pass(50)
    ownerFaults = {}
    answer(passed('one', 1), from, (told) => answers.push(told))
    await pass(50)
    expect(answers).toEqual([{ is: 'dropped' }])
    expect(count('CreditCharged')).toBe(0)
    answer(passed('one', 2), from, (told) => answers.push(told))
    await pass(50)
    expect(answers.at(-1)).toMatchObject({ is: 'committed' })
  })

  test.each([true, false])(
    'about credits to hold, of a connection that has ended (before: %s)',
    async (before) => {
      const answer = answerPeers(owner, { logger })
      const from = asker(before)
      const named = book.digest
      answer(passed('book', 1), from, () => undefined)
      await pass(50)
      answer(
        JSON.parse(JSON.stringify(reserveMessage(org, { facts, book, atMs }, { id: 1, named }))),
        from,
        () => undefined,
      )
      from.end()
      await pass(50)
      const { balance, available } = await soon(owner.figures(org, { atMs }))
      expect(available).toBe(balance)
    },
  )

  test('that is sent again is waited for by a drain', async () => {
    const behind: Peer = {
      id: 'owner',
      ask: (question, heard) => {
        const { is, command: sent } = { is: 'behind', ...Object(question) }
        setTimeout(() => heard(sent?.absentUpTo === 7 ? { is: 'dropped' } : { is, revision: 7 }), 10)
        return true
      },
    }
    const owners = {
      opening: () => null,
      others: () => true,
      ownerOf: () => behind,
      passBy: () => undefined,
    }
    const ledger = passOn({ local: sender, owners, monotonic: () => performance.now() })
    let told = false
    const asked = ledger.submit(org, { ...call('one'), absentUpTo: 1 }).finally(() => {
      told = true
    })
    await soon(ledger.drain())
    expect(told).toBe(true)
    expect(await asked).toMatchObject({ revision: 3 })
  })

  test('that is handed back again and again leaves time to write the command here', async () => {
    const slow: Peer = {
      id: 'owner',
      ask: (_, heard) => {
        setTimeout(() => heard({ is: 'behind', revision: 1 }), 390)
        return true
      },
    }
    const owners = { opening: () => null, others: () => true, ownerOf: () => slow, passBy: () => undefined }
    const patience = { silenceMs: 1_000, answerMs: 400 }
    const ledger = passOn({ local: sender, owners, monotonic: () => performance.now(), patience })
    const fromMs = performance.now()
    await soon(ledger.submit(org, { ...call('one'), absentUpTo: 1 }))
    expect(performance.now() - fromMs).toBeLessThan(2 * patience.answerMs + 50)
  })

  test('takes half of what is left of its caller’s time, and the rest is for writing the command here', async () => {
    const waits: unknown[] = []
    const silent: Peer = {
      id: 'owner',
      ask: (question) => {
        waits.push(Object(question).command.waitMaxMs)
        return true
      },
    }
    const owners = { opening: () => null, others: () => true, ownerOf: () => silent, passBy: () => undefined }
    const ledger = passOn({ local: sender, owners, monotonic: () => performance.now() })
    const fromMs = performance.now()
    const late = ledger.submit(org, { ...call('long'), absentUpTo: 1 })
    expect(await soon(ledger.submit(org, { ...call('short'), absentUpTo: 1, waitMaxMs: 400 }))).toMatchObject(
      {
        repeated: false,
      },
    )
    expect(performance.now() - fromMs).toBeLessThan(300)
    expect(waits).toEqual([4_000, 200])
    await soon(late)
  })
})

test('a part of a ledger that is looked through ends where it is said to end', async () => {
  await soon(owner.submit(org, call('one')))
  const reader = createReader(org, {
    eventLog: log.client('reader'),
    snapshot: async () => null,
    logger,
    limits: { readPageMax: 2, readDeadlineMs: 1_000, retryPauseMs: 0 },
  })
  const account = await owner.account(org)
  // A page that began at 1 would end between the call and its charge.
  const found = await reader.findBetween(account, { from: 1, to: 1, atMs })
  expect([...found.values()].map(({ events }) => events.map(({ type }) => type))).toEqual([['CreditGranted']])
})
