/**
 * The event log in EventStoreDB: the contract of every event log, and this engine's behaviour when connections break,
 * subscriptions end or the server stops answering. The tests use a double of the server, or a real server if TEST_EVENTSTORE_URL
 * names one.
 */
import { type AddressInfo, createServer } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { EventStoreDBClient, jsonEvent } from '@eventstore/db-client'
import { pino } from 'pino'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { appendNext } from '../../src/event-log/append-next.ts'
import { appendUntilKnown as appendOfOurs, appendPatience } from '../../src/event-log/append-until-known.ts'
import { redactedUrl } from '../../src/event-log/eventstoredb/client.ts'
import { type EventStoreDbLimits, openEventStoreDb } from '../../src/event-log/eventstoredb/index.ts'
import {
  AppendConflict,
  type EventLog,
  EventsUnreadable,
  LogRewritten,
  logStart,
  type NewEvent,
  type Position,
  placeOf,
  type RecordedEvent,
  StreamMissing,
  stillHolds,
  TooLarge,
  Unavailable,
  UnknownOutcome,
} from '../../src/event-log/port.ts'
import { openablePages } from '../../src/event-log/read-openable.ts'
import { verifyLedger } from '../../src/ledger/check/verify.ts'
import {
  type EventStoreDouble,
  type EventStoreDoubleOptions,
  startEventStoreDouble,
} from '../support/eventstore-double.ts'
import { takesAtMost } from '../support/takes-at-most.ts'
import { startTcpProxy } from '../support/tcp-proxy.ts'
import {
  appendUntilKnown,
  asWritten,
  caughtUp,
  eventLogContract,
  freshStream,
  type LogUnderTest,
  newEvent,
  newEvents,
  readAll,
  reading,
  readToEnd,
} from './event-log.ts'

const logger = pino({ level: 'silent' })
const quick: Partial<EventStoreDbLimits> = { heartbeatMs: 300 }
/** The adapter's own timeouts, shortened. */
const impatient: Partial<EventStoreDbLimits> = {
  connectTimeoutMs: 1_000,
  appendDeadlineMs: 400,
  readSilenceMs: 400,
  heartbeatMs: 300,
}

type DoubleLog = LogUnderTest & { readonly double: EventStoreDouble }

const open = async ({
  limits = quick,
  prefix,
  ...options
}: EventStoreDoubleOptions & {
  limits?: Partial<EventStoreDbLimits>
  prefix?: string
} = {}): Promise<DoubleLog> => {
  const double = await startEventStoreDouble({ writeTimeoutMs: 300, ...options })
  const { clients, client } = clientsOf(() => openEventStoreDb({ url: double.url, prefix, logger, limits }))
  return {
    double,
    eventLog: client(),
    reopen: async () => client(),
    restore: double.restore,
    close: async () => {
      await Promise.all(clients.map((one) => one.close()))
      await double.close()
    },
  }
}

/** Opens clients, and closes those that are still open when the test ends. */
const clientsOf = (openClient: () => EventLog) => {
  const clients: EventLog[] = []
  const client = (): EventLog => {
    const opened = openClient()
    let closing: Promise<void> | undefined
    const once = {
      ...opened,
      close: () => {
        closing ??= opened.close()
        return closing
      },
    }
    clients.push(once)
    return once
  }
  return { clients, client }
}

const openSilenceable = async () => {
  const log = await open({ limits: impatient, coldMs: 600 })
  return { ...log, silence: log.double.silence, speak: log.double.speak, settlesWithinMs: 3_000 }
}

/** A server that other logs use too. Their events are before, between and after our events, in streams with similar names. */
const openShared = async (): Promise<DoubleLog> => {
  const log = await open({
    prefix: 'enrichment-',
    version: '23.10',
    systemEventEvery: 3,
    saysCaughtUp: false,
  })
  const others = openEventStoreDb({ url: log.double.url, logger, limits: quick })
  const foreign = { metadata: '', type: 'OrderPlaced' }
  for (const stream of ['ledger-a', 'key-theirs', 'enrichment'])
    await others.append(stream, 'none', [newEvent(foreign), newEvent(foreign)])
  await others.close()
  return log
}
eventLogContract(
  'EventStoreDB 23.10 shared with others, with a prefix, played by a double that also writes its own events and never reports "caught up"',
  { open: openShared, openSilenceable },
)

describe('the connection string', () => {
  test('is shown without its user and password', () => {
    expect(redactedUrl('esdb://admin:change@it@example.test:2113?tls=true')).toBe(
      'esdb://***@example.test:2113?tls=true',
    )
    expect(redactedUrl('esdb+discover://a.test,b.test')).toBe('esdb+discover://a.test,b.test')
  })

  test.each([
    'esdb://admin:sesame@',
    'esdb://admin:sesame@example.test:port',
    'http://admin:sesame@example.test',
    'esdb://admin:sesame@example.test?tlsVerifyCert=false',
    'esdb://admin:sesame@example.test?colour=red',
    'esdb://admin:sesame@example.test?nodePreference=follower',
    'esdb://admin:open?sesame@example.test',
    'esdb://admin:open?sesame=1@example.test',
    'esdb://admin:sesame@example.test?tlsCAFile=/nowhere/sesame',
  ])('that cannot be used is refused, with its secret in neither error nor output', (url) => {
    const printed: unknown[] = []
    const warn = console.warn
    console.warn = (...parts: unknown[]) => void printed.push(...parts)
    try {
      openEventStoreDb({ url, logger })
      throw new Error('it was accepted')
    } catch (error) {
      if (!(error instanceof Error)) throw error
      expect(error.message).not.toBe('it was accepted')
      expect(`${error.message} ${error.stack} ${JSON.stringify(error)}`.split('?')[0]).not.toContain('sesame')
      expect(error.cause).toBeUndefined()
    } finally {
      console.warn = warn
    }
    expect(printed.join(' ')).not.toContain('sesame')
  })

  test('with credentials that will not be sent causes a warning that does not show them', () => {
    const lines: string[] = []
    const collecting = pino({ level: 'warn' }, { write: (line: string) => void lines.push(line) })
    openEventStoreDb({ url: 'esdb://admin:sesame@example.test?tls=false', logger: collecting })
    openEventStoreDb({ url: 'esdb://admin:sesame@example.test', logger: collecting })
    expect(lines).toHaveLength(1)
    expect(lines.join()).toContain('the user and password are not sent')
    expect(lines.join()).not.toContain('sesame')
  })
})

