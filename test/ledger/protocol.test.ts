/**
 * The ledger protocol, rule by rule. Several ledgers over one log represent several processes. After each test, every ledger in
 * the log must pass verification.
 */
import { randomUUID } from 'node:crypto'
import { pino } from 'pino'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { formatCredits, parseCredits } from '../../src/billing/money.ts'
import {
  type Appended,
  appendEventsMax,
  type EventLog,
  LogRewritten,
  UnknownOutcome,
} from '../../src/event-log/port.ts'
import { decodeEvent, eventIdOf } from '../../src/event-log/stored-event.ts'
import type { CallFacts } from '../../src/events/calls.ts'
import type { LedgerEvent } from '../../src/events/catalogue.ts'
import { ledgerStream } from '../../src/events/streams.ts'
import { type Account, balanceOf, evolve, newAccount } from '../../src/ledger/account.ts'
import { verifyLedger } from '../../src/ledger/check/verify.ts'
import { CommandRefused, type Instruction, type LedgerCommand } from '../../src/ledger/command.ts'
import { type Decision, decideCommand } from '../../src/ledger/decide.ts'
import { createLedger, type Ledger } from '../../src/ledger/write/ledger.ts'
import { type LedgerLimits, type LedgerOptions, ledgerLimits } from '../../src/ledger/write/options.ts'
import type { AccountSnapshot } from '../../src/ledger/write/reader.ts'
import { reversalCommand } from '../../src/ledger/write/reversals.ts'
import {
  call as callAt,
  command as commandAt,
  grantOf,
  located,
  org,
  registration,
  atMs as startMs,
} from '../support/ledger-commands.ts'
import {
  type AppendAttempt,
  type ClientFaults,
  createMemoryEventLog,
  type MemoryEventLog,
} from '../support/memory-event-log.ts'

const otherOrg = 'org_01K9YYYYYYYYYYYYYYYYYYYYYY'
const notLocated: CallFacts = { ...located, success: false, country_code: null }

let log: MemoryEventLog
let nowMs = startMs
const clock = { now: () => nowMs }

beforeEach(() => {
  nowMs = startMs
  log = createMemoryEventLog({ now: () => nowMs })
})

afterEach(async () => {
  for (const stream of log.streams) {
    const { fault } = await verifyLedger(log.client('verifier'), stream.slice('ledger-'.length))
    expect(fault, stream).toBeNull()
  }
})

let logged: {
  level: number
  msg: string
  organizationId?: string
  chargeId?: string
  requestIds?: string[]
}[] = []
const logger = pino({ level: 'warn' }, { write: (line: string) => void logged.push(JSON.parse(line)) })

beforeEach(() => {
  logged = []
})

/** A process with short limits, and by default no snapshot. */
const processOf = (
  name: string,
  options: {
    faults?: ClientFaults
    limits?: Partial<LedgerLimits>
    snapshot?: AccountSnapshot
    eventLog?: EventLog
    gate?: LedgerOptions['gate']
    lotPlaces?: LedgerOptions['lotPlaces']
  } = {},
): Ledger =>
  createLedger({
    eventLog: options.eventLog ?? log.client(name, options.faults),
    snapshot: options.snapshot ?? (async () => null),
    logger,
    clock,
    ...(options.gate && { gate: options.gate }),
    ...(options.lotPlaces && { lotPlaces: options.lotPlaces }),
    limits: { retryPauseMs: 0, ...options.limits },
    decide: (account, command, ...rest) =>
      hostile.get(command.key)?.(account) ?? decideCommand(account, command, ...rest),
  })

/** Decisions, by key, that our rules would never make. */
const hostile = new Map<string, (account: Account) => Decision>()

const hostileCommand = (key: string, decide: (account: Account) => Decision): LedgerCommand => {
  hostile.set(key, decide)
  return command(key, { kind: 'expire', grantId: 'none' })
}

const command = (key: string, instruction: Instruction): LedgerCommand =>
  commandAt(key, instruction, { atMs: nowMs })

const call = (key: string, facts?: CallFacts): LedgerCommand => callAt(key, { atMs: nowMs }, facts)

const grant = (key: string, amount: string, expiresAt: string | null = null): LedgerCommand =>
  command(key, { ...grantOf(amount), expiresAt })

/** Writes off a grant's lot after its expiry. */
const sweep = (grantKey: string, organizationId = org): LedgerCommand =>
  command(`expire/${grantKey}`, { kind: 'expire', grantId: eventIdOf(organizationId, grantKey, 0) })

const register = (overdraft = '0'): LedgerCommand =>
  command('register', { ...registration, overdraftLimit: parseCredits(overdraft) })

/** Opens an organization with credits, by a process that has ended. */
const opened = async ({ credits = '100', overdraft = '0', organizationId = org } = {}): Promise<void> => {
  const opener = processOf('opener')
  await opener.submit(organizationId, register(overdraft))
  if (credits !== '0') await opener.submit(organizationId, grant('opening', credits))
}

const standing = (organizationId = org) =>
  log
    .eventsOf(ledgerStream(organizationId))
    .map((recorded) => ({ ...decodeEvent(recorded), id: recorded.id, revision: recorded.revision }))

const typesOf = (organizationId = org): string[] => standing(organizationId).map(({ type }) => type)

/** All events with a command key, in the order of the stream. */
const eventsOfKey = (key: string, organizationId = org): string[] => {
  const ids = new Set([0, 1, 2].map((index) => eventIdOf(organizationId, key, index)))
  return standing(organizationId)
    .filter(({ id }) => ids.has(id))
    .map(({ type }) => type)
}

const balanceNow = async (organizationId = org): Promise<string> =>
  formatCredits(balanceOf(await processOf('reader').account(organizationId), nowMs))

const attemptsBy = (client: string): AppendAttempt[] =>
  log.attempts.filter((attempt) => attempt.client === client)

/** Resolves with 'committed' or the error's name. */
const outcomeOf = (submitted: Promise<unknown>): Promise<string> =>
  submitted.then(
    () => 'committed',
    (error: unknown) => (error instanceof Error ? error.name : 'not an error'),
  )

/** A gate that blocks appends or reads until it is opened. */
const gate = () => {
  const { promise, resolve } = Promise.withResolvers<void>()
  const reached = Promise.withResolvers<void>()
  return {
    wait: (): Promise<undefined> => {
      reached.resolve()
      return promise.then(() => undefined)
    },
    reached: reached.promise,
    open: resolve,
  }
}

/** The account after the first `count` events, as in a projection that stopped there. */
const folded = (count: number, organizationId = org): Account => {
  const account = newAccount(organizationId)
  for (const { type, data, revision, metadata } of standing(organizationId).slice(0, count)) {
    evolve(account, { type, data } as LedgerEvent, revision)
    account.digest = metadata.digest ?? ''
    account.recordedAtMs = Date.parse(metadata.recorded_at ?? '')
  }
  return account
}

const snapshotAfter =
  (count: () => number): AccountSnapshot =>
  async (organizationId) =>
    count() === 0 ? null : folded(count(), organizationId)

