/**
 * The ledger protocol over the EventStoreDB adapter and a double of the server. Even when server and network fail, two processes
 * that charge one organization never charge a call twice, never overdraw, and never lose a confirmed charge.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { pino } from 'pino'
import { describe, expect, test } from 'vitest'
import { formatCredits } from '../../src/billing/money.ts'
import { type EventStoreDbLimits, openEventStoreDb } from '../../src/event-log/eventstoredb/index.ts'
import { Unavailable } from '../../src/event-log/port.ts'
import { eventIdOf } from '../../src/event-log/stored-event.ts'
import { ledgerStream } from '../../src/events/streams.ts'
import { balanceOf } from '../../src/ledger/account.ts'
import { verifyLedger } from '../../src/ledger/check/verify.ts'
import { type Committed, LedgerOutcomeUnknown, LedgerUnavailable } from '../../src/ledger/command.ts'
import { createLedger, type Ledger } from '../../src/ledger/write/ledger.ts'
import {
  type DoubleAppendFault,
  type EventStoreDouble,
  type RandomFaults,
  startEventStoreDouble,
} from '../support/eventstore-double.ts'
import { call, command, grantOf, org, registration } from '../support/ledger-commands.ts'

const credits = 40
/** Distinct calls. Some are sent to both processes, like a client's own retries. */
const calls = 120
/** Short timeouts, so that faults end soon. A busy machine sometimes exceeds them. */
const impatient: Partial<EventStoreDbLimits> = {
  connectTimeoutMs: 1_000,
  appendDeadlineMs: 600,
  readSilenceMs: 600,
  heartbeatMs: 300,
}

/** One process: its own client and its own ledger. */
const processOn = (double: EventStoreDouble, { unknownRetryMs = 5_000, limits = impatient } = {}) => {
  const logger = pino({ level: 'silent' })
  const eventLog = openEventStoreDb({ url: double.url, logger, limits })
  const ledger = createLedger({
    eventLog,
    snapshot: async () => null,
    logger,
    clock: Date,
    limits: { retryPauseMs: 5, batchCommandsMax: 4, unknownRetryMs },
  })
  return { eventLog, ledger }
}

const opening = async (ledger: Ledger): Promise<void> => {
  for (const instruction of [registration, grantOf(String(credits))])
    await insist(() =>
      ledger.submit(org, command(instruction.kind, instruction, { atMs: Date.now(), absentUpTo: -1 })),
    )
}

/** Charges from two processes during `trouble` and afterwards, then checks the ledger. */
const chargeUnder = async (
  trouble: (double: EventStoreDouble) => (() => Promise<void> | void) | void,
  { random, limits = impatient }: { random?: RandomFaults; limits?: Partial<EventStoreDbLimits> } = {},
): Promise<{ confirmed: number; refused: number; faults: number }> => {
  const double = await startEventStoreDouble({ systemEventEvery: 5, ...(random && { random }) })
  const processes = [processOn(double, { limits }), processOn(double, { limits })]
  try {
    const [first] = processes
    if (first === undefined) throw new Error('no process')
    await opening(first.ledger)
    const lastOfOpening = (await accountOf(first.ledger)).revision
    const over = trouble(double)
    const confirmed = new Map<string, Committed[]>()
    let unavailable = 0
    let requests = 0
    const submit = async (ledger: Ledger, key: string): Promise<boolean> => {
      try {
        // A second attempt, and the same call at another process, are new requests with the call's key, like a partner's retries.
        const requestId = `${key}/${requests++}`
        const committed = await ledger.submit(
          org,
          call(key, { atMs: Date.now(), requestId, absentUpTo: lastOfOpening }),
        )
        confirmed.set(key, [...(confirmed.get(key) ?? []), committed])
        return true
      } catch (error) {
        if (!(error instanceof LedgerUnavailable || error instanceof LedgerOutcomeUnknown)) throw error
        unavailable++
        return false
      }
    }
    const sends = Array.from({ length: calls }, (_, n) => {
      const chosen = n % 4 === 0 ? processes : processes.slice(n % 2, (n % 2) + 1)
      return chosen.map(async ({ ledger }) => {
        await sleep(n * 2)
        return submit(ledger, `call-${n}`)
      })
    })
    await Promise.all(sends.flat())
    await over?.()
    double.calm()
    // Refused and unknown calls are sent once more, as a client would do. Now every call must have an outcome.
    const again = processes.map(({ ledger }, p) =>
      Array.from({ length: calls }, async (_, n) => {
        const key = `call-${n}`
        if (n % 2 !== p || confirmed.has(key)) return true
        for (let tries = 0; tries < 100; tries++, await sleep(20)) if (await submit(ledger, key)) return true
        return false
      }),
    )
    expect((await Promise.all(again.flat())).every(Boolean)).toBe(true)
    await Promise.all(processes.map(({ ledger }) => ledger.drain()))
    await expectSound(double, processes, confirmed)
    return { confirmed: confirmed.size, refused: unavailable, faults: double.faults }
  } finally {
    double.speak()
    await Promise.all(processes.map(({ eventLog }) => eventLog.close()))
    await double.close()
  }
}

