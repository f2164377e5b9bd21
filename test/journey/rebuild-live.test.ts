import { once } from 'node:events'
import type { Readable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import pino from 'pino'
import { ulid } from 'ulid'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { parseCredits } from '../../src/billing/money.ts'
import { parseConfig } from '../../src/config.ts'
import { logStart } from '../../src/event-log/port.ts'
import { decodeEvent } from '../../src/event-log/stored-event.ts'
import { type Foundation, openFoundation } from '../../src/foundation/foundation.ts'
import { writeHistory } from '../bench/ledger-history.ts'
import { seededRandom } from '../ip-lookup/seeded-random.ts'
import { type TestDatabase, testDatabase } from '../support/postgres.ts'
import {
  cliJson,
  createPartner,
  eventually,
  lookup,
  type Service,
  startCli,
  startService,
} from '../support/service.ts'

/**
 * Every projection is rebuilt during live calls, by a process that is killed again and again, while balances and statements are
 * read continuously. CRASH_ROUNDS sets the number of kills; the default keeps the suite short.
 */

const kills = Number(process.env.CRASH_ROUNDS ?? 2)
const callers = 12
const thinkMs = 15
/** Earlier events in the log, so that a rebuild takes long enough to be killed. */
const eventsBefore = 24_000
/** A busy machine can take this long to start a process that writes rows. */
const startedWithinMs = 120_000

let database: TestDatabase
let service: Service
let foundation: Foundation
let pool: pg.Pool
let environment: Record<string, string>
let partners: { readonly organizationId: string; readonly apiKey: string }[]

beforeAll(async () => {
  database = await testDatabase()
  environment = {
    DATABASE_URL: database.url,
    SECRET_KEY: 'a secret of the test, long enough to be one',
    KEY_DIR: database.keyDir,
  }
  service = await startService(environment)
  foundation = await openFoundation(parseConfig(environment), { logger: pino({ level: 'silent' }) })
  pool = new pg.Pool({ connectionString: database.url, max: 3 })
  partners = [await createPartner('1000000', environment), await createPartner('1000000', environment)]
  for (const { apiKey } of partners)
    await eventually(async () =>
      (await lookup(service.apiUrl, apiKey, '8.8.8.8')).status === 200 ? true : undefined,
    )
})

afterAll(async () => {
  await service?.end('SIGTERM')
  await foundation?.close()
  await pool?.end()
  await database?.drop()
})

type Seen = { readonly position: bigint; readonly organizationId: string; readonly micro: bigint }

/** Reads the rows and their position in one statement, until it is stopped. */
const startReading = () => {
  const seen = { accounts: [] as Seen[], ledger_lines: [] as Seen[] }
  const failures: unknown[] = []
  let stopped = false
  const figures = {
    accounts: `select a.organization_id, (coalesce((select sum(remaining_micro) from account_lots l
                 where l.organization_id = a.organization_id), 0) - a.overdrawn_micro)::text as micro from accounts a`,
    ledger_lines: 'select organization_id, sum(amount_micro)::text as micro from ledger_lines group by 1',
  }
  const reading = async (name: keyof typeof figures): Promise<void> => {
    while (!stopped) {
      try {
        const { rows } = await pool.query<{ position: string; organization_id: string; micro: string }>(
          `select c.position, f.* from projection_checkpoints c cross join (${figures[name]}) f where c.name = '${name}'`,
        )
        for (const { position, organization_id, micro } of rows)
          seen[name].push({
            position: BigInt(position),
            organizationId: organization_id,
            micro: BigInt(micro),
          })
      } catch (error) {
        failures.push(error)
      }
      await sleep(20)
    }
  }
  const running = Promise.all([reading('accounts'), reading('ledger_lines')])
  return {
    stop: async () => {
      stopped = true
      await running
      expect(failures).toEqual([])
      return seen
    },
  }
}

const startCalling = () => {
  const others: number[] = []
  let answered = 0
  let stopped = false
  const calling = async (caller: number): Promise<void> => {
    while (!stopped) {
      const { apiKey } = partners[caller % partners.length] ?? { apiKey: '' }
      const status = await lookup(service.apiUrl, apiKey, '8.8.8.8').then(
        (answer) => answer.status,
        () => 0,
      )
      if (status === 200) answered++
      else others.push(status)
      await sleep(thinkMs)
    }
  }
  const running = Promise.all(Array.from({ length: callers }, (_, caller) => calling(caller)))
  return {
    answered: () => answered,
    others,
    stop: async () => {
      stopped = true
      await running
    },
  }
}

/** Each ledger's figures after each of its events, folded here from the events alone. */
const foldBalances = async (): Promise<
  Map<string, { readonly position: bigint; readonly micro: bigint }[]>
> => {
  const balances = new Map<string, { position: bigint; micro: bigint }[]>()
  const done = new AbortController()
  const subscribed = { after: logStart, prefixes: ['ledger-'], signal: done.signal }
  for await (const item of foundation.eventLog.subscribe(subscribed)) {
    if (item.kind === 'caught-up') break
    if (item.kind !== 'events') continue
    for (const recorded of item.events) {
      const { type, data } = decodeEvent(recorded)
      const organizationId = recorded.stream.slice('ledger-'.length)
      const sign = type === 'CreditGranted' ? 1n : type === 'CreditCharged' ? -1n : 0n
      const amount = 'amount' in data && sign !== 0n ? parseCredits(String(data.amount)) : 0n
      const before = balances.get(organizationId) ?? []
      before.push({ position: recorded.position, micro: (before.at(-1)?.micro ?? 0n) + sign * amount })
      balances.set(organizationId, before)
    }
  }
  done.abort()
  return balances
}

/** An organization's figures at a position; undefined before its first event. */
const balanceAt = (
  balances: readonly { readonly position: bigint; readonly micro: bigint }[],
  position: bigint,
): bigint | undefined => {
  let [low, high] = [0, balances.length]
  while (low < high) {
    const middle = (low + high) >> 1
    if ((balances[middle]?.position ?? 0n) <= position) low = middle + 1
    else high = middle
  }
  return balances[low - 1]?.micro
}

const rebuildArgs = ['projection', 'rebuild', '--all', '--reason', 'a test', '--here', '--json']

test(`a rebuild of everything during live calls, killed ${kills} times: no call fails, and every figure read matches the log`, async () => {
  const histories = [1, 2].map(() => ({ organizationId: `org_${ulid()}`, events: eventsBefore / 2 }))
  await writeHistory(database.url, histories)
  const random = seededRandom(5)
  const reader = startReading()
  const load = startCalling()
  const startedAt = performance.now()
  /** The number of unfinished builds that have rows. */
  const written = async () =>
    (await pool.query('select from projection_builds where position > 0')).rowCount ?? 0
  let begun = 0
  for (let round = 0; round < kills; round++) {
    const { child, ended } = startCli(rebuildArgs, environment)
    // The process reports progress when it starts to fold. In every other round, the test waits until it has written rows.
    const reported = once(child.stderr as Readable, 'data')
    await Promise.race([
      round % 2 === 0 ? eventually(async () => (await written()) || undefined, startedWithinMs) : reported,
      ended,
    ])
    await sleep(Math.floor(random.next() * 400))
    child.kill('SIGKILL')
    await ended
    begun += await written()
  }
  expect(begun).toBeGreaterThan(0)
  const rebuilt = await cliJson<{ differences: unknown[]; projections: unknown[] }>(
    rebuildArgs.slice(0, -1),
    environment,
  )
  expect(rebuilt.differences).toEqual([])
  const answered = load.answered()
  await eventually(async () => (load.answered() > answered + 20 ? true : undefined))
  await load.stop()
  const perSecond = (load.answered() * 1_000) / (performance.now() - startedAt)
  expect(load.others).toEqual([])
  const verified = await cliJson<{ name: string; ok: boolean }[]>(
    ['projection', 'verify', '--all'],
    environment,
  )
  expect(verified.filter(({ ok }) => !ok)).toEqual([])
  const seen = await reader.stop()

  process.stderr.write(
    `${load.answered()} calls, ${Math.round(perSecond)} a second, none failed; ${seen.accounts.length + seen.ledger_lines.length} readings\n`,
  )
  const balances = await foldBalances()
  for (const [name, figures] of Object.entries(seen)) {
    expect(figures.length).toBeGreaterThan(100)
    const wrong = figures.filter(
      ({ organizationId, position, micro }) =>
        balanceAt(balances.get(organizationId) ?? [], position) !== micro,
    )
    expect({ name, wrong: wrong.slice(0, 3) }).toEqual({ name, wrong: [] })
  }
}, 600_000)