describe('the event log in EventStoreDB, over the double', () => {
  let log: DoubleLog
  let eventLog: EventLog
  let double: EventStoreDouble
  const using = async (options: Parameters<typeof open>[0]): Promise<void> => {
    await log.close()
    log = await open(options)
    eventLog = log.eventLog
    double = log.double
  }
  beforeEach(async () => {
    log = await open()
    eventLog = log.eventLog
    double = log.double
  })
  afterEach(() => log.close())

  describe('36 a lost reply', () => {
    test.each([
      { fault: 'lose-reply', there: 2 },
      { fault: 'end-call', there: 2 },
      { fault: 'cut', there: 2 },
      { fault: 'lose-request', there: 0 },
      { fault: 'server-timeout', there: 2 },
      { fault: 1_500, there: 2 },
    ] as const)(
      '$fault: the outcome is unknown within the deadline, and the identical append converges',
      async ({ fault, there }) => {
        await using({ limits: impatient })
        await eventLog.append('ledger-a', 'none', newEvents(1))
        const events = newEvents(2)
        let faults = 0
        double.onAppend = () => (faults++ === 0 ? fault : undefined)
        const append = eventLog.append('ledger-a', 0, events)
        await expect(takesAtMost(1_400, append)).rejects.toThrow(UnknownOutcome)
        expect(double.eventsOf('ledger-a')).toHaveLength(1 + there)
        expect(await eventLog.append('ledger-a', 0, events)).toEqual({ revision: 2 })
        expect(await eventLog.append('ledger-a', 0, events)).toEqual({ revision: 2 })
        expect((await readAll(eventLog, 'ledger-a')).slice(1).map(asWritten)).toEqual(events)
      },
    )

    test('closes the connection: the outcome of other requests on it is unknown too, and each is resolved by resending', async () => {
      await using({ limits: impatient })
      const appends = Array.from({ length: 20 }, () => ({ stream: freshStream(), events: newEvents(1) }))
      double.onAppend = () => 'lose-reply'
      const outcomes = await Promise.allSettled(
        appends.map(({ stream, events }) => eventLog.append(stream, 'none', events)),
      )
      for (const outcome of outcomes) expect(outcome).toMatchObject({ reason: expect.any(UnknownOutcome) })
      double.onAppend = undefined
      for (const { stream, events } of appends) {
        expect(await eventLog.append(stream, 'none', events)).toEqual({ revision: 0 })
        expect(double.eventsOf(stream)).toHaveLength(1)
      }
    })

    test('is resolved by resending even after the server has restarted and lost the recent ids', async () => {
      const events = newEvents(2)
      double.onAppend = () => 'cut'
      await expect(eventLog.append('ledger-a', 'none', events)).rejects.toThrow(UnknownOutcome)
      double.onAppend = undefined
      await double.restart()
      expect(await appendUntilKnown(eventLog, 'ledger-a', 'none', events)).toEqual({ revision: 1 })
      expect(double.eventsOf('ledger-a')).toHaveLength(2)
    })
  })

  test('36 an append resent while the first copy is being written is dropped, so its outcome is unknown until it is sent again', async () => {
    await using({ replicationMs: 200 })
    const events = newEvents(2)
    const [first, again] = await Promise.allSettled([
      eventLog.append('ledger-a', 'none', events),
      (await log.reopen()).append('ledger-a', 'none', events),
    ])
    expect([first.status, again.status].sort()).toEqual(['fulfilled', 'rejected'])
    const dropped = first.status === 'rejected' ? first : again
    expect(dropped).toMatchObject({ reason: expect.any(UnknownOutcome) })
    expect(await eventLog.append('ledger-a', 'none', events)).toEqual({ revision: 1 })
    expect(double.eventsOf('ledger-a')).toHaveLength(2)
  })

  describe('refusals of the server', () => {
    test.each(['bad-request', 'not-ready'] as const)(
      '%s on a resend does not decide the outcome of the first copy, which is found or stays unknown',
      async (refusal) => {
        await using({ limits: impatient })
        const events = newEvents(2)
        let sends = 0
        double.onAppend = () => (sends++ === 0 ? 'lose-reply' : sends < 4 ? refusal : undefined)
        expect(await appendOfOurs(eventLog, 'ledger-a', 'none', events)).toEqual({ revision: 1 })
        sends = 0
        double.onAppend = () => (sends++ === 0 ? 'lose-reply' : refusal)
        const patience = { ...appendPatience, unknownMs: 200 }
        await expect(appendOfOurs(eventLog, 'ledger-a', 1, newEvents(1), patience)).rejects.toThrow(
          UnknownOutcome,
        )
        expect(double.eventsOf('ledger-a')).toHaveLength(3)
      },
    )

    test.each(['not-ready', 'busy', 'no-leader', 'deny', 'bad-request'] as const)(
      '%s means unavailable, and certainly not written',
      async (fault) => {
        double.onAppend = () => fault
        await expect(eventLog.append('ledger-a', 'none', newEvents(1))).rejects.toThrow(Unavailable)
        double.onAppend = undefined
        await expect(readAll(eventLog, 'ledger-a')).rejects.toThrow(StreamMissing)
        expect(await eventLog.append('ledger-a', 'none', newEvents(1))).toEqual({ revision: 0 })
      },
    )

    test('after a conflict without a revision in the answer, the adapter looks the revision up', async () => {
      await eventLog.append('ledger-a', 'none', newEvents(3))
      double.onAppend = () => 'hide-actual'
      await expect(eventLog.append('ledger-a', 0, newEvents(1))).rejects.toMatchObject({
        constructor: AppendConflict,
        actual: 2,
      })
      await expect(eventLog.append('ledger-b', 4, newEvents(1))).rejects.toMatchObject({ actual: -1 })
    })

    test("an append above the server's own size limit is refused as too large", async () => {
      await using({ maxAppendSize: 10_000 })
      const wide = newEvent({ data: `"${'a'.repeat(20_000)}"` })
      await expect(eventLog.append('ledger-a', 'none', [wide])).rejects.toThrow(TooLarge)
    })
  })

  describe('35 a cut connection', () => {
    test('is replaced without any effect if it was idle', async () => {
      await eventLog.append('ledger-a', 'none', newEvents(1))
      await readAll(eventLog, 'ledger-a')
      double.cutConnections()
      while (double.connections > 0) await sleep(5)
      await sleep(20)
      expect(await eventLog.append('ledger-a', 0, newEvents(1))).toEqual({ revision: 1 })
      expect(await readAll(eventLog, 'ledger-a')).toHaveLength(2)
    })

    test.each([
      { how: 'cut', end: (one: EventStoreDouble) => one.cutConnections() },
      { how: 'ended politely', end: (one: EventStoreDouble) => one.endSubscriptions() },
      { how: 'lost with the server, which restarts', end: (one: EventStoreDouble) => one.restart() },
    ])(
      'under a subscription, $how repeatedly: it resumes without a gap and without a duplicate',
      async ({ end }) => {
        const writer = await log.reopen()
        const readers = [[], ['ledger-']].map((prefixes) => reading(eventLog, { prefixes, batchMax: 3 }))
        await Promise.all(readers.map((reader) => reader.until(caughtUp)))
        const written: NewEvent[] = []
        for (let round = 0; round < 4; round++) {
          for (let n = 0; n < 15; n++) {
            const events = newEvents(1)
            const expected = written.length === 0 ? 'none' : written.length - 1
            if (n === 7) await end(double)
            await appendUntilKnown(writer, 'ledger-a', expected, events)
            written.push(...events)
          }
          for (const reader of readers) await reader.until((now) => now.events().length >= written.length)
        }
        for (const reader of readers) {
          await reader.stop()
          expect(reader.events().map(asWritten)).toEqual(written)
          expect(reader.items.filter(({ kind }) => kind === 'caught-up')).toHaveLength(1)
        }
      },
    )

    test.each([{ prefixes: ['ledger-'] }, { prefixes: [] }])(
      'or a subscription that stalls silently is found by the heartbeat: prefixes $prefixes',
      async ({ prefixes }) => {
        await using({ limits: impatient })
        const reader = reading(eventLog, { prefixes })
        await reader.until(caughtUp)
        double.stallSubscriptions = true
        const events = newEvents(3)
        await eventLog.append('ledger-a', 'none', events)
        // After resuming, the subscription delivers the events that were written in the meantime, and stalls again.
        await reader.until((now) => now.events().length === 3)
        await reader.stop()
        expect(reader.events().map(asWritten)).toEqual(events)
      },
    )

    test('a subscription leaves a server that stops answering, and resumes when the server answers again', async () => {
      await using({ limits: impatient })
      const reader = reading(eventLog)
      await reader.until(caughtUp)
      double.silence()
      const events = newEvents(2)
      await expect(eventLog.append('ledger-a', 'none', events)).rejects.toThrow(UnknownOutcome)
      await sleep(900)
      double.speak()
      await appendUntilKnown(eventLog, 'ledger-a', 'none', events)
      await reader.until((now) => now.events().length === 2)
      await reader.stop()
      expect(reader.events().map(asWritten)).toEqual(events)
    })
  })

  test('37 on a network that drops everything, every request settles, and repeating it succeeds over a new connection', async () => {
    const proxy = await startTcpProxy({ host: '127.0.0.1', port: double.port })
    const own = openEventStoreDb({
      url: `esdb://127.0.0.1:${proxy.port}?tls=false`,
      logger,
      limits: impatient,
    })
    const events = newEvents(1)
    await own.append('ledger-a', 'none', newEvents(1))
    await readAll(own, 'ledger-a')
    const reader = reading(own, { after: await own.head() })
    await reader.until(caughtUp)
    proxy.freeze()
    const asking = Promise.allSettled([
      own.append('ledger-a', 0, events),
      readAll(own, 'ledger-a'),
      own.head(),
    ])
    const [append, read, head] = await takesAtMost(1_500, asking)
    expect(append).toMatchObject({ reason: expect.any(UnknownOutcome) })
    for (const asked of [read, head]) expect(asked).toMatchObject({ reason: expect.any(Unavailable) })
    // The client has to connect again and finds no server behind the proxy, so it is certain that nothing was sent.
    await expect(own.append('ledger-a', 0, events)).rejects.toThrow(Unavailable)
    proxy.thaw()
    expect(await appendUntilKnown(own, 'ledger-a', 0, events)).toEqual({ revision: 1 })
    await reader.until((now) => now.events().length === 1)
    await reader.stop()
    await own.close()
    await proxy.close()
  })

  test('37 a server that refuses all connections is reported as unavailable immediately, for appends and reads', async () => {
    await double.refuse()
    const refused = async (): Promise<void> => {
      await expect(eventLog.append('ledger-a', 'none', newEvents(1))).rejects.toThrow(Unavailable)
      await expect(readAll(eventLog, 'ledger-a')).rejects.toThrow(Unavailable)
      await expect(eventLog.head()).rejects.toThrow(Unavailable)
    }
    await takesAtMost(2_000, refused())
    const reader = reading(eventLog)
    await sleep(50)
    await double.accept()
    expect(await eventLog.append('ledger-a', 'none', newEvents(1))).toEqual({ revision: 0 })
    await reader.until((now) => now.events().length === 1)
    await reader.stop()
  })

  test('38 a closed log soon closes its connections', async () => {
    await eventLog.append('ledger-a', 'none', newEvents(1))
    await readAll(eventLog, 'ledger-a')
    const reader = reading(eventLog)
    await reader.until(caughtUp)
    expect(double.connections).toBe(3)
    await eventLog.close()
    await expect(reader.until(() => false)).rejects.toThrow('ended')
    await expect.poll(() => double.subscriptions, { timeout: 2_000 }).toBe(0)
    // The client's gRPC library looks for idle connections every ten seconds.
    await expect.poll(() => double.connections, { timeout: 15_000 }).toBe(0)
  })

  test('39 two clients in one process are isolated: a broken call of one client affects no call of the other', async () => {
    const other = await log.reopen()
    await eventLog.append('ledger-a', 'none', newEvents(1))
    let held = 0
    double.onAppend = ({ stream }) => {
      if (stream === 'ledger-slow') return 600
      return held++ === 0 ? 'end-call' : undefined
    }
    const slow = other.append('ledger-slow', 'none', newEvents(1))
    while (double.appends < 2) await sleep(5)
    await expect(eventLog.append('ledger-a', 0, newEvents(1))).rejects.toThrow(UnknownOutcome)
    expect(await slow).toEqual({ revision: 0 })
  })

  describe('33 idle', () => {
    test.each([{ wrongCheckpoints: true }, { wrongCheckpoints: false }])(
      'is reported only for proved positions, even if checkpoints claim more: wrong $wrongCheckpoints',
      async ({ wrongCheckpoints }) => {
        double.wrongCheckpoints = wrongCheckpoints
        const reader = reading(eventLog, { prefixes: ['rare-'] })
        await reader.until(caughtUp)
        const matches: RecordedEvent[] = []
        for (let round = 0; round < 3; round++) {
          for (let n = 0; n < 4; n++) await eventLog.append(freshStream(), 'none', newEvents(300))
          await eventLog.append(`rare-${round}`, 'none', newEvents(1))
          matches.push(...(await readAll(eventLog, `rare-${round}`)))
          await eventLog.append(freshStream(), 'none', newEvents(300))
        }
        const head = await eventLog.head()
        await reader.until(({ items }) => (items.at(-1)?.position ?? logStart) >= head)
        await reader.stop()
        expect(reader.events()).toEqual(matches)
        let delivered = 0
        for (const item of reader.items) {
          if (item.kind === 'events') delivered += item.events.length
          expect(matches.filter(({ position }) => position <= item.position)).toHaveLength(delivered)
          expect(item.position <= head).toBe(true)
        }
      },
    )

    test('is also reported while others write without pauses', async () => {
      const reader = reading(eventLog, { prefixes: ['rare-'] })
      await reader.until(caughtUp)
      const from = reader.items.at(-1)?.position ?? logStart
      let writing = true
      const writes = (async () => {
        while (writing) await eventLog.append(freshStream(), 'none', newEvents(600))
      })()
      await reader.until(({ items }) => items.filter(({ kind }) => kind === 'idle').length >= 2)
      writing = false
      await writes
      await reader.stop()
      expect(reader.items.at(-1)?.position).toBeGreaterThan(from)
    })

    test("the server's own events advance a subscription, but are never delivered", async () => {
      await using({ systemEventEvery: 1 })
      const reader = reading(eventLog)
      await eventLog.append('ledger-a', 'none', newEvents(2))
      await reader.until(({ items }) => items.at(-1)?.kind === 'idle')
      const head = await eventLog.head()
      expect(reader.items.at(-1)?.position).toBeGreaterThan(head)
      await eventLog.append('ledger-a', 1, newEvents(1))
      await reader.until((now) => now.events().length === 3)
      await reader.stop()
      expect(reader.events().map(({ stream }) => stream)).toEqual(['ledger-a', 'ledger-a', 'ledger-a'])
      expect(await eventLog.head()).toBe(reader.events().at(-1)?.position)
    })
  })

  test('32 a subscription from a position without an event, such as just before an event, resumes right after that position', async () => {
    await eventLog.append('ledger-a', 'none', newEvents(5))
    const all = await readAll(eventLog, 'ledger-a')
    for (const [n, event] of all.entries()) {
      const reader = await readToEnd(eventLog, {
        after: event.position - 1n,
        prefixes: n % 2 === 0 ? [] : ['ledger-'],
      })
      expect(reader.events()).toEqual(all.slice(n))
    }
  })

  describe.each(['23.10', '24.10'] as const)('41 a server with a temporary fault, %s', (version) => {
    let recorded: RecordedEvent[]
    const third = (): RecordedEvent => {
      const event = recorded[2]
      if (event === undefined) throw new Error('nothing was read')
      return event
    }
    beforeEach(async () => {
      await using({ version })
      await eventLog.append('ledger-a', 'none', newEvents(5))
      recorded = await readAll(eventLog, 'ledger-a')
    })

    test('for a moment: the event at the position is found', async () => {
      let troubled = 0
      double.troubleAt = (position) => position === third().position && troubled++ === 0
      expect(await eventLog.at(third().position)).toEqual(third())
      expect(troubled).toBe(2)
    })

    test.each([
      { how: 'at its end too', at: null },
      { how: 'everywhere', at: 'everywhere' },
    ] as const)('$how: the position is not judged', async ({ at }) => {
      const { position } = third()
      double.troubleAt = (asked) => at === 'everywhere' || asked === null || asked === position
      await expect(eventLog.at(position)).rejects.toThrow(Unavailable)
      await expect(stillHolds(eventLog, placeOf(third()))).rejects.toThrow(Unavailable)
      await expect(eventLog.at(position + 1n)).rejects.toThrow(Unavailable)
      await expect(eventLog.lookBack({ before: position, max: 10 })).rejects.toThrow(Unavailable)
    })

    test('events before a faulty position are still delivered', async () => {
      let troubled = 0
      double.troubleAt = (position) => position === third().position && troubled++ === 0
      await expect(eventLog.lookBack({ before: third().position, max: 10 })).rejects.toThrow(Unavailable)
      const { events } = await eventLog.lookBack({ before: third().position, max: 10 })
      expect(events).toEqual([recorded[1], recorded[0]])
      expect(await eventLog.lookBack({ before: third().position + 1n, max: 10 })).toMatchObject({
        events: [],
      })
    })

    test('a subscription that cannot start continues from its position, not from the start of the log', async () => {
      const troubled: (bigint | null)[] = []
      double.troubleAt = (position) => {
        if (position !== third().position) return false
        troubled.push(position)
        // The adapter first reads the last event that the subscription delivered. Then the subscription is refused.
        return troubled.length === 2
      }
      const opened = logger.child({})
      const errors: unknown[] = []
      opened.error = (fields: unknown) => void errors.push(fields)
      const own = openEventStoreDb({ url: double.url, logger: opened, limits: quick })
      const { events } = await readToEnd(own, {
        after: third().position,
        known: placeOf(third()),
        prefixes: [],
      })
      await own.close()
      expect(events()).toEqual(recorded.slice(3))
      expect(troubled.length).toBeGreaterThan(2)
      expect(errors).toEqual([])
    })

    test.each([
      { how: 'refuses all connections', end: () => double.refuse() },
      { how: 'says nothing', end: () => double.silence() },
    ])('a server that $how does not judge a position', async ({ end }) => {
      const impatientLog = openEventStoreDb({ url: double.url, logger, limits: impatient })
      expect(await impatientLog.at(third().position + 1n)).toBeNull()
      await end()
      await expect(impatientLog.at(third().position + 1n)).rejects.toThrow(Unavailable)
      await impatientLog.close()
    })
  })

  test('if the log no longer contains an event that it delivered, its subscriptions fail with an error', async () => {
    await eventLog.append('ledger-a', 'none', newEvents(5))
    const reader = reading(eventLog)
    await reader.until(caughtUp)
    const { port } = double
    await double.close()
    const restored = await startEventStoreDouble({ port })
    await expect(reader.until(() => false)).rejects.toMatchObject({ cause: { name: 'LogRewritten' } })
    await restored.close()
  })

  test('34 a subscriber that the server drops because it is slow resumes without losing events', async () => {
    double.dropSlowerThan = 4
    const stopping = new AbortController()
    const slow = eventLog.subscribe({ after: logStart, prefixes: [], batchMax: 5, signal: stopping.signal })
    const written: NewEvent[] = []
    const seen: NewEvent[] = []
    const large = () => newEvent({ data: `"${'x'.repeat(45_000)}"` })
    for await (const item of slow) {
      if (item.kind === 'events') seen.push(...item.events.map(asWritten))
      if (written.length < 120) {
        const events = Array.from({ length: 20 }, large)
        await eventLog.append('ledger-a', written.length === 0 ? 'none' : written.length - 1, events)
        written.push(...events)
        await sleep(20)
      }
      if (seen.length === 120) stopping.abort()
    }
    expect(seen.map(({ id }) => id)).toEqual(written.map(({ id }) => id))
  })

  test('the server is also found through gossip', async () => {
    for (const hosts of [
      `esdb+discover://127.0.0.1:${double.port}`,
      `esdb://127.0.0.1:${double.port},127.0.0.1:${double.port}`,
    ]) {
      const own = openEventStoreDb({
        url: `${hosts}?tls=false&keepAliveTimeout=-1&nodePreference=leader`,
        logger,
      })
      expect(await own.append(freshStream(), 'none', newEvents(1))).toEqual({ revision: 0 })
      await own.close()
    }
  })

  test('a cluster answers even if one of the named hosts never does, or its name no longer resolves', async () => {
    const silentServer = createServer()
    await new Promise<void>((resolve) => silentServer.listen(0, '127.0.0.1', resolve))
    const { port } = silentServer.address() as AddressInfo
    try {
      // The client tries the hosts in its own order.
      for (let n = 0; n < 6; n++) {
        for (const silent of [`127.0.0.1:${port}`, 'gone.invalid:2113']) {
          const url = `esdb://${silent},127.0.0.1:${double.port}?tls=false`
          const own = openEventStoreDb({ url, logger })
          expect(await own.append(freshStream(), 'none', newEvents(1))).toEqual({ revision: 0 })
          await own.close()
        }
      }
    } finally {
      silentServer.close()
    }
  })

  describe('a stream from which the server no longer returns all events', () => {
    const withClient = async (use: (client: EventStoreDBClient) => Promise<unknown>): Promise<void> => {
      const client = EventStoreDBClient.connectionString(double.url)
      try {
        await use(client)
      } finally {
        await client.dispose()
      }
    }

    test.each([{ truncateBefore: 2 }, { maxCount: 1 }])(
      '%j: the missing events are named',
      async (metadata) => {
        const events = newEvents(3)
        await eventLog.append('ledger-a', 'none', events)
        await withClient((client) => client.setStreamMetadata('ledger-a', metadata))
        const refused = eventLog.read('ledger-a', { max: 10 })
        await expect(refused).rejects.toThrow(EventsUnreadable)
        await expect(refused).rejects.toThrow('revisions 0 to 1 of ledger-a')
        await expect(eventLog.read('ledger-a', { from: 1, max: 1 })).rejects.toThrow('revision 1 of ledger-a')
        expect((await eventLog.read('ledger-a', { from: 2, max: 10 })).map(asWritten)).toEqual(
          events.slice(2),
        )
        expect(await eventLog.append('ledger-a', 2, newEvents(1))).toEqual({ revision: 3 })
      },
    )

    test.each([{ truncateBefore: 3 }, { maxAge: 1 }])(
      '%j: a stream whose events are all hidden is not an empty one, nor one that ends at a known event',
      async (metadata) => {
        await eventLog.append('pricebook', 'none', newEvents(3))
        await withClient((client) => client.setStreamMetadata('pricebook', metadata))
        for (const options of [
          { max: 10 },
          { from: 1, max: 10 },
          { from: 2, max: 10 },
          { direction: 'backwards', max: 1 },
          { direction: 'backwards', from: 1, max: 10 },
        ] as const)
          await expect
            .poll(() => eventLog.read('pricebook', options).catch((error: unknown) => error), {
              timeout: 5_000,
            })
            .toBeInstanceOf(EventsUnreadable)
        await expect(appendNext(eventLog, 'pricebook', newEvents(1))).rejects.toThrow(EventsUnreadable)
        expect(double.eventsOf('pricebook')).toHaveLength(3)
        await expect(Array.fromAsync(openablePages(eventLog, 'pricebook', { from: 0 }))).resolves.toEqual([])
      },
    )

    test('a backwards read does not end at the first event that is not hidden', async () => {
      const events = newEvents(3)
      await eventLog.append('ledger-a', 'none', events)
      await withClient((client) => client.setStreamMetadata('ledger-a', { truncateBefore: 2 }))
      const backwards = (from: number, max: number) =>
        eventLog.read('ledger-a', { direction: 'backwards', from, max })
      expect((await backwards(2, 1)).map(asWritten)).toEqual(events.slice(2))
      await expect(backwards(2, 2)).rejects.toThrow('revisions 0 to 1 of ledger-a')
      await expect(backwards(1, 1)).rejects.toThrow('revisions 0 to 1 of ledger-a')
    })

    test('a permanently deleted stream is named, with what to do, and does not break the reads of other streams', async () => {
      await eventLog.append('ledger-a', 'none', newEvents(2))
      await eventLog.append('ledger-b', 'none', newEvents(1))
      await withClient((client) => client.tombstoneStream('ledger-a'))
      await eventLog.read('ledger-b', { max: 10 })
      const { connections } = double
      for (const direction of ['forwards', 'backwards'] as const) {
        const refused = eventLog.read('ledger-a', { direction, max: 10 })
        await expect(refused).rejects.toThrow(EventsUnreadable)
        await expect(refused).rejects.toThrow(
          'revision 0 of ledger-a cannot be opened: the stream was deleted permanently in the event store, so restore the event store from a backup',
        )
        const [others] = await Promise.all([
          eventLog.read('ledger-b', { max: 10 }),
          eventLog.read('ledger-a', { max: 10 }).catch(() => undefined),
        ])
        expect(others).toHaveLength(1)
      }
      expect(double.connections).toBe(connections)
      await expect(Array.fromAsync(openablePages(eventLog, 'ledger-a', { from: 0 }))).resolves.toEqual([])
    })

    test.each<[string, (client: EventStoreDBClient) => Promise<unknown>, string]>([
      ['hidden', (client) => client.setStreamMetadata('ledger-a', { truncateBefore: 1 }), 'revision 0'],
      ['deleted', (client) => client.deleteStream('ledger-a'), 'was deleted in the event store'],
      ['permanently deleted', (client) => client.tombstoneStream('ledger-a'), 'was deleted permanently'],
    ])('%s events are a fault of the ledger, and of no other', async (_, hide, fault) => {
      await eventLog.append('ledger-a', 'none', newEvents(2))
      await withClient(hide)
      await expect(eventLog.lastRevision('ledger-a')).rejects.toThrow(EventsUnreadable)
      expect((await verifyLedger(eventLog, 'a')).fault).toMatchObject({
        revision: 0,
        event_id: null,
        fault: expect.stringContaining(fault),
      })
      expect(await verifyLedger(eventLog, 'b')).toMatchObject({ events: 0, fault: null })
    })

    test('a deleted stream is not a new one, so nothing is written to it', async () => {
      await eventLog.append('pricebook', 'none', newEvents(2))
      await withClient((client) => client.deleteStream('pricebook'))
      for (const direction of ['forwards', 'backwards'] as const)
        await expect(eventLog.read('pricebook', { direction, max: 1 })).rejects.toThrow(EventsUnreadable)
      await expect(appendNext(eventLog, 'pricebook', newEvents(1))).rejects.toThrow(EventsUnreadable)
      expect(double.eventsOf('pricebook')).toHaveLength(2)
      await expect(Array.fromAsync(openablePages(eventLog, 'pricebook', { from: 0 }))).resolves.toEqual([])
      await expect(eventLog.read('ledger-new', { max: 1 })).rejects.toThrow(StreamMissing)
    })
  })

  describe('a prefix', () => {
    test('separates two logs on one server, each with its own head and stream names', async () => {
      const [mine, theirs, bare] = ['mine-', 'theirs-', undefined].map((prefix) =>
        openEventStoreDb({ url: double.url, prefix, logger, limits: quick }),
      ) as [EventLog, EventLog, EventLog]
      try {
        await mine.append('ledger-a', 'none', newEvents(2))
        const head = await mine.head()
        expect(head).toBe(await bare.head())
        for (let n = 0; n < 30; n++) await theirs.append(`ledger-${n}`, 'none', newEvents(50))
        expect(await mine.head()).toBe(head)
        expect(await theirs.head()).toBe(await bare.head())
        const reader = await readToEnd(mine)
        expect(reader.events().map(({ stream }) => stream)).toEqual(['ledger-a', 'ledger-a'])
        expect(await mine.append('ledger-a', 1, newEvents(1))).toEqual({ revision: 2 })
        expect(await mine.head()).toBe(await bare.head())
        await expect(mine.append('ledger-a', 0, newEvents(1))).rejects.toMatchObject({
          stream: 'ledger-a',
          actual: 2,
        })
        expect(await mine.at(await bare.head())).toMatchObject({ stream: 'ledger-a', revision: 2 })
        expect(await theirs.at(await bare.head())).toBeNull()
        expect(await mine.streams('ledger-')).toEqual(['ledger-a'])
        expect(double.eventsOf('mine-ledger-a')).toHaveLength(3)
        expect(double.eventsOf('ledger-a')).toHaveLength(0)
      } finally {
        for (const one of [mine, theirs, bare]) await one.close()
      }
    })

    test('finds its head behind many new events of other logs, and after the server was restored from an older copy', async () => {
      const mine = openEventStoreDb({ url: double.url, prefix: 'mine-', logger, limits: quick })
      try {
        expect(await mine.head()).toBe(logStart)
        await mine.append('ledger-a', 'none', newEvents(1))
        expect(await mine.head()).toBe((await mine.read('ledger-a', { max: 1 }))[0]?.position)
        for (let n = 0; n < 3; n++) await mine.append(`ledger-b${n}`, 'none', newEvents(700))
        const [last] = await mine.read('ledger-b2', { direction: 'backwards', max: 1 })
        expect(await mine.head()).toBe(last?.position)
        const { port } = double
        await double.close()
        const restored = await startEventStoreDouble({ port })
        await expect.poll(() => mine.head().catch(() => -1n), { timeout: 5_000 }).toBe(logStart)
        await expect(mine.append('ledger-a', 'none', newEvents(1))).rejects.toThrow(LogRewritten)
        const fresh = openEventStoreDb({ url: double.url, prefix: 'mine-', logger, limits: quick })
        await appendUntilKnown(fresh, 'ledger-a', 'none', newEvents(1))
        await fresh.close()
        expect(await mine.head()).toBe((await mine.read('ledger-a', { max: 1 }))[0]?.position)
        await restored.close()
      } finally {
        await mine.close()
      }
    })
  })

  test.each([3, 1, 2])(
    'random faults, seed %i: every append converges, every event arrives once and in order',
    async (seed) => {
      await using({
        limits: impatient,
        systemEventEvery: 7,
        random: {
          seed,
          dropReplies: 0.05,
          dropRequests: 0.03,
          endCalls: 0.02,
          notReady: 0.05,
          delays: 0.2,
          cutEveryMs: 150,
        },
      })
      const reader = reading(await log.reopen(), { batchMax: 7 })
      const streams = Array.from({ length: 6 }, () => freshStream())
      const written = new Map<string, NewEvent[]>()
      await Promise.all(
        streams.map(async (stream, n) => {
          const own = await log.reopen()
          const events: NewEvent[] = []
          written.set(stream, events)
          for (let append = 0; append < 15; append++) {
            const more = newEvents(1 + ((append + n) % 3))
            await appendUntilKnown(own, stream, events.length === 0 ? 'none' : events.length - 1, more)
            events.push(...more)
          }
        }),
      )
      const total = [...written.values()].reduce((sum, events) => sum + events.length, 0)
      await reader.until((now) => now.events().length >= total)
      await reader.stop()
      const positions = reader.events().map(({ position }) => position)
      expect(positions).toEqual([...new Set(positions)].sort((a: Position, b: Position) => (a < b ? -1 : 1)))
      for (const [stream, events] of written)
        expect(
          reader
            .events()
            .filter((event) => event.stream === stream)
            .map(asWritten),
        ).toEqual(events)
    },
  )
})

