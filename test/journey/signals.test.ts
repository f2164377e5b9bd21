import { once } from 'node:events'
import { appendFile, cp, mkdtemp, readFile, rename, rm, stat, symlink, writeFile } from 'node:fs/promises'
import { Agent, createServer, request, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { freePort } from '../support/free-port.ts'
import { writeMmdb } from '../support/mmdb-writer.ts'
import {
  eventually,
  exportLedger,
  type Launch,
  lookup,
  type Service,
  startService,
  startWorker,
} from '../support/service.ts'
import { takesAtMost } from '../support/takes-at-most.ts'

/**
 * Signals to the real process, under load: accepted calls are answered, answered calls are charged, calls without an answer are
 * not charged, and the exit code is 0. The service runs from a copy of the source, in which a test replaces the lists.
 */

const callers = 8
const heldCalls = 6
const root = fileURLToPath(new URL('../..', import.meta.url))

let copy = ''
let dataDir = ''
let environment: Record<string, string>
let demo: { organization_id: string; api_key: string }
let source: Awaited<ReturnType<typeof slowSource>>
let service: Service | undefined

/** A source of profiles that delays its answers until the test releases them. */
const slowSource = async () => {
  let held: ServerResponse[] = []
  const server = createServer((request, response) => {
    const lid = request.url?.slice(1)
    response.setHeader('content-type', 'application/json')
    held.push(response)
    response.once('answer', () => response.end(JSON.stringify({ lid, urn: '12', firstname: 'Talvora' })))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/{lid}`,
    held: () => held.length,
    answer: () => {
      for (const response of held) response.emit('answer')
      held = []
    },
    close: () => {
      server.closeAllConnections()
      return new Promise((resolve) => server.close(resolve))
    },
  }
}

const city = (name: string): Buffer =>
  writeMmdb({
    ipVersion: 4,
    networks: { '0.0.0.0/1': { country: { iso_code: 'GB' }, city: { names: { en: name } } } },
  })

const start = async (launch: Launch = {}): Promise<Service> => {
  service = await startService(environment, { cwd: copy, ownGroup: true, ...launch })
  return service
}

beforeAll(async () => {
  copy = await mkdtemp(join(tmpdir(), 'signals-'))
  for (const name of ['src', 'projections', 'migrations', 'package.json', 'package-lock.json'])
    await cp(join(root, name), join(copy, name), { recursive: true, preserveTimestamps: true })
  await symlink(join(root, 'node_modules'), join(copy, 'node_modules'))
  dataDir = join(copy, 'data')
  source = await slowSource()
  await writeFile(join(copy, 'city.mmdb'), city('Oldtown'))
  environment = {
    DATA_DIR: dataDir,
    GEOIP_CITY_DB: join(copy, 'city.mmdb'),
    PROFILE_PROVIDER: 'http',
    PROFILE_HTTP_URL: source.url,
    EGRESS_ALLOW: '127.0.0.0/8',
    EMAIL_PROBE: 'off',
    LOG_LEVEL: 'info',
  }
  await start()
  demo = JSON.parse(await readFile(join(dataDir, 'demo.json'), 'utf8'))
})

afterEach(async () => {
  // A test that failed half-way can leave its service running.
  if (service?.child.exitCode === null && service.child.signalCode === null) {
    source.answer()
    await service.end('SIGTERM')
  }
})

afterAll(async () => {
  await source?.close()
  await rm(copy, { recursive: true, force: true })
})

type Load = {
  /** The request ids of calls that were answered with 200. */
  readonly answered: string[]
  readonly statuses: Map<number | 'refused', number>
  readonly calling: Promise<unknown>
  end(): void
}

/** Look-ups by callers that reuse their connections, as fast as they are answered, until the service stops listening. */
const underLoad = ({ apiUrl }: Service): Load => {
  const answered: string[] = []
  const statuses = new Map<number | 'refused', number>()
  const count = (status: number | 'refused') => statuses.set(status, (statuses.get(status) ?? 0) + 1)
  let ended = false
  const call = async (caller: number): Promise<void> => {
    for (let i = 0; !ended; i++) {
      const reply = await lookup(apiUrl, demo.api_key, `8.${caller}.${i % 250}.8`).catch(() => null)
      count(reply?.status ?? 'refused')
      if (reply === null) return
      if (reply.status === 200) answered.push(String(reply.body.request_id))
    }
  }
  const calling = Promise.all(Array.from({ length: callers }, (_, caller) => call(caller)))
  return {
    answered,
    statuses,
    calling,
    end: () => {
      ended = true
    },
  }
}

/** Starts calls that wait for an answer from their source. */
const heldProfiles = async ({ apiUrl }: Pick<Service, 'apiUrl'>, run: string, count = heldCalls) => {
  const asked = Array.from({ length: count }, async (_, i) => {
    const response = await fetch(`${apiUrl}/v1/profnet/profile`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-api-key': demo.api_key },
      body: JSON.stringify({ id: `${run}-${i}` }),
    })
    const body = (await response.json()) as { request_id: string }
    return { status: response.status, requestId: body.request_id }
  })
  await eventually(async () => (source.held() === count ? true : undefined))
  return asked
}

/** Starts npm without the prestart script, which can install packages. The copy links to the original package folder. */
const npmStart: Launch = { command: ['npm', 'start', '--ignore-scripts'] }

const refuses = ({ apiUrl }: Service) =>
  eventually(() =>
    fetch(`${apiUrl}/livez`, { headers: { connection: 'close' } }).then(
      () => undefined,
      () => true,
    ),
  )

/** The request ids of all calls in all tests that were answered with 200. */
const answeredEver: string[] = []

test.each([
  { name: 'SIGHUP and SIGTERM twice', signals: ['SIGHUP', 'SIGTERM', 'SIGTERM', 'SIGHUP'] },
  { name: 'SIGINT', signals: ['SIGINT'] },
  // This is how systemd stops a service. npm also forwards the signal, so the service gets it twice.
  { name: 'SIGTERM to the process group of npm start', signals: ['SIGTERM'], launch: npmStart },
] as const)(
  '$name under load: every accepted call is answered, and the exit code is 0',
  async ({ name, signals, ...rest }) => {
    const launch = 'launch' in rest ? rest.launch : null
    const running = launch === null && service?.child.exitCode === null ? service : await start(launch ?? {})
    const load = underLoad(running)
    const held = await heldProfiles(running, name.replaceAll(' ', '').toLowerCase())
    await eventually(async () => (load.answered.length >= 100 ? true : undefined))
    // A process waits for load balancers only after SIGTERM, and only if a load balancer has probed it.
    if (name === 'SIGINT') await fetch(`${running.apiUrl}/readyz`)
    const exited = once(running.child, 'exit')
    const pid = running.child.pid ?? 0
    for (const [i, signal] of signals.entries()) {
      // Calls continue after SIGHUP. Signals after SIGTERM arrive during the drain.
      const more = load.answered.length + 50
      if (signals[i - 1] === 'SIGHUP')
        await eventually(async () => (load.answered.length >= more ? true : undefined))
      else if (i > 0) await refuses(running)
      process.kill(launch === null ? pid : -pid, signal)
    }
    // The shutdown of PostgreSQL, which takes long on a busy machine, comes later.
    if (name === 'SIGINT') await takesAtMost(6_000, refuses(running))
    else await refuses(running)
    source.answer()
    const profiles = await Promise.all(held)
    await load.calling
    const [code, killedBy] = await exited

    expect(profiles.map(({ status }) => status)).toEqual(Array(heldCalls).fill(200))
    expect([...load.statuses.keys()].filter((status) => ![200, 'refused'].includes(status))).toEqual([])
    expect(code ?? killedBy).toBe(0)
    expect(running.output()).toContain('embedded PostgreSQL has stopped')
    // LOG_LEVEL is info, so there is no line for each call.
    expect(running.output()).not.toContain('a call was answered')
    await expect(stat(join(dataDir, 'postgres', 'postmaster.pid'))).rejects.toThrow('ENOENT')
    answeredEver.push(...load.answered, ...profiles.map(({ requestId }) => requestId))
  },
)

/** Sends requests on reused connections, as fast as they are answered, while `sends` is true. Records the outcome of each. */
const keptConnections = async ({ apiUrl }: Service, sends: () => boolean) => {
  const agent = new Agent({ keepAlive: true, maxSockets: callers })
  const ends = new Map<string, number>()
  const body = JSON.stringify({ ip: '10.0.0.1' })
  const headers = {
    'content-type': 'application/json',
    'x-api-key': demo.api_key,
    'content-length': body.length,
  }
  const ask = () =>
    new Promise<string>((resolve) => {
      const asked = request(`${apiUrl}/v1/ip/lookup`, { agent, method: 'POST', headers }, (response) => {
        response.resume().once('end', () => resolve(`${response.statusCode} ${response.headers.connection}`))
      })
      asked.once('error', ({ code }: NodeJS.ErrnoException) => resolve(code ?? 'error'))
      asked.end(body)
    })
  const caller = async () => {
    for (let end = ''; sends() && end !== 'ECONNREFUSED'; ) {
      end = await ask()
      ends.set(end, (ends.get(end) ?? 0) + 1)
    }
  }
  await Promise.all(Array.from({ length: callers }, caller))
  agent.destroy()
  return ends
}

test('SIGTERM interrupts no request on a reused connection', async () => {
  const running = await start()
  let sent = 0
  const calling = keptConnections(running, () => ++sent > 0)
  await eventually(async () => (sent > 200 ? true : undefined))
  const ended = running.end('SIGTERM')
  // Load balancers have not probed this process, so it does not wait for them.
  await takesAtMost(6_000, refuses(running))
  expect(await ended).toBe(0)
  const ends = await calling
  expect([...ends.keys()].toSorted()).toEqual(['200 close', '200 keep-alive', 'ECONNREFUSED'])
})

test('after SIGTERM the service first informs a load balancer, and answers requests that it still sends', async () => {
  const running = await start()
  let isReady = true
  let asked = 0
  const asking = (async () => {
    while (isReady) {
      const answer = await fetch(`${running.apiUrl}/readyz`)
      isReady = answer.ok
      asked += 1
      if (!isReady) expect(await answer.json()).toMatchObject({ checks: { process: { status: 'ending' } } })
    }
  })()
  const calling = keptConnections(running, () => isReady)
  await eventually(async () => (asked > 5 ? true : undefined))
  const exited = running.end('SIGTERM')
  await asking
  const ends = await calling
  // Load balancers that have not noticed the shutdown still send requests.
  const late = await lookup(running.apiUrl, demo.api_key, '10.0.0.2')
  expect([late.status, late.headers.get('connection')]).toEqual([200, 'close'])
  expect(await exited).toBe(0)
  expect([...ends.keys()].filter((end) => !end.startsWith('200 '))).toEqual([])
})

test('SIGHUP under load: location files and lists are replaced, no call fails, and the service keeps running', async () => {
  const running = await start()
  const validate = async () => {
    const response = await fetch(`${running.apiUrl}/v1/email/validate`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-api-key': demo.api_key },
      body: JSON.stringify({ email: 'ada@newly-disposable.example' }),
    })
    const { result } = (await response.json()) as { result: { checks: { disposable: boolean } } }
    return result.checks.disposable
  }
  const cityOf = async () => {
    const { body } = await lookup(running.apiUrl, demo.api_key, '8.8.8.8')
    answeredEver.push(String(body.request_id))
    return (body.result as { city: string }).city
  }
  const load = underLoad(running)
  try {
    expect([await cityOf(), await validate()]).toEqual(['Oldtown', false])
    await writeFile(join(copy, 'city.next'), city('Newtown'))
    await rename(join(copy, 'city.next'), join(copy, 'city.mmdb'))
    const list = join(copy, 'src/capabilities/email-validation/lists/disposable.txt')
    await appendFile(list, 'newly-disposable.example\n')
    running.child.kill('SIGHUP')
    running.child.kill('SIGHUP')
    await eventually(async () => ((await cityOf()) === 'Newtown' && (await validate()) ? true : undefined))

    // Damaged files are refused with an error, and the old files stay in use.
    await writeFile(join(copy, 'city.next'), 'no location file')
    await rename(join(copy, 'city.next'), join(copy, 'city.mmdb'))
    await writeFile(list, '')
    running.child.kill('SIGHUP')
    await eventually(async () =>
      /lists: the new lists were rejected/.test(running.output()) &&
      /geo database: the new file was refused/.test(running.output())
        ? true
        : undefined,
    )
    expect([await cityOf(), await validate()]).toEqual(['Newtown', true])
  } finally {
    load.end()
    await load.calling
  }
  answeredEver.push(...load.answered)
  expect([...load.statuses.keys()]).toEqual([200])
  expect(await running.end('SIGTERM')).toBe(0)
})

test('after SIGTERM during the start, calls are answered until the hosts close, and the parts are stopped in order', async () => {
  await writeFile(join(copy, 'city.mmdb'), city('Oldtown'))
  const apiUrl = `http://127.0.0.1:${await freePort()}`
  const starting = startWorker({
    ...environment,
    ROLES: 'api,dashboard,projector,jobs',
    API_PORT: new URL(apiUrl).port,
  })
  const pidFile = join(dataDir, 'postgres', 'postmaster.pid')
  await eventually(() => stat(pidFile).catch(() => undefined))
  const signalledMs = performance.now()
  const exited = starting.end('SIGTERM')
  // A load balancer probes the service, so the service waits before it closes the hosts.
  const probed = () => fetch(`${apiUrl}/readyz`, { headers: { connection: 'close' } })
  await eventually(() => probed().catch(() => undefined))
  const after = (ms: number) => sleep(Math.max(0, signalledMs + ms - performance.now()))
  // The call is in progress when the time that a start may take after a signal is over.
  await after(4_000)
  const held = await heldProfiles({ apiUrl }, 'during-the-start', 1)
  await after(10_500)
  source.answer()
  for (const { status, requestId } of await Promise.all(held)) {
    expect(status).toBe(200)
    answeredEver.push(requestId)
  }
  expect(await exited).toBe(0)
  await expect(stat(pidFile)).rejects.toThrow('ENOENT')
})

test('in total, exactly the answered calls are charged', async () => {
  const events = await exportLedger(demo.organization_id, environment)
  const charged = events.filter(({ type }) => type === 'CreditCharged')
  expect(charged.length).toBeGreaterThan(500)
  expect(charged.map(({ metadata }) => metadata.request_id).toSorted()).toEqual(answeredEver.toSorted())
})
