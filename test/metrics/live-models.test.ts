/** In-memory read models that follow the event log never become outdated without notice. */
import fastify from 'fastify'
import { type Logger, pino } from 'pino'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { defaultPriceBook } from '../../src/billing/price-book.ts'
import { parseConfig } from '../../src/config.ts'
import { type Following, follow } from '../../src/event-log/follow.ts'
import { type EventLog, LogRewritten, logStart, Unavailable } from '../../src/event-log/port.ts'
import { encodeEvent, eventIdOf } from '../../src/event-log/stored-event.ts'
import { priceBookStream } from '../../src/events/streams.ts'
import { openKeyDirectory } from '../../src/guard/key-directory.ts'
import { openPriceBooks } from '../../src/ledger/prices/price-books.ts'
import type { LiveModel } from '../../src/metrics/health.ts'
import { createHealth } from '../../src/metrics/health.ts'
import { operations } from '../../src/metrics/routes.ts'
import { createMemoryEventLog } from '../support/memory-event-log.ts'
import { eventually } from '../support/service.ts'

type Fragile = {
  readonly eventLog: EventLog
  /** Ends every open and every later subscription with this error, or without an error if it is null. */
  breakWith(error: Error | null): void
  mend(): void
  readonly begun: bigint[]
}

let fragile: Fragile
let logged: string[]
let logger: Logger
let stopping: (() => Promise<void>)[]

beforeEach(() => {
  logged = []
  stopping = []
  logger = pino({ level: 'error' }, { write: (line) => logged.push(String(JSON.parse(line).level)) })
  fragile = createFragile()
})
afterEach(async () => {
  for (const stop of stopping) await stop()
})

const createFragile = (): Fragile => {
  const eventLog = createMemoryEventLog().client('one')
  const begun: bigint[] = []
  let broken: { error: Error | null } | null = null
  let cutting = new AbortController()
  async function* subscribe(options: Parameters<EventLog['subscribe']>[0]) {
    begun.push(options.after)
    const signal = AbortSignal.any([options.signal, cutting.signal])
    if (broken === null) yield* eventLog.subscribe({ ...options, signal })
    const error = broken?.error
    if (error instanceof Error && !options.signal.aborted) throw error
  }
  return {
    eventLog: { ...eventLog, subscribe },
    breakWith: (error) => {
      broken = { error }
      cutting.abort()
    },
    mend: () => {
      broken = null
      cutting = new AbortController()
    },
    begun,
  }
}

const append = async (version: number): Promise<void> => {
  await fragile.eventLog.append(priceBookStream, version === 1 ? 'none' : version - 2, [
    encodeEvent(
      { type: 'PriceBookPublished', data: { ...defaultPriceBook, version } },
      {
        id: eventIdOf(priceBookStream, String(version), 0),
        actor: 'cli',
        effectiveAt: defaultPriceBook.effective_from,
      },
    ),
  ])
}

const followed = (): { following: Following; applied: number[] } => {
  const applied: number[] = []
  const following = follow({
    eventLog: fragile.eventLog,
    after: logStart,
    prefixes: [priceBookStream],
    logger,
    apply: (event) => {
      if (event.type === 'PriceBookPublished') applied.push(event.data.version)
    },
    unreadable: () => undefined,
  })
  stopping.push(following.stop)
  return { following, applied }
}

const until = (what: () => boolean): Promise<true> => eventually(async () => (what() ? true : undefined))

