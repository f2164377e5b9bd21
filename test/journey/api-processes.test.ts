/** API_PROCESSES: real processes behind one port, killed, drained and counted together. */
import { once } from 'node:events'
import { mkdtemp, readdir, readFile, readlink, rm, stat, writeFile } from 'node:fs/promises'
import { Agent, request } from 'node:http'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import {
  cliJson,
  createPartner,
  eventually,
  exportLedger,
  type Launch,
  lookup,
  type Partner,
  type Service,
  startService,
  startWorker,
} from '../support/service.ts'

const processes = 2
let dataDir = ''
let environment: Record<string, string>
let partner: Partner
let service: Service | undefined

const start = async (launch: Launch = {}): Promise<Service> => {
  service = await startService(environment, { ownGroup: true, ...launch })
  return service
}

beforeAll(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'api-processes-'))
  environment = {
    ...{ DATA_DIR: dataDir, API_PROCESSES: String(processes), METRICS_PORT: '0' },
    ...{ EMAIL_PROBE: 'off', LOG_LEVEL: 'info' },
  }
  await start()
  // The demo's credits would not last.
  partner = await createPartner('1000000', environment)
}, 140_000)

afterEach(async () => {
  // A test that failed half-way. A fork that lives on has lost its group's leader, not its group.
  if (expect.getState().currentTestName?.includes('SIG') !== true) return
  if (service?.child.exitCode === null && service.child.signalCode === null) await service.end('SIGTERM')
})

afterAll(async () => {
  if (service?.child.exitCode === null && service.child.signalCode === null) await service.end('SIGTERM')
  await rm(dataDir, { recursive: true, force: true })
})

/** The forks of a process, by the kernel's own list. */
const forksOf = async ({ child: { pid } }: Pick<Service, 'child'>): Promise<number[]> => {
  const pids = (await readFile(`/proc/${pid}/task/${pid}/children`, 'utf8'))
    .split(' ')
    .filter((one) => one !== '')
  const lines = await Promise.all(pids.map((one) => readFile(`/proc/${one}/cmdline`, 'utf8').catch(() => '')))
  return pids.flatMap((one, i) => (lines[i]?.includes('main.ts') ? [Number(one)] : []))
}

/** Also a zombie is one that runs: somebody should have waited for it. */
const runningOf = async (pids: readonly number[]): Promise<number[]> => {
  const found = await Promise.all(
    pids.map((pid) =>
      stat(`/proc/${pid}`).then(
        () => [pid],
        () => [],
      ),
    ),
  )
  return found.flat()
}

/** How many connections to a port each process holds. */
const connectionsOf = async (port: number, pids: readonly number[]): Promise<number[]> => {
  const hex = port.toString(16).toUpperCase().padStart(4, '0')
  const inodes = new Set(
    (await readFile('/proc/net/tcp', 'utf8'))
      .split('\n')
      .map((line) => line.trim().split(/\s+/))
      .filter(([, local, , state]) => local?.endsWith(`:${hex}`) && state === '01')
      .map((fields) => `socket:[${fields[9]}]`),
  )
  return Promise.all(
    pids.map(async (pid) => {
      const files = await readdir(`/proc/${pid}/fd`)
      const links = await Promise.all(
        files.map((file) => readlink(`/proc/${pid}/fd/${file}`).catch(() => '')),
      )
      return links.filter((link) => inodes.has(link)).length
    }),
  )
}

