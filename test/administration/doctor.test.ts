/** What "doctor" makes of what it sees: each thing looked at for itself, with doubles of the database's answers where they are named so. */
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { type AddressInfo, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type pg from 'pg'
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest'
import { clockCheck } from '../../src/administration/doctor/clocks.ts'
import { databaseChecks } from '../../src/administration/doctor/database.ts'
import { growthCheck } from '../../src/administration/doctor/disk.ts'
import { environmentChecks } from '../../src/administration/doctor/environment.ts'
import { type Check, type Finding, lookAt, ok } from '../../src/administration/doctor/finding.ts'
import { jobsCheck } from '../../src/administration/doctor/jobs.ts'
import { keyDirChecks } from '../../src/administration/doctor/keys.ts'
import { networkChecks } from '../../src/administration/doctor/network.ts'
import { proofChecks as checksOf, proofsOf, webhooksCheck } from '../../src/administration/doctor/proofs.ts'
import { recordReconciled } from '../../src/administration/reconciliations.ts'
import { listsAge } from '../../src/capabilities/email-validation/lists/age.ts'
import { commands } from '../../src/cli/commands.ts'
import { parseConfig } from '../../src/config.ts'
import { appendNext } from '../../src/event-log/append-next.ts'
import { eventIdOf } from '../../src/event-log/event-id.ts'
import type { EventLog, RecordedEvent } from '../../src/event-log/port.ts'
import { operatorStream, priceBookStream } from '../../src/events/streams.ts'
import { parseSoundConfig } from '../../src/foundation/sound-config.ts'
import { examine } from '../../src/start/doctor.ts'
import { startDnsServer } from '../support/dns-server.ts'
import { createMemoryEventLog } from '../support/memory-event-log.ts'

const minuteMs = 60_000
const hourMs = 60 * minuteMs
const dayMs = 24 * hourMs

let dir = ''
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'doctor-checks-'))
})
afterAll(() => rm(dir, { recursive: true, force: true }))
afterEach(() => void vi.useRealTimers())

const lines = async (...checks: Check[]): Promise<string[]> =>
  (await lookAt(checks)).map(({ level, says }) => `${level}: ${says}`)

const named = (checks: readonly Check[], about: string): Check => {
  const found = checks.find((one) => one.about === about)
  if (found === undefined) throw new Error(`nothing looks at ${about}`)
  return found
}

/** A double of the database: answers each statement that matches with these rows. */
const databaseSaying = (...answers: readonly (readonly [RegExp, readonly object[]])[]): pg.Pool =>
  ({
    query: async (text: string) => {
      const answer = answers.find(([pattern]) => pattern.test(text))
      if (answer === undefined) throw new Error(`not expected: ${text}`)
      return { rows: answer[1], rowCount: answer[1].length }
    },
  }) as never