describe('rule 1: ids', () => {
  test('every event id and the charge id derive from organization, key and index, in every process', async () => {
    await opened()
    await processOf('a').submit(org, call('request-1'))
    const [used, charged] = standing().slice(-2)
    expect(used?.id).toBe(eventIdOf(org, 'request-1', 0))
    expect(charged?.id).toBe(eventIdOf(org, 'request-1', 1))
    expect(charged?.data).toMatchObject({ charge_id: eventIdOf(org, 'request-1', 1), amount: '1' })
    expect(charged?.metadata.causation_id).toBe(used?.id)
  })
})

describe('a log that does not answer', () => {
  const shutting = () => {
    let shutForMs: number | null = null
    return {
      gate: { refuses: () => shutForMs, shutForMs: () => shutForMs },
      shut: () => {
        shutForMs = 1
      },
      open: () => {
        shutForMs = null
      },
    }
  }

  test('while its gate is closed no command is accepted or sent; once it opens, commands are accepted again', async () => {
    await opened()
    const { gate, shut, open } = shutting()
    const ledger = processOf('a', { gate })
    expect((await ledger.submit(org, call('before'))).balance).toBe(parseCredits('99'))
    shut()
    expect(await outcomeOf(ledger.submit(org, call('meanwhile')))).toBe('LedgerUnavailable')
    expect(await outcomeOf(ledger.account(org))).toBe('LedgerUnavailable')
    expect(await outcomeOf(processOf('b', { gate }).figures(org, { atMs: nowMs }))).toBe('LedgerUnavailable')
    // The figures in memory are still available.
    expect((await ledger.figures(org, { atMs: nowMs })).balance).toBe(parseCredits('99'))
    expect(attemptsBy('a')).toHaveLength(1)
    open()
    expect((await ledger.submit(org, call('after'))).balance).toBe(parseCredits('98'))
    expect(eventsOfKey('meanwhile')).toEqual([])
  })

  test('commands that wait for a decision are refused when the gate closes, but commands that were sent are completed', async () => {
    await opened()
    const { gate: shutGate, shut, open } = shutting()
    const network = gate()
    const ledger = processOf('a', { gate: shutGate, faults: { onAppend: network.wait } })
    const sent = ledger.submit(org, call('sent'))
    await network.reached
    const waiting = ledger.submit(org, call('waiting'))
    shut()
    expect(await outcomeOf(waiting)).toBe('LedgerUnavailable')
    open()
    network.open()
    expect((await sent).balance).toBe(parseCredits('99'))
    expect(eventsOfKey('waiting')).toEqual([])
    expect(await balanceNow()).toBe('99')
  })
})

describe('rule 2: batches', () => {
  test('a call and its charge are adjacent in one append, the call before the charge', async () => {
    await opened()
    const committed = await processOf('a').submit(org, call('one'))
    expect(attemptsBy('a').map(({ expected, events }) => [expected, events.map(({ type }) => type)])).toEqual(
      [[1, ['KeyUsed', 'CreditCharged']]],
    )
    expect(committed).toMatchObject({ revision: 3, balance: parseCredits('99'), repeated: false })
    expect(committed.events.map(({ type }) => type)).toEqual(['KeyUsed', 'CreditCharged'])
  })

  test('commands submitted during an append become the next append, in order', async () => {
    await opened()
    const network = gate()
    const ledger = processOf('a', { faults: { onAppend: network.wait } })
    const first = ledger.submit(org, call('first'))
    await network.reached
    const next = ['n1', 'n2', 'n3', 'n4'].map((key) => ledger.submit(org, call(key)))
    expect(attemptsBy('a')).toHaveLength(1)
    network.open()
    const revisions = (await Promise.all([first, ...next])).map(({ revision }) => revision)
    expect(revisions).toEqual([3, 5, 7, 9, 11])
    expect(attemptsBy('a').map(({ expected, events }) => [expected, events.length])).toEqual([
      [1, 2],
      [3, 8],
    ])
    expect(await Promise.all(next)).toMatchObject(
      ['98', '97', '96', '95'].map((credits) => ({ balance: parseCredits(credits) })),
    )
  })

  test('an organization never has two concurrent appends; another organization does not wait for it', async () => {
    await opened()
    await opened({ organizationId: otherOrg })
    let under = 0
    let most = 0
    const stuck = gate()
    const ledger = processOf('a', {
      faults: {
        onAppend: async ({ stream }) => {
          if (stream === ledgerStream(otherOrg)) return stuck.wait()
          most = Math.max(most, ++under)
          await new Promise((resolve) => setImmediate(resolve))
          under--
          return undefined
        },
      },
    })
    const other = ledger.submit(otherOrg, call('stuck'))
    await stuck.reached
    for (let round = 0; round < 20; round++) {
      const pair = [ledger.submit(org, call(`${round}-a`)), ledger.submit(org, call(`${round}-b`))]
      await pair[0]
    }
    await ledger.account(org)
    expect(most).toBe(1)
    stuck.open()
    expect(await outcomeOf(other)).toBe('committed')
  })

  test('an append contains at most 256 commands and 512 KiB', async () => {
    expect(ledgerLimits).toMatchObject({ batchCommandsMax: 256, batchBytesMax: 512 * 1024 })
    await opened({ credits: '1000' })
    const ledger = processOf('a')
    await Promise.all(Array.from({ length: 600 }, (_, i) => ledger.submit(org, call(`call-${i}`))))
    expect(attemptsBy('a').map(({ events }) => events.length)).toEqual([512, 512, 176])
    expect(await balanceNow()).toBe('400')
  })

  test('the command that reaches the size limit is the last one in its batch', async () => {
    await opened()
    const ledger = processOf('a', { limits: { batchBytesMax: 2_000 } })
    await Promise.all(Array.from({ length: 30 }, (_, i) => ledger.submit(org, call(`call-${i}`))))
    const sizes = attemptsBy('a').map(({ events }) =>
      events.reduce((sum, { data, metadata }) => sum + data.length + metadata.length, 0),
    )
    const largest = Math.max(...sizes.map((size, i) => size / ((attemptsBy('a')[i]?.events.length ?? 2) / 2)))
    expect(sizes.length).toBeGreaterThan(5)
    for (const size of sizes) expect(size).toBeLessThan(2_000 + largest + 1)
    expect(await balanceNow()).toBe('70')
  })

  test('a batch never contains more events than an append can', async () => {
    await opened()
    const ledger = processOf('a')
    const many = (key: string): LedgerCommand =>
      hostileCommand(key, () =>
        Array.from({ length: 400 }, () => ({
          type: 'PriceOverrideSet' as const,
          data: {
            sku: 'ip_lookup',
            amount: null,
            override_id: randomUUID(),
            reason: null,
            effective_from: new Date(nowMs).toISOString(),
          },
        })),
      )
    const outcomes = await Promise.all(
      ['a', 'b', 'c', 'd'].map((key) => outcomeOf(ledger.submit(org, many(key)))),
    )
    expect(outcomes).toEqual(['committed', 'committed', 'committed', 'committed'])
    for (const { events } of attemptsBy('a')) expect(events.length).toBeLessThanOrEqual(appendEventsMax)
  })

  test('a command that the rules forbid is refused alone and writes no events', async () => {
    await opened()
    const ledger = processOf('a')
    const outcomes = await Promise.all([
      outcomeOf(ledger.submit(org, call('before'))),
      outcomeOf(ledger.submit(org, { ...register(), key: 'register again' })),
      outcomeOf(ledger.submit(org, call('after'))),
    ])
    expect(outcomes).toEqual(['committed', 'CommandRefused', 'committed'])
    expect(typesOf()).toEqual([
      'OrganizationRegistered',
      'CreditGranted',
      'KeyUsed',
      'CreditCharged',
      'KeyUsed',
      'CreditCharged',
    ])
    await expect(ledger.submit(otherOrg, grant('g', '5'))).rejects.toThrow(CommandRefused)
    expect(log.eventsOf(ledgerStream(otherOrg))).toEqual([])
  })

  test('a command whose decision writes nothing is answered without an append', async () => {
    await opened()
    const ledger = processOf('a')
    const { events, revision } = await ledger.submit(org, sweep('no such grant'))
    expect({ events, revision }).toEqual({ events: [], revision: 1 })
    expect(attemptsBy('a')).toEqual([])
  })

  test('a command whose decision throws fails alone', async () => {
    await opened()
    const ledger = processOf('a')
    const broken = hostileCommand('broken', () => {
      throw new RangeError('a bug in a decision')
    })
    const outcomes = await Promise.all(
      [call('before'), broken, call('after')].map((one) => outcomeOf(ledger.submit(org, one))),
    )
    expect(outcomes).toEqual(['committed', 'RangeError', 'committed'])
  })

  test.each([
    ['hold values JSON cannot represent', { type: 'CreditExpired', data: { grant_id: 1n, amount: '1' } }],
    [
      'take credits that no lot has',
      { type: 'CreditExpired', data: { grant_id: eventIdOf(org, 'missing', 0), amount: '1' } },
    ],
  ])('a command whose events %s fails alone, and the ledger keeps working', async (_, event) => {
    const crashes: unknown[] = []
    const onCrash = (error: unknown): void => void crashes.push(error)
    const others = process.listeners('unhandledRejection')
    process.removeAllListeners('unhandledRejection')
    process.on('unhandledRejection', onCrash)
    try {
      await opened()
      const ledger = processOf('a')
      const broken = hostileCommand('broken', () => [event as unknown as LedgerEvent])
      const submitted = [call('before'), broken, call('after')].map((one) =>
        outcomeOf(ledger.submit(org, one)),
      )
      for (let turn = 0; turn < 50; turn++) await new Promise((resolve) => setImmediate(resolve))
      const settled = await Promise.all(submitted.map((one) => Promise.race([one, Promise.resolve('hangs')])))
      expect(settled).toEqual(['committed', expect.stringMatching(/Error$/), 'committed'])
      expect(crashes).toEqual([])
      expect(await outcomeOf(ledger.submit(org, call('later')))).toBe('committed')
    } finally {
      process.removeListener('unhandledRejection', onCrash)
      for (const listener of others) process.on('unhandledRejection', listener)
    }
  })

  test("an organization's queue is bounded: more commands are refused immediately, and nothing of them is written", async () => {
    await opened()
    const network = gate()
    const ledger = processOf('a', {
      faults: { onAppend: network.wait },
      limits: { queuedPerOrganizationMax: 3 },
    })
    const first = ledger.submit(org, call('first'))
    await network.reached
    const outcomes = ['q1', 'q2', 'q3', 'q4', 'q5'].map((key) => outcomeOf(ledger.submit(org, call(key))))
    expect(await outcomes[3]).toBe('LedgerUnavailable')
    expect(await outcomes[4]).toBe('LedgerUnavailable')
    network.open()
    await first
    expect((await Promise.all(outcomes)).slice(0, 3)).toEqual(['committed', 'committed', 'committed'])
    expect(['q3', 'q4', 'q5'].map((key) => eventsOfKey(key).length)).toEqual([2, 0, 0])
  })
})

