/** The event log in PostgreSQL: the contract of every event log, and the behaviour of the connections and locks of this engine. */

import { zstdCompressSync } from 'node:zlib'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import {
  AppendConflict,
  type EventLog,
  LogRewritten,
  type LookedBack,
  type NewEvent,
  StreamMissing,
  Unavailable,
  UnknownOutcome,
} from '../../src/event-log/port.ts'
import { openPostgresEventLog } from '../../src/event-log/postgres/index.ts'
import { everyNth, exhaustive } from '../support/exhaustive.ts'
import { logger } from '../support/logger.ts'
import { restorePostgresLog, testDatabase } from '../support/postgres.ts'
import { recordedEvents } from '../support/segments.ts'
import { startTcpProxy } from '../support/tcp-proxy.ts'
import {
  appendUntilKnown,
  asWritten,
  caughtUp,
  eventLogContract,
  expectUnchangedOrRefused,
  freshStream,
  type LogUnderTest,
  newEvent,
  newEvents,
  readAll,
  reading,
  readToEnd,
} from './event-log.ts'

type PostgresLog = LogUnderTest & { readonly url: string }

/** `through` turns the database's URL into the URL that clients use. */
const open = async (through: (url: string) => string = (url) => url): Promise<PostgresLog> => {
  const database = await testDatabase()
  const clients: { eventLog: EventLog; closed: boolean }[] = []
  const client = (): EventLog => {
    const opened = openPostgresEventLog({ url: through(database.url), logger })
    const entry = { eventLog: opened, closed: false }
    clients.push(entry)
    return {
      ...opened,
      close: () => {
        entry.closed = true
        return opened.close()
      },
    }
  }
  return {
    eventLog: client(),
    url: database.url,
    reopen: async () => client(),
    restore: (position) => restorePostgresLog(database.url, position),
    close: async () => {
      await Promise.all(clients.filter(({ closed }) => !closed).map(({ eventLog }) => eventLog.close()))
      await database.drop()
    },
  }
}

const openBehindProxy = async (settings = '') => {
  const database = await testDatabase()
  const server = new URL(database.url)
  const proxy = await startTcpProxy({ host: server.hostname, port: Number(server.port) })
  await database.drop()
  const log = await open((url) => {
    const proxied = new URL(url)
    proxied.port = String(proxy.port)
    proxied.search = settings
    return proxied.href
  })
  const close = async (): Promise<void> => {
    await log.close()
    await proxy.close()
  }
  return { ...log, proxy, close }
}

eventLogContract('PostgreSQL', {
  tellsRepetition: true,
  open,
  openSilenceable: async () => {
    // The client's own query timeout, shortened from ten seconds.
    const log = await openBehindProxy('?query_timeout=700')
    return { ...log, silence: log.proxy.freeze, speak: log.proxy.thaw, settlesWithinMs: 7_000 }
  },
})

/** Makes the mark ten seconds old, so that the next append moves it. */
const ageMark = (client: pg.Client) => client.query(`update log_mark set noted_at = now() - interval '10 s'`)

/** A trigger that discards rows, as other software could add it. */
const foreignTrigger = (on: string): string =>
  `create function discard() returns trigger language plpgsql as 'begin return null; end';
   create trigger foreign_part ${on} for each row execute function discard()`

