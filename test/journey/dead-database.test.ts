import { execFile } from 'node:child_process'
import { mkdtemp, open, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import pg from 'pg'
import { afterEach, beforeEach, expect, test } from 'vitest'
import {
  cli,
  cliJson,
  eventually,
  exportLedger,
  lookup,
  type Service,
  startService,
} from '../support/service.ts'

/**
 * The embedded PostgreSQL dies under load. Calls are refused with 503 meanwhile, go on by themselves, and what was
 * answered stands in the ledger with its charge, once.
 */

const run = promisify(execFile)
const callers = 8
/** From the death to the next answered call. Recovery replays little here; the issue is that nobody has to come. */
const backWithinMs = 30_000
/** Until callers are answered as always: a busy machine starts a service slowly. */
const underWayWithinMs = 60_000
const mib = 1024 * 1024

let dataDir = ''
let mounted = false
let service: Service
let demo: { organization_id: string; api_key: string; dashboard_user: string; dashboard_password: string }
let environment: Record<string, string>

beforeEach(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'dead-database-'))
  environment = { DATA_DIR: dataDir, EMAIL_PROBE: 'off' }
})

afterEach(async () => {
  await service?.end('SIGTERM')
  if (mounted) await run('umount', [dataDir])
  mounted = false
  await rm(dataDir, { recursive: true, force: true })
})

const start = async (): Promise<void> => {
  service = await startService(environment)
  demo = JSON.parse(await readFile(join(dataDir, 'demo.json'), 'utf8'))
}

type Told = {
  readonly atMs: number
  readonly tookMs: number
  readonly status: number
  readonly requestId: string
}

/** Look-ups one after the other by each caller, each with what came of it, until told to end. */
const underLoad = () => {
  const told: Told[] = []
  let ended = false
  const call = async (caller: number): Promise<void> => {
    for (let i = 0; !ended; i++) {
      const startedMs = performance.now()
      const { status, body, headers } = await lookup(service.apiUrl, demo.api_key, `8.${caller}.${i % 250}.8`)
      const atMs = performance.now()
      told.push({ atMs, tookMs: atMs - startedMs, status, requestId: String(body.request_id) })
      if (status === 200) continue
      expect([status, body.code, Number(headers.get('retry-after')) > 0]).toEqual([503, 'SYS_002', true])
      // What a caller does who was told to come again, only sooner.
      await new Promise((resolve) => setTimeout(resolve, 20))
    }
  }
  const calling = Promise.all(Array.from({ length: callers }, (_, caller) => call(caller)))
  return {
    told,
    answered: () => told.filter(({ status }) => status === 200).length,
    end: async () => {
      ended = true
      await calling
    },
  }
}

const postmaster = async (): Promise<number> =>
  Number((await readFile(join(dataDir, 'postgres', 'postmaster.pid'), 'utf8')).split('\n')[0])