describe('rule 3: unknown outcomes', () => {
  test('the identical append is resent, with the same ids, bytes and revision, before any other append', async () => {
    await opened()
    let lost = 0
    const faults = ['lose-request', 'lose-reply', 'lose-reply', 'unavailable', 'lose-request'] as const
    const ledger = processOf('a', { faults: { onAppend: () => faults[lost++] } })
    const first = ledger.submit(org, call('first'))
    await first.catch(() => undefined)
    const attempts = attemptsBy('a')
    expect(attempts).toHaveLength(6)
    for (const attempt of attempts) expect(attempt).toEqual(attempts[0])
    expect(await first).toMatchObject({ revision: 3, balance: parseCredits('99'), repeated: false })
    expect(typesOf()).toEqual(['OrganizationRegistered', 'CreditGranted', 'KeyUsed', 'CreditCharged'])
  })

  test('calls that arrive while the outcome is unknown wait, and are written after it', async () => {
    await opened()
    const network = gate()
    let sent = 0
    const ledger = processOf('a', {
      faults: {
        onAppend: async () => {
          sent++
          if (sent === 1) return 'lose-reply'
          await network.wait()
          return sent < 5 ? 'lose-request' : undefined
        },
      },
    })
    const first = ledger.submit(org, call('first'))
    await network.reached
    const second = ledger.submit(org, call('second'))
    network.open()
    expect(await Promise.all([first, second])).toMatchObject([{ revision: 3 }, { revision: 5 }])
    expect(attemptsBy('a').map(({ expected }) => expected)).toEqual([1, 1, 1, 1, 1, 3])
  })

  test('past the deadline the stream is read: the append was written, so the answer comes from its events', async () => {
    await opened()
    let unheard = true
    const ledger = processOf('a', {
      limits: { unknownRetryMs: 100 },
      faults: {
        onAppend: () => {
          nowMs += 60
          return unheard ? 'lose-reply' : undefined
        },
      },
    })
    const committed = await Promise.all([
      ledger.submit(org, call('first')),
      ledger.submit(org, call('second')),
    ])
    expect(committed).toMatchObject([{ revision: 3 }, { revision: 5, balance: parseCredits('98') }])
    unheard = false
    expect(await ledger.submit(org, call('third'))).toMatchObject({
      revision: 7,
      balance: parseCredits('97'),
    })
    expect(typesOf().filter((type) => type === 'CreditCharged')).toHaveLength(3)
  })

  test('past the deadline its place is empty: a fence takes the place, and the call is decided again after the fence', async () => {
    await opened()
    let sent = 0
    const ledger = processOf('a', {
      limits: { unknownRetryMs: 100 },
      faults: {
        onAppend: () => {
          nowMs += 60
          return ++sent <= 2 ? 'late' : undefined
        },
      },
    })
    expect(await ledger.submit(org, call('first'))).toMatchObject({
      revision: 4,
      balance: parseCredits('99'),
    })
    expect(standing()[2]).toMatchObject({ type: 'LedgerFenced', data: { request_ids: ['first'] } })
    while (log.late.length > 0) expect(log.deliverLate()).toBe(false)
    expect(await ledger.submit(org, call('second'))).toMatchObject({
      revision: 6,
      balance: parseCredits('98'),
    })
    expect(typesOf().filter((type) => type === 'CreditAdjusted')).toEqual([])
  })

  test.each(['lose-reply', 'lose-request', 'late', 'unavailable'] as const)(
    'the fence itself meets %s: the place is read again until it is decided',
    async (fault) => {
      await opened()
      let sent = 0
      const ledger = processOf('a', {
        limits: { unknownRetryMs: 100 },
        faults: {
          onAppend: () => {
            nowMs += 60
            sent++
            return sent <= 2 ? 'lose-request' : sent <= 4 ? fault : undefined
          },
        },
      })
      expect(await ledger.submit(org, call('first'))).toMatchObject({ balance: parseCredits('99') })
      while (log.late.length > 0) expect(log.deliverLate()).toBe(false)
      expect(typesOf().filter((type) => type === 'LedgerFenced')).toHaveLength(1)
      expect(eventsOfKey('first')).toEqual(['KeyUsed', 'CreditCharged'])
    },
  )

  test('two processes fence the same place: there is one fence, and both continue after it', async () => {
    await opened()
    const losing = () => {
      let sent = 0
      return { onAppend: () => (++sent <= 1 ? ('late' as const) : undefined) }
    }
    const limits = { unknownRetryMs: 0 }
    const one = processOf('one', { limits, faults: losing() })
    const other = processOf('other', { limits, faults: losing() })
    await Promise.all([one.submit(org, call('first')), other.submit(org, call('second'))])
    while (log.late.length > 0) expect(log.deliverLate()).toBe(false)
    expect(typesOf().filter((type) => type === 'LedgerFenced')).toHaveLength(1)
    expect(await balanceNow()).toBe('98')
  })

  test('another event is in its place: the append can never be written, and is decided again after that event', async () => {
    await opened()
    const foreign = processOf('b')
    let sent = 0
    const ledger = processOf('a', {
      limits: { unknownRetryMs: 100 },
      faults: {
        onAppend: async () => {
          nowMs += 60
          if (++sent === 1) await foreign.submit(org, call('foreign'))
          return sent <= 2 ? 'late' : undefined
        },
      },
    })
    expect(await ledger.submit(org, call('first'))).toMatchObject({
      revision: 5,
      balance: parseCredits('98'),
    })
    while (log.late.length > 0) expect(log.deliverLate()).toBe(false)
    expect(typesOf().filter((type) => type === 'LedgerFenced')).toEqual([])
    expect(await balanceNow()).toBe('98')
  })

  /** Creates process `a`. The function `append` decides the outcomes of its appends. */
  const meeting = async (append: (sent: number, own: () => Promise<Appended>) => Promise<Appended>) => {
    await opened()
    const client = log.client('a')
    let sent = 0
    const eventLog = {
      ...client,
      append: (...args: Parameters<EventLog['append']>) => append(++sent, () => client.append(...args)),
    }
    return processOf('a', { eventLog, limits: { unknownRetryMs: 1_000_000, drainMaxMs: 50 } })
  }

  test('the log is rewritten after an append with an unknown outcome: its place shows that it was written', async () => {
    const ledger = await meeting(async (sent, own) => {
      if (sent === 2) throw new LogRewritten('a standby took over')
      const appended = await own()
      if (sent === 1) throw new UnknownOutcome('the reply was lost')
      return appended
    })
    expect(await ledger.submit(org, call('first'))).toMatchObject({ balance: parseCredits('99') })
    expect(eventsOfKey('first')).toEqual(['KeyUsed', 'CreditCharged'])
  })

  test('the log is rewritten and the place is empty: the outcome stays unknown, and the process logs this when it stops', async () => {
    const ledger = await meeting(async (sent) => {
      throw sent === 1 ? new UnknownOutcome('the request was lost') : new LogRewritten('a standby took over')
    })
    expect(await outcomeOf(ledger.submit(org, call('first')))).toBe('LedgerOutcomeUnknown')
    await expect(ledger.drain()).rejects.toThrow('did not confirm in time')
    expect(logged.flatMap(({ requestIds }) => requestIds ?? [])).toEqual(['first'])
  })

  test('a duplicate that arrives after the answer changes nothing', async () => {
    await opened()
    const ledger = processOf('a', { faults: { onAppend: () => 'duplicate' } })
    await ledger.submit(org, call('first'))
    await ledger.submit(org, call('second'))
    while (log.late.length > 0) expect(log.deliverLate()).toBe(false)
    expect(await balanceNow()).toBe('98')
  })

  describe('the place cannot be decided while the caller waits', () => {
    /** Makes process `a` unsure of the outcome of `keys`: their append is still on its way, and `a` cannot reach the log. */
    const unknown = async (
      keys: readonly string[],
      {
        more = {},
        ...options
      }: Pick<Partial<LedgerOptions>, 'snapshot' | 'lotPlaces'> & { more?: Partial<LedgerCommand> } = {},
    ): Promise<{ ledger: Ledger; reach: () => void; failAppends: (times: number) => void }> => {
      await opened()
      let reachable = true
      let failing = 0
      const ledger = processOf('a', {
        ...options,
        limits: { unknownRetryMs: 0, unavailableRetryMs: 100, drainMaxMs: 50 },
        faults: {
          onAppend: () => {
            nowMs += 60
            if (!reachable) return 'late'
            if (failing === 0) return undefined
            failing--
            return 'unavailable'
          },
          onRead: () => (reachable ? undefined : 'unavailable'),
        },
      })
      await ledger.lastSeen(org)
      reachable = false
      const submitted = keys.map((key) =>
        outcomeOf(ledger.submit(org, { ...call(key), ...more } as LedgerCommand)),
      )
      await expect.poll(() => log.late.length).toBe(1)
      nowMs += 10_000
      expect(await Promise.all(submitted)).toEqual(keys.map(() => 'LedgerOutcomeUnknown'))
      return {
        ledger,
        reach: () => {
          reachable = true
        },
        failAppends: (times) => {
          failing = times
        },
      }
    }
    /** Options for a command with an Idempotency-Key, which another request can also have. */
    const keyed = { more: { requestId: 'a request' } } as const

    const adjustedCharges = (): unknown[] =>
      standing().flatMap(({ type, data }) =>
        type === 'CreditAdjusted' ? [{ adjusts: data.adjusts, amount: data.amount, kind: data.kind }] : [],
      )
    const reversal = (key: string) => ({ adjusts: eventIdOf(org, key, 1), amount: '1', kind: 'reversal' })
    const rested = async (ledger: Ledger) => {
      await expect.poll(() => ledger.drain().then(() => 'rested', String)).toBe('rested')
    }

    test('it was written: the charge for a call that cannot be repeated is reversed', async () => {
      const { ledger, reach } = await unknown(['first', 'second'])
      reach()
      expect(log.deliverLate()).toBe(true)
      await rested(ledger)
      expect(adjustedCharges()).toEqual([reversal('first'), reversal('second')])
      expect(await balanceNow()).toBe('100')
      // Statements compare these times with their month.
      const calledAt = standing().flatMap(({ type, metadata }) =>
        type === 'CreditCharged' ? [metadata.effective_at] : [],
      )
      const corrected = standing().flatMap(({ type, data }) =>
        type === 'CreditAdjusted' ? [data.charged_at] : [],
      )
      expect(corrected).toEqual(calledAt)
      // The credits return to the lots that paid, which can expire.
      const paying = standing().flatMap(({ type, data }) =>
        type === 'CreditCharged' ? data.allocations : [],
      )
      const refilled = standing().flatMap(({ type, data }) => (type === 'CreditAdjusted' ? data.fills : []))
      expect(refilled.map(({ grant_id, amount }) => ({ grant_id, amount }))).toEqual(paying)
      await ledger.submit(org, call('again', notLocated))
      await rested(ledger)
      expect(adjustedCharges()).toHaveLength(2)
    })

    test('it was written, and an operator refunds a part of it first: the rest is reversed, once', async () => {
      const { ledger, reach } = await unknown(['first'])
      log.deliverLate()
      const operator = processOf('operator')
      const chargeId = eventIdOf(org, 'first', 1)
      const { revision } = await operator.account(org)
      const refund = reversalCommand(
        {
          firstEventId: eventIdOf(org, 'first', 0),
          chargeId,
          amount: parseCredits('0.25'),
          revision,
          calledMs: nowMs,
          into: [],
        },
        nowMs,
      )
      await operator.submit(org, refund)
      reach()
      nowMs += 10_000
      await rested(ledger)
      expect(adjustedCharges()).toMatchObject([{ amount: '0.25' }, { adjusts: chargeId, amount: '0.75' }])
      expect(await balanceNow()).toBe('100')
    })

    test('it was written: a call with an Idempotency-Key stays charged, and its repetition finds the charge', async () => {
      const { ledger, reach } = await unknown(['first'], keyed)
      reach()
      log.deliverLate()
      await rested(ledger)
      expect(adjustedCharges()).toEqual([])
      const again = { ...call('first'), requestId: 'another request', absentUpTo: 1 }
      expect(await ledger.submit(org, again)).toMatchObject({ repeated: true, requestId: 'a request' })
      expect(await balanceNow()).toBe('99')
    })

    test('it was not written, and never will be: nothing is charged', async () => {
      const { ledger, reach } = await unknown(['first'])
      reach()
      await rested(ledger)
      while (log.late.length > 0) expect(log.deliverLate()).toBe(false)
      expect(typesOf().slice(2)).toEqual(['LedgerFenced'])
      expect(await balanceNow()).toBe('100')
    })

    test('calls that arrive in the meantime were never sent, so their refusal is final', async () => {
      const { ledger, reach } = await unknown(['first'])
      const later = outcomeOf(ledger.submit(org, call('later')))
      nowMs += 10_000
      expect(await later).toBe('LedgerUnavailable')
      reach()
      while (log.late.length > 0) log.deliverLate()
      await rested(ledger)
      expect(eventsOfKey('later')).toEqual([])
    })

    test('a repetition at the same process whose caller stops waiting also has an unknown outcome, because the earlier request might be charged', async () => {
      const { ledger, reach } = await unknown(['first'], keyed)
      const again = { ...call('first'), requestId: 'another request', absentUpTo: 1 }
      const repeated = outcomeOf(ledger.submit(org, again))
      nowMs += 10_000
      expect(await repeated).toBe('LedgerOutcomeUnknown')
      reach()
      log.deliverLate()
      await rested(ledger)
      expect(await ledger.submit(org, again)).toMatchObject({ repeated: true, requestId: 'a request' })
      expect(await balanceNow()).toBe('99')
    })

    test('a repetition that waits at the same process when the append arrives is not written a second time', async () => {
      const { ledger, reach } = await unknown(['first'], keyed)
      const repeated = outcomeOf(
        ledger.submit(org, { ...call('first'), requestId: 'another request', absentUpTo: 1 }),
      )
      reach()
      log.deliverLate()
      expect(await repeated).toBe('committed')
      await rested(ledger)
      expect(eventsOfKey('first')).toEqual(['KeyUsed', 'CreditCharged'])
      expect(adjustedCharges()).toEqual([])
    })

    test.each([0, 1])(
      'it is also given back if the projection has all but %i of its events before this process does',
      async (without) => {
        let projected = 0
        const { ledger, reach } = await unknown(['first'], { snapshot: snapshotAfter(() => projected) })
        reach()
        log.deliverLate()
        projected = standing().length - without
        await rested(ledger)
        expect(adjustedCharges()).toEqual([reversal('first')])
        expect(await balanceNow()).toBe('100')
      },
    )

    test('the charge is also reversed if the reversal cannot be written at first', async () => {
      const { ledger, reach, failAppends } = await unknown(['first'])
      failAppends(8)
      reach()
      log.deliverLate()
      await rested(ledger)
      expect(adjustedCharges()).toEqual([reversal('first')])
      expect(await balanceNow()).toBe('100')
      expect(logged.filter(({ msg }) => msg.includes('its charge is being reversed'))).toHaveLength(1)
    })

    test('the charge is also reversed if the read models do not say where the lots were opened', async () => {
      const lotPlaces = () => Promise.reject(new Error('the database is down'))
      const { ledger, reach } = await unknown(['first'], { lotPlaces })
      reach()
      log.deliverLate()
      await rested(ledger)
      expect(adjustedCharges()).toEqual([reversal('first')])
      expect(await balanceNow()).toBe('100')
    })

    test('a process that stops logs the requests that might stay charged, and fails', async () => {
      const { ledger, reach } = await unknown(['first', 'second'])
      const logLines = () =>
        logged.flatMap(({ level, organizationId, requestIds }) =>
          requestIds === undefined ? [] : [[pino.levels.labels[level], organizationId, requestIds]],
        )
      await expect(ledger.drain()).rejects.toThrow('did not confirm in time')
      expect(logLines()).toEqual([['error', org, ['first', 'second']]])
      reach()
      log.deliverLate()
      await rested(ledger)
      await ledger.drain()
      expect(adjustedCharges()).toHaveLength(2)
    })

    test('a process that stops does not log calls with an Idempotency-Key, which are safe to repeat', async () => {
      const { ledger } = await unknown(['first'], keyed)
      await expect(ledger.drain()).rejects.toThrow('did not confirm in time')
      expect(logged.filter(({ requestIds }) => requestIds !== undefined)).toEqual([])
    })
  })
})