describe('a follower', () => {
  test('whose log becomes unavailable subscribes again after the last event that it applied: each is applied exactly once', async () => {
    await append(1)
    const { following, applied } = followed()
    await following.caughtUp
    expect(following.failure()).toBeNull()
    fragile.breakWith(new Unavailable('away'))
    await until(() => fragile.begun.length >= 3)
    expect(following.failure()).toMatchObject({ name: 'Unavailable', message: 'away' })
    await append(2)
    fragile.mend()
    await until(() => following.failure() === null)
    await until(() => applied.length === 2)
    await append(3)
    await until(() => applied.length === 3)
    expect(applied).toEqual([1, 2, 3])
    expect(new Set(fragile.begun.slice(1))).toEqual(new Set([1n]))
    expect(logged).not.toContain('60')
  })

  test('that cannot start because the log is unavailable catches up afterwards', async () => {
    await append(1)
    fragile.breakWith(new Unavailable('not there yet'))
    const { following, applied } = followed()
    await until(() => fragile.begun.length >= 2)
    fragile.mend()
    await following.caughtUp
    expect(applied).toEqual([1])
  })

  test.each([
    ['an error that is final', () => new Error('the log ends before it was read')],
    ['silence', () => null],
  ])(
    'whose subscription ends with %s logs that, stays failed, and follows no other log',
    async (_, error) => {
      await append(1)
      const { following, applied } = followed()
      await following.caughtUp
      fragile.breakWith(error())
      await until(() => following.failure() !== null)
      fragile.mend()
      await append(2)
      await following.stop()
      expect(following.failure()).toMatchObject({
        message: error()?.message ?? 'the event log ended the subscription',
      })
      expect(applied).toEqual([1])
      expect(fragile.begun).toHaveLength(1)
      expect(logged).toEqual(['60'])
    },
  )

  test('that fails for good before it has caught up rejects everyone who waits for that', async () => {
    fragile.breakWith(new Error('final'))
    await expect(followed().following.caughtUp).rejects.toThrow('final')
  })

  test('that is stopped has not failed, also while it waits to subscribe again', async () => {
    const quiet = followed().following
    await quiet.caughtUp
    await quiet.stop()
    expect(quiet.failure()).toBeNull()
    fragile.breakWith(new Unavailable('away'))
    const waiting = followed().following
    await until(() => waiting.failure() !== null)
    await waiting.stop()
    const begun = fragile.begun.length
    expect(logged).not.toContain('60')
    fragile.mend()
    expect(fragile.begun).toHaveLength(begun)
  })
})

describe('models that follow one log', () => {
  const model = (prefix: string, after: bigint, received: string[], name = prefix) => {
    const following = follow({
      eventLog: fragile.eventLog,
      after,
      prefixes: [prefix],
      logger,
      apply: ({ recorded }) => received.push(`${name} ${recorded.stream} ${recorded.revision}`),
      unreadable: ({ stream, revision }) => received.push(`${name} ${stream} ${revision}`),
    })
    stopping.push(following.stop)
    return following
  }
  const write = async (stream: string, revision: number): Promise<void> => {
    const id = eventIdOf(stream, String(revision), 0)
    const event = { id, type: 'Told', data: '{}', metadata: '{}' }
    await fragile.eventLog.append(stream, revision === 0 ? 'none' : revision - 1, [event])
  }

  test('share one subscription: each gets its own events, once and in order, also one that joins later', async () => {
    const received: string[] = []
    const keys = model('key-', logStart, received)
    await write('key-a', 0)
    await write('pixel-a', 0)
    await until(() => received.length === 1)
    const pixels = model('pixel-', logStart, received)
    await Promise.all([keys.caughtUp, pixels.caughtUp])
    expect(received).toEqual(['key- key-a 0', 'pixel- pixel-a 0'])
    await write('pixel-a', 1)
    await write('ledger-a', 0)
    await write('key-a', 1)
    await until(() => received.length === 4)
    expect(received.slice(2)).toEqual(['pixel- pixel-a 1', 'key- key-a 1'])
    // The first subscription is for the first model. The second starts again from the beginning, for both models.
    expect(fragile.begun).toEqual([0n, 0n])
    await keys.stop()
    await write('key-a', 2)
    await write('pixel-a', 2)
    await until(() => received.length === 5)
    expect(received.at(-1)).toBe('pixel- pixel-a 2')
    expect([keys.failure(), pixels.failure()]).toEqual([null, null])
    const later = model('key-', await fragile.eventLog.head(), received, 'later')
    await later.caughtUp
    await write('key-a', 3)
    await until(() => received.length === 6)
    expect(received.at(-1)).toBe('later key-a 3')
  })

  test('fail together if the log is a different one, and log that once', async () => {
    const models = ['key-', 'pixel-', 'pricebook'].map((prefix) => model(prefix, logStart, []))
    await Promise.all(models.map(({ caughtUp }) => caughtUp))
    fragile.breakWith(new LogRewritten('another log'))
    await until(() => models.every((one) => one.failure() instanceof LogRewritten))
    expect(logged).toEqual(['60'])
  })
})

