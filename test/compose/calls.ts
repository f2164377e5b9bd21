/** Calls at a steady rate, each with an Idempotency-Key. */
import { randomUUID } from 'node:crypto'
import { Agent, request } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'

/** `answers` has the outcome of each attempt, either 200 or the error. */
export type Call = { readonly key: string; readonly answers: string[] }

export type Calls = {
  readonly made: readonly Call[]
  /** Counts the calls from number `from` on that failed at first, by the kind of their first failure. */
  lostSince(from: number): Readonly<Record<string, number>>
  /** Starts no more calls. Resolves when every call was answered, or tried for the last time. */
  stop(): Promise<void>
}

const callsMax = 10_000
const triesMax = 20
/** The pause doubles after every attempt. If all calls were repeated every second, they would exceed their key's limit. */
const pauseMs = 500
const pauseMaxMs = 8_000
const silentMs = 20_000

const ask = ({
  url,
  apiKey,
  key,
  agent,
}: {
  url: string
  apiKey: string
  key: string
  agent: Agent
}): Promise<string> =>
  new Promise((resolve) => {
    const headers = { 'x-api-key': apiKey, 'content-type': 'application/json', 'idempotency-key': key }
    const failed = (error: NodeJS.ErrnoException): void => resolve(error.code ?? error.message)
    const sent = request(
      `${url}/v1/ip/lookup`,
      { method: 'POST', headers, agent, timeout: silentMs },
      (response) => {
        const parts: Buffer[] = []
        response.on('data', (part: Buffer) => parts.push(part))
        response.on('error', failed)
        response.on('end', () => {
          const code = /"code":"(\w+)"/.exec(Buffer.concat(parts).toString())?.[1] ?? ''
          resolve(`${response.statusCode}${response.statusCode === 200 ? '' : ` ${code}`}`.trim())
        })
      },
    )
    sent.on('timeout', () => sent.destroy(new Error('no answer in time')))
    sent.on('error', failed)
    sent.end('{"ip":"8.8.8.8"}')
  })

export const oneCall = async (options: { url: string; apiKey: string }): Promise<string> => {
  const agent = new Agent()
  return ask({ ...options, key: randomUUID(), agent }).finally(() => agent.destroy())
}

/** With `again`, a failed call is repeated with its key until the answer is 200. */
export const startCalls = (options: {
  readonly url: string
  readonly apiKey: string
  readonly perSecond: number
  readonly again: boolean
}): Calls => {
  const agent = new Agent({ keepAlive: true })
  const made: Call[] = []
  const open = new Set<Promise<void>>()
  const make = async (call: Call): Promise<void> => {
    for (let tries = options.again ? triesMax : 1; tries > 0; tries--) {
      call.answers.push(await ask({ ...options, key: call.key, agent }))
      if (call.answers.at(-1) === '200') return
      if (tries > 1) await sleep(Math.min(pauseMs * 2 ** (call.answers.length - 1), pauseMaxMs))
    }
  }
  const timer = setInterval(() => {
    if (made.length >= callsMax) return
    const call = { key: randomUUID(), answers: [] }
    made.push(call)
    const making = make(call).finally(() => open.delete(making))
    open.add(making)
  }, 1_000 / options.perSecond)
  return {
    made,
    lostSince: (from) => {
      const firsts = made.slice(from).flatMap(({ answers }) => answers.slice(0, 1))
      const lost = Object.groupBy(
        firsts.filter((answer) => answer !== '200'),
        (answer) => answer,
      )
      return Object.fromEntries(Object.entries(lost).map(([answer, all = []]) => [answer, all.length]))
    },
    stop: async () => {
      clearInterval(timer)
      await Promise.all(open)
      agent.destroy()
    },
  }
}