describe('rule 4: conflicts', () => {
  /** Creates process `a`, and runs `before` once, just before the first append of `a` arrives. */
  const interrupted = (before: () => Promise<unknown>): Ledger => {
    let once = true
    return processOf('a', {
      faults: {
        onAppend: async () => {
          if (!once) return undefined
          once = false
          await before()
          return undefined
        },
      },
    })
  }

  test('its own charge exists already: the answer comes from the ledger, and the call is not charged twice', async () => {
    await opened()
    const b = processOf('b')
    const ledger = interrupted(() => Promise.all([b.submit(org, call('other')), b.submit(org, call('same'))]))
    const committed = await ledger.submit(org, call('same'))
    expect(committed).toMatchObject({ revision: 5, balance: parseCredits('98'), repeated: true })
    const written = standing().slice(-2)
    expect(committed.events).toEqual(written.map(({ type, data }) => ({ type, data })))
    expect(eventsOfKey('same')).toEqual(['KeyUsed', 'CreditCharged'])
  })

  test('the same ids at the same place with other bytes: the account continues from the recorded events', async () => {
    await opened()
    const b = processOf('b')
    const dearer = command('price', {
      kind: 'override_price',
      sku: 'ip_lookup',
      amount: parseCredits('3'),
      effectiveFrom: new Date(startMs + 500).toISOString(),
    })
    await b.submit(org, dearer)
    const ledger = interrupted(() => b.submit(org, call('same')))
    nowMs += 1_000
    const mine = { ...call('same'), requestId: 'another request with the same Idempotency-Key' }
    nowMs -= 1_000
    expect(await ledger.submit(org, mine)).toMatchObject({ revision: 4, balance: parseCredits('99') })
    expect(await ledger.submit(org, call('next'))).toMatchObject({ revision: 6, balance: parseCredits('98') })
    expect(eventsOfKey('same')).toEqual(['KeyUsed', 'CreditCharged'])
  })

  /**
   * Submits commands that are decided together while another process is ahead, in a log that does not report whether an append is
   * a repetition.
   */
  const inUntellingLog = async (keyed: string[], alone: string[]) => {
    await opened()
    const b = processOf('b')
    const client = log.client('a', {
      onAppend: async ({ expected }) => {
        if (expected !== 1) return undefined
        for (const key of keyed) await b.submit(org, call(key))
        return undefined
      },
    })
    const looks: number[] = []
    const ledger = processOf('a', {
      eventLog: {
        ...client,
        append: async (...append) => ({ revision: (await client.append(...append)).revision }),
        read: async (stream, options) => {
          if (options.max === 1) looks.push(options.from ?? 0)
          return client.read(stream, options)
        },
      },
    })
    nowMs += 1_000
    const again = keyed.map((key) => ({ ...call(key), requestId: `another request with the key ${key}` }))
    const committed = Promise.all(
      [...again, ...alone.map((key) => call(key))].map((one) => ledger.submit(org, one)),
    )
    await committed
    // Ends the pause that follows an append in conflict with another process.
    nowMs += 1_000
    return { ledger, looks, committed: await committed }
  }

  test('the same ids, in a log that does not report duplicates: the place is read, and the account continues from the recorded events', async () => {
    const { ledger, looks, committed } = await inUntellingLog(['same', 'too'], [])
    expect(committed.map(({ revision }) => revision)).toEqual([3, 5])
    expect(looks).toEqual([5])
    expect(await ledger.submit(org, call('next'))).toMatchObject({ revision: 7, balance: parseCredits('97') })
    for (const key of ['same', 'too']) expect(eventsOfKey(key)).toEqual(['KeyUsed', 'CreditCharged'])
  })

  test('a call that no other process has, in a log that does not report duplicates: nothing is read, because the log refuses an append that also contains ids it already has', async () => {
    const { ledger, looks, committed } = await inUntellingLog(['same'], ['alone'])
    expect(committed).toMatchObject([
      { revision: 3, repeated: true },
      { revision: 5, repeated: false },
    ])
    expect(await ledger.submit(org, call('next'))).toMatchObject({ revision: 7, balance: parseCredits('97') })
    expect(looks).toEqual([])
    for (const key of ['same', 'alone']) expect(eventsOfKey(key)).toEqual(['KeyUsed', 'CreditCharged'])
  })

  test('a queued call whose charge already exists is also dropped, not only those in the refused batch', async () => {
    await opened()
    const b = processOf('b')
    const network = gate()
    const ledger = interrupted(network.wait)
    const first = ledger.submit(org, call('first'))
    await network.reached
    await b.submit(org, call('same'))
    const same = ledger.submit(org, call('same'))
    network.open()
    expect(await same).toMatchObject({ revision: 3, repeated: true })
    expect(await first).toMatchObject({ revision: 5, repeated: false })
    expect(eventsOfKey('same')).toEqual(['KeyUsed', 'CreditCharged'])
    expect(await balanceNow()).toBe('98')
  })

  test('a call whose charge arrives while the account is loaded is dropped', async () => {
    await opened()
    const network = gate()
    const ledger = processOf('a', { faults: { onRead: network.wait } })
    const same = ledger.submit(org, call('same'))
    await network.reached
    await processOf('b').submit(org, call('same'))
    network.open()
    expect(await same).toMatchObject({ revision: 3, repeated: true, balance: parseCredits('99') })
    expect(eventsOfKey('same')).toEqual(['KeyUsed', 'CreditCharged'])
  })

  test('charges by other processes: calls are decided again with the new balance, in the order of arrival', async () => {
    await opened({ credits: '10' })
    const b = processOf('b')
    const ledger = interrupted(() => Promise.all([b.submit(org, call('f1')), b.submit(org, call('f2'))]))
    const committed = await Promise.all(['m1', 'm2'].map((key) => ledger.submit(org, call(key))))
    expect(committed).toMatchObject([
      { revision: 7, balance: parseCredits('7'), repeated: false },
      { revision: 9, balance: parseCredits('6'), repeated: false },
    ])
    expect(attemptsBy('a').map(({ expected }) => expected)).toEqual([1, 5])
  })

  test('a call that can no longer be paid is refused and recorded at zero', async () => {
    await opened({ credits: '1' })
    const b = processOf('b')
    const ledger = interrupted(() => b.submit(org, call('foreign')))
    const { events, balance } = await ledger.submit(org, call('mine'))
    expect(events).toMatchObject([
      { type: 'KeyUsed', data: { outcome: 'refused', code: 'CREDIT_001', free_by: { rule: 'refusal' } } },
    ])
    expect(balance).toBe(0n)
    expect(eventsOfKey('mine')).toEqual(['KeyUsed'])
  })

  test('a price that another process has set in the meantime applies', async () => {
    await opened({ credits: '10' })
    const b = processOf('b')
    const dearer = command('price', {
      kind: 'override_price',
      sku: 'ip_lookup',
      amount: parseCredits('2.5'),
      effectiveFrom: new Date(nowMs).toISOString(),
    })
    const ledger = interrupted(() => b.submit(org, dearer))
    expect(await ledger.submit(org, call('mine'))).toMatchObject({ balance: parseCredits('7.5') })
  })

  test('the tail is longer than a page', async () => {
    await opened({ credits: '1000' })
    const b = processOf('b')
    const keys = Array.from({ length: 40 }, (_, i) => `f${i}`)
    let once = true
    const ledger = processOf('a', {
      limits: { readPageMax: 7 },
      faults: {
        onAppend: async () => {
          if (once) {
            once = false
            await Promise.all(keys.map((key) => b.submit(org, call(key))))
          }
          return undefined
        },
      },
    })
    const committed = await Promise.all(['f0', 'mine', 'f39'].map((key) => ledger.submit(org, call(key))))
    expect(committed.map(({ repeated }) => repeated)).toEqual([true, false, true])
    expect(committed.map(({ revision }) => revision)).toEqual([3, 83, 81])
    expect(await balanceNow()).toBe('959')
  })

  test('a lost request whose place another process took: it is certainly absent, decided again, and written once', async () => {
    await opened({ credits: '10' })
    const b = processOf('b')
    let sent = 0
    const ledger = processOf('a', {
      faults: {
        onAppend: async () => {
          sent++
          if (sent === 1) return 'late'
          if (sent === 2) await b.submit(org, call('foreign'))
          return undefined
        },
      },
    })
    expect(await ledger.submit(org, call('mine'))).toMatchObject({ revision: 5, balance: parseCredits('8') })
    expect(log.deliverLate()).toBe(false)
    expect(eventsOfKey('mine')).toEqual(['KeyUsed', 'CreditCharged'])
  })

  test('eight processes and one key: one charge; eight keys: eight charges', async () => {
    await opened()
    const processes = Array.from({ length: 8 }, (_, i) =>
      processOf(`p${i}`, {
        faults: { onAppend: () => new Promise((resolve) => setImmediate(() => resolve(undefined))) },
      }),
    )
    await Promise.all(processes.map((one) => one.lastSeen(org)))
    await Promise.all(
      processes.flatMap((one, i) => [one.submit(org, call('same')), one.submit(org, call(`own-${i}`))]),
    )
    expect(eventsOfKey('same')).toEqual(['KeyUsed', 'CreditCharged'])
    expect(await balanceNow()).toBe('91')
  })

  test('the tail cannot be read: the calls are refused, and nothing of the batch is written', async () => {
    await opened()
    const b = processOf('b')
    let readable = true
    const ledger = processOf('a', {
      faults: {
        onAppend: async () => {
          if (readable) await b.submit(org, call(`foreign-${log.attempts.length}`))
          readable = false
          return undefined
        },
        onRead: () => (readable ? undefined : 'unavailable'),
      },
    })
    await ledger.lastSeen(org)
    expect(await outcomeOf(ledger.submit(org, call('mine')))).toBe('LedgerUnavailable')
    expect(eventsOfKey('mine')).toEqual([])
  })
})

