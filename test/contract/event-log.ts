/**
 * The guarantees of every event log, independent of its engine. Each adapter runs this suite. Every case has a number. Some
 * numbers are missing:
 *   7, 8, 11, 17  concern appends at "any" revision or to "some existing stream", which the port does not offer.
 *   16, in part   engines do not detect ids that are reused at the current revision. Event ids derive from the call, so such a
 *                 reuse cannot happen by accident. Ids that occur twice in one append are tested here.
 *   21, in part   ULIDs as ids, because the port accepts only UUIDs.
 *   25            tombstones, because the port cannot delete a stream.
 *   31            a stream that starts while a subscription follows is in 33.
 *   32, 35, 36, 40 need the positions, connections or transactions of one engine, and are in the adapter's own file.
 */

import { setTimeout as sleep } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import {
  AppendConflict,
  appendBytesMax,
  appendEventsMax,
  type EventLog,
  eventJson,
  LogRewritten,
  type LookedBack,
  logStart,
  type NewEvent,
  type Position,
  placeOf,
  type RecordedEvent,
  readBytesMax,
  StreamMissing,
  type SubscribeOptions,
  type SubscriptionItem,
  stillHolds,
  TooLarge,
  Unavailable,
  UnknownOutcome,
} from '../../src/event-log/port.ts'
import { uuidV5 } from '../../src/event-log/stored-event.ts'
import { everyNth, exhaustive } from '../support/exhaustive.ts'
import { takesAtMost } from '../support/takes-at-most.ts'

export type LogUnderTest = {
  readonly eventLog: EventLog
  /** Opens another client of the log, as a second process would. */
  reopen(): Promise<EventLog>
  /** Restores the log, under its clients, from a copy made when the log ended at `position`. Absent if this log cannot do that. */
  restore?(position: Position): Promise<void>
  /** Closes every client that is still open, and releases the log's resources. */
  close(): Promise<void>
}

export type SilenceableLog = LogUnderTest & {
  /** The engine stays connected but stops answering until `speak` is called. */
  silence(): void
  speak(): void
  /** Every request to `eventLog` settles within this time, whether the engine answers or not. */
  readonly settlesWithinMs: number
}

export type EventLogEngine = {
  /** Whether the engine reports that an append was a repetition. */
  readonly tellsRepetition?: true
  /** Opens an empty log. */
  open(): Promise<LogUnderTest>
  /** Opens an empty log whose engine can stop answering. */
  openSilenceable(): Promise<SilenceableLog>
}

let named = 0
/** A stream that no other test uses. */
export const freshStream = (category = 'ledger'): string => `${category}-s${++named}`

export const newEvent = (own: Partial<NewEvent> = {}): NewEvent => {
  const n = ++named
  return {
    id: uuidV5(`contract/${n}`),
    type: 'CreditCharged',
    data: `{"n":${n}}`,
    metadata: `{"m":${n}}`,
    ...own,
  }
}

export const newEvents = (count: number): NewEvent[] => Array.from({ length: count }, () => newEvent())

/** Converts recorded events back to the events that were written. */
export const asWritten = ({ id, type, data, metadata }: RecordedEvent): NewEvent => ({
  id,
  type,
  data,
  metadata,
})

export type Reader = {
  readonly items: readonly SubscriptionItem[]
  events(): RecordedEvent[]
  /** Resolves when the condition is true. Rejects if the subscription ends or thirty seconds pass before that. */
  until(condition: (reader: Reader) => boolean): Promise<void>
  /** Aborts the subscription and resolves when it has ended. */
  stop(): Promise<void>
}

/** Follows a subscription in the background. */
export const reading = (eventLog: EventLog, options: Partial<SubscribeOptions> = {}): Reader => {
  const stopping = new AbortController()
  const signal =
    options.signal === undefined ? stopping.signal : AbortSignal.any([options.signal, stopping.signal])
  const items: SubscriptionItem[] = []
  const waiting = new Set<() => void>()
  let ended = false
  let failure: unknown
  const notify = (): void => {
    for (const check of [...waiting]) check()
  }
  const run = async (): Promise<void> => {
    try {
      for await (const item of eventLog.subscribe({ after: logStart, prefixes: [], ...options, signal })) {
        items.push(item)
        notify()
      }
    } catch (error) {
      failure = error
    }
    ended = true
    notify()
  }
  const running = run()
  const reader: Reader = {
    items,
    events: () => items.flatMap((item) => (item.kind === 'events' ? item.events : [])),
    until: (condition) =>
      new Promise((resolve, reject) => {
        const fail = (why: string): void => {
          finish()
          reject(
            new Error(`${why}; ${items.length} items with ${reader.events().length} events`, {
              cause: failure,
            }),
          )
        }
        const timer = setTimeout(() => fail('the awaited did not come in 30 s'), 30_000)
        const check = (): void => {
          if (condition(reader)) {
            finish()
            resolve()
          } else if (ended) fail('the subscription ended before the awaited came')
        }
        const finish = (): void => {
          clearTimeout(timer)
          waiting.delete(check)
        }
        waiting.add(check)
        check()
      }),
    stop: async () => {
      stopping.abort()
      await running
      if (failure !== undefined) throw failure
    },
  }
  return reader
}

export const caughtUp = ({ items }: Reader): boolean => items.some(({ kind }) => kind === 'caught-up')

/** Everything after a position, up to the current end of the log. */
export const readToEnd = async (
  eventLog: EventLog,
  options: Partial<SubscribeOptions> = {},
): Promise<Reader> => {
  const reader = reading(eventLog, options)
  await reader.until(caughtUp)
  await reader.stop()
  return reader
}

export const readAll = (eventLog: EventLog, stream: string): Promise<RecordedEvent[]> =>
  eventLog.read(stream, { max: 10_000 })

/** Resends an append until its outcome is known, as every writer does. */
export const appendUntilKnown = async (
  eventLog: EventLog,
  stream: string,
  expected: number | 'none',
  events: readonly NewEvent[],
): Promise<{ revision: number }> => {
  const deadline = Date.now() + 30_000
  for (;;) {
    try {
      return await eventLog.append(stream, expected, events)
    } catch (error) {
      if (!(error instanceof UnknownOutcome || error instanceof Unavailable) || Date.now() > deadline)
        throw error
    }
  }
}

/** The error that the promise rejects with, or that the call throws. */
const errorOf = async (attempt: () => Promise<unknown>): Promise<unknown> => {
  try {
    await attempt()
  } catch (error) {
    return error
  }
  throw new Error('it succeeded')
}

const expectConflict = async (attempt: Promise<unknown>, actual: number): Promise<void> => {
  const error = await errorOf(() => attempt)
  expect(error).toBeInstanceOf(AppendConflict)
  expect((error as AppendConflict).actual).toBe(actual)
}

const expectTypeError = async (attempt: () => Promise<unknown>): Promise<void> => {
  expect(await errorOf(attempt)).toBeInstanceOf(TypeError)
}

/** A log must refuse events that its engine cannot store unchanged, or return them unchanged. */
export const expectUnchangedOrRefused = async (eventLog: EventLog, event: NewEvent): Promise<void> => {
  const stream = freshStream()
  const neighbours = [newEvent(), newEvent()] as const
  try {
    await eventLog.append(stream, 'none', [neighbours[0], event, neighbours[1]])
  } catch (error) {
    expect(error).not.toBeInstanceOf(UnknownOutcome)
    await expect(readAll(eventLog, stream)).rejects.toThrow(StreamMissing)
    return
  }
  expect((await readAll(eventLog, stream)).map(asWritten)).toEqual([neighbours[0], event, neighbours[1]])
}