describe('the event log in PostgreSQL', () => {
  let log: PostgresLog
  let eventLog: EventLog
  /** The test's own connection, separate from the log's connections. */
  let sql: pg.Client

  const connect = async (): Promise<pg.Client> => {
    const client = new pg.Client({ connectionString: log.url })
    client.on('error', () => undefined)
    await client.connect()
    return client
  }

  beforeAll(async () => {
    log = await open()
    eventLog = log.eventLog
    sql = await connect()
  })
  afterAll(async () => {
    await sql.end()
    await log.close()
  })

  const untilRow = async (text: string, values: unknown[] = []): Promise<void> => {
    const deadline = Date.now() + 10_000
    while ((await sql.query(text, values)).rowCount === 0)
      if (Date.now() > deadline) throw new Error(`in 10 s there was no row: ${text}`)
  }

  const terminate = async (part: 'append' | 'listen' | 'read'): Promise<number> => {
    const { rowCount } = await sql.query(
      `select pg_terminate_backend(pid, 5000) from pg_stat_activity
        where datname = current_database() and application_name = $1`,
      [`event-log-${part}`],
    )
    return rowCount ?? 0
  }

  const untilWaiting = (part: 'append' | 'read', count = 1): Promise<void> =>
    untilRow(
      `select from pg_stat_activity where datname = current_database() and application_name = $1
          and wait_event_type = 'Lock' having count(*) >= $2`,
      [`event-log-${part}`, count],
    )

  const expectContiguous = async (): Promise<void> => {
    const positions = (await recordedEvents(sql)).map(({ position }) => position)
    expect(positions).toEqual(positions.map((_, n) => BigInt(n + 1)))
    expect(await eventLog.head()).toBe(BigInt(positions.length))
  }

  test('a log restored from an older copy accepts no append, in any stream, from a process that has read further', async () => {
    const own = await open()
    try {
      const stream = freshStream()
      await appendUntilKnown(own.eventLog, stream, 'none', newEvents(3))
      const [, second] = await readAll(own.eventLog, stream)
      await readToEnd(own.eventLog)
      await own.restore?.(second?.position ?? 0n)
      await expect(own.eventLog.append(freshStream(), 'none', newEvents(1))).rejects.toBeInstanceOf(
        LogRewritten,
      )
      await expect(appendUntilKnown(own.eventLog, stream, 1, newEvents(1))).rejects.toBeInstanceOf(
        LogRewritten,
      )
      expect(await readAll(await own.reopen(), stream)).toHaveLength(2)
    } finally {
      await own.close()
    }
  })

  describe('a standby without the last events takes over, and another process fills the log again', () => {
    /** Cuts the log to `position` and ends every connection, as clients see a promoted standby. */
    const takeOver = async ({ url }: PostgresLog, position: bigint): Promise<void> => {
      await restorePostgresLog(url, position)
      await sql.query(
        `select pg_terminate_backend(pid, 5000) from pg_stat_activity
          where datname = $1 and application_name in ('event-log-append', 'event-log-read')`,
        [new URL(url).pathname.slice(1)],
      )
    }

    /** The result of an append, which is repeated until the connections are open again. */
    const settled = (eventLog: EventLog, stream: string, expected: number): Promise<unknown> =>
      vi.waitFor(async () => {
        const result = await eventLog.append(stream, expected, newEvents(1)).catch((error: unknown) => error)
        if (result instanceof UnknownOutcome || result instanceof Unavailable) throw result
        return result
      }, 10_000)

    test('a process that took over without a loss appends as before', async () => {
      const own = await open()
      try {
        const stream = freshStream()
        await own.eventLog.append(stream, 'none', newEvents(3))
        await readToEnd(own.eventLog)
        await takeOver(own, 3n)
        expect(await settled(own.eventLog, stream, 2)).toMatchObject({ revision: 3 })
      } finally {
        await own.close()
      }
    })

    test('a subscription to rare events does not skip those that were written at positions it had passed', async () => {
      const own = await openBehindProxy()
      const fresh = openPostgresEventLog({ url: own.url, logger })
      try {
        const [rare, busy] = [freshStream('key'), freshStream()]
        await own.eventLog.append(rare, 'none', newEvents(1))
        await own.eventLog.append(busy, 'none', newEvents(6))
        const reader = reading(own.eventLog, { prefixes: ['key-'] })
        await reader.until(caughtUp)
        own.proxy.freeze()
        await takeOver(own, 3n)
        await appendUntilKnown(fresh, rare, 0, newEvents(1))
        await appendUntilKnown(fresh, busy, 1, newEvents(10))
        own.proxy.thaw()
        const later = appendUntilKnown(fresh, rare, 1, newEvents(1))
        await expect(reader.until((one) => one.events().length > 1)).rejects.toMatchObject({
          cause: expect.any(LogRewritten),
        })
        await later
      } finally {
        await fresh.close()
        await own.close()
      }
    })
  })

  test.each([
    ['off', 'on'],
    ['local', 'local'],
    ['remote_write', 'remote_write'],
    ['on', 'on'],
    ['remote_apply', 'remote_apply'],
  ])(
    'if the database sets synchronous_commit to %s, appends use %s, because a crash must not lose them',
    async (setting, used) => {
      const own = await open()
      const owner = new pg.Client({ connectionString: own.url })
      await owner.connect()
      try {
        await owner.query(`alter database ${owner.database} set synchronous_commit = ${setting}`)
        await owner.query(`
        create table public.commits (setting text);
        create function note_commit() returns trigger language plpgsql as
          $$ begin insert into public.commits values (current_setting('synchronous_commit')); return new; end $$;
        create trigger noted after insert on log_segments for each row execute function note_commit()`)
        await own.eventLog.append(freshStream(), 'none', newEvents(1))
        expect((await owner.query('select setting from public.commits')).rows).toEqual([{ setting: used }])
      } finally {
        await owner.end()
        await own.close()
      }
    },
  )

  test.each([
    ['log_segments', 'create rule foreign_part as on insert to log_segments do instead nothing', 'none'],
    ['log_segments', foreignTrigger('before insert on log_segments'), 'none'],
    ['log_stream_marks', foreignTrigger('before update on log_stream_marks'), 0],
    ['log_stream_marks', foreignTrigger('before insert on log_stream_marks'), 'none'],
  ] as const)(
    'an append whose row in %s is discarded by a foreign trigger or rule fails, and is written after its removal',
    async (table, foreign, expected) => {
      const own = await open()
      const owner = new pg.Client({ connectionString: own.url })
      await owner.connect()
      try {
        const stream = expected === 'none' ? freshStream() : 'key-a'
        if (expected !== 'none') await own.eventLog.append(stream, 'none', newEvents(1))
        const head = await own.eventLog.head()
        await owner.query(foreign)
        const refused = own.eventLog.append(stream, expected, newEvents(1))
        await expect(refused).rejects.toThrow(Unavailable)
        await expect(refused).rejects.toThrow(
          new RegExp(
            `${table}.*: a foreign trigger or rule changes .* remove it \\("\\\\d ${table}" in psql shows it`,
          ),
        )
        expect(await own.eventLog.head()).toBe(head)
        await owner.query(`drop ${/rule|trigger/.exec(foreign)?.[0]} foreign_part on ${table}`)
        await own.eventLog.append(stream, expected, newEvents(1))
        expect(await own.eventLog.head()).toBe(head + 1n)
      } finally {
        await owner.end()
        await own.close()
      }
    },
  )

  describe('33 prefixes', () => {
    test("are not patterns: the database's wildcards are ordinary characters", async () => {
      const after = await eventLog.head()
      const [underscore, letter] = ['ledger-org_1:a', 'ledger-orgX1:a']
      await eventLog.append(underscore, 'none', newEvents(1))
      await eventLog.append(letter, 'none', newEvents(1))
      const streams = async (...prefixes: string[]): Promise<string[]> =>
        (await readToEnd(eventLog, { after, prefixes })).events().map(({ stream }) => stream)
      expect(await streams('ledger-org_')).toEqual([underscore])
      expect(await streams('ledger-org')).toEqual([underscore, letter])
      expect(await streams('%')).toEqual([])
      expect(await streams('ledger-%')).toEqual([])
      expect(await streams('_edger')).toEqual([])
      expect(await streams('\\')).toEqual([])
      expect(await streams('ledger-org\\_')).toEqual([])
      expect(await streams('nothing', letter)).toEqual([letter])
    })

    test('a log without matches still makes progress, because idle items advance the position', async () => {
      const after = await eventLog.head()
      const reader = reading(eventLog, { after, prefixes: ['rare-'] })
      await reader.until(caughtUp)
      await eventLog.append(freshStream(), 'none', newEvents(3))
      await reader.until(({ items }) => items.at(-1)?.kind === 'idle')
      expect(reader.items.at(-1)?.position).toBe(after + 3n)
      await reader.stop()
      expect(reader.events()).toEqual([])
    })

    test('a rare match far away is found after several windows', async () => {
      const own = await open()
      const client = new pg.Client({ connectionString: own.url })
      await client.connect()
      try {
        const events = newEvents(2)
        await own.eventLog.append('ledger-a', 'none', newEvents(1))
        await client.query(`
          insert into log_segments (last_position, last_revision, stream_id, count, bytes, recorded_at, family, ids, events)
          select 1 + 1000 * n, 1000 * n, 1, 1000, 0, now(), 'ledger', '', '' from generate_series(1, 120) n`)
        await own.eventLog.append('profile-a', 'none', events)
        const reader = await readToEnd(own.eventLog, { prefixes: ['profile-'] })
        expect(reader.items.map(({ kind }) => kind)).toEqual(['idle', 'idle', 'events', 'caught-up'])
        // Each read window ends at the end of an append. An append that extends beyond a window is read as a whole by the next
        // window.
        expect(reader.items.map(({ position }) => position)).toEqual([49_001n, 99_001n, 120_003n, 120_003n])
        expect(reader.events().map(asWritten)).toEqual(events)
      } finally {
        await client.end()
        await own.close()
      }
    })
  })

  describe('35 a cut connection', () => {
    test('is replaced without any effect if it was idle', async () => {
      const stream = freshStream()
      await eventLog.append(stream, 'none', newEvents(1))
      await readAll(eventLog, stream)
      expect(await terminate('read')).toBeGreaterThan(0)
      expect(await terminate('append')).toBeGreaterThan(0)
      await untilRow(`select where not exists (select from pg_stat_activity
        where datname = current_database() and application_name in ('event-log-append', 'event-log-read'))`)
      // The next request can be sent before the cut is noticed, so it is allowed to fail. The one after it must succeed.
      await appendUntilKnown(eventLog, stream, 0, newEvents(1))
      expect((await readAll(eventLog, stream).catch(() => readAll(eventLog, stream))).length).toBe(2)
    })

    test('during a read makes the read fail as unavailable', async () => {
      const stream = freshStream()
      await eventLog.append(stream, 'none', newEvents(1))
      await sql.query('begin')
      try {
        await sql.query('lock table log_segments in access exclusive mode')
        const read = readAll(eventLog, stream)
        read.catch(() => undefined)
        await untilWaiting('read')
        await terminate('read')
        await expect(read).rejects.toThrow(Unavailable)
      } finally {
        await sql.query('rollback')
      }
      expect(await readAll(eventLog, stream)).toHaveLength(1)
    })

    test("during a subscription's query does not end the subscription, which queries again", async () => {
      const stream = freshStream()
      const reader = reading(eventLog, { after: await eventLog.head() })
      await reader.until(caughtUp)
      await sql.query('begin')
      try {
        await sql.query('lock table log_segments in access exclusive mode')
        await untilWaiting('read')
        expect(await terminate('read')).toBeGreaterThan(0)
      } finally {
        await sql.query('rollback')
      }
      const events = newEvents(2)
      await eventLog.append(stream, 'none', events)
      await reader.until((now) => now.events().length === 2)
      await reader.stop()
      expect(reader.events().map(asWritten)).toEqual(events)
      expect(reader.items.filter(({ kind }) => kind === 'caught-up')).toHaveLength(1)
    })

    test('during an append leaves the outcome unknown; appends that waited behind it are still written', async () => {
      const [one, two] = [freshStream(), freshStream()]
      const [first, behind] = [newEvents(2), newEvents(1)]
      const blocker = await connect()
      await blocker.query('begin; select from log_mark for update')
      const append = eventLog.append(one, 'none', first)
      append.catch(() => undefined)
      await untilWaiting('append')
      const waiting = eventLog.append(two, 'none', behind)
      await terminate('append')
      await expect(append).rejects.toThrow(UnknownOutcome)
      await blocker.query('rollback')
      await blocker.end()
      expect(await waiting).toEqual({ revision: 0, repeated: false })
      expect(await appendUntilKnown(eventLog, one, 'none', first)).toEqual({ revision: 1, repeated: false })
      expect((await readAll(eventLog, one)).map(asWritten)).toEqual(first)
    })

    test('of any kind, repeatedly, causes no gap and no duplicate in a subscription', {
      skip: !exhaustive,
    }, async () => {
      const writer = await log.reopen()
      const after = await eventLog.head()
      const reader = reading(eventLog, { after, batchMax: 3 })
      await reader.until(caughtUp)
      const stream = freshStream()
      const written: NewEvent[] = []
      for (const part of ['read', 'listen', 'append', 'read', 'append', 'listen'] as const) {
        const cut = { done: false }
        const cutting = terminate(part).then(() => {
          cut.done = true
        })
        for (let n = 0; n < 20 || !cut.done; n++) {
          const events = newEvents(1)
          const expected = written.length === 0 ? 'none' : written.length - 1
          expect(await appendUntilKnown(writer, stream, expected, events)).toEqual({
            revision: written.length,
            repeated: false,
          })
          written.push(...events)
        }
        await cutting
        await reader.until((now) => now.events().length >= written.length)
      }
      await reader.stop()
      expect(reader.events().map(asWritten)).toEqual(written)
      expect(reader.items.filter(({ kind }) => kind === 'caught-up')).toHaveLength(1)
      await writer.close()
    })
  })

  describe('36 a lost reply', () => {
    test.each([
      { lost: 'reply', there: 1 },
      { lost: 'request', there: 0 },
    ])(
      'the $lost of an append is lost: unknown-outcome, and the identical append converges',
      async ({ lost, there }) => {
        const own = await openBehindProxy()
        const reader = openPostgresEventLog({ url: own.url, logger })
        try {
          const [before, events] = [newEvents(1), newEvents(2)]
          await own.eventLog.append('ledger-a', 'none', before)
          const happened = lost === 'reply' ? own.proxy.loseNextReply() : own.proxy.loseNextRequest()
          await expect(own.eventLog.append('ledger-a', 0, events)).rejects.toThrow(UnknownOutcome)
          await happened
          expect(await reader.head()).toBe(1n + 2n * BigInt(there))
          expect(await own.eventLog.append('ledger-a', 0, events)).toEqual({
            revision: 2,
            repeated: lost === 'reply',
          })
          expect(await own.eventLog.append('ledger-a', 0, events)).toEqual({ revision: 2, repeated: true })
          expect((await readAll(own.eventLog, 'ledger-a')).map(asWritten)).toEqual([...before, ...events])
          expect(await reader.head()).toBe(3n)
        } finally {
          await reader.close()
          await own.close()
        }
      },
    )

    test('for a batch makes the outcome of each of its appends unknown, and resending resolves each', async () => {
      const own = await openBehindProxy()
      try {
        await own.eventLog.append('ledger-a', 'none', newEvents(1))
        const appends = Array.from({ length: 20 }, () => ({ stream: freshStream(), events: newEvents(1) }))
        const happened = own.proxy.loseNextReply()
        const outcomes = await Promise.allSettled(
          appends.map(({ stream, events }) => own.eventLog.append(stream, 'none', events)),
        )
        await happened
        for (const outcome of outcomes)
          expect(outcome).toMatchObject({ status: 'rejected', reason: expect.any(UnknownOutcome) })
        await Promise.all(
          appends.map(async ({ stream, events }) =>
            expect(await own.eventLog.append(stream, 'none', events)).toEqual({
              revision: 0,
              repeated: true,
            }),
          ),
        )
        expect(await own.eventLog.head()).toBe(21n)
      } finally {
        await own.close()
      }
    })
  })

  test('37 if a writer locks the head too long, appends fail as unavailable and are certainly not written', async () => {
    const url = new URL(log.url)
    // The server's timeout, shortened from eight seconds.
    url.searchParams.set('statement_timeout', '300')
    const own = openPostgresEventLog({ url: url.href, logger })
    const stream = freshStream()
    const events = newEvents(1)
    await sql.query('begin; select from log_mark for update')
    await expect(own.append(stream, 'none', events)).rejects.toThrow(Unavailable)
    await sql.query('rollback')
    await expect(readAll(own, stream)).rejects.toThrow(StreamMissing)
    expect(await own.append(stream, 'none', events)).toEqual({ revision: 0, repeated: false })
    await own.close()
  })

  test('37 a log whose database does not exist is unavailable for appends and reads', async () => {
    const url = new URL(log.url)
    url.port = '1'
    const own = openPostgresEventLog({ url: url.href, logger })
    await expect(own.append(freshStream(), 'none', newEvents(1))).rejects.toThrow(Unavailable)
    await expect(readAll(own, freshStream())).rejects.toThrow(Unavailable)
    await expect(own.head()).rejects.toThrow(Unavailable)
    await own.close()
  })

  test('38 a closed log closes its connections, and opens none for a subscriber that was busy at that time', async () => {
    const own = await open()
    const observer = new pg.Client({ connectionString: own.url })
    await observer.connect()
    const connections = async (): Promise<unknown[]> =>
      (
        await observer.query(
          `select application_name from pg_stat_activity
            where datname = current_database() and application_name like 'event-log-%'`,
        )
      ).rows
    const stopping = new AbortController()
    try {
      await own.eventLog.append('ledger-a', 'none', newEvents(1))
      const busy = own.eventLog
        .subscribe({ after: 0n, prefixes: [], signal: stopping.signal })
        [Symbol.asyncIterator]()
      while ((await busy.next()).value?.kind !== 'caught-up');
      expect(await connections()).not.toEqual([])
      await own.eventLog.close()
      expect(await busy.next()).toMatchObject({ done: true })
      // A connection opened by mistake appears only after a moment, and a closed one disappears only after a moment.
      for (let quiet = 0, deadline = Date.now() + 5_000; quiet < 10; ) {
        const open = await connections()
        quiet = open.length === 0 ? quiet + 1 : 0
        if (Date.now() > deadline) expect(open, 'five seconds after the close').toEqual([])
        await new Promise((resolve) => setTimeout(resolve, 10))
      }
    } finally {
      stopping.abort()
      await observer.end()
      await own.close()
    }
  })

  describe('40 a writer that pauses before its commit', () => {
    // An append of this type executes completely, and then waits for this lock before it commits.
    const pauseLock = 40
    beforeAll(async () => {
      await sql.query(`
        create function pause_before_commit() returns trigger language plpgsql as
          $$ begin perform pg_advisory_xact_lock_shared(${pauseLock}); return null; end $$;
        create constraint trigger pause_before_commit after insert on log_segments deferrable initially deferred
          for each row when (position('Slow' in encode(new.events, 'escape')) > 0) execute function pause_before_commit()`)
    })
    afterAll(async () => {
      await sql.query('drop trigger pause_before_commit on log_segments; drop function pause_before_commit')
    })

    test.each(['commits', 'is cut off'])(
      'and then %s is never skipped, and no other append overtakes it',
      async (ending) => {
        const [slowWriter, fastWriter] = [await log.reopen(), eventLog]
        const [slow, fast] = [freshStream(), freshStream()]
        const [slowEvents, fastEvents] = [
          [newEvent({ type: 'Slow' }), newEvent({ type: 'Slow' })],
          newEvents(1),
        ]
        const after = await eventLog.head()
        const reader = reading(eventLog, { after })
        await reader.until(caughtUp)
        await sql.query('select pg_advisory_lock($1)', [pauseLock])
        const slowAppend = slowWriter.append(slow, 'none', slowEvents)
        slowAppend.catch(() => undefined)
        await untilWaiting('append')
        const paused = await sql.query<{ pid: number }>(
          `select pid from pg_stat_activity where datname = current_database() and application_name = 'event-log-append'
          and wait_event = 'advisory'`,
        )
        expect(paused.rows).toHaveLength(1)
        const fastAppend = fastWriter.append(fast, 'none', fastEvents)
        await untilWaiting('append', 2)
        // The fast append must not become visible before the slow one, so a subscriber that queries now gets nothing.
        expect((await readToEnd(eventLog, { after })).events()).toEqual([])
        expect(await eventLog.head()).toBe(after)
        if (ending === 'is cut off')
          await sql.query('select pg_terminate_backend($1, 5000)', [paused.rows[0]?.pid])
        await sql.query('select pg_advisory_unlock($1)', [pauseLock])
        if (ending === 'commits') expect(await slowAppend).toEqual({ revision: 1, repeated: false })
        else await expect(slowAppend).rejects.toThrow(UnknownOutcome)
        expect(await fastAppend).toEqual({ revision: 0, repeated: false })
        const expected = ending === 'commits' ? [...slowEvents, ...fastEvents] : fastEvents
        await reader.until((now) => now.events().length >= expected.length)
        await reader.stop()
        expect(reader.events().map(asWritten)).toEqual(expected)
        expect(reader.events().map(({ position }) => position)).toEqual(
          expected.map((_, n) => after + BigInt(n + 1)),
        )
        await slowWriter.close()
      },
    )
  })

  describe('group commit', () => {
    const transactionsOf = async (streams: readonly string[]): Promise<number> => {
      const { rows } = await sql.query<{ count: number }>(
        `select count(distinct e.xmin::text)::integer as count from log_segments e join log_streams s on s.id = e.stream_id
          where s.name = any ($1)`,
        [streams],
      )
      return rows[0]?.count ?? 0
    }

    test('simultaneous appends share a transaction, and a conflict in one append does not affect the others', async () => {
      const taken = freshStream()
      await eventLog.append(taken, 'none', newEvents(3))
      const streams = Array.from({ length: 20 }, () => freshStream())
      const append = (stream: string) => eventLog.append(stream, 'none', newEvents(2))
      const [conflict, future, ...others] = await Promise.allSettled([
        append(taken),
        eventLog.append(freshStream(), 5, newEvents(1)),
        ...streams.map(append),
      ])
      expect(conflict).toMatchObject({ reason: expect.any(AppendConflict) })
      expect(conflict).toMatchObject({ reason: { actual: 2 } })
      expect(future).toMatchObject({ reason: { actual: -1 } })
      expect(others).toEqual(
        others.map(() => ({ status: 'fulfilled', value: { revision: 1, repeated: false } })),
      )
      expect(await transactionsOf(streams)).toBe(1)
    })

    test('a resent append among new ones is recognized and not written again', async () => {
      const stream = freshStream()
      const events = newEvents(2)
      await eventLog.append(stream, 'none', events)
      const streams = [freshStream(), freshStream()]
      const outcomes = await Promise.all([
        eventLog.append(streams[0] ?? '', 'none', newEvents(1)),
        eventLog.append(stream, 'none', events),
        eventLog.append(streams[1] ?? '', 'none', newEvents(3)),
      ])
      expect(outcomes.map(({ revision }) => revision)).toEqual([0, 1, 2])
      expect((await readAll(eventLog, stream)).map(asWritten)).toEqual(events)
      expect(await transactionsOf(streams)).toBe(1)
    })

    test.each([{ before: 0 }, { before: 2 }])(
      'appends to one stream of $before events, requested at the same time, are written in their order',
      async ({ before }) => {
        const stream = freshStream()
        if (before > 0) await eventLog.append(stream, 'none', newEvents(before))
        const batches = Array.from({ length: 10 }, () => newEvents(1))
        const appends = batches.map((events, n) =>
          eventLog.append(stream, before + n === 0 ? 'none' : before + n - 1, events),
        )
        expect((await Promise.all(appends)).map(({ revision }) => revision)).toEqual(
          batches.map((_, n) => before + n),
        )
        expect((await readAll(eventLog, stream)).slice(before).map(asWritten)).toEqual(batches.flat())
        // The stream's own row still has the right revision.
        await expect(eventLog.append(stream, before, newEvents(1))).rejects.toThrow(AppendConflict)
        expect(await eventLog.append(stream, before + 9, newEvents(1))).toEqual({
          revision: before + 10,
          repeated: false,
        })
      },
    )

    test('if the database refuses an append, only that append fails', async () => {
      const good = Array.from({ length: 10 }, () => ({ stream: freshStream(), events: newEvents(1) }))
      const bad = freshStream()
      const append = async (stream: string, events: readonly NewEvent[]) =>
        eventLog.append(stream, 'none', events)
      const there = newEvents(3)
      await append(bad, there)
      const { rows } = await sql.query('select id from log_stream_marks where name = $1', [bad])
      await sql.query(
        `alter table log_segments add constraint foreign_part check (stream_id <> ${rows[0].id} or last_revision < 3)`,
      )
      const refused = eventLog.append(bad, 2, newEvents(1))
      refused.catch(() => undefined)
      const outcomes = await Promise.all(good.map(({ stream, events }) => append(stream, events)))
      expect(outcomes).toEqual(outcomes.map(() => ({ revision: 0, repeated: false })))
      // The append was certainly not written, so the adapter does not search for it.
      expect(await refused.catch((error: unknown) => error)).toBeInstanceOf(Error)
      expect(await refused.catch((error: unknown) => error)).not.toBeInstanceOf(UnknownOutcome)
      expect((await readAll(eventLog, bad)).map(asWritten)).toEqual(there)
      for (const { stream, events } of good)
        expect((await readAll(eventLog, stream)).map(asWritten)).toEqual(events)
      await sql.query('alter table log_segments drop constraint foreign_part')
    })

    test('appends that contain the separator of packed values do not affect other appends', async () => {
      const good = Array.from({ length: 10 }, () => ({ stream: freshStream(), events: newEvents(2) }))
      const [appended] = await Promise.all([
        Promise.all(good.map(({ stream, events }) => eventLog.append(stream, 'none', events))),
        ...['data', 'metadata', 'type'].map((member) =>
          expectUnchangedOrRefused(eventLog, newEvent({ [member]: '"\u001e"' })),
        ),
        ...['data', 'metadata', 'type'].map((member) =>
          expectUnchangedOrRefused(eventLog, newEvent({ [member]: '' })),
        ),
      ])
      expect(appended).toEqual(appended.map(() => ({ revision: 1, repeated: false })))
      for (const { stream, events } of good)
        expect((await readAll(eventLog, stream)).map(asWritten)).toEqual(events)
    })

    test('change a row at most once in ten seconds, so a transaction that stays open does not make them slower', async () => {
      const own = await open()
      const client = new pg.Client({ connectionString: own.url })
      await client.connect()
      try {
        const versions = new Set<string>()
        await own.eventLog.append('ledger-a', 'none', newEvents(1))
        const startedAt = performance.now()
        for (let revision = 0; revision < 30; revision++) {
          await own.eventLog.append('ledger-a', revision, newEvents(1))
          const { rows } = await client.query(
            'select m.xmin::text || s.xmin::text as version from log_mark m, log_stream_marks s',
          )
          versions.add(rows[0].version)
        }
        const periods = (performance.now() - startedAt) / 10_000
        // Each of the two rows can be changed when the first and when a new period begins.
        expect(versions.size).toBeLessThanOrEqual(1 + 2 * (2 + Math.floor(periods)))
      } finally {
        await client.end()
        await own.close()
      }
    })

    test.each([
      ['key-a', 'just now', 2],
      ['ledger-a', 'just now', 0],
      ['ledger-a', 'in another period', 2],
    ])('of %s, whose last event was recorded %s, mark the revision %i', async (stream, when, marked) => {
      const own = await open()
      const client = new pg.Client({ connectionString: own.url })
      await client.connect()
      try {
        await own.eventLog.append(stream, 'none', newEvents(1))
        const recordedAt = when === 'just now' ? 'clock_timestamp()' : `now() - interval '10 s'`
        // The next period must not begin before the next append.
        await client.query(
          `select pg_sleep(extract(epoch from date_bin('10 s', now(), 'epoch') + interval '10 s' - now()))
            where date_bin('10 s', now(), 'epoch') <> date_bin('10 s', now() + interval '1 s', 'epoch')`,
        )
        await client.query(`update log_segments set recorded_at = ${recordedAt}`)
        await own.eventLog.append(stream, 0, newEvents(2))
        const { rows } = await client.query('select revision::int from log_stream_marks')
        expect(rows).toEqual([{ revision: marked }])
        expect(await own.eventLog.lastRevision(stream)).toBe(2)
      } finally {
        await client.end()
        await own.close()
      }
    })

    test.each([
      ['is ten seconds old', `now() - interval '10 s'`, 3],
      ['is of the future, because the clock was set back', `now() + interval '1 h'`, 3],
      ['is newer', `now() - interval '1 s'`, 0],
    ])('move the mark if it %s', async (_, notedAt, position) => {
      const own = await open()
      const client = new pg.Client({ connectionString: own.url })
      await client.connect()
      try {
        await client.query(`update log_mark set noted_at = ${notedAt}`)
        await own.eventLog.append('ledger-a', 'none', newEvents(3))
        const { rows } = await client.query(
          `select position::int, noted_at <= clock_timestamp() as past from log_mark`,
        )
        expect(rows).toEqual([{ position, past: true }])
      } finally {
        await client.end()
        await own.close()
      }
    })

    test.each([
      ['the row at the end', 'where last_position = 2', true],
      ['an earlier row', 'where last_position = 1', true],
      ['no row', 'where false', true],
      ['a row with other events', `where last_position = 2`, false, `'x'`],
      ['an earlier row with other events', `where last_position = 1`, false, `'x'`],
      ['a row that is missing', 'where last_position = 2', false, 'events', 'last_position + 1'],
    ])(
      'of a process that has seen %s are written only if the log still has it',
      async (_, where, written, events = 'events', position = 'last_position') => {
        const own = await open()
        const client = new pg.Client({ connectionString: own.url })
        await client.connect()
        try {
          await own.eventLog.append('ledger-a', 'none', newEvents(1))
          await own.eventLog.append('ledger-b', 'none', newEvents(1))
          const { rows } = await client.query(
            `select append_events(array['operator-x'], array[-1]::bigint[], array[1], array[12], array[12], decode(repeat('00', 16), 'hex'), 'Tested',
                                (select ${position} from log_segments ${where}), (select sha256(${events}) from log_segments ${where})) as results`,
          )
          expect(rows).toEqual([{ results: written ? ['0', '3'] : null }])
          expect(await own.eventLog.head()).toBe(written ? 3n : 2n)
        } finally {
          await client.end()
          await own.close()
        }
      },
    )

    test('of a process of release 1.0.0 fail if the log ends before its mark', async () => {
      const own = await open()
      const client = new pg.Client({ connectionString: own.url })
      await client.connect()
      try {
        const append = () => client.query(batchOf(`'one', 'two'`, '1, 1'))
        expect((await append()).rows).toEqual([{ results: ['0', '0'] }])
        await client.query('update log_mark set position = 3')
        await expect(append()).rejects.toThrow('the event log ends before its mark')
      } finally {
        await client.end()
        await own.close()
      }
    })

    const batchOf = (streams: string, counts: string): string =>
      `select append_batch(array[${streams}], array[-1, -1]::bigint[], array[${counts}], array[12, 12], array[12, 12],
                           decode(repeat('00', 48), 'hex'), 'Tested') as results`

    test('that name a stream twice are refused, because two events would get the same revision', async () => {
      const head = await eventLog.head()
      await expect(sql.query(batchOf(`'twice', 'twice'`, '1, 2'))).rejects.toThrow(
        'a batch names each stream once',
      )
      await expect(readAll(eventLog, 'twice')).rejects.toThrow(StreamMissing)
      expect(await eventLog.head()).toBe(head)
    })

    test.each(['repeatable read', 'serializable'])(
      'in a transaction that is %s are refused, because it would not see the end of the log',
      async (level) => {
        await sql.query(`begin isolation level ${level}`)
        try {
          await expect(sql.query(batchOf(`'one', 'two'`, '1, 1'))).rejects.toThrow(
            `append_events needs the isolation level read committed, not ${level}`,
          )
        } finally {
          await sql.query('rollback')
        }
      },
    )

    test('more appends than one batch can contain, from two clients, are all written', async () => {
      const other = await log.reopen()
      const outcomes = await Promise.all(
        Array.from({ length: 700 }, (_, n) =>
          (n % 2 === 0 ? eventLog : other).append(freshStream(), 'none', newEvents(1)),
        ),
      )
      expect(outcomes.every(({ revision }) => revision === 0)).toBe(true)
    })
  })

  describe('a row that was edited', () => {
    const broken: [string, string, unknown[]][] = [
      ['a frame that is cut', 'events = substring(events for 40)', []],
      ['a frame that opens to 64 MB', 'events = $2', [zstdCompressSync(Buffer.alloc(64 * 1024 * 1024))]],
      [
        'a frame that opens to 64 MB and states that size',
        'events = $2, bytes = 67108864',
        [zstdCompressSync(Buffer.alloc(64 * 1024 * 1024))],
      ],
      ['a frame that opens to less', 'events = $2', [zstdCompressSync(Buffer.alloc(10))]],
      ['a frame without its beginning', 'events = substring(events from 3)', []],
      ['the beginning of a frame alone', 'events = substring(events for 4)', []],
      ['a text instead of a frame', `events = 'CreditCharged'`, []],
      ['an id too few', 'ids = substring(ids for 64)', []],
      ['a wrong count', 'count = count - 1', []],
      ['a recording time without end', `recorded_at = 'infinity'`, []],
      ['a recording time that no date can express', `recorded_at = '290000-01-01'`, []],
    ]
    test.each(everyNth(3, broken))(
      '%s: the error names the row, and no other stream is affected',
      async (_, change, values) => {
        const own = await open()
        const client = new pg.Client({ connectionString: own.url })
        await client.connect()
        try {
          const [before, events] = [newEvents(2), newEvents(5)]
          const long = events.map((event) => ({ ...event, data: `"${'d'.repeat(2_000)}"` }))
          await own.eventLog.append('ledger-a', 'none', before)
          await own.eventLog.append('ledger-a', 1, long)
          await own.eventLog.append('ledger-b', 'none', before)
          await client.query(`update log_segments set ${change} where last_position = $1`, [7, ...values])
          const named = { name: 'EventsUnreadable', stream: 'ledger-a', lastRevision: 6 }
          await expect(own.eventLog.read('ledger-a', { max: 10 })).rejects.toMatchObject(named)
          await expect(own.eventLog.at(7n)).rejects.toMatchObject(named)
          const asked = own.eventLog.read('ledger-a', { max: 10 })
          await expect(asked).rejects.toThrow(/^revisions [23] to 6 of ledger-a cannot be opened: /)
          expect(await own.eventLog.read('ledger-a', { max: 2 })).toHaveLength(2)
          expect(await own.eventLog.read('ledger-b', { max: 10 })).toHaveLength(2)
          // `lookBack` reports the unreadable row and skips it. A page ends when the sizes stored in the rows add up to enough
          // bytes.
          const back: LookedBack[] = [await own.eventLog.lookBack({ before: null, max: 10 })]
          for (let next = back[0]?.next ?? null; next !== null; next = back.at(-1)?.next ?? null)
            back.push(await own.eventLog.lookBack({ before: next, max: 10 }))
          expect(back.flatMap(({ events }) => events).map(({ position }) => position)).toEqual([
            9n,
            8n,
            2n,
            1n,
          ])
          expect(back.flatMap(({ unreadable }) => unreadable)).toMatchObject([named])
          // Events before the unreadable row are delivered. The reader must not continue after it, because it cannot find out
          // which events it skipped.
          const reader = reading(own.eventLog)
          await expect(reader.until(caughtUp)).rejects.toMatchObject({
            cause: expect.objectContaining(named),
          })
          expect(reader.events().map(asWritten)).toEqual(before)
        } finally {
          await client.end()
          await own.close()
        }
      },
    )
  })

  describe('tables that someone edited', () => {
    const edited = async (change: string, use: (log: PostgresLog, sql: pg.Client) => Promise<void>) => {
      const own = await open()
      const client = new pg.Client({ connectionString: own.url })
      await client.connect()
      try {
        await own.eventLog.append('ledger-a', 'none', newEvents(2))
        await own.eventLog.append('ledger-a', 1, newEvents(5))
        await ageMark(client)
        await own.eventLog.append('key-b', 'none', newEvents(2))
        await client.query(change)
        await use(own, client)
      } finally {
        await client.end()
        await own.close()
      }
    }

    test.each([
      [
        'the newest row is deleted',
        'delete from log_segments where last_position = 9',
        /at position 9, but .* ends at 7:/,
      ],
      ['all rows are deleted', 'truncate log_segments', /at position 9, but .* ends at 0:/],
      ['log_mark is set forward', 'update log_mark set position = 99', /at position 99, but .* ends at 9:/],
      ['log_mark is empty', 'delete from log_mark', /the table log_mark has no row:/],
    ])('%s: no process appends or follows the log, and the error names the remedy', (_, change, sentence) =>
      edited(change, async (own, client) => {
        const rows = 'select last_position from log_segments order by 1'
        const before = (await client.query(rows)).rows
        for (const log of [own.eventLog, await own.reopen()]) {
          for (const asked of [
            log.append('ledger-c', 'none', newEvents(1)),
            log.append('ledger-a', 6, newEvents(1)),
          ]) {
            const refusal = await asked.catch((error: unknown) => error)
            expect(refusal).toBeInstanceOf(LogRewritten)
            expect(refusal).toMatchObject({ message: expect.stringMatching(sentence) })
            expect(refusal).toMatchObject({ message: expect.stringContaining('from one backup') })
          }
          for (const prefixes of [[], ['ledger-'], ['key-']]) {
            const reader = reading(log, { prefixes })
            await expect(reader.until(caughtUp)).rejects.toMatchObject({ cause: expect.any(LogRewritten) })
            expect(reader.items).toEqual([])
          }
        }
        expect((await client.query(rows)).rows).toEqual(before)
      }),
    )

    test('log_mark is set back: every process appends and follows the log as before', () =>
      edited('update log_mark set position = 5', async ({ eventLog: own, reopen }) => {
        for (const [n, log] of [own, await reopen()].entries()) {
          await log.append('ledger-a', 6 + n, newEvents(1))
          expect((await readToEnd(log)).events().map(({ position }) => Number(position))).toEqual(
            Array.from({ length: 10 + n }, (_, index) => index + 1),
          )
        }
      }))

    test('a reader of ledgers stops at missing rows that fill a whole window, instead of asking again and again', () =>
      edited(
        `update log_segments set last_position = last_position + 100000 where last_position > 2`,
        async ({ reopen }) => {
          const reader = reading(await reopen(), { prefixes: ['ledger-'] })
          await expect(reader.until(caughtUp)).rejects.toMatchObject({
            cause: expect.objectContaining({
              name: 'LogRewritten',
              message: expect.stringContaining('rows of log_segments after position 2 are missing'),
            }),
          })
          expect(reader.events()).toHaveLength(2)
        },
      ))
  })

  test('27 positions have no gaps, after all the conflicts, failures, cuts and rollbacks above', async () => {
    await expectContiguous()
  })

  test('recorded events cannot be changed or removed, not even by the owner of the table', async () => {
    const { rows } = await sql.query(
      `select privilege_type from information_schema.table_privileges
        where table_name = 'log_segments' and privilege_type in ('UPDATE', 'DELETE', 'TRUNCATE')`,
    )
    expect(rows).toEqual([])
  })
})