describe('the same command key in one process', () => {
  test('twice in one batch: one charge, and both get the answer', async () => {
    await opened()
    const ledger = processOf('a')
    const [one, two, other] = await Promise.all(
      ['same', 'same', 'other'].map((key) => ledger.submit(org, call(key))),
    )
    expect(two).toMatchObject({ revision: one?.revision, balance: one?.balance, events: one?.events })
    expect(other?.balance).toBe(parseCredits('98'))
    expect(attemptsBy('a')).toHaveLength(1)
    expect(eventsOfKey('same')).toEqual(['KeyUsed', 'CreditCharged'])
  })

  test('twice in one batch that has to be decided again: still one charge', async () => {
    await opened()
    const b = processOf('b')
    let once = true
    const ledger = processOf('a', {
      faults: {
        onAppend: async () => {
          if (once) {
            once = false
            await b.submit(org, call('foreign'))
          }
          return undefined
        },
      },
    })
    await Promise.all(['same', 'same'].map((key) => ledger.submit(org, call(key))))
    expect(eventsOfKey('same')).toEqual(['KeyUsed', 'CreditCharged'])
    expect(await balanceNow()).toBe('98')
  })

  test('a key repeated while the ledger is searched for another key: one charge', async () => {
    await opened()
    await processOf('b').submit(org, call('same'))
    await processOf('b').submit(org, call('later'))
    const reading = gate()
    const ledger = processOf('a', {
      faults: { onRead: (_, { from }) => (from === 4 ? reading.wait() : Promise.resolve(undefined)) },
    })
    expect((await ledger.account(org)).revision).toBe(5)
    const another = ledger.submit(org, { ...call('another'), requestId: 'another-request', absentUpTo: 3 })
    await reading.reached
    // The events of this call are before revision 4, where the search in progress starts.
    const again = ledger.submit(org, { ...call('same'), requestId: 'same-request', absentUpTo: 1 })
    reading.open()
    expect(await again).toMatchObject({ revision: 3, repeated: true })
    expect(await another).toMatchObject({ repeated: false })
    expect(eventsOfKey('same')).toEqual(['KeyUsed', 'CreditCharged'])
    expect(await balanceNow()).toBe('97')
  })

  test('repeated while the first is being written: one charge, and both get the answer', async () => {
    await opened()
    const network = gate()
    const ledger = processOf('a', { faults: { onAppend: network.wait } })
    const first = ledger.submit(org, call('same'))
    await network.reached
    const second = ledger.submit(org, call('same'))
    network.open()
    expect(await first).toMatchObject({ revision: 3, repeated: false })
    expect(await second).toMatchObject({ revision: 3, repeated: true })
    expect(eventsOfKey('same')).toEqual(['KeyUsed', 'CreditCharged'])
  })
})

