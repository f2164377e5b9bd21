import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import pino from 'pino'
import { defaultKeyLimits, issueKey } from '../../src/administration/api-keys.ts'
import { grant } from '../../src/administration/credits.ts'
import { permissionsByDefault } from '../../src/administration/key-request.ts'
import { createOrganization } from '../../src/administration/organizations.ts'
import { parseCredits } from '../../src/billing/money.ts'
import { parseConfig } from '../../src/config.ts'
import type { Permission } from '../../src/events/capabilities.ts'
import { openFoundation } from '../../src/foundation/foundation.ts'
import { keyDirOf } from './key-dir.ts'

/** The service, and its command line, as real processes: what users run. */

export const root = fileURLToPath(new URL('../..', import.meta.url))
const startDeadlineMs = 60_000
/** Of a command and of a call: far above what any takes, so that one that hangs is told and not waited for. */
const commandDeadlineMs = 120_000
const answerDeadlineMs = 60_000

export type Service = {
  readonly apiUrl: string
  /** Empty where its ROLES are without the dashboard. */
  readonly dashboardUrl: string
  readonly metricsUrl: string
  readonly child: ChildProcess
  /** Everything it has written so far. */
  output(): string
  /** Ends it and resolves with its exit code, or the signal's name. */
  end(signal: NodeJS.Signals): Promise<number | string>
}

/** What Node compiled, for the next process that loads it: hundreds are started, and most of what one costs is compiling. */
export const compileCache = { NODE_COMPILE_CACHE: join(root, 'node_modules/.cache/compiled') }

/** What a child process gets to see: nothing of the test run's own environment beyond the path. */
const environmentOf = (variables: Readonly<Record<string, string>>): Record<string, string> => ({
  PATH: process.env.PATH ?? '',
  HOME: process.env.HOME ?? '',
  LOG_LEVEL: 'warn',
  ...compileCache,
  ...(variables.DATABASE_URL === undefined ? {} : { KEY_DIR: keyDirOf(variables.DATABASE_URL) }),
  ...variables,
})

/** The service's process, whatever roles it was given. */
export type ServiceProcess = Pick<Service, 'child' | 'output' | 'end'>

type Spawned = ServiceProcess & {
  /** Resolves with the exit code, or the signal's name. */
  readonly ended: Promise<number | string>
}

/** How the service is run, where that is not `node src/main.ts` in this working copy. */
export type Launch = {
  readonly command?: readonly [string, ...string[]]
  readonly cwd?: string
  /** A process group of its own, so that a signal can be sent to all of it. */
  readonly ownGroup?: boolean
  /** The embedded default with data of its own and no demo organization: it prints no call to try. */
  readonly withoutDemo?: boolean
}

const spawnService = (
  variables: Readonly<Record<string, string>>,
  { command = [process.execPath, 'src/main.ts'], cwd = root, ownGroup = false }: Launch = {},
): Spawned => {
  const [program, ...args] = command
  const child = spawn(program, args, {
    cwd,
    detached: ownGroup,
    env: environmentOf({ API_PORT: '0', DASHBOARD_PORT: '0', ...variables }),
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let output = ''
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk: Buffer) => {
      output += chunk.toString()
    })
  const ended = once(child, 'exit').then(([code, signal]) => (code ?? signal) as number | string)
  return {
    child,
    output: () => output,
    ended,
    end: async (signal) => {
      child.kill(signal)
      return ended
    },
  }
}

/** A process that serves nobody and so never says that it is ready: what it does shows in the database. */
export const startWorker = (variables: Readonly<Record<string, string>>): ServiceProcess =>
  spawnService({ ROLES: 'projector', ...variables })

/** Starts the service, with the API among its roles, on free ports and resolves when it says that it answers. */
export const startService = async (
  variables: Readonly<Record<string, string>>,
  launch?: Launch,
): Promise<Service> => {
  const spawned = spawnService(variables, launch)
  const { child, output, ended, end } = spawned
  const {
    promise: ready,
    resolve,
    reject,
  } = Promise.withResolvers<Pick<Service, 'apiUrl' | 'dashboardUrl' | 'metricsUrl'>>()
  const look = (): void => {
    const api = /^API +(http\S+)(?: {2}\(\d+ processes\))?$/m.exec(output())?.[1]
    const shows = variables.ROLES?.includes('dashboard') ?? true
    const dashboard = shows ? /^Dashboard +(http\S+)$/m.exec(output())?.[1] : ''
    const metrics = /^Metrics +(http\S+)\/metrics$/m.exec(output())?.[1]
    // The embedded default is ready to be tried only when it has said how.
    const announced =
      variables.DATABASE_URL !== undefined || launch?.withoutDemo === true || /^curl /m.test(output())
    if (api !== undefined && dashboard !== undefined && metrics !== undefined && announced)
      resolve({ apiUrl: api, dashboardUrl: dashboard, metricsUrl: metrics })
  }
  child.stdout?.on('data', look)
  void ended.then((code) =>
    reject(new Error(`the service ended with ${code} before it answered:\n${output()}`)),
  )
  const timer = setTimeout(
    () => reject(new Error(`the service did not answer in time:\n${output()}`)),
    startDeadlineMs,
  )
  try {
    const urls = await ready
    return { ...urls, child, output, end }
  } catch (error) {
    child.kill('SIGKILL')
    throw error
  } finally {
    clearTimeout(timer)
  }
}