/** A server that takes any question and gives this version. */
const startOldPostgres = async (version: string, number: number) => {
  const message = (type: string, body: Buffer): Buffer => {
    const length = Buffer.alloc(4)
    length.writeInt32BE(body.length + 4)
    return Buffer.concat([Buffer.from(type), length, body])
  }
  const int = (bytes: 2 | 4, value: number): Buffer => {
    const buffer = Buffer.alloc(bytes)
    buffer.writeIntBE(value, 0, bytes)
    return buffer
  }
  const ready = message('Z', Buffer.from('I'))
  const columns = { version, number: String(number), name: 'postgres' }
  const described = Object.keys(columns).map((name) =>
    Buffer.concat([
      Buffer.from(`${name}\0`),
      ...[int(4, 0), int(2, 0), int(4, name === 'number' ? 23 : 25), int(2, -1), int(4, -1), int(2, 0)],
    ]),
  )
  const given = Object.values(columns).flatMap((value) => [int(4, value.length), Buffer.from(value)])
  const answer = Buffer.concat([
    message('T', Buffer.concat([int(2, described.length), ...described])),
    message('D', Buffer.concat([int(2, described.length), ...given])),
    message('C', Buffer.from('SELECT 1\0')),
    ready,
  ])
  let questions = 0
  const server = createServer((socket) => {
    let begun = false
    socket.on('error', () => undefined)
    socket.on('data', (bytes) => {
      if (!begun) socket.write(Buffer.concat([message('R', int(4, 0)), ready]))
      else if (bytes.toString('latin1', 0, 1) === 'X') socket.end()
      else {
        questions += 1
        socket.write(answer)
      }
      begun = true
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  return {
    url: `postgres://someone@127.0.0.1:${port}/postgres`,
    asked: () => questions,
    close: () => server.close(),
  }
}

test('a PostgreSQL that is too old is one fault with its remedy, and nothing else in it is looked at', async () => {
  const old = await startOldPostgres('15.8', 150_008)
  const secret = 'a secret of the test, long enough to be one'
  const findings = await examine({ DATABASE_URL: old.url, SECRET_KEY: secret, DATA_DIR: dir, KEY_DIR: dir })
  old.close()
  const about = [
    'database',
    'database settings',
    'database rights',
    'migrations',
    'event log',
    'jobs',
    'webhooks',
  ]
  const told = findings.filter(
    (one) => one.level !== 'ok' && [...about, 'processes', 'keys'].includes(one.about),
  )
  expect(told.filter(({ level }) => level === 'fault')).toMatchObject([
    {
      about: 'database',
      says: expect.stringMatching(
        /^PostgreSQL 15\.8 at 127.* it is too old, and nothing in it was looked at$/,
      ),
      remedy: expect.stringContaining('Move to PostgreSQL 16 or newer'),
    },
  ])
  expect(old.asked()).toBe(1)
})

test('every command that a remedy names exists', async () => {
  const root = new URL('../../', import.meta.url)
  const folder = new URL('src/administration/doctor/', root)
  const files = [
    ...(await readdir(folder)).map((name) => new URL(name, folder)),
    new URL('src/start/doctor.ts', root),
    new URL('src/capabilities/ip-lookup/checks.ts', root),
    new URL('src/capabilities/email-validation/lists/age.ts', root),
  ]
  const names = new Set(commands.map(({ name }) => name))
  const nouns = new Set([...names].map((name) => name.split(' ')[0]))
  const named = (await Promise.all(files.map((file) => readFile(file, 'utf8')))).flatMap((text) =>
    [...text.matchAll(/"([a-z-]+ [a-z-]+)(?: [^"]*)?"|\b(event-log [a-z-]+) --/g)].map(
      ([, quoted, bare]) => quoted ?? bare ?? '',
    ),
  )
  const commanded = named.filter((words) => nouns.has(words.split(' ')[0]))
  expect(commanded.length).toBeGreaterThan(15)
  expect(commanded.filter((words) => !names.has(words))).toEqual([])
})

describe('looking', () => {
  test('what throws and what hangs are faults of their own, and the order stays', async () => {
    const checks: Check[] = [
      { about: 'hanging', look: () => new Promise<never>(() => undefined) },
      {
        about: 'throwing',
        look: () => {
          throw new AggregateError([new Error('connect ECONNREFUSED\n    at stack')])
        },
      },
      { about: 'nothing', look: () => [] },
      { about: 'well', look: async () => [ok('one', { n: 1 }), ok('two')] },
    ]
    const found = await lookAt(checks, 50)
    expect(found.map(({ about, level, says }) => [about, level, says])).toEqual([
      ['hanging', 'fault', 'no answer within 0.05 s'],
      ['throwing', 'fault', 'it could not be looked at: connect ECONNREFUSED'],
      ['well', 'ok', 'one'],
      ['well', 'ok', 'two'],
    ] satisfies [string, Finding['level'], string][])
  })
})

describe('the environment', () => {
  const checksOf = (environment: Record<string, string>) => {
    const { config, faults } = parseSoundConfig(environment)
    return environmentChecks(environment, { config, faults: [...faults.values()], nodeRange: '>=24.15' })
  }
  const passwordLines = (environment: Record<string, string>): Promise<string[]> =>
    lines(named(checksOf(environment), 'passwords'))

  test.each([
    ['DATABASE_URL', 'postgres://app:postgres@db:5432/x', 'a well-known one'],
    ['DATABASE_URL', 'postgres://app:app@db:5432/x', 'the name of its user'],
    ['DATABASE_URL', 'postgres://app:chang%65me@db/x', 'a well-known one'],
    ['EVENT_LOG_URL', 'esdb+discover://admin:changeit@one:2113,two:2113?tls=true', 'a well-known one'],
    ['REDIS_URL', 'redis://cache.internal:6379', 'missing'],
  ])('%s=%s is a warning', async (name, url, what) => {
    expect(await passwordLines({ [name]: url })).toEqual([`warning: ${name}: its password is ${what}`])
  })

  test.each([
    ['DATABASE_URL', 'postgres://app:Xk3jd8s9@db/x'],
    ['DATABASE_URL', 'postgres://app@db/x'],
    ['REDIS_URL', 'redis://127.0.0.1:6379'],
    ['EVENT_LOG_URL', 'esdb://localhost:2113?tls=false'],
    ['SECRET_KEY', 'oXb0sP2vDk9tQ4mZ7rYw1uCg6hJf3nEa'],
  ])('%s=%s is none', async (name, value) => {
    expect(await passwordLines({ [name]: value })).toEqual(['ok: none is a well-known one'])
  })

  test('a SECRET_KEY that was typed is a warning, and not repeated', async () => {
    expect(await passwordLines({ SECRET_KEY: 'abcabcabcabcabcabcabcabcabcabcabcabc' })).toEqual([
      'warning: SECRET_KEY has only 3 different characters',
    ])
  })

  test('what makes no sense is left out, a line for each, and the rest counts', () => {
    const { config, faults } = parseSoundConfig({
      ...{ API_PORT: 'x', SMTP_PORT: '0', TLS_KEY: '/key', DATA_DIR: '/data', SECRET_KEY: 'short' },
    })
    expect([...faults.keys()].toSorted()).toEqual(['API_PORT', 'SECRET_KEY', 'SMTP_PORT', 'TLS_KEY'])
    expect([config.DATA_DIR, config.API_PORT, config.SECRET_KEY]).toEqual(['/data', 3000, undefined])
    expect([...faults.values()].join('\n')).not.toContain('short')
    expect(parseSoundConfig({}).faults.size).toBe(0)
  })
})

describe('the database', () => {
  const well = {
    ...{ fsync: 'on', full_page_writes: 'on', synchronous_commit: 'on', autovacuum: 'on', encoding: 'UTF8' },
    ...{ read_only: 'off', recovering: false, connections_max: 100, connections: 12, age: 1_000 },
  }
  const settingsWith = (changed: object): Promise<string[]> =>
    lines(
      named(
        databaseChecks({ pool: databaseSaying([/fsync/, [{ ...well, ...changed }]]) }),
        'database settings',
      ),
    )

  test.each([
    [{ fsync: 'off' }, 'fault: fsync is off: calls that were answered may be lost'],
    [{ synchronous_commit: 'off' }, 'fault: synchronous_commit is off: calls that were answered may be lost'],
    [{ recovering: true }, 'fault: it takes no writes: it is a standby, or read-only'],
    [{ read_only: 'on' }, 'fault: it takes no writes: it is a standby, or read-only'],
    [{ encoding: 'SQL_ASCII' }, 'fault: its encoding is SQL_ASCII'],
    [{ connections: 95 }, 'warning: 95 of 100 connections are in use'],
    [{ age: 1_500_000_000 }, 'warning: its oldest transaction id is 1500000000 transactions old'],
  ])('%j is told', async (changed, line) => {
    expect(await settingsWith(changed)).toEqual([line])
  })

  test('that is as it should be is told with its connections', async () => {
    expect(await settingsWith({})).toEqual(['ok: safe against a crash; 12 of 100 connections in use'])
  })
})

describe('jobs', () => {
  const job = {
    name: 'checkpoint',
    cron: '7 * * * *',
    scheduled_ms: 9 * dayMs,
    state: 'completed',
    message: null,
    ended_ms: 0,
    done_ms: 0,
  }
  const jobLines = (...rows: object[]): Promise<string[]> =>
    lines(jobsCheck(databaseSaying([/as made/, [{ made: true }]], [/pgboss.queue/, rows])))

  test.each([
    [{ done_ms: 125 * minuteMs }, 'ok: 1 by the clock and 0 on request: none fails or is late'],
    [{ done_ms: 131 * minuteMs }, 'warning: checkpoint last ran 2 h ago, and is due every 60 min'],
    [
      { cron: '*/5 * * * *', done_ms: 21 * minuteMs },
      'warning: checkpoint last ran 21 min ago, and is due every 5 min',
    ],
    [
      { cron: '37 2 * * *', done_ms: 47 * hourMs },
      'ok: 1 by the clock and 0 on request: none fails or is late',
    ],
    [
      { cron: '37 2 * * *', done_ms: 50 * hourMs },
      'warning: checkpoint last ran 2 days ago, and is due every 24 h',
    ],
    [{ done_ms: null, scheduled_ms: hourMs }, 'ok: 1 by the clock and 0 on request: none fails or is late'],
    [{ done_ms: null }, 'warning: checkpoint never ran, and is due every 60 min'],
    [
      { cron: '0 0 1 * *', done_ms: 20 * dayMs },
      'ok: 1 by the clock and 0 on request: none fails or is late',
    ],
    [
      { state: 'failed', message: 'no room\nat x', ended_ms: 90_000 },
      'fault: checkpoint failed 90 s ago: no room',
    ],
    [{ cron: null, state: 'failed', ended_ms: 0 }, 'warning: checkpoint failed 0 ms ago: no reason is kept'],
  ])('%j is told', async (changed, line) => {
    expect(await jobLines({ ...job, ...changed })).toEqual([line])
  })

  test('all of them late have one cause, and one line', async () => {
    const rows = Array.from({ length: 9 }, (_, i) => ({ ...job, name: `job-${i}`, done_ms: dayMs }))
    expect(await jobLines(...rows)).toEqual(['warning: 9 jobs by the clock did not run when they were due'])
  })

  test('a database that never had a queue of jobs is told', async () => {
    const none = databaseSaying([/as made/, [{ made: false }]])
    expect(await lines(jobsCheck(none))).toEqual(['warning: no job was ever scheduled'])
  })
})

describe('what proves the log and brings it back', () => {
  const proofChecks = (eventLog: EventLog) => checksOf({ eventLog, checkpoint: async () => null })

  test('an alarm rings at the bound from which doctor warns', async () => {
    const { proofs } = proofsOf({
      eventLog: createMemoryEventLog().client('doctor'),
      checkpoint: async () => null,
    })
    const alerts = await readFile(new URL('../../src/metrics/observe/alerts.yml', import.meta.url), 'utf8')
    for (const { name, bound } of proofs)
      if (bound !== null)
        expect(alerts).toContain(`max(enrichment_${name}_age_seconds) > ${bound.warningMs / hourMs} * 3600`)
  })

  const at = (ms: number): string => new Date(ms).toISOString()
  const startMs = Date.parse('2026-05-01T00:00:00Z')

  /** The log as one that was begun, by its own clock, with a first price book. */
  const begun = (eventLog: EventLog): EventLog => ({
    ...eventLog,
    read: (stream, options) =>
      stream === priceBookStream
        ? Promise.resolve([{ recordedAtMs: startMs } as RecordedEvent])
        : eventLog.read(stream, options),
  })

  const scene = async (
    ...acts: readonly { readonly type: string; readonly data: object; readonly atMs: number }[]
  ) => {
    vi.useFakeTimers({ toFake: ['Date'], now: startMs })
    const eventLog = begun(createMemoryEventLog().client('doctor'))
    for (const [n, { type, data, atMs }] of acts.entries()) {
      vi.setSystemTime(atMs)
      const metadata = JSON.stringify({ actor: 'system', effective_at: at(atMs) })
      const id = eventIdOf(operatorStream, `doctor/${n}`, 0)
      await appendNext(eventLog, operatorStream, [{ id, type, data: JSON.stringify(data), metadata }])
    }
    return (about: string, nowMs: number): Promise<string[]> => {
      vi.setSystemTime(nowMs)
      return lines(named(proofChecks(eventLog), about))
    }
  }

  test('nothing is missed in an empty log, and but for a backup nothing in one that has just begun', async () => {
    const ask = await scene({ type: 'Whatever', data: {}, atMs: startMs })
    const empty = proofChecks(createMemoryEventLog().client('doctor'))
    for (const about of ['checkpoints', 'verification', 'reconciliation', 'backup'])
      expect(await lines(named(empty, about))).toEqual([expect.stringMatching(/^ok: /)])
    for (const about of ['checkpoints', 'verification', 'reconciliation'])
      expect(await ask(about, startMs + hourMs)).toEqual([expect.stringMatching(/^ok: /)])
  })

  test('a checkpoint is missed after two hours, and is a fault after 26', async () => {
    const ask = await scene({ type: 'Whatever', data: {}, atMs: startMs })
    expect(await ask('checkpoints', startMs + 3 * hourMs)).toEqual([
      'warning: none was ever signed, and the event log is 3 h old',
    ])
    expect(await ask('checkpoints', startMs + 27 * hourMs)).toEqual([
      'fault: none was ever signed, and the event log is 27 h old',
    ])
  })

  test('a backup is missed after two days, and at once where there is none; the newest counts', async () => {
    const made = (atMs: number) => ({ type: 'BackupCreated', data: { position: '1' }, atMs })
    const ask = await scene(made(startMs), made(startMs + dayMs), {
      type: 'Whatever',
      data: {},
      atMs: startMs + 2 * dayMs,
    })
    expect(await ask('backup', startMs + 2.5 * dayMs)).toEqual(['ok: the last was 36 h ago'])
    expect(await ask('backup', startMs + 4 * dayMs)).toEqual(['warning: the last was 3 days ago'])
    const never = await scene({ type: 'Whatever', data: {}, atMs: startMs })
    for (const ageMs of [hourMs, 3 * dayMs])
      expect(await never('backup', startMs + ageMs)).toEqual([
        expect.stringMatching(/^warning: none was ever made, and the event log is (?:60 min|3 days) old$/),
      ])
  })

  test('a reconciliation that found differences is a fault; one that is old is a warning', async () => {
    vi.useFakeTimers({ toFake: ['Date'], now: startMs })
    const eventLog = createMemoryEventLog().client('doctor')
    const ask = (nowMs: number): Promise<string[]> => {
      vi.setSystemTime(nowMs)
      return lines(named(proofChecks(eventLog), 'reconciliation'))
    }
    const reconciled = (differences: number) =>
      recordReconciled(
        { eventLog },
        [
          {
            organizationId: 'org_01ARZ3NDEKTSV4RRFFQ69G5FAV',
            differences,
            named: [],
            calls: 1,
            from: 0,
            through: 3,
          } as never,
        ],
        { whole: true, actor: 'system' },
      )
    await reconciled(0)
    expect(await ask(startMs + hourMs)).toEqual(['ok: the last was 60 min ago, and found nothing'])
    expect(await ask(startMs + 3 * dayMs)).toEqual(['warning: the last was 3 days ago, and found nothing'])
    await reconciled(2)
    expect(await ask(startMs + 3 * dayMs + hourMs)).toEqual([
      'fault: the last, 60 min ago, found 2 differences',
    ])
  })

  test('webhooks that are disabled, and messages that wait for an hour, are warnings', async () => {
    const saying = databaseSaying([/webhook_deliveries/, [{ count: '3', oldest: '4000', disabled: '1' }]])
    expect(await lines(webhooksCheck(saying))).toEqual([
      'warning: one is disabled: nothing succeeded for days, or it answered 410',
      'warning: 3 messages wait, the oldest for 67 min',
    ])
  })
})

describe('growth', () => {
  /** A double of a log of so many events, evenly over so many days until now, that counts what it is asked. */
  const logOf = (events: number, days: number) => {
    let asked = 0
    const endMs = Date.now()
    const log: Pick<EventLog, 'head' | 'at'> = {
      head: async () => BigInt(events),
      at: async (position) => {
        asked++
        if (position < 1n || position > BigInt(events)) return null
        const recordedAtMs = endMs - days * dayMs * (1 - Number(position) / events)
        return { recordedAtMs } as RecordedEvent
      },
    }
    return { log, asked: () => asked }
  }
  const sizes = (bytes: number): pg.Pool =>
    databaseSaying([
      /pg_database_size/,
      [{ database: String(bytes * 1.1), log: String(bytes * 0.8), rows: String(bytes * 0.2), keyed: '0' }],
    ])

  const growthOf = async (events: number, days: number, bytes: number, environment = {}) => {
    const { log, asked } = logOf(events, days)
    const config = parseConfig({ DATA_DIR: dir, ...environment })
    const [found] = await lookAt([growthCheck({ pool: sizes(bytes), eventLog: log, config })])
    return { found, asked: asked() }
  }

  test('is the pace of the last week at the size of an event, and thirty million events are asked for a few dozen', async () => {
    const { found, asked } = await growthOf(30_000_000, 300, 30_000_000 * 1_000)
    expect(found?.figures).toMatchObject({ events_per_day: 100_000 })
    expect(found?.figures?.days_until_full).toBeGreaterThan(1)
    expect(found?.says).toMatch(
      /100 MB more a day, at 100000 events a day; at this pace the disk is full in \d+ days$/,
    )
    expect(asked).toBeLessThan(40)
  })

  test('that fills the disk within thirty days is a warning', async () => {
    const { found } = await growthOf(1_000_000, 1, 1e14)
    expect([found?.level, found?.figures?.days_until_full]).toEqual(['warning', 0])
  })

  test('of a log too young or too short is not guessed', async () => {
    for (const [events, days] of [
      [500, 30],
      [100_000, 0.01],
    ] as const) {
      const { found } = await growthOf(events, days, 1e6)
      expect(found?.says).toMatch(/there are too few events to tell how fast it grows$/)
    }
  })

  test('of a database elsewhere says what is known, and that its disk is not seen', async () => {
    const { found } = await growthOf(100_000, 10, 1e8, { DATABASE_URL: 'postgres://a:b@db/x' })
    expect(found?.says).toMatch(/10\.0 MB more a day, .*; its disk cannot be seen from here/)
    expect(found?.figures?.days_until_full).toBeNull()
  })
})

describe('clocks', () => {
  const check = (nowMs: number, ...ahead: (number | null)[]): Promise<string[]> =>
    lines(
      clockCheck(
        databaseSaying([/select 1/, []], [/clock_timestamp/, [{ now_ms: String(nowMs) }]]),
        async () => ahead.map((clockAheadMs, i) => ({ host: 'api', pid: i + 1, clockAheadMs })),
      ),
    )

  test('that agree, and processes of a release that does not say, are told as well', async () => {
    expect(await check(Date.now(), 100, null)).toEqual([
      "ok: this host's clock, and of 1 api process within 2 s of the database's",
    ])
  })

  test('that differ are told by whose they are', async () => {
    expect(await check(Date.now() - 60_000, -5_000, 20 * minuteMs)).toEqual([
      expect.stringMatching(/^warning: this host's clock is (59|60|61) s ahead of the database's$/),
      "warning: the clock of process 1 on api is 5 s behind the database's",
      "fault: the clock of process 2 on api is 20 min ahead of the database's: no epoch key is destroyed meanwhile",
    ])
  })
})

describe('the directory of the keys', () => {
  const keyLines = (environment: Record<string, string>, about = 'KEY_DIR'): Promise<string[]> =>
    lines(named(keyDirChecks(parseConfig(environment)), about))

  test('inside DATA_DIR by a choice is a warning, by default a word about backups', async () => {
    const data = join(dir, 'data')
    await mkdir(join(data, 'keys'), { recursive: true, mode: 0o700 })
    expect(await keyLines({ DATA_DIR: data })).toEqual([
      expect.stringMatching(/^ok: .*leave it out of backups/),
    ])
    for (const more of [{ KEY_DIR: join(data, 'keys') }, { DATABASE_URL: 'postgres://a:b@db/x' }])
      expect(await keyLines({ DATA_DIR: data, ...more })).toEqual([
        expect.stringMatching(
          /^warning: .* is inside DATA_DIR: a copy of that directory holds the data and the keys/,
        ),
      ])
    const beside = join(dir, 'data-keys')
    await mkdir(beside, { mode: 0o700 })
    expect(await keyLines({ DATA_DIR: data, KEY_DIR: beside })).toEqual([`ok: ${beside}`])
  })

  test('and the secrets in DATA_DIR that others can read are warnings', async () => {
    const data = join(dir, 'open')
    await mkdir(join(data, 'keys'), { recursive: true, mode: 0o700 })
    await chmod(join(data, 'keys'), 0o755)
    await writeFile(join(data, 'secret_key'), 'x', { mode: 0o600 })
    await chmod(join(data, 'secret_key'), 0o640)
    expect(await keyLines({ DATA_DIR: data })).toEqual([
      `warning: ${join(data, 'keys')} is open to other users (mode 755)`,
    ])
    expect(await keyLines({ DATA_DIR: data }, 'secret files')).toEqual([
      `warning: ${join(data, 'secret_key')} can be read by other users (mode 640)`,
    ])
  })
})

describe('the network', () => {
  const config = (environment: Record<string, string>) => parseConfig({ EMAIL_PROBE: 'off', ...environment })

  test('a port is ours, of another, or free', async () => {
    const server = createServer((socket) => socket.end())
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    const { port } = server.address() as AddressInfo
    const place = { variable: 'API_PORT', host: '0.0.0.0', port } as const
    const ask = (listener: 'own' | 'another' | 'stranger') =>
      lines(
        named(
          networkChecks(config({}), [place, { ...place, port: 0 }], async () => listener),
          'ports',
        ),
      )
    expect(await ask('own')).toEqual([`ok: ${port} (API_PORT) is this service's`])
    expect(await ask('another')).toEqual([
      `fault: ${port} (API_PORT) on 0.0.0.0 is taken by a process of this service with another SECRET_KEY, or of an earlier release`,
    ])
    expect(await ask('stranger')).toEqual([
      `fault: ${port} (API_PORT) on 0.0.0.0 is taken, and what listens there does not answer as this service`,
    ])
    await new Promise((resolve) => server.close(resolve))
    expect(await ask('stranger')).toEqual([`ok: ${port} (API_PORT) is free: nothing listens there`])
  })

  test('a Redis that is away is a warning, and no password is told', async () => {
    const away = { REDIS_URL: 'redis://u:geheimnis@127.0.0.1:1' }
    expect(
      await lines(
        named(
          networkChecks(config(away), [], async () => 'stranger'),
          'Redis',
        ),
      ),
    ).toEqual(['warning: it does not answer: connect ECONNREFUSED 127.0.0.1:1'])
  })

  test('the name for mail servers and its address have to lead to each other', async () => {
    const dns = await startDnsServer({
      'good.test': { A: ['192.0.2.1'] },
      '1.2.0.192.in-addr.arpa': { PTR: ['good.test'] },
      'other.test': { A: ['192.0.2.2'] },
      '2.2.0.192.in-addr.arpa': { PTR: ['dynamic-2.provider.test'] },
      'bare.test': { A: ['192.0.2.3'] },
      'mute.test': 'servfail',
    })
    const ask = (name: string, more = {}) =>
      lines(
        named(
          networkChecks(
            parseConfig({ SMTP_HELO: name, DNS_SERVERS: dns.address, ...more }),
            [],
            async () => 'stranger',
          ),
          'mail name',
        ),
      )
    expect(await ask('good.test')).toEqual(['ok: good.test and 192.0.2.1 lead to each other'])
    expect(await ask('other.test')).toEqual([
      'warning: other.test has the address 192.0.2.2, which leads back to dynamic-2.provider.test',
    ])
    expect(await ask('bare.test')).toEqual([
      'warning: bare.test has the address 192.0.2.3, which leads back to no name',
    ])
    expect(await ask('none.test')).toEqual(['warning: none.test has no address in DNS'])
    expect(await ask('mute.test')).toEqual([
      expect.stringMatching(/^warning: mute.test was not looked up, for no DNS server answers: /),
    ])
    expect(await ask('[192.0.2.9]')).toEqual(['ok: [192.0.2.9] is an address, and no name to look up'])
    expect(await ask('other.test', { EMAIL_PROBE: 'off' })).toEqual([
      'ok: mail servers are not asked (EMAIL_PROBE=off)',
    ])
    await dns.close()
  })
})

describe('lists of domains', () => {
  const nowMs = Date.parse('2026-11-01T00:00:00Z')
  const clock = { now: () => nowMs }
  const refreshed = (day: string): string =>
    `# Generated ${day}, not edited. 1 domains; see provenance.md.\nmailinator.com\n`

  test('that were refreshed count by the day in their first line; else that of the packages does', async () => {
    const folder = await mkdtemp(join(dir, 'lists-'))
    expect(await lines(listsAge(folder, clock))).toEqual([
      'ok: domains of the packages; of 2026-09-21, 41 days ago',
    ])
    await writeFile(join(folder, 'disposable.txt'), refreshed('2026-10-30'))
    await writeFile(join(folder, 'free.txt'), refreshed('2026-07-01'))
    expect(await lines(listsAge(folder, clock))).toEqual([
      'warning: domains refreshed: disposable 1, free 1; of 2026-07-01, 123 days ago',
    ])
    await writeFile(join(folder, 'free.txt'), refreshed('2026-10-31'))
    expect(await lines(listsAge(folder, clock))).toEqual([
      expect.stringMatching(/^ok: .*; of 2026-10-30, 2 days ago$/),
    ])
    await writeFile(join(folder, 'free.txt'), '# nothing\n')
    expect(await lines(listsAge(folder, clock))).toEqual([expect.stringMatching(/^fault: .* is empty$/)])
  })
})