describe('rule 5: credits', () => {
  test('a call that cannot be paid is refused and recorded at zero; the rest of the batch continues', async () => {
    await opened({ credits: '2.5' })
    const ledger = processOf('a')
    const keys = ['c1', 'c2', 'c3', 'free', 'c4']
    const committed = await Promise.all(
      keys.map((key) => ledger.submit(org, call(key, key === 'free' ? notLocated : located))),
    )
    expect(attemptsBy('a')).toHaveLength(1)
    expect(keys.map((key) => eventsOfKey(key))).toEqual([
      ['KeyUsed', 'CreditCharged'],
      ['KeyUsed', 'CreditCharged'],
      ['KeyUsed'],
      ['KeyUsed'],
      ['KeyUsed'],
    ])
    const outcomes = committed.map(({ events }) =>
      events[0]?.type === 'KeyUsed' ? events[0].data.outcome : '?',
    )
    expect(outcomes).toEqual(['answered', 'answered', 'refused', 'answered', 'refused'])
    expect(committed.map(({ balance }) => formatCredits(balance))).toEqual([
      '1.5',
      '0.5',
      '0.5',
      '0.5',
      '0.5',
    ])
  })

  test('a batch can spend credits that it grants', async () => {
    await opened({ credits: '0' })
    const ledger = processOf('a')
    const [unpaid, , paid] = await Promise.all(
      [call('early'), grant('g', '1'), call('late')].map((one) => ledger.submit(org, one)),
    )
    expect(unpaid?.events).toHaveLength(1)
    expect(paid?.events).toHaveLength(2)
  })
})

