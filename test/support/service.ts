import { type ChildProcess, type SpawnOptions, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import pino from 'pino'
import { permissionsByDefault } from '../../src/administration/keys/key-request.ts'
import { parseConfig } from '../../src/config.ts'
import type { Permission } from '../../src/events/capabilities.ts'
import { openFoundation } from '../../src/foundation/foundation.ts'
import { keyDirOf } from './key-dir.ts'
import { openPartner, type Partner, unlimited } from './partners.ts'
import { runTyped } from './processes/command-lines.ts'

/** The service and its command line as real processes, as users run them. */

export const root = fileURLToPath(new URL('../..', import.meta.url))
const startDeadlineMs = 60_000
/** The deadlines for a command and for a call. They are far longer than needed, and only end tests that hang. */
const commandDeadlineMs = 120_000
const answerDeadlineMs = 60_000

export type { Partner }

export type Service = {
  /** Empty if ROLES does not include the host; so is the dashboard's URL. */
  readonly apiUrl: string
  readonly dashboardUrl: string
  readonly metricsUrl: string
} & ServiceProcess

/** Node's compile cache, shared by the hundreds of processes that tests start. They spend most of their time compiling. */
export const compileCache = { NODE_COMPILE_CACHE: join(root, 'node_modules/.cache/compiled') }

/** The environment of a child process: the given variables, and only PATH, HOME and the location file of the test run. */
const environmentOf = (variables: Readonly<Record<string, string>>): Record<string, string> => ({
  PATH: process.env.PATH ?? '',
  HOME: process.env.HOME ?? '',
  GEOIP_CITY_DB: process.env.GEOIP_CITY_DB ?? '',
  LOG_LEVEL: 'warn',
  ...compileCache,
  ...(variables.DATABASE_URL === undefined ? {} : { KEY_DIR: keyDirOf(variables.DATABASE_URL) }),
  ...variables,
})

/** A process started by a test or a benchmark. */
export type Child = {
  readonly child: ChildProcess
  output(): string
  /** Resolves when the process has written complete lines that match. Rejects if the process ends first, or after a minute. */
  printed(pattern: RegExp): Promise<RegExpExecArray>
  /** Resolves with the exit code, or the signal's name. */
  readonly ended: Promise<number | string>
  /** Sends the signal and resolves with the process's exit code, or the signal's name. */
  end(signal: NodeJS.Signals): Promise<number | string>
}

const alive = new Set<ChildProcess>()
// SIGTERM, not SIGKILL, because a service might have to stop its own PostgreSQL.
process.on('exit', () => {
  for (const child of alive) child.kill('SIGTERM')
})

/** Starts a process that ends no later than this one. */
export const startChild = (
  [program, ...args]: readonly [string, ...string[]],
  options: SpawnOptions = {},
): Child => {
  const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'], ...options })
  alive.add(child)
  let output = ''
  const looks = new Set<() => void>()
  for (const stream of [child.stdout, child.stderr])
    stream?.on('data', (chunk: Buffer) => {
      output += chunk.toString()
      for (const look of looks) look()
    })
  const ended = once(child, 'exit').then(([code, signal]) => {
    alive.delete(child)
    return (code ?? signal) as number | string
  })
  return {
    child,
    output: () => output,
    printed: (pattern) =>
      new Promise((resolve, reject) => {
        const fail = (why: string): void => reject(new Error(`${why} before it answered:\n${output}`))
        const timer = setTimeout(() => fail(`${startDeadlineMs} ms passed`), startDeadlineMs)
        const look = (): void => {
          const found = pattern.exec(output.slice(0, output.lastIndexOf('\n') + 1))
          if (found === null) return
          clearTimeout(timer)
          looks.delete(look)
          resolve(found)
        }
        looks.add(look)
        look()
        void ended.then((code) => {
          clearTimeout(timer)
          fail(`the service ended with ${code}`)
        })
      }),
    ended,
    end: async (signal) => {
      child.kill(signal)
      return ended
    },
  }
}

/** The EventStoreDB double in its own process, which can be frozen and killed like a server. */
export const startEventStore = async (): Promise<Child & { readonly url: string }> => {
  const child = startChild([process.execPath, join(root, 'test/support/eventstore-double.ts')])
  const [, url = ''] = await child.printed(/^(esdb:\S+)$/m)
  return { ...child, url }
}

export type ServiceProcess = Pick<Child, 'child' | 'output' | 'end'>

/** How to run the service. Default: `serviceCommand` in this working copy. */
export type Launch = {
  readonly command?: readonly [string, ...string[]]
  readonly cwd?: string
  /** Whether the service gets its own process group, so that a signal reaches all its processes. */
  readonly ownGroup?: boolean
  /** Whether the embedded default runs without a demo organization. It then prints no sample call. */
  readonly withoutDemo?: boolean
}

export const serviceCommand = [process.execPath, 'src/main.ts'] as const

const spawnService = (
  variables: Readonly<Record<string, string>>,
  { command = serviceCommand, cwd = root, ownGroup = false }: Launch = {},
): Child =>
  startChild(command, {
    cwd,
    detached: ownGroup,
    env: environmentOf({ API_PORT: '0', DASHBOARD_PORT: '0', ...variables }),
  })

/** Starts a process without a host. It never prints that it is ready, but its work is visible in the database. */
export const startWorker = (variables: Readonly<Record<string, string>>): ServiceProcess =>
  spawnService({ ROLES: 'projector', ...variables })

/** Starts the service with the API or dashboard role on free ports. Resolves when the service prints that it answers. */
export const startService = async (
  variables: Readonly<Record<string, string>>,
  launch?: Launch,
): Promise<Service> => {
  const { child, output, printed, end } = spawnService(variables, launch)
  const urlOf = async (name: string): Promise<string> =>
    (await printed(new RegExp(`^${name} +(http\\S+?)(/metrics)?$`, 'm')))[1] ?? ''
  try {
    const apiUrl = variables.ROLES?.includes('api') === false ? '' : await urlOf('API')
    const dashboardUrl = variables.ROLES?.includes('dashboard') === false ? '' : await urlOf('Dashboard')
    const metricsUrl = await urlOf('Metrics')
    // With the embedded default, the service is ready after it prints the sample call.
    if (variables.DATABASE_URL === undefined && launch?.withoutDemo !== true) await printed(/^curl /m)
    return { apiUrl, dashboardUrl, metricsUrl, child, output, end }
  } catch (error) {
    // A service with its own PostgreSQL must stop it.
    child.kill(variables.DATABASE_URL === undefined ? 'SIGTERM' : 'SIGKILL')
    throw error
  }
}

/** The output of a start that fails. */
export const failedStart = (variables: Readonly<Record<string, string>>): Promise<string> =>
  startService(variables).then(
    async ({ end }) => `it started, and ended with ${await end('SIGTERM')}`,
    (error: unknown) => (error instanceof Error ? error.message : ''),
  )

export type CliResult = { readonly code: number; readonly out: string; readonly err: string }

/** Starts one CLI command, for tests that need more than its result. */
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

/** Runs one CLI command to its end, in a process that is reused for later commands. */
export const cli = async (
  args: readonly string[],
  variables: Readonly<Record<string, string>>,
): Promise<CliResult> => {
  const { code, out, err } =
    // `doctor` ends its own process.
    args[0] === 'doctor'
      ? await startCli(args, variables).ended
      : await runTyped({ words: [...args], environment: environmentOf(variables) }, commandDeadlineMs)
  if (code === null)
    throw new Error(`cli ${args.join(' ')} was killed after ${commandDeadlineMs} ms:\n${err}${out}`)
  return { code, out, err }
}

/** Runs a command with --json and parses its output. Throws the output if the command failed. */
export const cliJson = async <Answer>(
  args: readonly string[],
  variables: Readonly<Record<string, string>>,
): Promise<Answer> => {
  const { code, out, err } = await cli([...args, '--json'], variables)
  if (code !== 0) throw new Error(`cli ${args.join(' ')} ended with ${code}: ${err}${out}`)
  return JSON.parse(out) as Answer
}

/**
 * An organization with credits, and a key whose limits no test reaches. Both are created in this process, because each command
 * would have to start one; other tests cover the commands.
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
    return await openPartner(foundation, { credits, permissions, limits: unlimited })
  } finally {
    await foundation.close()
  }
}

export type LookupAnswer = {
  readonly status: number
  readonly headers: Headers
  readonly body: Record<string, unknown>
}

/** One IP lookup over HTTP. Rejects if the connection breaks, and with a TimeoutError if no answer arrives. */
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

/** Every event of an organization's ledger, exported by the command line. Throws the command's output if it failed. */
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

/** The longest wait for a condition, even on a busy machine. */
const eventualMs = 60_000

/** Polls every 20 ms. Resolves when `check` returns something other than undefined. */
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
