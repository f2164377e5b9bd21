import { execFileSync } from 'node:child_process'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { openForms } from '../support/forms.ts'
import {
  cliJson,
  eventually,
  exportLedger,
  type Service,
  startEventStore,
  startService,
} from '../support/service.ts'

/**
 * The database, or the event log's server, accepts connections but does not answer (SIGSTOP). After the first timeouts, calls are
 * refused immediately until the server answers again. The tests of each installation build on each other.
 */

/** Longer than a refusal takes, and shorter than any call that waits for a server. */
const refusedWithinMs = 500

let dataDir = ''
let service: Service
let environment: Record<string, string>
let demo: { organization_id: string; api_key: string; dashboard_user: string; dashboard_password: string }
const frozen: number[] = []

afterEach(() => thaw())

/** Starts one installation for all tests in a `describe`. */
const installation = (variables: () => Promise<Record<string, string>> = async () => ({})): void => {
  beforeAll(async () => {
    dataDir = await mkdtemp(join(tmpdir(), 'frozen-servers-'))
    made.splice(0)
    environment = { DATA_DIR: dataDir, EMAIL_PROBE: 'off', LOG_LEVEL: 'info', ...(await variables()) }
    service = await startService(environment)
    demo = JSON.parse(await readFile(join(dataDir, 'demo.json'), 'utf8'))
  })
  afterAll(async () => {
    await service?.end('SIGTERM')
    await rm(dataDir, { recursive: true, force: true })
  })
}

/** Does nothing to a process that has ended (ESRCH): a server's child can end at any time. */
const signal = (pid: number, name: 'SIGSTOP' | 'SIGCONT'): void => {
  try {
    process.kill(pid, name)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
  }
}

const freeze = (pid: number): void => {
  signal(pid, 'SIGSTOP')
  frozen.push(pid)
}

const thaw = (): void => {
  for (const pid of frozen.splice(0)) signal(pid, 'SIGCONT')
}

/** Stops the postmaster first, so that it cannot start new processes, and then all its children. */
const freezePostgres = async (): Promise<void> => {
  const pid = Number((await readFile(join(dataDir, 'postgres', 'postmaster.pid'), 'utf8')).split('\n')[0])
  freeze(pid)
  const children = execFileSync('ps', ['-o', 'pid=', '--ppid', String(pid)], { encoding: 'utf8' })
  for (const child of children.trim().split(/\s+/)) freeze(Number(child))
}

type Told = {
  readonly status: number
  readonly retryAfter: number
  readonly tookMs: number
  readonly text: string
}

const ask = async (url: string, options: RequestInit = {}): Promise<Told> => {
  const beganMs = performance.now()
  const answer = await fetch(url, options)
  const text = await answer.text()
  const retryAfter = Number(answer.headers.get('retry-after'))
  return { status: answer.status, retryAfter, tookMs: performance.now() - beganMs, text }
}

/** The answer, and how much longer it took than one that needs no server. On a busy machine, both take longer. */
const compared = async (asked: Promise<Told>): Promise<Told & { readonly waitedMs: number }> => {
  const [told, alive] = await Promise.all([asked, ask(`${service.apiUrl}/livez`)])
  return { ...told, waitedMs: told.tookMs - alive.tookMs }
}

/** A busy machine can delay a single answer, but a service that waits for a frozen server delays every answer. */
const attemptsMax = 5

/** Asks until an answer comes in time. Every answer must pass the check. */
const expectInTime = async (
  ask: () => Promise<Told>,
  withinMs: number,
  check: (told: Told) => void,
): Promise<void> => {
  const waitsMs: number[] = []
  do {
    const { waitedMs, ...told } = await compared(ask())
    check(told)
    waitsMs.push(waitedMs)
  } while (Math.min(...waitsMs) >= withinMs && waitsMs.length < attemptsMax)
  expect(Math.min(...waitsMs), `waited ${waitsMs} ms`).toBeLessThan(withinMs)
}

/** The answers to all calls to the installation. */
const made: Promise<Told>[] = []

const lookUp = (headers: Record<string, string> = {}): Promise<Told> => {
  const asked = ask(`${service.apiUrl}/v1/ip/lookup`, {
    method: 'POST',
    headers: { 'x-api-key': demo.api_key, 'content-type': 'application/json', ...headers },
    body: '{"ip":"8.8.8.8"}',
  })
  made.push(asked)
  return asked
}

const whoami = (): Promise<Told> =>
  ask(`${service.dashboardUrl}/whoami`, { headers: { 'x-api-key': demo.api_key } })