describe('known failures', () => {
  test('past their limit the batch is refused, nothing of it is written, and the next batch succeeds', async () => {
    await opened()
    let failing = true
    const ledger = processOf('a', {
      limits: { unavailableRetryMs: 100, unknownRetryMs: 1_000_000 },
      faults: {
        onAppend: () => {
          nowMs += 40
          return failing ? 'unavailable' : undefined
        },
      },
    })
    const outcomes = await Promise.all(['one', 'two'].map((key) => outcomeOf(ledger.submit(org, call(key)))))
    expect(outcomes).toEqual(['LedgerUnavailable', 'LedgerUnavailable'])
    expect(attemptsBy('a').length).toBeGreaterThan(1)
    failing = false
    expect(await ledger.submit(org, call('three'))).toMatchObject({
      revision: 3,
      balance: parseCredits('99'),
    })
  })

  test.each(['the log', 'the snapshot'])(
    '%s cannot be read when the account is loaded: refused, and the next call works',
    async (what) => {
      await opened()
      let readable = false
      const ledger = processOf('a', {
        faults: { onRead: () => (readable || what !== 'the log' ? undefined : 'unavailable') },
        snapshot: async () => {
          if (!readable && what === 'the snapshot') throw new Error('no database')
          return null
        },
      })
      expect(await outcomeOf(ledger.submit(org, call('first')))).toBe('LedgerUnavailable')
      readable = true
      expect(await ledger.submit(org, call('second'))).toMatchObject({ revision: 3 })
    },
  )
})