const figures = async ({ metricsUrl }: Service): Promise<Map<string, number>> => {
  const text = await (await fetch(`${metricsUrl}/metrics`)).text()
  return new Map(
    [...text.matchAll(/^([^#\s]\S*(?: [^\s]+)*?) (\S+)$/gm)].map(([, name = '', value]) => [
      name,
      Number(value),
    ]),
  )
}
/** Calls of any end. */
const callsIn = (told: Map<string, number>): number =>
  [...told].reduce((all, [name, value]) => (name.startsWith('enrichment_calls_total') ? all + value : all), 0)

const readiness = async ({ metricsUrl }: Service) => {
  const response = await fetch(`${metricsUrl}/readyz`)
  const { checks } = (await response.json()) as { checks: { api_processes: unknown } }
  return { status: response.status, processes: checks.api_processes }
}

const allAnswer = (running: Service): Promise<true> =>
  eventually(async () => {
    const { processes: told } = await readiness(running)
    return (told as { answering: number }).answering === processes ? true : undefined
  }, 40_000)

type Load = {
  readonly answered: string[]
  readonly statuses: Map<number | 'broken', number>
  end(): Promise<void>
  readonly over: Promise<unknown>
}

/** Look-ups by callers that keep their connections. One whose connection breaks goes on with another, while there is one. */
const underLoad = ({ apiUrl }: Service, callers = 6): Load => {
  const answered: string[] = []
  const statuses: Load['statuses'] = new Map()
  let ended = false
  const call = async (caller: number): Promise<void> => {
    for (let i = 0, broken = 0; !ended && broken < 3; i++) {
      const told = await lookup(apiUrl, partner.apiKey, `8.${caller}.${i % 250}.8`).catch(() => null)
      const status = told?.status ?? 'broken'
      statuses.set(status, (statuses.get(status) ?? 0) + 1)
      broken = told === null ? broken + 1 : 0
      if (told?.status === 200) answered.push(String(told.body.request_id))
      // A load, and yet processors for a fork that starts.
      await sleep(10)
    }
  }
  const over = Promise.all(Array.from({ length: callers }, (_, caller) => call(caller)))
  return {
    answered,
    statuses,
    over,
    end: async () => {
      ended = true
      await over
    },
  }
}

const more = (load: Load, count: number): Promise<true> => {
  const until = load.answered.length + count
  return eventually(async () => (load.answered.length >= until ? true : undefined), 40_000)
}

/** Everything that any test was answered. */
const answeredEver: string[] = []

test('npm start says how many they are, and both take their part of the connections', async () => {
  const running = service as Service
  expect(running.output()).toMatch(/^API {8}http:\/\/127\.0\.0\.1:\d+ {2}\(2 processes\)$/m)
  expect(await readiness(running)).toEqual({
    status: 200,
    processes: { status: 'ok', wanted: processes, answering: processes },
  })
  const forks = await forksOf(running)
  expect(forks).toHaveLength(processes)
  const { port } = new URL(running.apiUrl)
  // Each with a connection of its own, one after another: whoever is not at a processor now takes its turn all the same.
  const agents = Array.from({ length: 16 }, () => new Agent({ keepAlive: true }))
  for (const agent of agents)
    await new Promise<void>((resolve, reject) => {
      const asked = request({ port, host: '127.0.0.1', path: '/livez', agent }, (response) => {
        response.resume().once('end', resolve)
      })
      asked.once('error', reject).end()
    })
  const held = await connectionsOf(Number(port), forks)
  for (const agent of agents) agent.destroy()
  expect(held.reduce((all, one) => all + one)).toBe(16)
  for (const one of held) expect(one).toBeGreaterThanOrEqual(5)
})

/** 90 calls of a new key, a few at a time, and what the service then says of them. */
const spend = async (running: Service, limit: number) => {
  const { api_key: apiKey } = await cliJson<{ api_key: string }>(
    [
      'key',
      'issue',
      partner.organizationId,
      '--requests-per-minute',
      String(limit),
      '--requests-per-day',
      '1000',
    ],
    environment,
  )
  const limited = 'enrichment_rate_limited_calls_total{policy="minute"}'
  const before = await figures(running)
  const statuses: number[] = []
  const ask = async (n: number): Promise<void> => {
    const { status, body } = await lookup(running.apiUrl, apiKey, `8.8.${n}.8`, { connection: 'close' })
    if (status === 200) answeredEver.push(String(body.request_id))
    statuses.push(status)
  }
  for (let n = 0; n < 90; n += 6) await Promise.all([0, 1, 2, 3, 4, 5].map((i) => ask(n + i)))
  const told = await figures(running)
  return {
    told,
    answered: statuses.filter((status) => status === 200).length,
    refused: statuses.filter((status) => status === 429).length,
    calls: callsIn(told) - callsIn(before),
    limited: (told.get(limited) ?? 0) - (before.get(limited) ?? 0),
  }
}

test('a limit of N is N over all of them, and what they measure adds up', async () => {
  const running = service as Service
  const limit = 30
  let spent = await spend(running, limit)
  // A call that hears nothing of the others in time is counted apart. Processes that do not count together never come to N.
  for (let tries = 1; tries < 5 && spent.answered !== limit; tries++) spent = await spend(running, limit)
  const { told, ...counted } = spent
  expect(counted).toEqual({ answered: limit, refused: 90 - limit, calls: 90, limited: 90 - limit })
  for (const number of [1, 2]) {
    expect(told.get(`process_resident_memory_bytes{worker="${number}"}`)).toBeGreaterThan(1e6)
    expect(told.get(`enrichment_rate_limiter_degraded{worker="${number}"}`)).toBe(0)
  }
  expect(told.get('process_resident_memory_bytes')).toBeGreaterThan(1e6)
})

test('one that is killed under load is replaced, the other one goes on, and totals do not fall', async () => {
  const running = service as Service
  const [first = 0, second = 0] = await forksOf(running)
  const load = underLoad(running)
  try {
    await more(load, 100)
    const before = callsIn(await figures(running))
    process.kill(first, 'SIGKILL')
    await more(load, 100)
    await eventually(async () => ((await forksOf(running)).includes(first) ? undefined : true))
    await allAnswer(running)
    expect(await forksOf(running)).toContain(second)
    await more(load, 100)
    const told = await figures(running)
    expect(callsIn(told)).toBeGreaterThan(before)
    expect(told.get('enrichment_api_process_restarts_total')).toBe(1)
  } finally {
    await load.end()
  }
  answeredEver.push(...load.answered)
  expect([...load.statuses.keys()].filter((status) => status !== 200 && status !== 'broken')).toEqual([])
  expect(load.statuses.get('broken') ?? 0).toBeLessThanOrEqual(8)
  expect(running.output()).toContain('an api process ended, another one is started')
})

test('SIGHUP, then SIGTERM twice to all of them under load: what was taken in is answered, exit 0, no orphan', async () => {
  const running = service as Service
  const forks = await forksOf(running)
  const load = underLoad(running)
  await more(load, 100)
  const group = -(running.child.pid ?? 0)
  process.kill(group, 'SIGHUP')
  await more(load, 100)
  const exited = once(running.child, 'exit')
  process.kill(group, 'SIGTERM')
  process.kill(group, 'SIGTERM')
  const [code, killedBy] = await exited
  await load.over
  answeredEver.push(...load.answered)

  expect(code ?? killedBy).toBe(0)
  expect([...load.statuses.keys()].filter((status) => ![200, 503, 'broken'].includes(status))).toEqual([])
  expect(await runningOf(forks)).toEqual([])
  expect(running.output()).toContain('embedded PostgreSQL has stopped')
  await expect(stat(join(dataDir, 'postgres', 'postmaster.pid'))).rejects.toThrow('ENOENT')
  // Not one that the signal ended was started again.
  expect(running.output().match(/another one is started/g)).toHaveLength(1)
})

test('the first one SIGKILLed under load: the others answer what is in flight and end', async () => {
  const running = await start()
  const forks = await forksOf(running)
  const load = underLoad(running)
  await more(load, 100)
  running.child.kill('SIGKILL')
  await load.over
  answeredEver.push(...load.answered)
  await eventually(async () => ((await runningOf(forks)).length === 0 ? true : undefined), 40_000)
  expect([...load.statuses.keys()].filter((status) => ![200, 503, 'broken'].includes(status))).toEqual([])
})

test('the next start adopts the PostgreSQL; SIGTERM to the first one alone ends all; answered is charged', async () => {
  const running = await start()
  expect(running.output()).toContain('adopting the PostgreSQL that another process left')
  const forks = await forksOf(running)
  const { status, body } = await lookup(running.apiUrl, partner.apiKey, '8.8.8.8')
  expect(status).toBe(200)
  answeredEver.push(String(body.request_id))
  const events = await exportLedger(partner.organizationId, environment)
  const charged = events
    .filter(({ type }) => type === 'CreditCharged')
    .map(({ metadata }) => metadata.request_id)
  expect(new Set(charged).size).toBe(charged.length)
  expect(answeredEver.filter((id) => !charged.includes(id))).toEqual([])
  expect(await running.end('SIGTERM')).toBe(0)
  expect(await runningOf(forks)).toEqual([])
})

test('a port that is taken stops the start, and is named once', async () => {
  const taken = createServer().listen(0, '127.0.0.1')
  await once(taken, 'listening')
  const { port } = taken.address() as { port: number }
  const starting = startWorker({ ...environment, ROLES: 'api', API_PORT: String(port) })
  const [code] = await once(starting.child, 'exit')
  taken.close()
  expect(code).toBe(2)
  expect(starting.output().match(/API_PORT: port \d+ on 127\.0\.0\.1 is taken/g)).toHaveLength(1)
})

test('forks that cannot start end the start, with the last error of one', async () => {
  const script = join(dataDir, 'fails.cjs')
  await writeFile(script, `if (process.env.API_PROCESSES === '1') process.kill(process.pid, 'SIGKILL')`)
  const starting = startWorker({ ...environment, ROLES: 'api', NODE_OPTIONS: `--require ${script}` })
  const [code] = await once(starting.child, 'exit')
  expect(code).toBe(1)
  expect(starting.output()).toMatch(
    /api process [12] of 2 ended 5 times in a row before it answered\. The last time: .*SIGKILL/,
  )
})
