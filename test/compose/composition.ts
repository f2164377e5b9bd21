/** The composition in its checkout: the guide's text about it, its commands, its containers. */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, inject } from 'vitest'
import { docker, run } from './docker.ts'

export const checkout = inject('composeCheckout')
export const skipped = inject('composeSkipped') !== null
export const entry = 'http://127.0.0.1:3000'
const commandsMs = 600_000
const healthyMs = 120_000

export const compose = (...args: readonly string[]): Promise<string> =>
  run(['docker', 'compose', ...args], { cwd: checkout })

/** Removes everything. The containers get no time to end, because their data is removed, too. */
export const removeAll = async (): Promise<void> => {
  await compose('kill')
  await compose('down', '--volumes')
}

/** The exact text of the nth block of shell commands below a heading in the deployment guide. */
const block = async (heading: string, n: number): Promise<string> => {
  const guide = await readFile(join(checkout, 'src/guides/deployment.md'), 'utf8')
  const section = guide.split(/^##+ /m).find((part) => part.startsWith(`${heading}\n`)) ?? ''
  const [, found] = [...section.matchAll(/^```sh\n(.*?)^```/gms)][n] ?? []
  if (found === undefined) throw new Error(`the guide has no block ${n} below "${heading}"`)
  return found
}
export const guide = {
  start: () => block('How do I start it with Docker Compose?', 0),
  threeNodes: () => block('How do I run three EventStoreDB nodes?', 0),
  upgrade: () => block('How do I upgrade in Docker Compose?', 0),
  backUp: () => block('How do I back up in Docker Compose?', 0),
  restore: () => block('How do I restore in Docker Compose?', 0),
}

/** Prints the output to look at first when something failed. */
export const tellWhy = async (): Promise<void> =>
  console.log(await compose('ps', '--all'), await compose('logs', '--no-color', '--tail', '20'))

/** Runs commands from the guide in a shell, in the checkout. The tests run as root and have no sudo. */
export const type = async (commands: string): Promise<string> => {
  try {
    return await run(['bash', '-euc', `sudo() { "$@"; }\n${commands}`], {
      cwd: checkout,
      timeoutMs: commandsMs,
    })
  } catch (error) {
    // The commands also run outside of a test, where nothing else would print this.
    await tellWhy().catch(console.log)
    throw error
  }
}

/** Runs a command in a container of the service, because a container of its own takes several seconds to start and to remove. */
export const commandLine = async (...args: readonly string[]): Promise<Record<string, string>> =>
  JSON.parse(await compose('exec', '-T', 'api', 'node', 'src/cli.ts', ...args, '--json'))

export type Partner = { readonly organization: string; readonly apiKey: string; readonly granted: number }

export const makePartner = async (): Promise<Partner> => {
  const granted = 1_000_000
  const { organization_id: organization = '' } = await commandLine('org', 'create', 'acme')
  await commandLine('credits', 'grant', organization, String(granted), '--yes')
  const { api_key: apiKey = '' } = await commandLine('key', 'issue', organization)
  return { organization, apiKey, granted }
}

export const charged = async ({ organization, granted }: Partner): Promise<number> => {
  const { balance } = await commandLine('credits', 'balance', organization)
  return granted - Number(balance)
}

export type Container = {
  readonly id: string
  readonly service: string
  readonly state: string
  readonly health: string | undefined
  readonly exitCode: number
  readonly pid: number
  readonly inspected: string
}

type Inspected = {
  readonly Id: string
  readonly State: { Status: string; ExitCode: number; Pid: number; Health?: { Status: string } }
  readonly Config: { readonly Labels: Readonly<Record<string, string>> }
}

export const containers = async (...services: readonly string[]): Promise<Container[]> => {
  const ids = (await compose('ps', '--all', '--quiet', ...services)).split('\n').filter((id) => id !== '')
  const all: Inspected[] = ids.length === 0 ? [] : JSON.parse(await docker('inspect', ...ids))
  return all.map((one) => ({
    id: one.Id,
    service: one.Config.Labels['com.docker.compose.service'] ?? '',
    state: one.State.Status,
    health: one.State.Health?.Status,
    exitCode: one.State.ExitCode,
    pid: one.State.Pid,
    inspected: JSON.stringify(one),
  }))
}

export const only = async (service: string): Promise<Container> => {
  const [first] = await containers(service)
  if (first === undefined) throw new Error(`no container of ${service}`)
  return first
}

/**
 * Kills the program in a container as a crash does, and waits until the container has been started again, because until then its
 * health is the one from before. The container's first process is a small init, which ends when the program does.
 */
export const crash = async (container: Container): Promise<void> => {
  const children = await readFile(`/proc/${container.pid}/task/${container.pid}/children`, 'utf8')
  const [program] = children
    .trim()
    .split(' ')
    .filter((pid) => pid !== '')
  const startedAt = () => docker('inspect', '--format', '{{.State.StartedAt}}', container.id)
  const before = await startedAt()
  process.kill(Number(program ?? container.pid), 'SIGKILL')
  await expect.poll(startedAt, { timeout: healthyMs, interval: 100 }).not.toBe(before)
}

export const becomesHealthy = (service: string): Promise<void> =>
  expect
    .poll(async () => (await containers(service)).map(({ state, health }) => `${state} ${health}`), {
      timeout: healthyMs,
      interval: 500,
    })
    .toSatisfy(
      (states: string[]) => states.length > 0 && states.every((state) => state === 'running healthy'),
    )

export const secrets = async (): Promise<Record<string, string>> => {
  const lines = (await readFile(join(checkout, '.env'), 'utf8')).trim().split('\n')
  return Object.fromEntries(
    lines.map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]),
  )
}
