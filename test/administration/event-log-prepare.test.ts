import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { openEventStoreDb } from '../../src/event-log/eventstoredb/index.ts'
import { settingsFor, urlFor } from '../../src/event-log/eventstoredb/prepare.ts'
import type { EventLog } from '../../src/event-log/port.ts'
import { newEvents } from '../contract/event-log.ts'
import { doubleCertificate } from '../support/eventstore-certificate.ts'
import { type EventStoreDouble, startEventStoreDouble } from '../support/eventstore-double.ts'
import { logger } from '../support/logger.ts'
import { type CliResult, cli } from '../support/service.ts'

/** The service's user, on a double that stores users and the rights in `$settings` like a real server. */

const adminPassword = 'the administrator: @/?'
const password = 'the service of them all: @/?#'

let double: EventStoreDouble
let dir = ''
let adminUrl = ''
let logs: EventLog[] = []

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), 'event-log-prepare-'))
  await writeFile(join(dir, 'ca.crt'), doubleCertificate.cert)
  double = await startEventStoreDouble({ secured: { adminPassword } })
  adminUrl = urlFor(
    `esdb://localhost:${double.port}?tlsCAFile=${join(dir, 'ca.crt')}`,
    'admin',
    adminPassword,
  )
})

afterEach(async () => {
  for (const log of logs) await log.close()
  logs = []
  await double.close()
  await rm(dir, { recursive: true, force: true })
})

const open = (user: string, word: string): EventLog => {
  const log = openEventStoreDb({ url: urlFor(adminUrl, user, word), logger })
  logs.push(log)
  return log
}

const prepare = (more: Record<string, string> = {}, user = 'enrichment'): Promise<CliResult> =>
  cli(['event-log', 'prepare', '--user', user, '--json'], {
    EVENT_LOG_ADMIN_URL: adminUrl,
    EVENT_LOG_USER_PASSWORD: password,
    ...more,
  })

const settingsOf = (): unknown[] =>
  double.eventsOf('$settings').map(({ data }) => JSON.parse(Buffer.from(data).toString()))

test('a user is created that can read everything and write streams; a repetition only changes the password', async () => {
  const { code, out, err } = await prepare()
  expect(code, err).toBe(0)
  expect(out + err).not.toContain(password)
  expect(JSON.parse(out)).toMatchObject({ user: 'enrichment', created: true, settings_changed: true })
  expect(settingsOf()).toEqual([
    {
      $userStreamAcl: {
        $r: ['enrichment'],
        $w: ['enrichment'],
        $mr: ['enrichment'],
        $d: '$admins',
        $mw: '$admins',
      },
      $systemStreamAcl: { $r: ['$admins', 'enrichment'] },
    },
  ])
  const log = open('enrichment', password)
  expect(await log.append('ledger-a', 'none', newEvents(2))).toEqual({ revision: 1 })
  expect(await log.read('ledger-a', { max: 10 })).toHaveLength(2)
  expect(await log.head()).toBeGreaterThan(0n)

  const again = await prepare({ EVENT_LOG_USER_PASSWORD: 'another one: @/?' })
  expect(JSON.parse(again.out)).toMatchObject({ created: false, settings_changed: false })
  expect(settingsOf()).toHaveLength(1)
  await expect(open('enrichment', password).head()).rejects.toThrow('UNAUTHENTICATED')
  expect(await open('enrichment', 'another one: @/?').read('ledger-a', { max: 10 })).toHaveLength(2)
})

test('missing settings and refusals are reported in one line, without a secret', async () => {
  const { code, err } = await prepare({ EVENT_LOG_ADMIN_URL: urlFor(adminUrl, 'admin', 'wrong') })
  expect(code).toBe(2)
  expect(JSON.parse(err)).toMatchObject({
    code: 'configuration',
    field: 'EVENT_LOG_ADMIN_URL',
    message: expect.stringMatching(
      /^EVENT_LOG_ADMIN_URL: EventStoreDB at .* refuses the user or the password \(16 UNAUTH[^\n]*$/,
    ),
  })
  const faulty = [
    [{ EVENT_LOG_ADMIN_URL: '' }, 'enrichment', 'EVENT_LOG_ADMIN_URL: set it'],
    [{ EVENT_LOG_ADMIN_URL: 'esdb://a:b@h?tls=false' }, 'enrichment', 'without TLS has no users'],
    [{}, 'admin', 'is in the group $admins'],
  ] as const
  await Promise.all(
    faulty.map(async ([more, user, said]) => {
      const { code, err } = await prepare(more, user)
      expect(code, err).toBeGreaterThan(0)
      expect(err).toContain(said)
      expect(err).not.toContain(password)
    }),
  )
  expect(settingsOf()).toEqual([])
})

describe('existing rights', () => {
  const $systemStreamAcl = { $r: ['$admins', 'new'] }

  test.each([
    [
      'named users keep their rights, also on a dedicated server',
      false,
      { $r: ['old'], $w: 'old' },
      {
        $r: ['old', 'new'],
        $w: ['old', 'new'],
        $mr: ['new'],
        $d: '$admins',
        $mw: '$admins',
      },
    ],
    [
      'rights given by name stay',
      false,
      { $r: '$all', $w: ['$all'], $d: 'old' },
      {
        $r: '$all',
        $w: ['$all'],
        $d: 'old',
        $mr: ['new'],
        $mw: '$admins',
      },
    ],
    ['on a shared server the rights of everyone remain', true, undefined, undefined],
    ['on a shared server one user is added to the named ones', true, { $r: ['old'] }, { $r: ['old', 'new'] }],
  ])('%s', (_, shared, before, after) => {
    expect(
      settingsFor(before === undefined ? {} : { $userStreamAcl: before }, { user: 'new', shared }),
    ).toEqual({
      ...(after === undefined ? {} : { $userStreamAcl: after }),
      $systemStreamAcl,
    })
  })

  test('granting them twice has the same result', () => {
    const once = settingsFor({}, { user: 'new', shared: false })
    expect(settingsFor(once, { user: 'new', shared: false })).toEqual(once)
  })
})