const realUrl = process.env.TEST_EVENTSTORE_URL

/**
 * These requests are never sent by the adapter. They are sent with the client library, because the double must not accept
 * requests that the server refuses.
 */
const oddAppends = (name: string, openServer: () => Promise<{ url: string; close(): Promise<void> }>) =>
  describe(`odd appends, answered by ${name}`, () => {
    const withClient = async (use: (client: EventStoreDBClient) => Promise<void>): Promise<void> => {
      const server = await openServer()
      const client = EventStoreDBClient.connectionString(server.url)
      try {
        await use(client)
      } finally {
        await client.dispose()
        await server.close()
      }
    }

    test('an empty stream name is a bad request, which the client does not recognize', () =>
      withClient(async (client) => {
        const event = jsonEvent({ type: 'CreditCharged', data: {} })
        await expect(client.appendToStream('', event)).rejects.toThrow('BadRequest')
      }))

    test('an append of no events succeeds at the current revision', () =>
      withClient(async (client) => {
        const stream = `${freshStream()}-${Date.now().toString(36)}`
        await client.appendToStream(
          stream,
          [0, 1, 2].map((n) => jsonEvent({ type: 'CreditCharged', data: { n } })),
        )
        expect(await client.appendToStream(stream, [])).toMatchObject({
          success: true,
          nextExpectedRevision: 2n,
        })
      }))
  })