const reachableBytes = (): number => {
  setFlagsFromString('--expose-gc')
  const collect: unknown = runInNewContext('gc')
  // Buffers are released only by the second collection, because the first one runs the finalizers.
  if (typeof collect === 'function') for (let pass = 0; pass < 2; pass++) collect()
  const { heapUsed, external } = process.memoryUsage()
  return heapUsed + external
}

export const eventLogContract = (name: string, engine: EventLogEngine): void => {
  const writtenAt = (revision: number, repeated = false) =>
    engine.tellsRepetition === true ? { revision, repeated } : { revision }
  describe(`the event log contract, fulfilled by ${name}`, () => {
    let log: LogUnderTest
    let eventLog: EventLog

    beforeAll(async () => {
      log = await engine.open()
      eventLog = log.eventLog
    })
    afterAll(() => log.close())

    const withFreshLog = async (use: (fresh: LogUnderTest) => Promise<void>): Promise<void> => {
      const fresh = await engine.open()
      try {
        await use(fresh)
      } finally {
        await fresh.close()
      }
    }

    const restored = async (
      test: (context: { log: Required<LogUnderTest>; stream: string }) => Promise<void>,
      { skip }: { skip(reason: string): void },
    ): Promise<void> => {
      const own = await engine.open()
      try {
        const { restore } = own
        if (restore === undefined) return skip('this engine cannot be restored from a copy here')
        await test({ log: { ...own, restore }, stream: freshStream() })
      } finally {
        await own.close()
      }
    }

    describe('appending', () => {
      test('1 an append to a stream that does not exist starts it at revision 0', async () => {
        const stream = freshStream()
        const event = newEvent()
        expect(await eventLog.append(stream, 'none', [event])).toEqual(writtenAt(0))
        expect((await readAll(eventLog, stream)).map(asWritten)).toEqual([event])
      })

      test('2 N events get the revisions 0 to N - 1 without a gap', async () => {
        const stream = freshStream()
        const events = newEvents(50)
        expect(await eventLog.append(stream, 'none', events)).toEqual(writtenAt(49))
        const recorded = await readAll(eventLog, stream)
        expect(recorded.map(({ revision }) => revision)).toEqual(events.map((_, n) => n))
        expect(recorded.map(asWritten)).toEqual(events)
      })

      test('3 an append that expects no stream conflicts if one exists, and the conflict names its revision', async () => {
        const stream = freshStream()
        await eventLog.append(stream, 'none', newEvents(3))
        await expectConflict(eventLog.append(stream, 'none', newEvents(1)), 2)
      })

      test('4 an append at the exact revision continues the stream', async () => {
        const stream = freshStream()
        await eventLog.append(stream, 'none', newEvents(2))
        expect(await eventLog.append(stream, 1, newEvents(2))).toEqual(writtenAt(3))
        expect(await eventLog.append(stream, 3, newEvents(1))).toEqual(writtenAt(4))
        expect((await readAll(eventLog, stream)).map(({ revision }) => revision)).toEqual([0, 1, 2, 3, 4])
      })

      test('5 an append at an old revision conflicts, and the conflict names the actual one', async () => {
        const stream = freshStream()
        await eventLog.append(stream, 'none', newEvents(3))
        await expectConflict(eventLog.append(stream, 0, newEvents(1)), 2)
        await expectConflict(eventLog.append(stream, 1, newEvents(5)), 2)
      })

      test('6 an append at a future revision conflicts; -1 is the revision of a stream that does not exist', async () => {
        const stream = freshStream()
        await expectConflict(eventLog.append(stream, 0, newEvents(1)), -1)
        await eventLog.append(stream, 'none', newEvents(2))
        await expectConflict(eventLog.append(stream, 2, newEvents(1)), 1)
        await expectConflict(eventLog.append(stream, 1_000_000, newEvents(1)), 1)
      })

      test('9 a failed append leaves nothing behind: no event, no stream, no position', async () => {
        const stream = freshStream()
        const missing = freshStream()
        const events = newEvents(2)
        await eventLog.append(stream, 'none', events)
        const head = await eventLog.head()
        await expectConflict(eventLog.append(stream, 0, newEvents(3)), 1)
        await expectConflict(eventLog.append(missing, 4, newEvents(3)), -1)
        expect((await readAll(eventLog, stream)).map(asWritten)).toEqual(events)
        await expect(readAll(eventLog, missing)).rejects.toThrow(StreamMissing)
        expect(await eventLog.head()).toBe(head)
        expect(await eventLog.append(missing, 'none', newEvents(1))).toEqual(writtenAt(0))
      })

      test.each([
        { at: 'no stream', before: 0 },
        { at: 'one revision', before: 3 },
      ])(
        '10 of 100 simultaneous appends at $at one wins, no matter which client sent it',
        async ({ before }) => {
          const clients = [eventLog, await log.reopen(), await log.reopen(), await log.reopen()]
          const stream = freshStream()
          if (before > 0) await eventLog.append(stream, 'none', newEvents(before))
          const expected = before === 0 ? 'none' : before - 1
          const racers = Array.from({ length: 100 }, (_, n) => ({
            events: newEvents(1 + (n % 3)),
            client: clients[n % clients.length] ?? eventLog,
          }))
          const outcomes = await Promise.allSettled(
            racers.map(({ client, events }) => appendUntilKnown(client, stream, expected, events)),
          )
          const winners = racers.filter((_, n) => outcomes[n]?.status === 'fulfilled')
          expect(winners).toHaveLength(1)
          const won = winners[0]?.events ?? []
          const recorded = await readAll(eventLog, stream)
          expect(recorded.slice(before).map(asWritten)).toEqual(won)
          for (const outcome of outcomes) {
            if (outcome.status === 'fulfilled') continue
            expect(outcome.reason).toBeInstanceOf(AppendConflict)
            expect(outcome.reason).toMatchObject({ stream, actual: before + won.length - 1 })
          }
        },
      )
    })

    describe('resending', () => {
      test('12 resending the same ids at the same revision returns the original revision and writes nothing', async () => {
        const stream = freshStream()
        const [first, second] = [newEvents(2), newEvents(3)]
        await eventLog.append(stream, 'none', first)
        await eventLog.append(stream, 1, second)
        const head = await eventLog.head()
        expect(await eventLog.append(stream, 1, second)).toEqual(writtenAt(4, true))
        expect(await eventLog.append(stream, 'none', first)).toEqual(writtenAt(1, true))
        expect(await (await log.reopen()).append(stream, 1, second)).toEqual(writtenAt(4, true))
        expect((await readAll(eventLog, stream)).map(asWritten)).toEqual([...first, ...second])
        expect(await eventLog.head()).toBe(head)
      })

      test('12 an append sent twice at the same time is written once; a sender that gets no outcome gets it by resending', async () => {
        const stream = freshStream()
        const events = newEvents(2)
        const other = await log.reopen()
        const senders = [eventLog, other, eventLog, other]
        const outcomes = await Promise.allSettled(
          senders.map((client) => client.append(stream, 'none', events)),
        )
        const answered = outcomes.filter(({ status }) => status === 'fulfilled')
        expect(answered.length).toBeGreaterThan(0)
        for (const outcome of outcomes)
          if (outcome.status === 'fulfilled')
            expect([writtenAt(1), writtenAt(1, true)]).toContainEqual(outcome.value)
          // An engine that is still writing the first copy need not report whether this copy was written.
          else expect(outcome.reason).toBeInstanceOf(UnknownOutcome)
        for (const client of senders)
          expect(await appendUntilKnown(client, stream, 'none', events)).toEqual(writtenAt(1, true))
        expect((await readAll(eventLog, stream)).map(asWritten)).toEqual(events)
      })

      test('13 the same append after newer events still succeeds at its original revision', async () => {
        const stream = freshStream()
        const [first, second] = [newEvents(2), newEvents(2)]
        await eventLog.append(stream, 'none', first)
        await eventLog.append(stream, 1, second)
        for (let revision = 3; revision < 40; revision++)
          await eventLog.append(stream, revision, newEvents(1))
        expect(await eventLog.append(stream, 'none', first)).toEqual(writtenAt(1, true))
        expect(await eventLog.append(stream, 1, second)).toEqual(writtenAt(3, true))
        expect(await readAll(eventLog, stream)).toHaveLength(41)
      })

      test('14 a known first id with a different later one conflicts and writes nothing', async () => {
        const stream = freshStream()
        const [a, b] = [newEvent(), newEvent()]
        await eventLog.append(stream, 'none', [a, b])
        await expectConflict(eventLog.append(stream, 'none', [a, newEvent()]), 1)
        await expectConflict(eventLog.append(stream, 'none', [newEvent(), b]), 1)
        await expectConflict(eventLog.append(stream, 'none', [b, a]), 1)
        await expectConflict(eventLog.append(stream, 'none', [a, b, newEvent()]), 1)
        await expectConflict(eventLog.append(stream, 0, [a, b]), 1)
        expect((await readAll(eventLog, stream)).map(asWritten)).toEqual([a, b])
      })

      test('47 an append conflicts if another event has its place, however often it is resent and however many events follow', async () => {
        const stream = freshStream()
        await eventLog.append(stream, 'none', newEvents(1))
        const [held, fence] = [newEvents(2), newEvent()]
        await eventLog.append(stream, 0, [fence])
        await expectConflict(eventLog.append(stream, 0, held), 1)
        // After the fence the calls of `held` are decided again, so their ids are written at another revision.
        await eventLog.append(stream, 1, held)
        for (let n = 0; n < 2; n++) await expectConflict(eventLog.append(stream, 0, held), 3)
        expect((await readAll(eventLog, stream)).slice(1).map(asWritten)).toEqual([fence, ...held])
      })

      test('15 the same id in another stream is a different event', async () => {
        const [one, two] = [freshStream(), freshStream()]
        const event = newEvent()
        await eventLog.append(one, 'none', [event])
        expect(await eventLog.append(two, 'none', [event])).toEqual(writtenAt(0))
        expect((await readAll(eventLog, two)).map(asWritten)).toEqual([event])
      })

      test('16 an append with the same id twice is refused', async () => {
        const stream = freshStream()
        const event = newEvent()
        await expectTypeError(() =>
          eventLog.append(stream, 'none', [event, newEvent(), { ...newEvent(), id: event.id }]),
        )
        await expect(readAll(eventLog, stream)).rejects.toThrow(StreamMissing)
      })
    })

    describe('appends that every log refuses', () => {
      test('18 an append of no events', async () => {
        const stream = freshStream()
        await expectTypeError(() => eventLog.append(stream, 'none', []))
        await expect(readAll(eventLog, stream)).rejects.toThrow(StreamMissing)
      })

      test('18 an invalid expected revision', async () => {
        const stream = freshStream()
        for (const expected of [-1, 0.5, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 53])
          await expectTypeError(() => eventLog.append(stream, expected, newEvents(1)))
      })

      test('19 an append above the size limit, in bytes or in events, changes nothing; the largest allowed append is accepted', async () => {
        const stream = freshStream()
        await eventLog.append(stream, 'none', newEvents(1))
        const sized = (bytes: number): NewEvent =>
          newEvent({ metadata: '{}', data: `"${'a'.repeat(bytes - 4)}"` })
        // 'ž' is one character but two bytes, and the limit counts bytes.
        const wide = newEvent({ data: `"${'ž'.repeat(appendBytesMax / 2)}"` })
        const halves = [sized(appendBytesMax / 2), sized(appendBytesMax / 2 + 1)]
        for (const events of [[sized(appendBytesMax + 1)], [wide], halves, newEvents(appendEventsMax + 1)])
          expect(await errorOf(() => eventLog.append(stream, 0, events))).toBeInstanceOf(TooLarge)
        expect(await readAll(eventLog, stream)).toHaveLength(1)
        const largest = sized(appendBytesMax)
        expect(await eventLog.append(stream, 0, [largest])).toEqual(writtenAt(1))
        expect(await eventLog.append(stream, 1, newEvents(appendEventsMax))).toEqual(
          writtenAt(1 + appendEventsMax),
        )
        expect((await eventLog.read(stream, { from: 1, max: 1 })).map(asWritten)).toEqual([largest])
      })

      test('20 BigInt and non-finite numbers, before anything is sent', () => {
        const refused: unknown[] = [
          { credits: 1n },
          { deep: [{ credits: 1n }] },
          { ratio: Number.NaN },
          { deep: [1, { ratio: Number.POSITIVE_INFINITY }] },
          [Number.NEGATIVE_INFINITY],
          1n,
          Number.NaN,
          undefined,
        ]
        for (const value of refused) expect(() => eventJson(value)).toThrow(TypeError)
        expect(eventJson({ b: 1, a: [null, 'é'], absent: undefined })).toBe('{"b":1,"a":[null,"é"]}')
      })

      test('20 functions and symbols, which JSON would silently drop', () => {
        const mark = Symbol('mark')
        for (const value of [{ call: () => 1 }, { kind: 'a', call: () => 1 }, { kind: 'a', mark }, [1, mark]])
          expect(() => eventJson(value)).toThrow(TypeError)
      })

      test('20 data and metadata that are not serialized', async () => {
        const stream = freshStream()
        const unserialised = { ...newEvent(), data: { n: 1 } } as unknown as NewEvent
        await expectTypeError(() => eventLog.append(stream, 'none', [unserialised]))
        await expect(readAll(eventLog, stream)).rejects.toThrow(StreamMissing)
      })

      test('21 event ids that are not lower-case UUIDs', async () => {
        for (const id of [
          '',
          'a',
          '0198A3C0-0000-7000-8000-00000000000A',
          '01K0000000000000000000000',
          ' '.repeat(36),
        ])
          await expectTypeError(() => eventLog.append(freshStream(), 'none', [newEvent({ id })]))
      })

      test("26 an engine's own $ streams, and invalid names", async () => {
        for (const stream of [
          '$all',
          '$ce-ledger',
          '$$ledger-a',
          '',
          'ledger-',
          'ledger a',
          'Ledger-a',
          'ledger-a/b',
          'ledger-ä',
          `ledger-${'a'.repeat(121)}`,
        ])
          await expectTypeError(() => eventLog.append(stream, 'none', newEvents(1)))
      })
    })

    describe('stored events', () => {
      const texts: Record<string, string> = {
        'key order': '{"b":1,"a":2,"10":3,"9":4}',
        'duplicate keys': '{"a":1,"a":2}',
        'whitespace and the spelling of numbers': ' { "a" : 1.0 ,\n\t"b":1e2, "c":-0, "d":1E+2 } \r\n',
        'numbers no double holds': '{"n":12345678901234567890.1234567890,"m":1e999}',
        'an escaped null character': '{"s":"a\\u0000b"}',
        'an escaped lone surrogate': '{"s":"\\ud800"}',
        'escapes that need not be': '{"s":"\\u00e9\\/\\u0041"}',
        'unicode of one to four bytes': '{"s":"a é 日本 😀 \u2028\u2029 \ufeff \uffff \u007f"}',
        'separators and quotes': '{"s":",\\",\\u001e,{},\\\\,NULL,\'$1"}',
        'a string': '"text"',
        null: 'null',
        'an empty object': '{}',
        'an empty array': '[]',
      }

      test.each(Object.entries(texts))(
        '20 data and metadata are returned byte for byte: %s',
        async (_, text) => {
          const stream = freshStream()
          const events = [
            newEvent({ data: text }),
            newEvent({ metadata: text }),
            newEvent({ data: text, metadata: text }),
          ]
          await eventLog.append(stream, 'none', events)
          expect((await readAll(eventLog, stream)).map(asWritten)).toEqual(events)
        },
      )

      test('20 half of a surrogate pair without an escape is refused rather than replaced', async () => {
        await expectUnchangedOrRefused(eventLog, newEvent({ data: '{"s":"\ud800"}' }))
        await expectUnchangedOrRefused(eventLog, newEvent({ metadata: '{"s":"\udc00"}' }))
      })

      test('20 text that is not JSON is refused rather than changed', async () => {
        for (const data of [
          '',
          '{',
          '{"a":1}}',
          '{"a":"\u001e"}',
          '{"a":1}\u001e{"a":2}',
          '{"a":"\u0000"}',
          'undefined',
        ])
          await expectUnchangedOrRefused(eventLog, newEvent({ data }))
      })

      test.each(['CreditCharged', 'A', 'A,B', 'A B', 'Ä"\\', 'A\u001eB', '', 'A\u0000', '{}', 'NULL'])(
        '21 type %j is returned unchanged, or refused',
        async (type) => {
          await expectUnchangedOrRefused(eventLog, newEvent({ type }))
        },
      )

      test('21 stream, revision, id, type and recording time are returned, the time in UTC milliseconds', async () => {
        const stream = freshStream('key')
        const events = [newEvent({ type: 'ApiKeyIssued' }), newEvent({ type: 'ApiKeyRevoked' })]
        const before = Date.now()
        await eventLog.append(stream, 'none', events)
        const after = Date.now()
        const recorded = await readAll(eventLog, stream)
        expect(recorded.map(({ recordedAtMs, position, ...rest }) => rest)).toEqual(
          events.map((event, revision) => ({ ...event, stream, revision })),
        )
        for (const { recordedAtMs } of recorded) {
          expect(Number.isSafeInteger(recordedAtMs)).toBe(true)
          // The log has its own clock, which can differ from the test's clock.
          expect(recordedAtMs).toBeGreaterThan(before - 5_000)
          expect(recordedAtMs).toBeLessThan(after + 5_000)
        }
        const [delivered] = (await readToEnd(eventLog, { prefixes: [stream] })).events()
        expect(delivered).toEqual(recorded[0])
      })

      test('21 an event that contains its recording time keeps that time, because a digest covers it', async () => {
        const stream = freshStream('key')
        const recordedAt = '2026-01-02T03:04:05.678Z'
        const metadata = `{"actor":"\\",\\"recorded_at\\":\\"x","recorded_at":"${recordedAt}","digest":"d"}`
        await eventLog.append(stream, 'none', [newEvent({ metadata })])
        const [recorded] = await readAll(eventLog, stream)
        expect(recorded?.recordedAtMs).toBe(Date.parse(recordedAt))
      })
    })

    describe('reading a stream', () => {
      test('22 reading a stream that does not exist reports it as missing, in either direction', async () => {
        const stream = freshStream()
        await expect(eventLog.read(stream, { max: 10 })).rejects.toThrow(StreamMissing)
        await expect(eventLog.read(stream, { from: 3, direction: 'backwards', max: 10 })).rejects.toThrow(
          StreamMissing,
        )
        // A stream must not be found by the beginning of its name.
        await eventLog.append(`${stream}0`, 'none', newEvents(1))
        await expect(eventLog.read(stream, { max: 10 })).rejects.toThrow(StreamMissing)
      })

      test('23 a stream is read forwards and backwards, from a revision (inclusive), up to a maximum number of events', async () => {
        const stream = freshStream()
        const neighbour = freshStream()
        await eventLog.append(neighbour, 'none', newEvents(20))
        for (let revision = 0; revision < 10; revision++)
          await eventLog.append(stream, revision === 0 ? 'none' : revision - 1, newEvents(1))
        const revisions = async (options: Parameters<EventLog['read']>[1]): Promise<number[]> =>
          (await eventLog.read(stream, options)).map(({ revision }) => revision)
        expect(await revisions({ max: 100 })).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
        expect(await revisions({ max: 3 })).toEqual([0, 1, 2])
        expect(await revisions({ from: 4, max: 3 })).toEqual([4, 5, 6])
        expect(await revisions({ from: 9, max: 3 })).toEqual([9])
        expect(await revisions({ direction: 'forwards', from: 0, max: 1 })).toEqual([0])
        expect(await revisions({ direction: 'backwards', max: 100 })).toEqual([9, 8, 7, 6, 5, 4, 3, 2, 1, 0])
        expect(await revisions({ direction: 'backwards', max: 3 })).toEqual([9, 8, 7])
        expect(await revisions({ direction: 'backwards', from: 4, max: 3 })).toEqual([4, 3, 2])
        expect(await revisions({ direction: 'backwards', from: 0, max: 3 })).toEqual([0])
        expect(await revisions({ direction: 'backwards', from: 50, max: 2 })).toEqual([9, 8])
      })

      test('24 a read past the end returns nothing and is not an error', async () => {
        const stream = freshStream()
        await eventLog.append(stream, 'none', newEvents(2))
        expect(await eventLog.read(stream, { from: 2, max: 10 })).toEqual([])
        expect(await eventLog.read(stream, { from: 1_000_000, max: 10 })).toEqual([])
      })

      test('24 every client can read an event immediately after the append', async () => {
        const other = await log.reopen()
        const stream = freshStream()
        for (let revision = 0; revision < 20; revision++) {
          await eventLog.append(stream, revision === 0 ? 'none' : revision - 1, newEvents(1))
          expect(await other.read(stream, { from: revision, max: 10 })).toHaveLength(1)
        }
      })
    })

    // An engine can store an append as one row. No read may reveal where an append ends.
    describe('inside an append', () => {
      /** Appends of 1 to `sizes.length` events of more than one kilobyte each, so that an engine that compresses does so. */
      const appended = async (sizes: readonly number[], category?: string) => {
        const stream = freshStream(category)
        const events: NewEvent[] = []
        for (const size of sizes) {
          const own = newEvents(size).map((event) => ({ ...event, metadata: `{"m":"${'m'.repeat(1_000)}"}` }))
          await eventLog.append(stream, events.length === 0 ? 'none' : events.length - 1, own)
          events.push(...own)
        }
        return { stream, events }
      }

      test('45 a read can start at any revision, forwards and backwards, with any length', async () => {
        const { stream, events } = await appended([7, 1, 5])
        const recorded = await readAll(eventLog, stream)
        expect(recorded.map(asWritten)).toEqual(events)
        for (const from of everyNth(3, [...events.keys()]))
          for (const max of [1, 2, 5, 6, 100]) {
            expect(await eventLog.read(stream, { from, max })).toEqual(recorded.slice(from, from + max))
            expect(await eventLog.read(stream, { from, max, direction: 'backwards' })).toEqual(
              recorded.slice(Math.max(0, from + 1 - max), from + 1).reverse(),
            )
          }
        for (const max of [1, 3, 6, 100]) {
          const last = recorded.slice(-max).reverse()
          expect(await eventLog.read(stream, { max, direction: 'backwards' })).toEqual(last)
          expect(await eventLog.read(stream, { from: 99, max, direction: 'backwards' })).toEqual(last)
        }
        expect(await eventLog.read(stream, { from: events.length, max: 5 })).toEqual([])
        expect(await eventLog.lastRevision(stream)).toBe(events.length - 1)
      })

      test('45 every event can be found by its position', async () => {
        const { stream } = await appended([6, 2])
        const recorded = await readAll(eventLog, stream)
        for (const event of recorded) {
          expect(await eventLog.at(event.position)).toEqual(event)
          expect(await stillHolds(eventLog, placeOf(event))).toBe(true)
          expect(await stillHolds(eventLog, { ...placeOf(event), digest: 'another' })).toBe(false)
        }
      })

      test('46 a look back returns the newest events of all streams first, in pages of any size, up to the beginning', async () => {
        const start = await eventLog.head()
        const [one, two] = [await appended([3, 1, 6]), await appended([5, 2])]
        const both = [...(await readAll(eventLog, one.stream)), ...(await readAll(eventLog, two.stream))]
        const expected = both.sort((a, b) => Number(b.position - a.position))
        for (const max of [1, 4, 1_000]) {
          const seen: RecordedEvent[] = []
          let before: Position | null = null
          do {
            const page: LookedBack = await eventLog.lookBack({ before, max })
            expect(page.events.length).toBeLessThanOrEqual(max)
            expect(page.unreadable).toEqual([])
            seen.push(...page.events)
            before = page.next
          } while (before !== null && seen.length < expected.length)
          expect(seen.filter(({ position }) => position > start).slice(0, expected.length)).toEqual(expected)
        }
        for (const { position } of everyNth(4, expected)) {
          const { events } = await eventLog.lookBack({ before: position, max: 2 * expected.length })
          expect(events.filter((event) => event.position > start)).toEqual(
            expected.filter((event) => event.position < position),
          )
        }
        const first = await eventLog.lookBack({ before: 1n, max: 10 })
        expect(first).toEqual({ events: [], unreadable: [], next: null })
      })

      test.each([{ category: 'ledger' }, { category: 'key' }])(
        '45 a subscription continues after any event of a $category stream, in batches of any size',
        async ({ category }) => {
          const after = await eventLog.head()
          const { stream, events } = await appended([3, 1, 4], category)
          const recorded = await readAll(eventLog, stream)
          for (const prefixes of [[], [`${category}-`], [stream]]) {
            const places = new Set<Position>()
            for (const batchMax of [1, 4, 100]) {
              const whole = await readToEnd(eventLog, { after, prefixes, batchMax })
              expect(whole.events()).toEqual(recorded)
              for (const item of whole.items)
                if (item.kind === 'events') expect(item.events.length).toBeLessThanOrEqual(batchMax)
              for (const { position } of whole.items) places.add(position)
            }
            // A new reader must be able to start at every position where a batch ended.
            for (const position of everyNth(4, [...places])) {
              const rest = await readToEnd(eventLog, { after: position, prefixes })
              expect(rest.events()).toEqual(recorded.filter((event) => event.position > position))
            }
          }
          for (const [n, event] of everyNth(3, [...recorded.entries()])) {
            const rest = await readToEnd(eventLog, {
              after: event.position,
              known: placeOf(event),
              prefixes: [stream],
            })
            expect(rest.events().map(asWritten)).toEqual(events.slice(n + 1))
          }
        },
      )

      test('45 resent events are recognized no matter how they were grouped, and other events are not', async () => {
        const { stream, events } = await appended([3, 1, 4])
        const head = await eventLog.head()
        for (const from of everyNth(3, [...events.keys()]))
          for (let to = from + 1; to <= events.length; to++)
            expect(
              await eventLog.append(stream, from === 0 ? 'none' : from - 1, events.slice(from, to)),
            ).toEqual(writtenAt(to - 1, true))
        // Only the ids are compared, not the data.
        const other = events.slice(1, 5).map((event) => ({ ...event, data: '{"other":true}' }))
        expect(await eventLog.append(stream, 0, other)).toEqual(writtenAt(4, true))
        for (let at = 1; at < 5; at++)
          await expectConflict(
            eventLog.append(stream, 0, events.slice(1, 5).with(at - 1, newEvent())),
            events.length - 1,
          )
        await expectConflict(eventLog.append(stream, 5, [...events.slice(6), newEvent()]), events.length - 1)
        await expectConflict(eventLog.append(stream, 0, events.slice(2, 5)), events.length - 1)
        expect(await eventLog.head()).toBe(head)
        expect((await readAll(eventLog, stream)).map(asWritten)).toEqual(events)
      })

      test('45 more events and bytes than fit on a page are read and followed completely', async () => {
        const after = await eventLog.head()
        const stream = freshStream()
        let revision: number | 'none' = 'none'
        const written: string[] = []
        const append = async (own: NewEvent[]): Promise<void> => {
          revision = (await eventLog.append(stream, revision, own)).revision
          written.push(...own.map(({ id }) => id))
        }
        for (let n = 0; n < 8; n++) await append([newEvent({ data: `"${'x'.repeat(900_000)}"` })])
        for (let n = 0; n < 600; n += 20)
          await Promise.all([append(newEvents(1)), eventLog.append(freshStream(), 'none', newEvents(20))])
        const ids = (events: readonly RecordedEvent[]): string[] => events.map(({ id }) => id)
        expect(ids(await readAll(eventLog, stream))).toEqual(written)
        expect(ids(await eventLog.read(stream, { max: 10_000, direction: 'backwards' }))).toEqual(
          written.toReversed(),
        )
        const followed = (await readToEnd(eventLog, { after, prefixes: ['ledger-'] })).events()
        expect(ids(followed.filter((event) => event.stream === stream))).toEqual(written)
        expect((await readToEnd(eventLog, { after })).events()).toHaveLength(written.length + 600)
      })

      test('45 simultaneous reads of many streams return the events of each, even next to large, missing and impossible ones', async () => {
        const large = freshStream()
        const missing = freshStream()
        for (let n = 0; n < 6; n++)
          await eventLog.append(large, n === 0 ? 'none' : n - 1, [
            newEvent({ data: `"${'x'.repeat(900_000)}"` }),
          ])
        const streams = Array.from({ length: 150 }, (_, n) => ({
          stream: freshStream(),
          events: newEvents(1 + (n % 4)),
        }))
        await Promise.all(streams.map(({ stream, events }) => eventLog.append(stream, 'none', events)))
        const [written, ...others] = await Promise.all([
          Promise.all(
            streams.map(({ stream }, n) =>
              n % 2 === 0 ? eventLog.read(stream, { max: 3 }) : eventLog.read(stream, { from: 1, max: 10 }),
            ),
          ),
          readAll(eventLog, large),
          errorOf(() => eventLog.read(missing, { max: 10 })),
          errorOf(() => eventLog.read('ledger-a\u0000b', { max: 10 })),
          errorOf(() => eventLog.read('', { max: 10 })),
        ])
        expect(written.map((own) => own.map(asWritten))).toEqual(
          streams.map(({ events }, n) => (n % 2 === 0 ? events.slice(0, 3) : events.slice(1))),
        )
        const [all, ...errors] = others
        expect(all).toHaveLength(6)
        for (const error of errors) expect(error).toBeInstanceOf(StreamMissing)
      })

      test.runIf(exhaustive)(
        '45 a read that does not fit into memory is refused, but a smaller read succeeds',
        async () => {
          const stream = freshStream()
          const bytes = 990_000
          const count = Math.floor(readBytesMax / bytes) + 1
          for (let n = 0; n < count; n++)
            await eventLog.append(stream, n === 0 ? 'none' : n - 1, [
              newEvent({ data: `"${'x'.repeat(bytes)}"` }),
            ])
          expect(await errorOf(() => eventLog.read(stream, { max: 1_000 }))).toBeInstanceOf(TooLarge)
          expect(await eventLog.read(stream, { max: 10 })).toHaveLength(10)
        },
      )

      test('46 a log restored to the middle of an append is a different log for a reader that read the whole append', async (context) => {
        await restored(async ({ log: { eventLog: own, restore, reopen }, stream }) => {
          const events = newEvents(5)
          await own.append(stream, 'none', events)
          const recorded = await readAll(own, stream)
          const reader = reading(own)
          await reader.until((one) => one.events().length === 5)
          await restore(recorded[2]?.position ?? 0n)
          await expect(reader.until((one) => one.events().length > 5)).rejects.toMatchObject({
            cause: expect.any(LogRewritten),
          })
          const other = await reopen()
          expect((await readAll(other, stream)).map(asWritten)).toEqual(events.slice(0, 3))
          expect(await other.append(stream, 2, newEvents(2))).toEqual(writtenAt(4))
          const place = recorded[3]
          if (place === undefined) throw new Error('nothing was read')
          expect(await stillHolds(other, placeOf(place))).toBe(false)
        }, context)
      })
    })

    describe('one order', () => {
      test('27 positions strictly increase, the head is the last position, and the log contains only appended events', async () => {
        await withFreshLog(async (fresh) => {
          expect(await fresh.eventLog.head()).toBe(logStart)
          expect((await readToEnd(fresh.eventLog)).events()).toEqual([])
          const written: NewEvent[] = []
          for (let n = 0; n < 10; n++) {
            const events = newEvents(1 + (n % 3))
            await fresh.eventLog.append(freshStream(n % 2 === 0 ? 'ledger' : 'key'), 'none', events)
            written.push(...events)
            await fresh.eventLog.append('pricebook', 77, newEvents(1)).catch(() => undefined)
          }
          const recorded = (await readToEnd(fresh.eventLog)).events()
          expect(recorded.map(asWritten)).toEqual(written)
          expectIncreasing(recorded.map(({ position }) => position))
          expect(await fresh.eventLog.head()).toBe(recorded.at(-1)?.position)
        })
      })

      test('28 the order within every stream is the order in the whole log, even with concurrent writers', async () => {
        const clients = [eventLog, await log.reopen(), await log.reopen()]
        const after = await eventLog.head()
        const streams = Array.from({ length: 9 }, () => freshStream())
        await Promise.all(
          streams.map(async (stream, n) => {
            const client = clients[n % clients.length] ?? eventLog
            for (let revision = 0; revision < 20; revision += 2)
              await client.append(stream, revision === 0 ? 'none' : revision - 1, newEvents(2))
          }),
        )
        const all = (await readToEnd(eventLog, { after, batchMax: 50 })).events()
        expect(all).toHaveLength(180)
        expectIncreasing(all.map(({ position }) => position))
        for (const stream of streams) {
          const own = all.filter((event) => event.stream === stream)
          expect(own.map(({ revision }) => revision)).toEqual(own.map((_, n) => n))
          expect(own).toEqual(await readAll(eventLog, stream))
        }
      })
    })

    describe('following', () => {
      test('29 from the start: all events, then caught-up once, then new events', async () => {
        await withFreshLog(async ({ eventLog: own, reopen }) => {
          const before = newEvents(25)
          await own.append('ledger-a', 'none', before)
          const reader = reading(own, { batchMax: 10 })
          await reader.until(caughtUp)
          expect(reader.events().map(asWritten)).toEqual(before)
          expect(reader.items.at(-1)).toEqual({ kind: 'caught-up', position: await own.head() })
          const live = newEvents(7)
          await own.append('ledger-b', 'none', live.slice(0, 3))
          await reader.until((now) => now.events().length === 28)
          await (await reopen()).append('ledger-a', 24, live.slice(3))
          await reader.until((now) => now.events().length === 32)
          await reader.stop()
          expect(reader.events().map(asWritten)).toEqual([...before, ...live])
          expect(reader.items.filter(({ kind }) => kind === 'caught-up')).toHaveLength(1)
          for (const item of reader.items)
            if (item.kind === 'events') expect(item.events.length).toBeGreaterThan(0)
          expect(reader.items.every((item) => item.kind !== 'events' || item.events.length <= 10)).toBe(true)
        })
      })

      test('29 a subscription to an empty log is caught up immediately', async () => {
        await withFreshLog(async (fresh) => {
          // The subscription can report positions of other clients' events before this event.
          const [item, ...more] = (await readToEnd(fresh.eventLog)).items.filter(
            ({ kind }) => kind !== 'idle',
          )
          expect([item?.kind, more]).toEqual(['caught-up', []])
          // After the last delivered event, the log can contain events that are not delivered: the engine's own, or those of
          // other logs.
          expect(item?.position).toBeGreaterThanOrEqual(await fresh.eventLog.head())
        })
      })

      test('30 there is no gap and no duplicate between catching up and following, even while others write', async () => {
        const other = await log.reopen()
        const after = await eventLog.head()
        const streams = [freshStream(), freshStream(), freshStream()]
        const readers: Reader[] = []
        const positions: Position[] = []
        await Promise.all([
          ...streams.map(async (stream, n) => {
            for (let revision = 0; revision < 20; revision++)
              await (n === 0 ? other : eventLog).append(
                stream,
                revision === 0 ? 'none' : revision - 1,
                newEvents(1),
              )
          }),
          (async () => {
            for (let n = 0; n < 12; n++) {
              const from = n % 2 === 0 ? after : await other.head()
              positions.push(from)
              const reader = reading(eventLog, { after: from, batchMax: 1 + n * 3 })
              readers.push(reader)
              await reader.until(caughtUp)
            }
          })(),
        ])
        const all = (await readToEnd(eventLog, { after })).events()
        expect(all).toHaveLength(60)
        const last = all.at(-1)?.position ?? logStart
        for (const [n, reader] of readers.entries()) {
          await reader.until(({ items }) => (items.at(-1)?.position ?? logStart) >= last)
          const from = positions[n] ?? logStart
          expect(reader.events()).toEqual(all.filter(({ position }) => position > from))
          await reader.stop()
        }
      })

      test('33 prefixes select streams; positions never decrease and never pass a matching event that was not delivered', async () => {
        const after = await eventLog.head()
        const write = async (): Promise<void> => {
          for (let n = 0; n < 30; n++)
            await eventLog.append(freshStream(['key', 'keyring', 'pixel'][n % 3]), 'none', newEvents(1))
        }
        await write()
        const readers = [['key-'], ['key'], ['key-', 'pixel-'], ['pixel-', 'key', 'key-'], ['nothing-']].map(
          (prefixes) => ({
            prefixes,
            reader: reading(eventLog, { after, prefixes, batchMax: 4 }),
          }),
        )
        await Promise.all(readers.map(({ reader }) => reader.until(caughtUp)))
        await write()
        const head = await eventLog.head()
        const all = (await readToEnd(eventLog, { after })).events()
        for (const { prefixes, reader } of readers) {
          await reader.until(({ items }) => (items.at(-1)?.position ?? logStart) >= head)
          await reader.stop()
          const matching = all.filter(({ stream }) => prefixes.some((prefix) => stream.startsWith(prefix)))
          expect(reader.events()).toEqual(matching)
          let reached = after
          let delivered = 0
          for (const item of reader.items) {
            if (item.kind === 'events') delivered += item.events.length
            expect(item.position).toBeGreaterThanOrEqual(reached)
            reached = item.position
            expect(matching.filter(({ position }) => position <= reached)).toHaveLength(delivered)
          }
        }
      })

      test('34 a slow consumer loses nothing, and only the events that it took are in memory', {
        skip: !exhaustive,
      }, async () => {
        const stream = freshStream()
        const after = await eventLog.head()
        const largeEvent = () => newEvent({ data: `"${'x'.repeat(900_000)}"` })
        const [first, ...later] = Array.from({ length: 24 }, largeEvent)
        if (first === undefined) throw new Error('no events')
        const ids = [first.id, ...later.map(({ id }) => id)]
        await eventLog.append(stream, 'none', [first])
        const stopping = new AbortController()
        const slow = eventLog
          .subscribe({ after, prefixes: [], batchMax: 2, signal: stopping.signal })
          [Symbol.asyncIterator]()
        const seen: string[] = []
        const take = async (): Promise<void> => {
          const { value } = await slow.next()
          if (value?.kind !== 'events') return
          expect(value.events.length).toBeLessThanOrEqual(2)
          seen.push(...value.events.map(({ id }: RecordedEvent) => id))
        }
        while (seen.length === 0) await take()
        for (const [revision, event] of later.entries()) await eventLog.append(stream, revision, [event])
        later.length = 0
        const before = reachableBytes()
        // The progress of another consumer proves that the log had time to push events.
        let passed = 0
        for await (const item of eventLog.subscribe({
          after,
          prefixes: [],
          batchMax: 2,
          signal: stopping.signal,
        })) {
          if (item.kind === 'events') passed += item.events.length
          if (item.kind === 'caught-up') break
        }
        expect(passed).toBe(24)
        expect(reachableBytes() - before).toBeLessThan(12_000_000)
        while (seen.length < 24) await take()
        stopping.abort()
        expect(seen).toEqual(ids)
      })

      test('34 a caught-up reader that needs 100 ms per batch gets all waiting events, not just a few', async () => {
        // A busy machine sometimes reads too slowly, so a second attempt may succeed. A faulty reader never succeeds.
        const attempts: (readonly number[])[] = []
        const total = (sizes: readonly number[]): number => sizes.reduce((sum, size) => sum + size, 0)
        while (attempts.length < 5 && total(attempts.at(-1) ?? []) < 600) attempts.push(await sizesRead())
        expect(total(attempts.at(-1) ?? []), `in batches of ${attempts.join(' or ')}`).toBe(600)
      })

      /** The sizes of the first 15 batches, or fewer, that a slow reader gets of 600 waiting events. */
      const sizesRead = async (): Promise<number[]> => {
        const after = await eventLog.head()
        const [first, ...waiting] = [freshStream(), freshStream(), freshStream(), freshStream()]
        const stopping = new AbortController()
        const slow = eventLog
          .subscribe({ after, prefixes: [], batchMax: 2_000, signal: stopping.signal })
          [Symbol.asyncIterator]()
        const sizes: number[] = []
        const take = async (): Promise<SubscriptionItem> => {
          const { value } = await slow.next()
          if (value?.kind === 'events') sizes.push(value.events.length)
          return value
        }
        while ((await take()).kind !== 'caught-up');
        await eventLog.append(first ?? '', 'none', newEvents(1))
        while (sizes.length === 0) await take()
        // All these events would fit into one read of the log.
        for (const stream of waiting)
          for (let revision = 0; revision < 200; revision += 20)
            await eventLog.append(stream, revision === 0 ? 'none' : revision - 1, newEvents(20))
        sizes.length = 0
        while (sizes.length < 15 && sizes.reduce((sum, size) => sum + size, 0) < 600) {
          await take()
          await sleep(100)
        }
        stopping.abort()
        return sizes
      }
    })

    describe('after the log was replaced by a different one', () => {
      test('41 an event is found by its position, and only by that', async () => {
        const stream = freshStream()
        await log.eventLog.append(stream, 'none', newEvents(3))
        const events = await readAll(log.eventLog, stream)
        for (const event of events) expect(await log.eventLog.at(event.position)).toEqual(event)
        const [first, last] = [events[0], events.at(-1)]
        if (first === undefined || last === undefined) throw new Error('nothing was read')
        const known = new Set(events.map(({ position }) => position))
        for (let position = last.position; position > first.position; position -= 7n)
          if (!known.has(position)) expect((await log.eventLog.at(position))?.stream).not.toBe(stream)
        const between = first.position - 1n
        const before = await log.eventLog.at(between)
        expect(before === null || before.position === between).toBe(true)
        const head = await log.eventLog.head()
        for (const past of [1n, 2n, 3n, 1_000_000n]) {
          expect(await log.eventLog.at(head + past)).toBeNull()
          expect(await stillHolds(log.eventLog, { ...placeOf(last), position: head + past })).toBe(false)
        }
        await log.eventLog.append(stream, 2, newEvents(1))
        expect(await log.eventLog.read(stream, { max: 10 })).toHaveLength(4)
      })

      test("42 the engine returns a stream's last revision, and the list of streams", async () => {
        const category = freshStream('listed').replace('-', '')
        const [one, two] = [`${category}-one`, `${category}-two`]
        await log.eventLog.append(one, 'none', newEvents(3))
        await log.eventLog.append(two, 'none', newEvents(1))
        expect(await log.eventLog.lastRevision(one)).toBe(2)
        expect(await log.eventLog.lastRevision(`${category}-three`)).toBeNull()
        expect((await log.eventLog.streams(`${category}-`)).sort()).toEqual([one, two])
      })

      test('43 a reader whose log is restored from an older copy gets an error, and no event from the restored log', async (context) => {
        await restored(async ({ log: { eventLog, restore }, stream }) => {
          await eventLog.append(stream, 'none', newEvents(5))
          const events = await readAll(eventLog, stream)
          const readers = [reading(eventLog), reading(eventLog, { prefixes: [stream] })]
          for (const reader of readers) await reader.until((one) => one.events().length === 5)
          await restore(events[2]?.position ?? 0n)
          for (const reader of readers) {
            await expect(reader.until((one) => one.events().length > 5)).rejects.toMatchObject({
              cause: expect.any(LogRewritten),
            })
            expect(reader.events()).toHaveLength(5)
          }
        }, context)
      })

      test('44 the same is true if the restored log has grown longer than the one that was read', async (context) => {
        await restored(async ({ log: { eventLog, restore, reopen }, stream }) => {
          await eventLog.append(stream, 'none', newEvents(5))
          const events = await readAll(eventLog, stream)
          const last = events.at(-1)
          if (last === undefined) throw new Error('nothing was read')
          await restore(events[1]?.position ?? 0n)
          const other = await reopen()
          await appendUntilKnown(other, stream, 1, newEvents(10))
          const reader = reading(other, { after: last.position, known: placeOf(last) })
          await expect(reader.until((one) => one.events().length > 0)).rejects.toMatchObject({
            cause: expect.any(LogRewritten),
          })
        }, context)
      })

      describe('47 the log loses its last events, and another process fills it again to the same revision', () => {
        /** The result of an append, which is repeated until the engine can be reached again. */
        const settled = (eventLog: EventLog, stream: string, expected: number): Promise<unknown> =>
          vi.waitFor(async () => {
            const result = await eventLog
              .append(stream, expected, newEvents(1))
              .catch((error: unknown) => error)
            if (result instanceof UnknownOutcome || result instanceof Unavailable) throw result
            return result
          }, 20_000)

        test.for([
          { seen: 'written', sameIds: false },
          { seen: 'read', sameIds: false },
          { seen: 'followed', sameIds: false },
          // A call that is repeated with its Idempotency-Key has the same event ids, but was recorded at another time.
          { seen: 'written', sameIds: true },
          { seen: 'read', sameIds: true },
        ])(
          'a process that has $seen the lost events appends nothing after the new ones (same ids: $sameIds)',
          async ({ seen, sameIds }, context) => {
            if (sameIds && seen === 'written' && !engine.tellsRepetition)
              return context.skip(
                'writers read what they have written if the engine does not report repeated appends',
              )
            await restored(async ({ log: { eventLog: late, restore, reopen }, stream }) => {
              const other = await reopen()
              await appendUntilKnown(late, freshStream('key'), 'none', newEvents(1))
              await appendUntilKnown(other, stream, 'none', newEvents(1))
              const [first] = await other.read(stream, { max: 1 })
              const lost = newEvents(2)
              await (seen === 'written' ? late : other).append(stream, 0, lost)
              if (seen === 'read') await readAll(late, stream)
              if (seen === 'followed') await readToEnd(late)
              await restore(first?.position ?? 0n)
              const fresh = await reopen()
              const others = newEvents(2).map((event, n) =>
                sameIds ? { ...event, id: lost[n]?.id ?? '' } : event,
              )
              await appendUntilKnown(fresh, stream, 0, others)
              expect(await settled(late, stream, 2)).toBeInstanceOf(LogRewritten)
              await expect(late.append(freshStream(), 'none', newEvents(1))).rejects.toBeInstanceOf(
                LogRewritten,
              )
              expect((await readAll(fresh, stream)).slice(1).map(asWritten)).toEqual(others)
            }, context)
          },
        )
      })
    })

    describe('ending', () => {
      test('37 every request settles while the engine does not answer, and later attempts succeed', async () => {
        const silenceable = await engine.openSilenceable()
        const { eventLog: own, settlesWithinMs } = silenceable
        try {
          const [one, two] = [newEvents(2), newEvents(2)]
          // A cold server needs time for its first append.
          await appendUntilKnown(own, 'ledger-a', 'none', one)
          // The two reads run at the same time, so that each has an open connection.
          await Promise.all([readAll(own, 'ledger-a'), own.head()])
          silenceable.silence()
          const asking = Promise.allSettled([
            own.append('ledger-a', 1, two),
            own.read('ledger-a', { max: 10 }),
            own.head(),
          ])
          const [append, read, head] = await takesAtMost(settlesWithinMs, asking)
          if (append.status === 'fulfilled') throw new Error('an append succeeded without an answer')
          expect([UnknownOutcome, Unavailable]).toContain(append.reason.constructor)
          for (const asked of [read, head])
            expect(asked).toMatchObject({ status: 'rejected', reason: expect.any(Unavailable) })
          silenceable.speak()
          expect(await appendUntilKnown(own, 'ledger-a', 1, two)).toEqual(writtenAt(3, true))
          expect((await readAll(own, 'ledger-a')).map(asWritten)).toEqual([...one, ...two])
        } finally {
          silenceable.speak()
          await silenceable.close()
        }
      })

      test('47 if a silent engine has an append and another event takes the same place, exactly one of them is written', async () => {
        const silenceable = await engine.openSilenceable()
        const { eventLog: own } = silenceable
        try {
          await appendUntilKnown(own, 'ledger-a', 'none', newEvents(1))
          const [held, fence] = [newEvents(2), newEvent()]
          silenceable.silence()
          await expect(own.append('ledger-a', 0, held)).rejects.toThrow()
          const other = await silenceable.reopen()
          const fencing = appendUntilKnown(other, 'ledger-a', 0, [fence]).then(
            () => 'fenced',
            (error: unknown) => (error instanceof AppendConflict ? 'conflict' : String(error)),
          )
          silenceable.speak()
          const isFenced = (await fencing) === 'fenced'
          const written = isFenced ? [fence] : held
          expect((await readAll(other, 'ledger-a')).slice(1).map(asWritten)).toEqual(written)
          if (isFenced) await expectConflict(own.append('ledger-a', 0, held), 1)
          else await expectConflict(other.append('ledger-a', 0, [fence]), 2)
        } finally {
          silenceable.speak()
          await silenceable.close()
        }
      })

      test('38 close settles all appends, reads and subscriptions', async () => {
        const own = await log.reopen()
        const stream = freshStream()
        await own.append(stream, 'none', newEvents(1))
        const waiting = reading(own, { after: await own.head() })
        await waiting.until(caughtUp)
        const reading1 = reading(own, { batchMax: 1 })
        await reading1.until(({ items }) => items.length > 0)
        const streams = Array.from({ length: 50 }, () => freshStream())
        const appends = streams.map((name) => own.append(name, 'none', newEvents(1)))
        const reads = streams.map(() => own.read(stream, { max: 1 }))
        // The rejections are expected, and checked below.
        for (const asked of [...appends, ...reads]) asked.catch(() => undefined)
        await own.close()
        const outcomes = await Promise.allSettled(appends)
        for (const [n, outcome] of outcomes.entries()) {
          const there = await readAll(eventLog, streams[n] ?? '').then(
            () => true,
            () => false,
          )
          if (outcome.status === 'fulfilled') expect(there).toBe(true)
          else if (outcome.reason instanceof Unavailable) expect(there).toBe(false)
          else expect(outcome.reason).toBeInstanceOf(UnknownOutcome)
        }
        const patience = sleep(2_000, 'still asked')
        const settled = Promise.allSettled(reads).then(() => 'settled')
        expect(await Promise.race([settled, patience]), 'reads, two seconds after the close').toBe('settled')
        // Both subscriptions end because the log closes, not because their signals are aborted.
        await expect(waiting.until(() => false)).rejects.toThrow('ended')
        await expect(reading1.until(() => false)).rejects.toThrow('ended')
      })

      test('38 a closed log refuses requests, and a subscription to it ends', async () => {
        const own = await log.reopen()
        const stream = freshStream()
        await own.append(stream, 'none', newEvents(1))
        await own.close()
        await expect(own.append(stream, 0, newEvents(1))).rejects.toThrow(Unavailable)
        await expect(own.read(stream, { max: 1 })).rejects.toThrow(Unavailable)
        await expect(own.head()).rejects.toThrow(Unavailable)
        await expect(reading(own).until(() => false)).rejects.toThrow('ended')
        expect(await readAll(eventLog, stream)).toHaveLength(1)
      })

      test('38 an aborted signal ends a subscription before it starts, while it reads, and while it waits', async () => {
        const after = await eventLog.head()
        await eventLog.append(freshStream(), 'none', newEvents(5))
        const never = reading(eventLog, { after, signal: AbortSignal.abort() })
        await expect(never.until(() => false)).rejects.toThrow('ended')
        expect(never.items).toEqual([])
        const early = reading(eventLog, { after, batchMax: 1 })
        await early.until(({ items }) => items.length > 0)
        await early.stop()
        const waiting = reading(eventLog, { after })
        await waiting.until(caughtUp)
        await waiting.stop()
        const count = waiting.events().length
        await eventLog.append(freshStream(), 'none', newEvents(1))
        expect(waiting.events()).toHaveLength(count)
      })

      test('39 two clients are isolated: closing or breaking one does not affect the other', async () => {
        const [one, two] = [await log.reopen(), await log.reopen()]
        const [a, b] = [freshStream(), freshStream()]
        const readerOfTwo = reading(two, { after: await two.head(), prefixes: [b] })
        await readerOfTwo.until(caughtUp)
        const appends = Promise.all([
          one.append(a, 'none', newEvents(1)),
          two.append(b, 'none', newEvents(2)),
        ])
        expect(await appends).toEqual([writtenAt(0), writtenAt(1)])
        await expectConflict(one.append(b, 'none', newEvents(1)), 1)
        await one.close()
        expect(await two.append(b, 1, newEvents(1))).toEqual(writtenAt(2))
        await readerOfTwo.until((now) => now.events().length === 3)
        await readerOfTwo.stop()
        expect(await readAll(two, b)).toHaveLength(3)
      })
    })
  })
}

const expectIncreasing = (positions: readonly Position[]): void => {
  for (const [n, position] of positions.entries())
    expect(position).toBeGreaterThan(positions[n - 1] ?? logStart)
}
