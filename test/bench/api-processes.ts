import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { printed, stopChild, until } from './children.ts'
import { processorMsOf, processorMsOfTree } from './processor-time.ts'
import { postgresPidOf, startServiceProcess } from './service.ts'

/** Several api processes of one installation, each on a port of its own, and what they say of themselves. */

export type ApiProcesses = {
  readonly ports: readonly number[]
  readonly pids: readonly number[]
  /** So far, of all of them and of every PostgreSQL process. */
  figures(): Promise<ProcessFigures>
  stop(): Promise<void>
}

export type ProcessFigures = {
  readonly serviceMs: number
  /** The same of each process, in the order of the ports. */
  readonly serviceMsEach: readonly number[]
  readonly postgresMs: number
  /** Appends that another process was ahead of. */
  readonly conflicts: number
  readonly appends: number
  /** Commands those appends wrote. */
  readonly commands: number
}

type ApiProcessesOptions = {
  readonly count: number
  readonly dataDir: string
  readonly eventLogUrl: string | undefined
  readonly environment: Readonly<Record<string, string>>
  readonly nodeArgs?: readonly string[]
}

/** Ready to answer when it resolves. The installation's PostgreSQL runs already. */
export const startApiProcesses = async (options: ApiProcessesOptions): Promise<ApiProcesses> => {
  const postgresPid = await postgresPidOf(options.dataDir)
  const started = Array.from({ length: options.count }, () => startOne(options))
  const stop = async (): Promise<void> => {
    await Promise.all(started.map(({ child }) => stopChild(child)))
  }
  try {
    const ports = await Promise.all(started.map(({ port }) => port))
    const metrics = await Promise.all(started.map((one) => one.metrics))
    await Promise.all(ports.map((port) => until('a process to be ready', () => isReady(port))))
    const pids = started.map(({ child }) => child.pid ?? 0)
    return {
      ports,
      pids,
      figures: async () => {
        // Before they are asked for their metrics: what that takes is no part of a call.
        const serviceMsEach = pids.map(processorMsOf)
        const postgresMs = processorMsOfTree(postgresPid)
        const texts = await Promise.all(metrics.map(async (url) => (await fetch(url)).text()))
        const total = (name: string): number => texts.reduce((sum, text) => sum + sampleOf(text, name), 0)
        return {
          serviceMs: serviceMsEach.reduce((sum, ms) => sum + ms, 0),
          serviceMsEach,
          postgresMs,
          conflicts: total('enrichment_ledger_conflicts_total'),
          appends: total('enrichment_ledger_batch_commands_count'),
          commands: total('enrichment_ledger_batch_commands_sum'),
        }
      },
      stop,
    }
  } catch (error) {
    await stop()
    process.stderr.write(await readFile(join(options.dataDir, 'service.log'), 'utf8').catch(() => ''))
    throw error
  }
}

const startOne = ({ dataDir, eventLogUrl, environment, nodeArgs = [] }: ApiProcessesOptions) => {
  const child = startServiceProcess({ roles: 'api', dataDir, eventLogUrl, environment, nodeArgs })
  return {
    child,
    port: printed(child, /^API +http:\S+:(\d+)$/m).then(Number),
    metrics: printed(child, /^Metrics +(http:\S+)$/m),
  }
}

const isReady = async (port: number): Promise<boolean> => {
  const response = await fetch(`http://127.0.0.1:${port}/readyz`)
  await response.arrayBuffer()
  return response.status === 200
}

const sampleOf = (text: string, name: string): number =>
  Number(new RegExp(`^${name} (\\S+)$`, 'm').exec(text)?.[1] ?? 0)
