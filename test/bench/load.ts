import { fileURLToPath } from 'node:url'
import { startChild } from '../support/service.ts'

/** The target of calls, and its keys, which are all used equally often. */
export type LoadedPlace = { readonly port: number; readonly apiKeys: readonly string[] }

export type Load = {
  /** The targets over which the connections are spread evenly. */
  readonly places: readonly LoadedPlace[]
  readonly connections: number
  readonly seconds: number
  /** Gives every request its own Idempotency-Key, which begins with this prefix. */
  readonly idempotencyKeys?: string
  /** Requests per second, scheduled evenly; null for as many as possible. */
  readonly rate: number | null
  /** A seed always produces the same addresses in the same order. */
  readonly seed: number
}

export type LoadResult = {
  readonly answered: number
  /** Answered calls by process. */
  readonly answeredAt: readonly number[]
  readonly perSecond: number
  /** Counts of statuses other than 200, and of failed sockets. */
  readonly others: Readonly<Record<string, number>>
  readonly unanswered: number
  /** The median latency. At a fixed rate, it is measured from the scheduled time. */
  readonly p50Ms: number
  readonly p99Ms: number
  readonly p99FromSendMs: number
  /** The share of one core that the generator used. */
  readonly generatorLoad: number
}

export type LoadGenerator = { run(load: Load): Promise<LoadResult>; stop(): Promise<void> }

const spareMs = 30_000

/** A target that consists of one service and one key. */
export const onOne = ({ port, apiKey }: { port: number; apiKey: string }): Pick<Load, 'places'> => ({
  places: [{ port, apiKeys: [apiKey] }],
})

export const openLoadGenerator = (): LoadGenerator => {
  const program = fileURLToPath(new URL('load-process.ts', import.meta.url))
  const { child, end } = startChild([process.execPath, program], {
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  })
  return {
    run: (load) =>
      new Promise((resolve, reject) => {
        const timer = setTimeout(
          () => reject(new Error('the load generator does not answer')),
          load.seconds * 1_000 + spareMs,
        )
        child.once('message', (message: { result?: LoadResult; error?: string }) => {
          clearTimeout(timer)
          if (message.result === undefined) return reject(new Error(`load generator: ${message.error}`))
          const wrong = Object.entries(message.result.others)
          if (wrong.length > 0 || message.result.unanswered > 0)
            process.stderr.write(
              `NOT ALL ANSWERED 200: ${wrong.map(([status, count]) => `${count} x ${status}`).join(', ')} unanswered ${message.result.unanswered}\n`,
            )
          resolve(message.result)
        })
        child.send(load)
      }),
    stop: async () => void (await end('SIGTERM')),
  }
}