/** Also true for one that its parent has not asked about yet: it has no command line any more. */
const hasEnded = async (pid: number): Promise<boolean> =>
  (await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')) === ''

/** How many calls got what, in words, for the log of the run. */
const summary = (told: readonly Told[], fromMs: number, toMs: number): string => {
  const between = told.filter(({ atMs }) => atMs >= fromMs && atMs < toMs)
  const counts = Map.groupBy(between, ({ status }) => status)
  const slowest = Math.max(0, ...between.map(({ tookMs }) => tookMs))
  return `${[...counts].map(([status, calls]) => `${status}: ${calls.length}`).join(', ')}; slowest ${Math.round(slowest)} ms`
}

/** No answer without its charge, no charge twice, and none that nobody was answered for. */
const expectBooksInOrder = async (told: readonly Told[]): Promise<void> => {
  const events = await exportLedger(demo.organization_id, environment)
  const charges = events.filter(({ type }) => type === 'CreditCharged')
  const reversed = new Set(
    events.filter(({ type }) => type === 'CreditAdjusted').map(({ data }) => String(data.adjusts)),
  )
  const kept = charges.filter(({ data }) => !reversed.has(String(data.charge_id)))
  const answered = told.filter(({ status }) => status === 200).map(({ requestId }) => requestId)
  expect(kept.map(({ metadata }) => metadata.request_id).toSorted()).toEqual(answered.toSorted())
  expect(await cliJson(['ledger', 'verify', demo.organization_id], environment)).toMatchObject({ ok: true })
}

/** Says what callers got before, while and after the database was away. */
const tellJourney = (told: readonly Told[], fromMs: number, causeGoneMs: number): void => {
  const lastRefused = told.findLast(({ atMs, status }) => atMs >= fromMs && status !== 200)?.atMs ?? fromMs
  const answers = told.filter(({ status }) => status === 200).map(({ atMs }) => atMs)
  const backMs = answers.find((atMs) => atMs > lastRefused) ?? Number.NaN
  const silence = Math.max(
    ...answers.map((atMs, i) => (atMs < fromMs ? 0 : atMs - (answers[i - 1] ?? fromMs))),
  )
  console.log(
    [
      `before: ${summary(told, 0, fromMs)}`,
      `during: ${summary(told, fromMs, backMs)}; longest without an answer ${Math.round(silence)} ms`,
      `after:  ${summary(told, backMs, Number.POSITIVE_INFINITY)}`,
      `the last refusal was ${Math.round(lastRefused - causeGoneMs)} ms after its cause was gone`,
    ].join('\n'),
  )
}

test('kill -9 of the postmaster under load: calls go on by themselves, and the books are in order', async () => {
  await start()
  const load = underLoad()
  await eventually(async () => (load.answered() >= 200 ? true : undefined), underWayWithinMs)
  const pid = await postmaster()
  const killedAtMs = performance.now()
  process.kill(pid, 'SIGKILL')
  await eventually(
    async () => ((await postmaster().catch(() => pid)) === pid ? undefined : true),
    backWithinMs,
  )
  const before = load.answered()
  await eventually(async () => (load.answered() >= before + 200 ? true : undefined), backWithinMs)
  await eventually(async () => ((await fetch(`${service.apiUrl}/readyz`)).ok ? true : undefined))
  await load.end()
  tellJourney(load.told, killedAtMs, killedAtMs)
  await expectBooksInOrder(load.told)
  expect(service.output()).not.toMatch(/secretKey|connectionParameters/)
})

/** Root may mount a disk small enough to fill. */
const smallDisk = async (): Promise<boolean> => {
  if (process.getuid?.() !== 0) return false
  mounted = await run('mount', ['-t', 'tmpfs', '-o', 'size=200m', 'tmpfs', dataDir]).then(
    () => true,
    () => false,
  )
  return mounted
}

/** Writes until nothing more goes in. */
const fill = async (path: string): Promise<void> => {
  const file = await open(path, 'w')
  try {
    for (;;) await file.write(Buffer.alloc(mib))
  } catch (error) {
    expect(error).toMatchObject({ code: 'ENOSPC' })
  } finally {
    await file.close()
  }
}

/** Signs the demo user in to the dashboard, with a password of its own. Resolves with the cookies of the session. */
const signedIn = async (): Promise<string> => {
  const cookies = new Map<string, string>()
  const keep = (response: Response): void => {
    for (const cookie of response.headers.getSetCookie()) {
      const [name = '', value = ''] = cookie.split(';')[0]?.split('=') ?? []
      cookies.set(name, value)
    }
  }
  const header = (): string => [...cookies].map(([name, value]) => `${name}=${value}`).join('; ')
  const submit = async (page: string, path: string, fields: Record<string, string>): Promise<void> => {
    const form = await fetch(`${service.dashboardUrl}${page}`, { headers: { cookie: header() } })
    keep(form)
    const text = await form.text()
    const hidden = ['_csrf', 'once'].map((name) => [
      ...[name, new RegExp(`name="${name}" value="([^"]+)"`).exec(text)?.[1] ?? ''],
    ])
    const answer = await fetch(`${service.dashboardUrl}${path}`, {
      method: 'POST',
      redirect: 'manual',
      headers: { cookie: header(), 'content-type': 'application/x-www-form-urlencoded' },
      body: new URLSearchParams({ ...Object.fromEntries(hidden), ...fields }),
    })
    keep(answer)
    expect(answer.status).toBe(303)
  }
  const { dashboard_user: name, dashboard_password: present } = demo
  const chosen = 'chosen by the person itself'
  await submit('/login', '/login', { name, password: present })
  await submit('/me', '/me/password', { present, new: chosen, again: chosen })
  await submit('/login', '/login', { name, password: chosen })
  return header()
}

test('a full disk ends the server under load: everybody is told so, and with space calls go on by themselves', async ({
  skip,
}) => {
  if (!(await smallDisk())) skip('only root can mount a disk that is small enough to fill')
  await start()
  const cookie = await signedIn()
  const load = underLoad()
  await eventually(async () => (load.answered() >= 200 ? true : undefined), underWayWithinMs)
  const pid = await postmaster()
  const filledAtMs = performance.now()
  await fill(join(dataDir, 'ballast'))
  // Ends for want of a place for its next piece of WAL; else the load would have to fill the present one first.
  const { url } = JSON.parse(await readFile(join(dataDir, 'postgres.json'), 'utf8')) as { url: string }
  await eventually(async () => {
    const client = new pg.Client({ connectionString: url })
    client.on('error', () => undefined)
    const switched = client.connect().then(() => client.query('select pg_switch_wal()'))
    await switched.catch(() => undefined)
    await client.end().catch(() => undefined)
    return (await hasEnded(pid)) ? true : undefined
  })

  const loggedUntilNow = service.output().length
  const awaySinceMs = performance.now()
  const refused = async (url: string, headers: Record<string, string>) => {
    const response = await fetch(url, { headers, redirect: 'manual' })
    return {
      status: response.status,
      text: await response.text(),
      again: response.headers.get('retry-after'),
    }
  }
  const page = await refused(`${service.dashboardUrl}/`, { cookie, accept: 'text/html' })
  expect([page.status, Number(page.again) >= 5]).toEqual([503, true])
  expect(page.text).toContain('Database away')
  const whoami = await refused(`${service.dashboardUrl}/whoami`, { 'x-api-key': demo.api_key })
  expect([whoami.status, JSON.parse(whoami.text).code]).toEqual([503, 'SYS_002'])
  expect((await fetch(`${service.apiUrl}/livez`)).status).toBe(200)
  expect((await fetch(`${service.apiUrl}/readyz`)).status).toBe(503)
  const startedMs = performance.now()
  const command = await cli(['org', 'list'], environment)
  expect(performance.now() - startedMs).toBeLessThan(20_000)
  expect([command.code, command.out]).toEqual([1, ''])
  expect(command.err).toContain('without its PostgreSQL answering')
  // Said once, however many loops try again; the command waited ten seconds meanwhile.
  const away = (performance.now() - awaySinceMs) / 1_000
  const lines = service.output().slice(loggedUntilNow).split('\n')
  const background = lines.filter(
    (line) => line !== '' && !/a call failed|a page failed|requestId/.test(line),
  )
  console.log(`logged in ${away.toFixed(1)} s without a database: ${background.length} lines`)
  expect(background.length).toBeLessThan(30)

  const spaceAtMs = performance.now()
  await rm(join(dataDir, 'ballast'))
  const before = load.answered()
  await eventually(async () => (load.answered() >= before + 200 ? true : undefined), backWithinMs)
  await eventually(async () => ((await fetch(`${service.apiUrl}/readyz`)).ok ? true : undefined))
  await load.end()
  tellJourney(load.told, filledAtMs, spaceAtMs)
  await expectBooksInOrder(load.told)
}, 180_000)