export type CliResult = { readonly code: number; readonly out: string; readonly err: string }

/** Begins one command of the command line, for tests that do more with it than wait for its end. */
export const startCli = (
  args: readonly string[],
  variables: Readonly<Record<string, string>>,
): {
  readonly child: ChildProcess
  readonly ended: Promise<Omit<CliResult, 'code'> & { code: number | null }>
} => {
  const child = spawn(process.execPath, ['src/cli.ts', ...args], {
    cwd: root,
    env: environmentOf(variables),
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: commandDeadlineMs,
    killSignal: 'SIGKILL',
  })
  let out = ''
  let err = ''
  child.stdout.on('data', (chunk: Buffer) => {
    out += chunk.toString()
  })
  child.stderr.on('data', (chunk: Buffer) => {
    err += chunk.toString()
  })
  return { child, ended: once(child, 'close').then(([code]) => ({ code: code as number | null, out, err })) }
}

/** Runs one command of the command line to its end. */
export const cli = async (
  args: readonly string[],
  variables: Readonly<Record<string, string>>,
): Promise<CliResult> => {
  const { code, out, err } = await startCli(args, variables).ended
  if (code === null)
    throw new Error(`cli ${args.join(' ')} was killed after ${commandDeadlineMs} ms:\n${err}${out}`)
  return { code, out, err }
}

/** Runs a command with --json and reads its answer. Throws what it wrote when it failed. */
export const cliJson = async <Answer>(
  args: readonly string[],
  variables: Readonly<Record<string, string>>,
): Promise<Answer> => {
  const { code, out, err } = await cli([...args, '--json'], variables)
  if (code !== 0) throw new Error(`cli ${args.join(' ')} ended with ${code}: ${err}${out}`)
  return JSON.parse(out) as Answer
}

export type Partner = { readonly organizationId: string; readonly apiKey: string; readonly keyId: string }

/**
 * An organization with credits and a key whose limits nothing in a test reaches. Made as the command line makes them, in this
 * process: what a command is told and says is for others to test, and each costs the start of a process.
 */
export const createPartner = async (
  credits: string,
  variables: Readonly<Record<string, string>>,
  permissions: readonly Permission[] = permissionsByDefault,
): Promise<Partner> => {
  const foundation = await openFoundation(parseConfig(environmentOf(variables)), {
    logger: pino({ level: 'silent' }),
  })
  try {
    const actor = 'cli'
    const { organizationId } = await createOrganization(foundation, {
      ...{ name: 'Partner', overdraftLimit: 0n, actor },
    })
    await grant(foundation, {
      ...{ organizationId, amount: parseCredits(credits), priority: 100, expiresAt: null },
      ...{ reason: 'granted by operator', actor },
    })
    const { apiKey, keyId } = await issueKey(foundation, {
      ...{ organizationId, name: 'default', permissions, allowedCidrs: [] },
      ...{ expiresAt: null, actor },
      limits: { ...defaultKeyLimits, requests_per_minute: 1_000_000, requests_per_day: 100_000_000 },
    })
    return { organizationId, apiKey, keyId }
  } finally {
    await foundation.close()
  }
}

export type LookupAnswer = {
  readonly status: number
  readonly headers: Headers
  readonly body: Record<string, unknown>
}

/** One IP lookup over HTTP. Rejects when the connection breaks, and with a TimeoutError when no answer comes. */
export const lookup = async (
  apiUrl: string,
  apiKey: string,
  ip: string,
  headers: Readonly<Record<string, string>> = {},
): Promise<LookupAnswer> => {
  const response = await fetch(`${apiUrl}/v1/ip/lookup`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-api-key': apiKey, ...headers },
    body: JSON.stringify({ ip }),
    signal: AbortSignal.timeout(answerDeadlineMs),
  })
  return {
    status: response.status,
    headers: response.headers,
    body: (await response.json()) as Record<string, unknown>,
  }
}

/** An event as `ledger export` writes it. */
export type ExportedEvent = {
  readonly type: string
  readonly stream: string
  readonly revision: number
  readonly event_id: string
  readonly position: string
  readonly data: Readonly<Record<string, unknown>>
  readonly metadata: Readonly<Record<string, unknown>> & { readonly request_id?: string }
}

/** Every event of an organization's ledger, by the command line. Throws what the command wrote when it failed. */
export const exportLedger = async (
  organizationId: string,
  variables: Readonly<Record<string, string>>,
): Promise<ExportedEvent[]> => {
  const { code, out, err } = await cli(['ledger', 'export', organizationId], variables)
  if (code !== 0) throw new Error(`ledger export ended with ${code}: ${err}`)
  return out
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as ExportedEvent)
}

/** Above what anything takes on a busy machine. */
const eventualMs = 30_000

/** Resolves when `check` gives something else than undefined; asks every 20 ms. */
export const eventually = async <T>(
  check: () => Promise<T | undefined>,
  deadlineMs = eventualMs,
): Promise<T> => {
  const end = Date.now() + deadlineMs
  for (;;) {
    const value = await check()
    if (value !== undefined) return value
    if (Date.now() > end) throw new Error(`not within ${deadlineMs} ms: ${check}`)
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}