/** Makes calls until the first immediate refusal. */
const untilNoticed = (ask: () => Promise<Told>): Promise<true> =>
  eventually(async () => {
    const late = new Promise<null>((resolve) => setTimeout(resolve, refusedWithinMs, null))
    return (await Promise.race([ask(), late]))?.status === 503 ? true : undefined
  })

const untilAnswered = (): Promise<true> =>
  eventually(async () => ((await lookUp()).status === 200 ? true : undefined))

const expectRefusedAtOnce = async (...asks: (() => Promise<Told>)[]): Promise<void> => {
  for (const ask of asks)
    await expectInTime(ask, refusedWithinMs, ({ status, retryAfter, text }) => {
      expect([status, JSON.parse(text).code]).toEqual([503, 'SYS_002'])
      expect(retryAfter).toBeGreaterThanOrEqual(1)
    })
}

/** Expects the process's own metrics, without those of the database, within a time limit. */
const expectMetricsInTime = async (): Promise<void> => {
  for (const withinMs of [2_000, 500])
    await expectInTime(
      () => ask(`${service.metricsUrl}/metrics`),
      withinMs,
      ({ status, text }) => {
        expect(status).toBe(200)
        expect(text).toMatch(
          /^enrichment_calls_total\{capability="ip_lookup",outcome="failed",code="SYS_002"\} [1-9]/m,
        )
        expect(text).toMatch(/^enrichment_check_level\{check="database"\} 2$/m)
        expect(text).not.toMatch(/^enrichment_jobs_dead_letters\{/m)
      },
    )
}

/** Expects that every answered call was charged, and every charged call answered. */
const expectBooksInOrder = async (): Promise<void> => {
  const sent = await Promise.all(made)
  const answered = sent.filter(({ status }) => status === 200).map(({ text }) => JSON.parse(text).request_id)
  // A call with an unknown outcome is reversed before the next charge is written.
  const charged = [...(await netCharges())].flatMap(([id, amount]) => (amount > 0 ? [id] : []))
  expect(charged.toSorted()).toEqual(answered.toSorted())
  expect(await cliJson(['ledger', 'verify', demo.organization_id], environment)).toMatchObject({ ok: true })
}

/** Signs the demo user in to the dashboard and sets a new password. Resolves with the session cookies. */
const signedIn = async (): Promise<string> => {
  const { cookie, submit } = openForms(service.dashboardUrl)
  const { dashboard_user: name, dashboard_password: present } = demo
  const chosen = 'chosen by the person itself'
  await submit('/login', '/login', { name, password: present })
  await submit('/me', '/me/password', { present, new: chosen, again: chosen })
  return cookie()
}

type Sent = { readonly key: string | null; readonly reply: Told | null }

/** Calls made while the log is frozen, half of them with an Idempotency-Key. Null: the connection ended without an answer. */
const sendFor = async (forMs: number, calls: Promise<Sent>[]): Promise<void> => {
  for (const endMs = performance.now() + forMs; performance.now() < endMs; ) {
    const key = calls.length % 2 === 0 ? `order-${calls.length}` : null
    const asked = lookUp(key === null ? {} : { 'idempotency-key': key })
    calls.push(
      asked.then(
        (reply) => ({ key, reply }),
        () => ({ key, reply: null }),
      ),
    )
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}

/** The final charge of each request, by the request's id. */
const netCharges = async (): Promise<Map<string, number>> => {
  const net = new Map<string, number>()
  const requestOf = new Map<unknown, string>()
  for (const { type, data, metadata } of await exportLedger(demo.organization_id, environment)) {
    if (type === 'CreditCharged') {
      requestOf.set(data.charge_id, String(metadata.request_id))
      net.set(String(metadata.request_id), Number(data.amount))
    }
    const requestId = type === 'CreditAdjusted' ? requestOf.get(data.adjusts) : undefined
    if (requestId !== undefined) net.set(requestId, (net.get(requestId) ?? 0) - Number(data.amount))
  }
  return net
}

/** The duration of the freeze, which is longer than callers wait for an append. */
const frozenMs = 12_000

/** Makes the claims of a killed process older than a minute, so that they are no longer valid. */
const expireClaims = async (): Promise<void> => {
  const { url } = JSON.parse(await readFile(join(dataDir, 'postgres.json'), 'utf8')) as { url: string }
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  await client.query(
    `update idempotent_calls set claimed_at = claimed_at - interval '1 minute' where status is null`,
  )
  await client.end()
}

/**
 * Freezes the log around the end of the service. Expects that refused calls are not charged, and that calls with an unknown
 * outcome are logged or repeated.
 */
const expectNothingLostAround = async (
  signal: 'SIGKILL' | 'SIGTERM',
  freezeLog: () => Promise<void> | void,
): Promise<void> => {
  expect((await lookUp()).status).toBe(200)
  const saidBefore = service.output().length
  const frozenAtMs = performance.now()
  await freezeLog()
  const calls: Promise<Sent>[] = []
  await sendFor(3_000, calls)
  const ending = service.end(signal)
  await new Promise((resolve) => setTimeout(resolve, frozenMs - (performance.now() - frozenAtMs)))
  thaw()
  const code = await ending
  const sent = await Promise.all(calls)
  const owed = [
    ...service
      .output()
      .slice(saidBefore)
      .matchAll(/"requestIds":\[([^\]]*)\]/g),
  ].flatMap(([, ids = '']) => ids.split(',').map((id) => id.replaceAll('"', '')))
  if (signal === 'SIGTERM' && owed.length > 0) expect(code).toBe(1)
  service = await startService(environment)
  if (signal === 'SIGKILL') await expireClaims()
  // Every call with a key is repeated, and now gets its final answer.
  for (const { key, reply } of sent)
    if (key !== null && reply?.status !== 200)
      await eventually(async () =>
        (await lookUp({ 'idempotency-key': key })).status === 200 ? true : undefined,
      )
  const file = join(dataDir, 'owed.txt')
  if (owed.length > 0) {
    await writeFile(file, owed.join('\n'))
    await cliJson(['ledger', 'reverse', '--requests', file, '--yes'], environment)
  }
  const net = await netCharges()
  for (const { key, reply } of sent) {
    const requestId = reply === null ? null : (JSON.parse(reply.text).request_id as string)
    const charged = requestId === null ? 0 : (net.get(requestId) ?? 0)
    const what = `${reply?.status ?? 'no answer'}${key === null ? '' : ' with a key'}`
    if (reply?.status === 200) expect({ what, charged }).toEqual({ what, charged: 1 })
    if (reply?.status === 503) expect({ what, requestId, charged }).toEqual({ what, requestId, charged: 0 })
    if (reply?.status === 504 && key === null && signal === 'SIGTERM')
      expect({ what, requestId, charged }).toEqual({ what, requestId, charged: 0 })
  }
  expect(await cliJson(['ledger', 'verify', demo.organization_id], environment)).toMatchObject({ ok: true })
}

describe('a frozen PostgreSQL', () => {
  installation()

  test('calls, pages, keyed calls and whoami are refused immediately until it answers; charges are not lost or doubled', async () => {
    await lookUp()
    await ask(`${service.metricsUrl}/metrics`)
    const cookie = await signedIn()
    await freezePostgres()
    await untilNoticed(lookUp)
    await expectRefusedAtOnce(lookUp, () => lookUp({ 'idempotency-key': 'one' }), whoami)
    await expectMetricsInTime()
    const page = await ask(`${service.dashboardUrl}/`, { headers: { cookie, accept: 'text/html' } })
    expect([page.status, page.retryAfter >= 5]).toEqual([503, true])
    expect(page.text).toContain('Database not available')
    thaw()
    await untilAnswered()
    await expectBooksInOrder()
    const gate = service.output().match(/the database (does not answer|answers again)/g)
    expect([gate?.[0], gate?.at(-1)]).toEqual(['the database does not answer', 'the database answers again'])
  })

  test('around SIGKILL: refused calls are not charged, and those with an unknown outcome are repeated', () =>
    expectNothingLostAround('SIGKILL', freezePostgres))
})

describe('with the event log in a separate event store', () => {
  let double: Awaited<ReturnType<typeof startEventStore>> | undefined
  afterAll(() => double?.child.kill('SIGKILL'))
  installation(async () => {
    double = await startEventStore()
    return { EVENT_LOG_URL: double.url }
  })
  const freezeDouble = (): void => freeze(Number(double?.child.pid))

  test('when the event store is frozen, the same calls are refused, while the database answers', async () => {
    await lookUp()
    freezeDouble()
    await untilNoticed(lookUp)
    await expectRefusedAtOnce(lookUp, () => lookUp({ 'idempotency-key': 'one' }), whoami)
    thaw()
    await untilAnswered()
    await expectBooksInOrder()
  })

  test('while only the database is frozen, only requests that need the database are refused', async () => {
    await freezePostgres()
    await untilNoticed(whoami)
    await expectRefusedAtOnce(whoami, () => lookUp({ 'idempotency-key': 'two' }))
    const { status, waitedMs } = await compared(lookUp())
    expect([status, waitedMs < refusedWithinMs]).toEqual([200, true])
    thaw()
    await eventually(async () => ((await whoami()).status === 200 ? true : undefined))
  })

  test('around SIGTERM: refused calls are not charged, and those with an unknown outcome are named', () =>
    expectNothingLostAround('SIGTERM', freezeDouble))
})
