import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'

/** The service, and its command line, as real processes: what users run. */

const root = fileURLToPath(new URL('../..', import.meta.url))
const startDeadlineMs = 60_000

export type Service = {
  readonly apiUrl: string
  readonly dashboardUrl: string
  readonly child: ChildProcess
  /** Everything it has written so far. */
  output(): string
  /** Ends it and resolves with its exit code, or the signal's name. */
  end(signal: NodeJS.Signals): Promise<number | string>
}

/** What a child process gets to see: nothing of the test run's own environment beyond the path. */
const environmentOf = (variables: Readonly<Record<string, string>>): Record<string, string> => ({
  PATH: process.env.PATH ?? '',
  HOME: process.env.HOME ?? '',
  LOG_LEVEL: 'warn',
  ...variables,
})

/** Starts the service on free ports and resolves when it says that it answers. */
export const startService = async (variables: Readonly<Record<string, string>>): Promise<Service> => {
  const child = spawn(process.execPath, ['src/main.ts'], {
    cwd: root,
    env: environmentOf({ API_PORT: '0', DASHBOARD_PORT: '0', ...variables }),
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let output = ''
  const {
    promise: ready,
    resolve,
    reject,
  } = Promise.withResolvers<{ apiUrl: string; dashboardUrl: string }>()
  const look = (chunk: Buffer): void => {
    output += chunk.toString()
    const api = /^API +(http\S+)$/m.exec(output)?.[1]
    const dashboard = /^Dashboard +(http\S+)$/m.exec(output)?.[1]
    // The embedded default is ready to be tried only when it has said how.
    const announced = variables.DATABASE_URL !== undefined || /^curl /m.test(output)
    if (api !== undefined && dashboard !== undefined && announced)
      resolve({ apiUrl: api, dashboardUrl: dashboard })
  }
  child.stdout.on('data', look)
  child.stderr.on('data', look)
  const ended = once(child, 'exit').then(([code, signal]) => (code ?? signal) as number | string)
  void ended.then((code) =>
    reject(new Error(`the service ended with ${code} before it answered:\n${output}`)),
  )
  const timer = setTimeout(
    () => reject(new Error(`the service did not answer in time:\n${output}`)),
    startDeadlineMs,
  )
  try {
    const urls = await ready
    return {
      ...urls,
      child,
      output: () => output,
      end: async (signal) => {
        child.kill(signal)
        return ended
      },
    }
  } catch (error) {
    child.kill('SIGKILL')
    throw error
  } finally {
    clearTimeout(timer)
  }
}

export type CliResult = { readonly code: number; readonly out: string; readonly err: string }

/** Runs one command of the command line to its end. */
export const cli = async (
  args: readonly string[],
  variables: Readonly<Record<string, string>>,
): Promise<CliResult> => {
  const child = spawn(process.execPath, ['src/cli.ts', ...args], {
    cwd: root,
    env: environmentOf(variables),
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let out = ''
  let err = ''
  child.stdout.on('data', (chunk: Buffer) => {
    out += chunk.toString()
  })
  child.stderr.on('data', (chunk: Buffer) => {
    err += chunk.toString()
  })
  const [code] = (await once(child, 'close')) as [number]
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

/** An organization with credits and a key whose limits nothing in a test reaches. */
export const createPartner = async (
  credits: string,
  variables: Readonly<Record<string, string>>,
): Promise<Partner> => {
  const { organization_id: organizationId } = await cliJson<{ organization_id: string }>(
    ['org', 'create', 'Partner'],
    variables,
  )
  await cliJson(['credits', 'grant', organizationId, credits], variables)
  const key = await cliJson<{ api_key: string; api_key_id: string }>(
    ['key', 'issue', organizationId, '--requests-per-minute', '1000000', '--requests-per-day', '100000000'],
    variables,
  )
  return { organizationId, apiKey: key.api_key, keyId: key.api_key_id }
}

export type LookupAnswer = {
  readonly status: number
  readonly headers: Headers
  readonly body: Record<string, unknown>
}

/** One IP lookup over HTTP. Rejects when the connection breaks. */
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
  })
  return {
    status: response.status,
    headers: response.headers,
    body: (await response.json()) as Record<string, unknown>,
  }
}

/** Resolves when `check` gives something else than undefined; asks every 20 ms. */
export const eventually = async <T>(check: () => Promise<T | undefined>, deadlineMs = 10_000): Promise<T> => {
  const end = Date.now() + deadlineMs
  for (;;) {
    const value = await check()
    if (value !== undefined) return value
    if (Date.now() > end) throw new Error(`not within ${deadlineMs} ms: ${check}`)
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}