describe('rule 6: loading the account', () => {
  /** A ledger with every kind of event. */
  const history = async (): Promise<void> => {
    await opened({ credits: '3', overdraft: '2' })
    const ledger = processOf('writer')
    const steps: LedgerCommand[] = [
      call('h1'),
      grant('short', '1.25', new Date(startMs + 1_000).toISOString()),
      call('h2'),
      call('h3', notLocated),
      command('price', {
        kind: 'override_price',
        sku: 'ip_lookup',
        amount: parseCredits('0.75'),
        effectiveFrom: new Date(nowMs).toISOString(),
      }),
      ...['h4', 'h5', 'h6', 'h7', 'h8'].map((key) => call(key)),
      grant('later', '4'),
      call('h9'),
    ]
    for (const step of steps) await ledger.submit(org, step)
    nowMs += 2_000
    await ledger.submit(org, sweep('short'))
    await ledger.submit(org, call('h10'))
  }

  test('snapshot and tail give the same account as the whole stream, for a snapshot at any revision', async () => {
    await history()
    const whole = folded(standing().length)
    expect(whole.revision).toBeGreaterThan(15)
    for (let cut = 0; cut <= standing().length; cut++)
      expect(
        await processOf('a', { snapshot: snapshotAfter(() => cut) }).account(org),
        `cut after ${cut}`,
      ).toEqual(whole)
  })

  test('only the stream after the snapshot is read', async () => {
    await history()
    const from: (number | undefined)[] = []
    const ledger = processOf('a', {
      snapshot: snapshotAfter(() => 6),
      faults: {
        onRead: (_, options) => {
          from.push(options.from)
          return undefined
        },
      },
    })
    await ledger.submit(org, call('next'))
    await ledger.submit(org, call('after'))
    // The read begins with the snapshot's last event, to compare it.
    expect(from).toEqual([5])
  })

  test('a command of which the snapshot contains half is answered completely', async () => {
    await opened()
    const { events } = await processOf('b').submit(org, call('same'))
    expect(events).toHaveLength(2)
    const ledger = processOf('a', { snapshot: snapshotAfter(() => 3) })
    expect(
      await ledger.submit(org, { ...call('same'), requestId: 'same-request', absentUpTo: 1 }),
    ).toMatchObject({ events, revision: 3, repeated: true })
  })

  test('`account` includes the writes of other processes; `lastSeen` reads nothing', async () => {
    await opened()
    let reads = 0
    const ledger = processOf('a', {
      faults: {
        onRead: () => {
          reads++
          return undefined
        },
      },
    })
    await ledger.lastSeen(org)
    await processOf('b').submit(org, call('foreign'))
    expect(balanceOf(await ledger.account(org), nowMs)).toBe(parseCredits('99'))
    const before = reads
    await ledger.lastSeen(org)
    expect(reads).toBe(before)
  })

  test('`lastSeen` is never behind the commits of its own process', async () => {
    await opened()
    const slow = gate()
    const client = log.client('a')
    let reads = 0
    const slowFirstReply: EventLog['read'] = async (stream, options) => {
      const first = ++reads === 1
      const page = await client.read(stream, options)
      if (first) await slow.wait()
      return page
    }
    const ledger = processOf('a', { eventLog: { ...client, read: slowFirstReply } })
    const early = ledger.lastSeen(org)
    await slow.reached
    const committed = Promise.all([ledger.submit(org, call('first')), ledger.submit(org, call('second'))])
    const settled = await Promise.race([
      committed,
      new Promise<null>((resolve) => setTimeout(() => resolve(null), 200)),
    ])
    slow.open()
    await early
    const revision = Math.max(...(settled ?? (await committed)).map((one) => one.revision))
    expect((await ledger.lastSeen(org)).revision).toBeGreaterThanOrEqual(revision)
  })

  test('idle accounts beyond the limit are removed from memory and loaded again', async () => {
    const ids = ['1', '2', '3', '4'].map((digit) => `org_01K9XXXXXXXXXXXXXXXXXXXXX${digit}`)
    for (const organizationId of ids) await opened({ organizationId })
    const ledger = processOf('a', { limits: { accountsMax: 2 } })
    for (let round = 0; round < 3; round++)
      for (const organizationId of ids) await ledger.submit(organizationId, call(`round-${round}`))
    for (const organizationId of ids) expect(await balanceNow(organizationId)).toBe('97')
  })

  test('work on all ledgers removes accounts that are not used, and keeps an account that is used in between', async () => {
    const ids = ['1', '2', '3', '4', '5'].map((digit) => `org_01K9XXXXXXXXXXXXXXXXXXXXX${digit}`)
    const [used = '', ...others] = ids
    for (const organizationId of ids) await opened({ organizationId })
    let reads = 0
    const onRead = (stream: string): undefined => {
      if (stream === ledgerStream(used)) reads++
    }
    const ledger = processOf('a', { faults: { onRead }, limits: { accountsMax: 2 } })
    await ledger.submit(used, call('first'))
    const before = reads
    for (const organizationId of others) {
      await ledger.submit(organizationId, call('other'))
      await ledger.submit(used, call(`after ${organizationId}`))
    }
    expect(reads).toBe(before)
  })
})

describe('rule 7: the hash chain', () => {
  test('identifies the first event with any change', async () => {
    await opened()
    const ledger = processOf('a')
    for (const key of ['c1', 'c2', 'c3']) await ledger.submit(org, call(key))
    const sound = log.eventsOf(ledgerStream(org))
    const tampered = async (change: (events: typeof sound) => typeof sound) => {
      const events = change(sound)
      const eventLog: EventLog = {
        ...log.client('auditor'),
        read: async (_, { from = 0, max }) => events.slice(from, from + max),
      }
      return (await verifyLedger(eventLog, org)).fault?.revision
    }
    const replaceAt = (at: number, change: Partial<(typeof sound)[number]>) => (events: typeof sound) =>
      events.map((event, i) => (i === at ? { ...event, ...change } : event))
    const data = sound[3]?.data ?? ''
    const metadata = sound[3]?.metadata ?? ''
    expect(await tampered((events) => events)).toBeUndefined()
    expect(await tampered(replaceAt(3, { data: data.replace('"amount":"1"', '"amount":"0"') }))).toBe(3)
    expect(await tampered(replaceAt(3, { data: `${data} ` }))).toBe(3)
    expect(await tampered(replaceAt(3, { metadata: metadata.replace('2026', '2025') }))).toBe(3)
    expect(await tampered(replaceAt(3, { id: eventIdOf(org, 'forged', 0) }))).toBe(3)
    expect(await tampered(replaceAt(3, { type: 'CreditExpired' }))).toBe(3)
    expect(await tampered(replaceAt(3, { metadata: '{"schema_version":1}' }))).toBe(3)
    const renumbered = (events: typeof sound) => events.map((event, revision) => ({ ...event, revision }))
    expect(await tampered((events) => events.filter((_, i) => i !== 4))).toBe(5)
    expect(await tampered((events) => renumbered(events.filter((_, i) => i !== 4)))).toBe(4)
    expect(
      await tampered((events) =>
        renumbered([...events.slice(0, 4), ...events.slice(6), ...events.slice(4, 6)]),
      ),
    ).toBe(4)
  })
})

test('drain waits until everything in the queue is done', async () => {
  await opened()
  const ledger = processOf('a', {
    faults: { onAppend: () => new Promise((resolve) => setImmediate(() => resolve(undefined))) },
  })
  const outcomes: string[] = []
  for (let i = 0; i < 10; i++)
    void outcomeOf(ledger.submit(org, call(`c${i}`))).then((outcome) => outcomes.push(outcome))
  await ledger.drain()
  expect(outcomes).toHaveLength(10)
})
