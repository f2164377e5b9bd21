import type { ChildProcess, SpawnOptions } from 'node:child_process'
import { openSync } from 'node:fs'
import { chmod, mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import pino from 'pino'
import { issueKey } from '../../src/administration/api-keys.ts'
import { grant } from '../../src/administration/credits.ts'
import { createOrganization } from '../../src/administration/organizations.ts'
import { parseCredits } from '../../src/billing/money.ts'
import { parseConfig } from '../../src/config.ts'
import { type Foundation, openFoundation } from '../../src/foundation/foundation.ts'
import { printed, startChild, startCommand, stopChild, until } from './children.ts'
import { processorMsOf, processorMsOfTree } from './processor-time.ts'

/** The real service as a child process, with an organization and a key that no limit stops. */

const root = fileURLToPath(new URL('../..', import.meta.url))
const main = fileURLToPath(new URL('../../src/main.ts', import.meta.url))
const bare = fileURLToPath(new URL('bare-route.ts', import.meta.url))
const credits = '1000000000'
const perMinute = 100_000_000

export type BareRoute = { readonly port: number; readonly pid: number; stop(): Promise<void> }

export type Service = {
  readonly port: number
  readonly pid: number
  readonly postgresPid: number
  readonly dataDir: string
  readonly url: string
  readonly foundation: Foundation
  readonly organizationId: string
  readonly apiKey: string
  /** Of the service process and of every PostgreSQL process, in milliseconds so far. */
  processorMs(): { service: number; postgres: number }
  stop(): Promise<void>
}

export type ServiceOptions = {
  readonly roles: string
  readonly nodeArgs?: readonly string[]
  readonly dataDir?: string
  /** Default: the log in the service's PostgreSQL. */
  readonly eventLogUrl?: string
  /** Variables beside those every benchmark sets. */
  readonly environment?: Readonly<Record<string, string>>
}

export const startService = async ({
  roles,
  nodeArgs = [],
  dataDir: given,
  eventLogUrl,
  environment,
}: ServiceOptions): Promise<Service> => {
  const dataDir = given ?? (await newDataDir())
  const child = startServiceProcess({
    roles,
    nodeArgs,
    dataDir,
    ...(eventLogUrl === undefined ? {} : { eventLogUrl }),
    ...(environment === undefined ? {} : { environment }),
  })
  const url = new URL(
    await printed(child, /^API +(http:\S+)$/m).catch(async (error: unknown) => {
      process.stderr.write(await readFile(join(dataDir, 'service.log'), 'utf8'))
      throw error
    }),
  )
  const postgres = JSON.parse(await readFile(join(dataDir, 'postgres.json'), 'utf8')) as {
    url: string
    pid: number
  }
  const secretKey = (await readFile(join(dataDir, 'secret_key'), 'utf8')).trim()
  const logger = pino({ level: 'warn' }, pino.destination(2))
  const foundation = await openFoundation(
    parseConfig({ DATA_DIR: dataDir, SECRET_KEY: secretKey, EVENT_LOG_URL: eventLogUrl }),
    { logger },
  )
  const { organizationId, apiKey } = await openAccount(foundation)
  await until('the first answer', () => answers(url, apiKey))
  const pid = child.pid ?? 0
  return {
    port: Number(url.port),
    pid,
    postgresPid: postgres.pid,
    dataDir,
    url: postgres.url,
    foundation,
    organizationId,
    apiKey,
    processorMs: () => ({ service: processorMsOf(pid), postgres: processorMsOfTree(postgres.pid) }),
    stop: async () => {
      await foundation.close()
      await stopChild(child)
      if (given === undefined) await rm(dataDir, { recursive: true, force: true })
    },
  }
}

export const postgresPidOf = async (dataDir: string): Promise<number> =>
  (JSON.parse(await readFile(join(dataDir, 'postgres.json'), 'utf8')) as { pid: number }).pid

export const newDataDir = async (): Promise<string> => {
  const dir = await mkdtemp(join(tmpdir(), 'bench-'))
  // PostgreSQL runs under another account when we are root.
  await chmod(dir, 0o755)
  return dir
}

type ProcessOptions = {
  readonly roles: string
  readonly nodeArgs?: readonly string[]
  readonly dataDir: string
  readonly eventLogUrl?: string | undefined
  /** Variables beside those every benchmark sets. */
  readonly environment?: Readonly<Record<string, string>>
}

export const startServiceProcess = ({ nodeArgs = [], ...options }: ProcessOptions): ChildProcess =>
  startChild(['--max-semi-space-size=16', ...nodeArgs, main], environmentOf(options))

/** As its users start it. */
export const startWithNpm = (options: ProcessOptions): ChildProcess =>
  startCommand('npm', ['start', '--silent'], { ...environmentOf(options), cwd: root })

const environmentOf = ({ roles, dataDir, eventLogUrl, environment }: ProcessOptions): SpawnOptions => ({
  env: {
    PATH: process.env.PATH,
    HOME: process.env.HOME,
    DATA_DIR: dataDir,
    EVENT_LOG_URL: eventLogUrl,
    ROLES: roles,
    API_PORT: '0',
    DASHBOARD_PORT: '0',
    METRICS_PORT: '0',
    LOG_LEVEL: 'warn',
    ...environment,
  },
  stdio: ['ignore', 'pipe', openSync(join(dataDir, 'service.log'), 'a')],
})

export const startBareRoute = async ({ bareUlid }: { bareUlid: boolean }): Promise<BareRoute> => {
  const child = startChild([bare, ...(bareUlid ? ['--bare-ulid'] : [])], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { PATH: process.env.PATH },
  })
  const url = new URL(await printed(child, /^API +(http:\S+)$/m))
  return { port: Number(url.port), pid: child.pid ?? 0, stop: () => stopChild(child) }
}

/** An organization with more credits, and a key with higher limits, than any benchmark uses. */
export const openAccount = async (
  foundation: Foundation,
): Promise<{ organizationId: string; apiKey: string }> => {
  const actor = 'system'
  const { organizationId } = await createOrganization(foundation, {
    name: 'Bench',
    overdraftLimit: 0n,
    actor,
  })
  await grant(foundation, {
    organizationId,
    amount: parseCredits(credits),
    priority: 100,
    expiresAt: null,
    reason: 'benchmark',
    actor,
  })
  const { apiKey } = await issueKey(foundation, {
    organizationId,
    name: 'bench',
    permissions: ['ip_lookup'],
    limits: {
      requests_per_minute: perMinute,
      requests_per_day: perMinute * 10,
      email_validations_per_second: 10,
    },
    allowedCidrs: [],
    expiresAt: null,
    actor,
  })
  return { organizationId, apiKey }
}

export const answers = async (url: URL, apiKey: string): Promise<boolean> => {
  const response = await fetch(new URL('/v1/ip/lookup', url), {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-api-key': apiKey },
    body: '{"ip":"8.8.8.8"}',
  })
  await response.arrayBuffer()
  return response.status === 200
}
