/** The checks of "doctor", each tested alone, some with doubles of the database's answers. */
import { chmod, mkdir, mkdtemp, readdir, readFile, writeFile } from 'node:fs/promises'
import { createServer as createHttpServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import type pg from 'pg'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { projections } from '../../projections/index.ts'
import {
  type Check,
  type Finding,
  fine,
  lookAt,
  measured,
  wrong,
} from '../../src/administration/checks/check.ts'
import { databaseCheck, rowChecks, settingChecks } from '../../src/administration/checks/database.ts'
import {
  actsIn,
  eventLogCheck,
  type InLog,
  keyChecks,
  logChecks,
} from '../../src/administration/checks/event-log.ts'
import { hostChecks } from '../../src/administration/checks/host.ts'
import { recordReconciled } from '../../src/administration/ledgers/reconciliations.ts'
import { createProjectionLags } from '../../src/administration/projections/projections.ts'
import { listsAge } from '../../src/capabilities/email-validation/lists/age.ts'
import { geoAge } from '../../src/capabilities/ip-lookup/geo-settings.ts'
import { parseConfig } from '../../src/config.ts'
import { appendNext } from '../../src/event-log/append-next.ts'
import type { EventLog, RecordedEvent } from '../../src/event-log/port.ts'
import { eventIdOf } from '../../src/event-log/stored-event.ts'
import { operatorStream, priceBookStream } from '../../src/events/streams.ts'
import { parseSoundConfig } from '../../src/foundation/sound-config.ts'
import { startChecks } from '../../src/start/doctor.ts'
import { commands } from '../cli/commands.ts'
import { directoryForFile } from '../support/directory.ts'
import { startDnsServer } from '../support/dns-server.ts'
import { createMemoryEventLog } from '../support/memory-event-log.ts'

const minuteMs = 60_000
const hourMs = 60 * minuteMs
const dayMs = 24 * hourMs

const dir = await directoryForFile()
afterEach(() => void vi.useRealTimers())

const all: readonly Check<never>[] = [
  ...hostChecks,
  ...startChecks,
  listsAge(),
  geoAge({}),
  databaseCheck,
  eventLogCheck,
  ...rowChecks,
  ...settingChecks,
  ...logChecks,
  ...keyChecks,
]

const lines = async (name: string, on: object): Promise<string[]> => {
  const found = all.filter((one) => one.name === name)
  if (found.length !== 1) throw new Error(`${found.length} checks are named ${name}`)
  return linesOf(found, on as never)
}
const linesOf = async <On>(checks: readonly Check<On>[], on: On): Promise<string[]> =>
  (await lookAt(checks, on)).map(({ level, says }) => `${level}: ${says}`)

test('names are unique, and every check has a remedy', () => {
  expect(new Set(all.map(({ name }) => name)).size).toBe(all.length)
  for (const { advice } of all) expect(advice).toMatch(/^["A-Z].{20,}\.?$/)
  const gauges = all.flatMap(({ gauges = {} }) => Object.keys(gauges))
  expect(new Set(gauges).size).toBe(gauges.length)
})

/** A double of the database that answers each matching statement with these rows. */
const databaseSaying = (...answers: readonly (readonly [RegExp, readonly object[]])[]): pg.Pool =>
  ({
    query: async (text: string) => {
      const answer = answers.find(([pattern]) => pattern.test(text))
      if (answer === undefined) throw new Error(`not expected: ${text}`)
      return { rows: answer[1], rowCount: answer[1].length }
    },
  }) as never

test('every command named in a remedy exists', async () => {
  const root = new URL('../../', import.meta.url)
  const folder = new URL('src/administration/checks/', root)
  const files = [
    ...(await readdir(folder)).map((name) => new URL(name, folder)),
    new URL('src/start/doctor.ts', root),
    new URL('src/capabilities/ip-lookup/geo-settings.ts', root),
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

describe('running checks', () => {
  test('a check that throws or hangs is a fault of its own, and the order stays the same', async () => {
    const checkOf = (name: string, look: Check<unknown>['look']): Check<unknown> => ({
      name,
      look,
      severity: 'warning',
      advice: 'Look elsewhere.',
      bound: { unit: 'seconds', warning: 10, fault: 20 },
    })
    const checks = [
      checkOf('hanging', () => new Promise<never>(() => undefined)),
      { ...checkOf('asking', () => new Promise<never>(() => undefined)), advisesUnseen: true },
      checkOf('throwing', () => {
        throw new AggregateError([new Error('connect ECONNREFUSED\n    at stack')])
      }),
      checkOf('nothing', () => []),
      checkOf('well', async () => [fine('one', { n: 1 }), measured(10, 'two')]),
      checkOf('late', () => [measured(11, 'one'), measured(21, 'two')]),
      checkOf('wrong', () => wrong('one', { advice: 'Look here.' })),
    ]
    const found = await lookAt(checks, undefined, 50)
    // The advice of a check is about what it finds, and it has found nothing.
    const unseen = expect.stringMatching(/^This check has no result\. .*"database"/)
    expect(found.map(({ about, level, says, remedy }) => [about, level, says, remedy])).toEqual([
      ['hanging', 'fault', 'no answer within 0.05 s', unseen],
      ['asking', 'fault', 'no answer within 0.05 s', 'Look elsewhere.'],
      ['throwing', 'fault', 'the check failed: connect ECONNREFUSED', unseen],
      ['well', 'ok', 'one', null],
      ['well', 'ok', 'two', null],
      ['late', 'warning', 'one', 'Look elsewhere.'],
      ['late', 'fault', 'two', 'Look elsewhere.'],
      ['wrong', 'warning', 'one', 'Look here.'],
    ] satisfies [string, Finding['level'], string, string | null][])
  })
})

describe('the environment', () => {
  const passwordLines = (environment: Record<string, string>): Promise<string[]> =>
    lines('passwords', { config: parseSoundConfig(environment).config })

  test.each([
    ['DATABASE_URL', 'postgres://app:postgres@db:5432/x'],
    ['DATABASE_URL', 'postgres://app:app@db:5432/x'],
    ['EVENT_LOG_URL', 'esdb+discover://admin:changeit@one:2113,two:2113?tls=true'],
  ])('%s=%s is a warning', async (name, url) => {
    expect(await passwordLines({ [name]: url })).toEqual([
      `warning: ${name}: the password is a well-known one, or the name of the user`,
    ])
  })

  test.each([
    ['DATABASE_URL', 'postgres://app:Xk3jd8s9@db/x'],
    ['DATABASE_URL', 'postgres://app@db/x'],
    ['EVENT_LOG_URL', 'esdb://localhost:2113?tls=false'],
  ])('%s=%s is not', async (name, value) => {
    expect(await passwordLines({ [name]: value })).toEqual(['ok: no password is a well-known one'])
  })

  test('invalid settings are left out, with a line for each, and the others still apply', () => {
    const { config, faults } = parseSoundConfig({
      API_PORT: 'x',
      SMTP_PORT: '0',
      TLS_KEY: '/key',
      DATA_DIR: '/data',
      SECRET_KEY: 'short',
    })
    expect([...faults.keys()].toSorted()).toEqual(['API_PORT', 'SECRET_KEY', 'SMTP_PORT', 'TLS_KEY'])
    expect([config.DATA_DIR, config.API_PORT, config.SECRET_KEY]).toEqual(['/data', 3000, undefined])
    expect([...faults.values()].join('\n')).not.toContain('short')
    expect(parseSoundConfig({}).faults.size).toBe(0)
  })
})

describe('the database', () => {
  const settings = (changed: object): Promise<string[]> =>
    lines('database settings', {
      pool: databaseSaying([/fsync/, [{ off: null, standby: false, max: 100, used: 12, ...changed }]]),
    })

  test.each([
    [{ off: ['fsync'] }, 'fault: fsync is off: a crash of the server can lose data'],
    [
      { off: ['synchronous_commit'] },
      'fault: synchronous_commit is off: a crash of the server can lose data',
    ],
    [{ standby: true }, 'fault: the server does not accept writes: it is a standby or read-only'],
    [{ used: 95 }, 'warning: 95 of 100 connections are in use'],
    [{}, 'ok: a crash does not lose answered calls; 12 of 100 connections are in use'],
  ])('%j is reported', async (changed, line) => {
    expect(await settings(changed)).toEqual([line])
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
    done_at: null,
    dead_letters: 0,
  }
  const jobLines = (...rows: object[]): Promise<string[]> =>
    lines('jobs', { pool: databaseSaying([/as made/, [{ made: true }]], [/pgboss.queue/, rows]) })
  const oldest = (ago: string) => `scheduled jobs: 1; the oldest success is ${ago} old (checkpoint)`
  const scheduled = (ago: string) =>
    `scheduled jobs: 1; checkpoint was scheduled ${ago} ago and has not completed its first run yet`

  test.each([
    [{ done_ms: 49 * hourMs }, [`ok: ${oldest('2 days')}`]],
    [{ done_ms: 51 * hourMs }, [`warning: ${oldest('2 days')}`]],
    [{ done_ms: null, scheduled_ms: hourMs }, [`ok: ${scheduled('60 min')}`]],
    [{ done_ms: null }, [`warning: ${scheduled('9 days')}`]],
    [
      { state: 'failed', message: 'no room\nat x', ended_ms: 90_000 },
      ['fault: checkpoint failed 90 s ago: no room', `ok: ${oldest('0 ms')}`],
    ],
    [
      { cron: null, state: 'failed', ended_ms: 0 },
      [
        'warning: checkpoint failed 0 ms ago: no reason was recorded',
        `ok: ${oldest('0 ms').replace('1', '0')}`,
      ],
    ],
  ])('%j is reported', async (changed, reported) => {
    expect(await jobLines({ ...job, ...changed })).toEqual(reported)
  })
})

describe('proof and recovery of the log', () => {
  const ofLog = (eventLog: EventLog): Pick<InLog, 'eventLog' | 'acts'> => ({
    eventLog,
    acts: actsIn(eventLog),
  })

  const at = (ms: number): string => new Date(ms).toISOString()
  const startMs = Date.parse('2026-05-01T00:00:00Z')

  /** A double of a log that, by its own clock, has just begun and contains a first price book. */
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
      const metadata = JSON.stringify({ schema_version: 1, actor: 'system', effective_at: at(atMs) })
      const id = eventIdOf(operatorStream, `doctor/${n}`, 0)
      await appendNext(eventLog, operatorStream, [{ id, type, data: JSON.stringify(data), metadata }])
    }
    return (about: string, nowMs: number): Promise<string[]> => {
      vi.setSystemTime(nowMs)
      return lines(about, ofLog(eventLog))
    }
  }

  test('an empty log, or one that has just begun, lacks nothing', async () => {
    const ask = await scene({ type: 'Whatever', data: {}, atMs: startMs })
    const empty = ofLog(createMemoryEventLog().client('doctor'))
    for (const about of ['checkpoints', 'verification', 'reconciliation', 'backup', 'rebuild']) {
      expect(await lines(about, empty)).toEqual(['ok: none yet; the event log began 0 ms ago'])
      expect(await ask(about, startMs + hourMs)).toEqual(['ok: none yet; the event log began 60 min ago'])
    }
  })

  test('a missing checkpoint is a warning after two hours, and a fault after 26', async () => {
    const ask = await scene({ type: 'Whatever', data: {}, atMs: startMs })
    expect(await ask('checkpoints', startMs + 3 * hourMs)).toEqual([
      'warning: none yet; the event log began 3 h ago',
    ])
    expect(await ask('checkpoints', startMs + 27 * hourMs)).toEqual([
      'fault: none yet; the event log began 27 h ago',
    ])
  })

  test('a missing backup is a warning after two days; the newest backup counts', async () => {
    const made = (atMs: number) => ({ type: 'BackupCreated', data: { position: '1' }, atMs })
    const ask = await scene(made(startMs), made(startMs + dayMs), {
      type: 'Whatever',
      data: {},
      atMs: startMs + 2 * dayMs,
    })
    expect(await ask('backup', startMs + 2.5 * dayMs)).toEqual(['ok: the last was 36 h ago'])
    expect(await ask('backup', startMs + 4 * dayMs)).toEqual(['warning: the last was 3 days ago'])
    const never = await scene({ type: 'Whatever', data: {}, atMs: startMs })
    expect(await never('backup', startMs + 3 * dayMs)).toEqual([
      'warning: none yet; the event log began 3 days ago',
    ])
  })

  test('money figures that a rebuild changed are a fault for seven days', async () => {
    const ended = {
      rebuild_id: '0190a8e0-0000-4000-8000-000000000000',
      projections: ['accounts'],
      result: 'switched',
      events: 1,
      elapsed_ms: 1,
      differences: 2,
      named: [],
    }
    const ask = await scene({ type: 'RebuildEnded', data: ended, atMs: startMs })
    expect(await ask('rebuild', startMs + 6 * dayMs)).toEqual([
      'fault: the last, 6 days ago, found 2 differences',
    ])
    expect(await ask('rebuild', startMs + 8 * dayMs)).toEqual(['ok: the last was 8 days ago'])
  })

  test('a reconciliation with differences is a fault, and one that is too old is a warning', async () => {
    vi.useFakeTimers({ toFake: ['Date'], now: startMs })
    const eventLog = createMemoryEventLog().client('doctor')
    const ask = (nowMs: number): Promise<string[]> => {
      vi.setSystemTime(nowMs)
      return lines('reconciliation', ofLog(eventLog))
    }
    const reconciled = (differences: number) =>
      recordReconciled(
        { eventLog, checkpoints: { sign: async () => null } as never },
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
    expect(await ask(startMs + hourMs)).toEqual(['ok: the last was 60 min ago'])
    expect(await ask(startMs + 3 * dayMs)).toEqual(['warning: the last was 3 days ago'])
    await reconciled(2)
    expect(await ask(startMs + 3 * dayMs + hourMs)).toEqual([
      'fault: the last, 60 min ago, found 2 differences',
    ])
  })

  test('disabled webhooks, and messages that have waited for an hour, are warnings', async () => {
    const saying = databaseSaying([/webhook_deliveries/, [{ count: '3', oldest: '4000', disabled: '1' }]])
    expect(await lines('webhooks', { pool: saying })).toEqual([
      'warning: waiting messages: 3, the oldest for 67 min',
      'warning: disabled webhooks: 1; every attempt failed for days, or they answered 410',
    ])
  })
})

describe('clocks', () => {
  const check = (nowMs: number, ...ahead: (number | null)[]): Promise<string[]> => {
    const rows = ahead.map((clockAheadMs, i) => ({ clockAheadMs, host: 'api', pid: i + 1 }))
    return lines('clocks', {
      pool: databaseSaying([/from processes/, rows], [/clock_timestamp/, [{ now: new Date(nowMs) }]]),
    })
  }

  test('that differ are reported with the process to which they belong', async () => {
    expect(await check(Date.now() - 60_000, 100, -5_000, 20 * minuteMs)).toEqual([
      expect.stringMatching(/^warning: this host's clock is (59|60|61) s ahead of the database's$/),
      "ok: the clock of process 1 on api is 100 ms ahead of the database's",
      "warning: the clock of process 2 on api is 5 s behind the database's",
      "fault: the clock of process 3 on api is 20 min ahead of the database's",
    ])
  })
})

describe('rows', () => {
  test('of a halted projection, and events set aside, are reported with the command to run', async () => {
    const states = [
      { name: 'key_usage', state: 'halted', error: 'an event of another release', parked: 0 },
      { name: 'accounts', state: 'live', error: null, parked: 0 },
      { name: 'api_keys', state: 'live', error: null, parked: 2 },
    ]
    const lags = projections.map(({ name }) => ({
      name,
      state: 'live',
      error: null,
      parked: 0,
      haltedStreams: [],
      behind: 0n,
      ...states.find((one) => one.name === name),
      seconds: name === 'accounts' ? 61 : 0,
    }))
    const on = { projectionLags: async () => lags }
    expect(await lines('projections', on)).toEqual([
      'fault: key_usage is halted: an event of another release',
      'fault: accounts: 61 s behind the event log',
    ])
    expect(await lines('events set aside', on)).toEqual(['fault: api_keys: 2'])
  })

  test('have their age by the wall clock in "doctor", even if the log receives no events', async () => {
    const eventLog = createMemoryEventLog().client('doctor')
    await appendNext(eventLog, operatorStream, [
      { id: eventIdOf(operatorStream, 'late', 0), type: 'Whatever', data: '{}', metadata: '{}' },
    ])
    const checkpoint = {
      name: 'accounts',
      version: 1,
      generation: 0,
      position: '0',
      event_id: null,
      digest: null,
      state: 'live',
      error: null,
      updated_at: new Date(),
    }
    const pool = databaseSaying([/from projection_checkpoints order/, [checkpoint]], [/./, []])
    const [lag] = await createProjectionLags({ pool, eventLog, headAgeMs: () => 300_000 })()
    expect(lag).toMatchObject({ name: 'accounts', seconds: 300 })
  })
})

describe('the directory of the keys', () => {
  const keyLines = (environment: Record<string, string>, about = 'KEY_DIR'): Promise<string[]> =>
    lines(about, { config: parseConfig(environment) })

  test('inside DATA_DIR by configuration is a warning, and by default a remark about backups', async () => {
    const data = join(dir, 'data')
    const keys = join(data, 'keys')
    await mkdir(keys, { recursive: true, mode: 0o700 })
    const says = `${keys} is inside DATA_DIR: leave it out of backups of that directory`
    expect(await keyLines({ DATA_DIR: data })).toEqual([`ok: ${says}`])
    for (const more of [{ KEY_DIR: keys }, { DATABASE_URL: 'postgres://a:b@db/x' }])
      expect(await keyLines({ DATA_DIR: data, ...more })).toEqual([`warning: ${says}`])
    const beside = join(dir, 'data-keys')
    await mkdir(beside, { mode: 0o700 })
    expect(await keyLines({ DATA_DIR: data, KEY_DIR: beside })).toEqual([`ok: ${beside}`])
  })

  test('and secrets in DATA_DIR that others can read are warnings', async () => {
    const data = join(dir, 'open')
    await mkdir(join(data, 'keys'), { recursive: true, mode: 0o700 })
    expect(await keyLines({ DATA_DIR: data }, 'secret files')).toEqual(['ok: no other user can read them'])
    await chmod(join(data, 'keys'), 0o755)
    await writeFile(join(data, 'secret_key'), 'x', { mode: 0o600 })
    await chmod(join(data, 'secret_key'), 0o640)
    expect(await keyLines({ DATA_DIR: data }, 'secret files')).toEqual([
      `warning: ${join(data, 'keys')} can be read by other users (mode 755)`,
      `warning: ${join(data, 'secret_key')} can be read by other users (mode 640)`,
    ])
  })
})

describe('the network', () => {
  test("at the service's address, a check finds nothing, something else, or the service", async () => {
    const answers = { ready: 200, not_ready: 503, strange: 200 } as const
    let answer: keyof typeof answers = 'strange'
    let failed = '{"status":"failed"}'
    const server = createHttpServer((_, response) =>
      response
        .writeHead(answers[answer])
        .end(answer === 'strange' ? 'no JSON' : `{"status":"${answer}","checks":{"ledger":${failed}}}`),
    )
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    const { port } = server.address() as AddressInfo
    const url = `http://127.0.0.1:${port}`
    const ask = () =>
      lines('service', {
        config: parseConfig({ ROLES: 'api', HOST: '127.0.0.1', API_PORT: String(port), DATA_DIR: dir }),
      })
    expect(await ask()).toEqual([
      expect.stringContaining(`fault: the program at ${url} (API_PORT) is not this service: `),
    ])
    answer = 'not_ready'
    expect(await ask()).toEqual([`fault: ${url} is not ready: ledger failed`])
    // The metrics port also shows the causes.
    failed = '{"status":"failed","found":["appends fail: timeout"]}'
    expect(await ask()).toEqual([`fault: ${url} is not ready: ledger failed: appends fail: timeout`])
    answer = 'ready'
    expect(await ask()).toEqual([
      `warning: ${url} is ready, but degraded: ledger failed: appends fail: timeout`,
    ])
    await new Promise((resolve) => server.close(resolve))
    expect(await ask()).toEqual([`warning: nothing is listening at ${url} (API_PORT)`])
  })

  test('an unreachable Redis is a warning, and its password is not shown', async () => {
    const config = parseConfig({ REDIS_URL: 'redis://u:geheimnis@127.0.0.1:1' })
    expect(await lines('Redis', { config })).toEqual([
      'warning: it does not answer: connect ECONNREFUSED 127.0.0.1:1',
    ])
  })

  test('the name for mail servers must lead to its address, and the address to the name', async () => {
    const dns = await startDnsServer({
      'good.test': { A: ['192.0.2.1'] },
      '1.2.0.192.in-addr.arpa': { PTR: ['good.test'] },
      'other.test': { A: ['192.0.2.2'] },
      '2.2.0.192.in-addr.arpa': { PTR: ['dynamic-2.provider.test'] },
      'mute.test': 'servfail',
    })
    const ask = (name: string) =>
      lines('mail name', { config: parseConfig({ SMTP_HELO: name, DNS_SERVERS: dns.address }) })
    expect(await ask('good.test')).toEqual(['ok: good.test and 192.0.2.1 resolve to each other'])
    expect(await ask('other.test')).toEqual([
      'warning: other.test has the address 192.0.2.2, which resolves to dynamic-2.provider.test',
    ])
    expect(await ask('none.test')).toEqual(['warning: none.test has no address in DNS'])
    expect(await ask('mute.test')).toEqual([
      expect.stringMatching(/^warning: mute.test could not be looked up, because no DNS server answers: /),
    ])
    await dns.close()
  })
})

describe('lists of domains', () => {
  const nowMs = Date.parse('2026-11-01T00:00:00Z')
  const clock = { now: () => nowMs }
  const refreshed = (day: string): string =>
    `# Generated ${day}, not edited. 1 domains; see provenance.md.\nmailinator.com\n`

  test('have the date from their first line if they were refreshed, or else the date of the packages', async () => {
    const folder = await mkdtemp(join(dir, 'lists-'))
    expect(await linesOf([listsAge(folder, clock)], undefined)).toEqual([
      'ok: domains from the packages; the oldest list is from 2026-09-21, 41 days ago',
    ])
    await writeFile(join(folder, 'disposable.txt'), refreshed('2026-10-30'))
    await writeFile(join(folder, 'free.txt'), refreshed('2026-07-01'))
    expect(await linesOf([listsAge(folder, clock)], undefined)).toEqual([
      'warning: domains refreshed: disposable 1, free 1; the oldest list is from 2026-07-01, 123 days ago',
    ])
    await writeFile(join(folder, 'free.txt'), refreshed('2026-10-31'))
    expect(await linesOf([listsAge(folder, clock)], undefined)).toEqual([
      expect.stringMatching(/^ok: .*; the oldest list is from 2026-10-30, 2 days ago$/),
    ])
    await writeFile(join(folder, 'free.txt'), '# nothing\n')
    expect(await linesOf([listsAge(folder, clock)], undefined)).toEqual([
      expect.stringMatching(/^fault: .* is empty$/),
    ])
  })
})