describe('a process whose live model no longer follows the event log', () => {
  const readyOf = async (
    models: readonly Pick<LiveModel, 'name' | 'failure'>[],
  ): Promise<{ status: number; body: unknown }> => {
    // The model queries this pool only for the release and for checkpoints, and there are no checkpoints.
    const pool = {
      query: async (text: string) => ({ rows: text.includes('server_version') ? [{ number: 160_000 }] : [] }),
    }
    const host = fastify()
    const health = createHealth({
      eventLog: fragile.eventLog,
      config: parseConfig({}),
      pool: pool as unknown as Parameters<typeof createHealth>[0]['pool'],
      ledger: { failure: () => null },
      diskSpace: { seen: () => null },
      liveModels: models.map((model) => ({ ...model, doubtful: () => 0 })),
    })
    await host.register(operations({ health, showsRows: false }))
    const { statusCode, body } = await host.inject('/readyz')
    await host.close()
    return { status: statusCode, body: JSON.parse(body) }
  }

  test.each(['api_keys', 'price_books'] as const)('is not ready, and names the model: %s', async (name) => {
    await append(1)
    const directory = await openKeyDirectory({ eventLog: fragile.eventLog, listed: [], logger })
    const prices = openPriceBooks({ eventLog: fragile.eventLog, logger })
    stopping.push(directory.stop, prices.stop)
    await Promise.all([directory.caughtUp, prices.caughtUp])
    const model = { api_keys: directory, price_books: prices }[name]
    const fine = { name: 'another', failure: () => null }
    const models = [{ name, failure: model.failure }, fine]
    expect(await readyOf(models)).toMatchObject({
      status: 200,
      body: { status: 'ready', checks: { [name]: { status: 'ok' } } },
    })
    fragile.breakWith(new Error('the log was restored from an older copy'))
    await until(() => model.failure() !== null)
    expect(await readyOf(models)).toMatchObject({
      status: 503,
      body: {
        status: 'not_ready',
        checks: { [name]: { status: 'failed' }, another: { status: 'ok' }, event_log: { status: 'ok' } },
      },
    })
  })

  test.each([
    ['from a later release', 'PriceBookRewritten', '{}'],
    ['without its required members', 'PriceBookWithdrawn', '{}'],
    [
      'with an invalid date',
      'PriceBookPublished',
      JSON.stringify({ ...defaultPriceBook, version: 2, effective_from: '2026-02-30T25:00:00.000Z' }),
    ],
  ])('prices nothing from when an event %s is among the books, and is not ready', async (_, type, data) => {
    await append(1)
    const prices = openPriceBooks({ eventLog: fragile.eventLog, logger })
    stopping.push(prices.stop)
    await prices.caughtUp
    expect(prices.at(Date.now()).version).toBe(1)
    await fragile.eventLog.append(priceBookStream, 0, [
      {
        id: eventIdOf(priceBookStream, 'tomorrow', 0),
        type,
        data,
        metadata: JSON.stringify({
          schema_version: type === 'PriceBookPublished' ? 2 : 1,
          actor: 'cli',
          effective_at: '2026-09-14T00:00:00.000Z',
        }),
      },
    ])
    await until(() => prices.failure() !== null)
    expect(() => prices.at(Date.now())).toThrow(Unavailable)
    expect(prices.doubtful()).toBe(1)
    expect(await readyOf([{ name: 'price_books', failure: prices.failure }])).toMatchObject({ status: 503 })
  })

  test('is ready again when the model follows again', async () => {
    const directory = await openKeyDirectory({ eventLog: fragile.eventLog, listed: [], logger })
    stopping.push(directory.stop)
    await directory.caughtUp
    const models = [{ name: 'api_keys', failure: directory.failure }]
    fragile.breakWith(new Unavailable('away'))
    await until(() => directory.failure() !== null)
    expect(await readyOf(models)).toMatchObject({ status: 503 })
    fragile.mend()
    await until(() => directory.failure() === null)
    expect(await readyOf(models)).toMatchObject({ status: 200 })
  })
})