const expectSound = async (
  double: EventStoreDouble,
  processes: readonly ReturnType<typeof processOn>[],
  confirmed: ReadonlyMap<string, readonly Committed[]>,
): Promise<void> => {
  const [first, second] = processes
  if (first === undefined || second === undefined) throw new Error('not two processes')
  const stored = double.eventsOf(ledgerStream(org))
  const ids = stored.map(({ id }) => id)
  // The id of a charge derives from its call, so if no event exists twice, no call is charged twice.
  expect(new Set(ids).size).toBe(ids.length)
  const standing = new Set(ids)
  const reversed = stored.filter(({ type }) => type === 'CreditAdjusted').length
  const charges = stored.filter(({ type }) => type === 'CreditCharged').length
  expect(charges - reversed).toBeLessThanOrEqual(credits)
  expect(charges).toBeGreaterThan(0)
  for (const [key, answers] of confirmed) {
    expect(standing, key).toContain(eventIdOf(org, key, 0))
    const charged = standing.has(eventIdOf(org, key, 1))
    // Both processes give the same answer to every repetition of a call.
    for (const { events } of answers)
      expect(
        events.some(({ type }) => type === 'CreditCharged'),
        key,
      ).toBe(charged)
  }
  expect(confirmed.size).toBe(calls)
  const reader = openEventStoreDb({ url: double.url, logger: pino({ level: 'silent' }) })
  const verdict = await verifyLedger(reader, org).finally(reader.close)
  expect(verdict.fault).toBeNull()
  expect(verdict.events).toBe(stored.length)
  const accounts = [await accountOf(first.ledger), await accountOf(second.ledger), verdict.account]
  const balances = accounts.map((account) => formatCredits(balanceOf(account, Date.now())))
  expect(new Set(balances)).toEqual(new Set([String(credits - charges + reversed)]))
}

/** Retries until the request succeeds, like a caller that gets Retry-After. */
const insist = async <Value>(ask: () => Promise<Value>): Promise<Value> => {
  for (let tries = 1; ; tries++, await sleep(20)) {
    try {
      return await ask()
    } catch (error) {
      const isPassing =
        error instanceof Unavailable ||
        error instanceof LedgerUnavailable ||
        error instanceof LedgerOutcomeUnknown
      if (!isPassing || tries === 100) throw error
    }
  }
}
const accountOf = (ledger: Ledger) => insist(() => ledger.account(org))

/** Applies the fault to about every third append. */
const often = (fault: DoubleAppendFault) => (double: EventStoreDouble) => {
  let appends = 0
  double.onAppend = () => (appends++ % 3 === 1 ? fault : undefined)
}

const every = (ms: number, disturb: () => Promise<void> | void) => {
  let stopped = false
  const run = async (): Promise<void> => {
    while (!stopped) {
      await sleep(ms)
      if (!stopped) await disturb()
    }
  }
  const running = run()
  return async (): Promise<void> => {
    stopped = true
    await running
  }
}

describe.concurrent('two processes charge one organization with 40 credits, 120 calls, some of them in both', () => {
  // Runs alone, because next to the other tests its calls can wait longer than a caller waits.
  test('and nothing goes wrong', { concurrent: false }, async () => {
    const all = await chargeUnder(() => undefined, { limits: {} })
    expect(all).toEqual({ confirmed: calls, refused: 0, faults: 0 })
  })

  // The event log contract covers the other server faults.
  test.each([
    ['lose-reply', impatient],
    ['lose-request', impatient],
    // The server always answers, so no timeout has to be short.
    ['no-leader', {}],
    ['hide-actual', {}],
  ] as const)('and every third append meets: %s', async (fault, limits) => {
    expect((await chargeUnder(often(fault), { limits })).faults).toBeGreaterThan(3)
  })

  test('and a server that lost its reply answers the resend with "bad request": the recorded charge is not refused', async () => {
    const double = await startEventStoreDouble({})
    const { eventLog, ledger } = processOn(double, { unknownRetryMs: 600 })
    try {
      await opening(ledger)
      let sends = 0
      double.onAppend = () => (sends++ === 0 ? 'lose-reply' : 'bad-request')
      expect(
        (await ledger.submit(org, call('call-0', { atMs: Date.now() }))).events.map(({ type }) => type),
      ).toEqual(['KeyUsed', 'CreditCharged'])
    } finally {
      await eventLog.close()
      await double.close()
    }
  })

  test('and the server restarts again and again, and loses the ids that it saw recently', async () => {
    await chargeUnder((double) => every(40, double.restart), { limits: {} })
  })

  test('and the server stops answering, and executes the requests later', async () => {
    await chargeUnder((double) =>
      every(50, async () => {
        double.silence()
        await sleep(800)
        double.speak()
      }),
    )
  })

  test('and everything goes wrong at random', async () => {
    const random = {
      seed: 11,
      dropReplies: 0.1,
      dropRequests: 0.1,
      endCalls: 0.03,
      notReady: 0.05,
      serverTimeouts: 0.05,
      delays: 0.3,
      delayMaxMs: 300,
      cutEveryMs: 200,
    }
    const { faults } = await chargeUnder(() => undefined, { random })
    expect(faults).toBeGreaterThan(3)
  })
})