oddAppends('a double', () => startEventStoreDouble())

if (realUrl === undefined)
  describe('EventStoreDB itself', () => {
    test.skip('is not tested: TEST_EVENTSTORE_URL is not set, and no package registry provides a server', () =>
      undefined)
  })
else {
  let logs = 0
  const run = Date.now().toString(36)
  /**
   * A server cannot be emptied between tests. This function makes the events of one test look like a separate log: the streams
   * have unique names, the log starts after all earlier events, and other clients' events are skipped.
   */
  const openReal = async (limits: Partial<EventStoreDbLimits> = quick): Promise<LogUnderTest> => {
    const suffix = `x${run}${++logs}`
    const outside = openEventStoreDb({ url: realUrl, logger })
    const base = await outside.head()
    const inside = (position: Position): Position => (position <= base ? logStart : position)
    const named = (event: RecordedEvent): RecordedEvent => ({
      ...event,
      stream: event.stream.slice(0, -suffix.length),
    })
    const view = (real: EventLog): EventLog => ({
      gapless: false,
      append: async (stream, expected, events) => {
        try {
          return await real.append(
            stream === '' || /[^a-z0-9]$/i.test(stream) ? stream : `${stream}${suffix}`,
            expected,
            events,
          )
        } catch (error) {
          throw error instanceof AppendConflict ? new AppendConflict(stream, expected, error.actual) : error
        }
      },
      read: async (stream, options) => (await real.read(`${stream}${suffix}`, options)).map(named),
      head: async () => inside(await real.head()),
      at: async (position) => {
        const event = await real.at(position)
        return event === null ? null : named(event)
      },
      lookBack: async (from) => {
        const { events, unreadable, next } = await real.lookBack(from)
        const own = events.filter(({ stream, position }) => position > base && stream.endsWith(suffix))
        return { events: own.map(named), unreadable, next: next !== null && next > base ? next : null }
      },
      lastRevision: (stream) => real.lastRevision(`${stream}${suffix}`),
      streams: async (prefix) =>
        (await real.streams(prefix))
          .filter((stream) => stream.endsWith(suffix))
          .map((stream) => stream.slice(0, -suffix.length)),
      close: real.close,
      subscribe: async function* (options) {
        for await (const item of real.subscribe({
          ...options,
          after: options.after > base ? options.after : base,
        })) {
          const position = inside(item.position)
          const events =
            item.kind === 'events'
              ? item.events.filter(({ stream }) => stream.endsWith(suffix)).map(named)
              : []
          if (item.kind !== 'events') yield { ...item, position }
          else if (events.length > 0) yield { kind: 'events', events, position }
        }
      },
    })
    const { clients, client } = clientsOf(() => view(openEventStoreDb({ url: realUrl, logger, limits })))
    return {
      eventLog: client(),
      reopen: async () => client(),
      close: async () => {
        await Promise.all(clients.map((one) => one.close()))
        await outside.close()
      },
    }
  }
  oddAppends('EventStoreDB itself', async () => ({ url: realUrl, close: async () => undefined }))
  eventLogContract('EventStoreDB itself', {
    open: openReal,
    openSilenceable: async () => {
      // The URL contains one host by name, so a proxy can be placed in front of that host.
      const host = /^(esdb:\/\/(?:[^@]*@)?)([^:/?,]+)(?::(\d+))?/.exec(realUrl)
      if (host === null) throw new Error('TEST_EVENTSTORE_URL must name one host, without discovery')
      const proxy = await startTcpProxy({ host: host[2] ?? '', port: Number(host[3] ?? 2113) })
      const url = realUrl.replace(host[0], `${host[1]}127.0.0.1:${proxy.port}`)
      const own = openEventStoreDb({ url, logger, limits: impatient })
      const stream = (name: string): string => `${name}x${run}silent`
      return {
        eventLog: {
          ...own,
          append: (name, expected, events) => own.append(stream(name), expected, events),
          read: (name, options) => own.read(stream(name), options),
        },
        reopen: async () => own,
        close: async () => {
          await own.close()
          await proxy.close()
        },
        silence: proxy.freeze,
        speak: proxy.thaw,
        settlesWithinMs: 5_000,
      }
    },
  })
}
