/** Callers that reuse their connections, and the outcome of each of their calls. */
import { Agent, request } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseCredits } from '../../../src/billing/money.ts'
import { type SeededRandom, seededRandom } from '../../ip-lookup/seeded-random.ts'
import type { Place } from './places.ts'

export type CallingPartner = { readonly organizationId: string; readonly apiKey: string }

/** One request of a call. A call without an Idempotency-Key has only one request. */
export type Try = {
  readonly place: number
  readonly run: number
  readonly sentMs: number
  readonly endedMs: number
  readonly end: Answer | { readonly kind: 'cut' | 'unreached' | 'silent' }
}

export type Answer = {
  readonly kind: 'answered'
  readonly status: number
  readonly requestId: string
  readonly charged: bigint
  readonly replayed: boolean
  /** The body, if the status is not 200. */
  readonly body: string
}

export type MadeCall = {
  readonly organizationId: string
  readonly key: string | null
  readonly costs: boolean
  readonly path: string
  readonly body: string
  readonly apiKey: string
  readonly tries: Try[]
}

export type Load = {
  readonly calls: readonly MadeCall[]
  /** Starts no more calls. Resolves when all running calls have ended. */
  stop(): Promise<void>
  /** Repeats every call that has a key and is still unanswered, a few times each. */
  askAgain(): Promise<void>
}

type LoadOptions = {
  readonly places: readonly Place[]
  /** The partners. The first one makes half of the calls. */
  readonly partners: readonly CallingPartner[]
  readonly profiles: readonly string[]
  readonly callersPerPlace: number
  /** The average pause of a caller between an answer and the next call. */
  readonly thinkMs: number
  readonly seed: number
  /** Makes this load's keys different from those of other loads. */
  readonly name: string
}

const silentMs = 40_000
const triesMax = 4
const askedAgainMax = 5

export const startLoad = (options: LoadOptions): Load => {
  const { places, callersPerPlace, thinkMs, seed } = options
  const calls: MadeCall[] = []
  const lines = createLines()
  let stopped = false
  const caller = async (place: Place, number: number): Promise<void> => {
    const random = seededRandom(seed * 1_000 + number)
    const line = `caller ${number}`
    while (!stopped) {
      if (place.url !== null) {
        const call = nextCall(options, random, `${number}-${calls.length}`)
        calls.push(call)
        await make(call, { ...options, place, random, send: lines.sender(line) })
      }
      await sleep(random.next() * 2 * thinkMs)
    }
  }
  const calling = Promise.all(
    places.flatMap((place) =>
      Array.from({ length: callersPerPlace }, (_, n) => caller(place, place.number * callersPerPlace + n)),
    ),
  )
  return {
    calls,
    stop: async () => {
      stopped = true
      await calling
    },
    askAgain: async () => {
      const open = calls.filter((call) => call.key !== null && !isOver(call))
      const send = lines.sender('again')
      for (const call of open)
        for (let n = 0; n < askedAgainMax && !isOver(call); n++) {
          const place = places[n % places.length]
          if (place !== undefined) await send(call, place)
        }
      lines.close()
    },
  }
}

/** After a 402, the Idempotency-Key can be used for a new call, so the next request with that key counts as the first. */
const isOver = ({ tries }: MadeCall): boolean =>
  tries.some(({ end }) => end.kind === 'answered' && [200, 402].includes(end.status))

const nextCall = (
  { partners, profiles, name }: LoadOptions,
  random: SeededRandom,
  serial: string,
): MadeCall => {
  const [first, ...others] = partners
  const partner = random.next() < 0.5 || others.length === 0 ? first : random.pick(others)
  if (partner === undefined) throw new Error('no partner')
  const kind = random.next()
  const isProfile = kind < 0.15
  const isFree = kind > 0.95
  const ip = isFree ? '10.0.0.1' : `8.${random.integer(250)}.${random.integer(250)}.8`
  return {
    ...partner,
    key: random.next() < 0.5 ? `${name.replaceAll(' ', '-')}-${serial}` : null,
    costs: !isFree,
    path: isProfile ? '/v1/profnet/profile' : '/v1/ip/lookup',
    body: JSON.stringify(isProfile ? { id: random.pick(profiles), cached: random.next() < 0.5 } : { ip }),
    tries: [],
  }
}

/** Callers that retry choose a process that is up, like a load balancer. */
const isUp = ({ url, down }: Place): boolean =>
  url !== null && (down.at(-1)?.toMs ?? 0) < Number.POSITIVE_INFINITY

type Send = (call: MadeCall, place: Place, dropAfterMs?: number) => Promise<Try['end']>
type Making = Pick<LoadOptions, 'places'> & {
  readonly place: Place
  readonly random: SeededRandom
  readonly send: Send
}

/** A call with a key is retried at other processes until one answers. Some calls are sent twice in parallel, or again after the answer. */
const make = async (call: MadeCall, { places, place, random, send }: Making): Promise<void> => {
  if (call.key === null) {
    await send(call, place)
    return
  }
  const elsewhere = (): Place => {
    const others = places.filter((one) => one.number !== place.number && isUp(one))
    return others.length === 0 ? place : random.pick(others)
  }
  const manner = random.next()
  if (manner < 0.05) await Promise.all([send(call, place), send(call, elsewhere())])
  else await send(call, place, manner < 0.1 ? random.next() * 30 : undefined)
  while (!isOver(call) && call.tries.length < triesMax) {
    await sleep(50 + random.next() * 200)
    await send(call, elsewhere())
  }
  if (manner > 0.95) await send(call, elsewhere())
}

/** Creates connections that are reused, one per caller and process. */
const createLines = () => {
  const agents = new Map<string, Agent>()
  const agentOf = (name: string): Agent => {
    const known = agents.get(name) ?? new Agent({ keepAlive: true, maxSockets: 2 })
    agents.set(name, known)
    return known
  }
  return {
    sender:
      (name: string): Send =>
      async (call, place, dropAfterMs) => {
        const { number, run, url } = place
        const sentMs = performance.now()
        const end =
          url === null
            ? ({ kind: 'unreached' } as const)
            : await ask(call, url, agentOf(`${name} ${number}`), dropAfterMs)
        call.tries.push({ place: number, run, sentMs, endedMs: performance.now(), end })
        return end
      },
    close: () => {
      for (const agent of agents.values()) agent.destroy()
    },
  }
}

const ask = (
  { apiKey, key, path, body }: MadeCall,
  url: string,
  agent: Agent,
  dropAfterMs: number | undefined,
): Promise<Try['end']> =>
  new Promise((resolve) => {
    const asked = request(`${url}${path}`, {
      agent,
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        'content-length': Buffer.byteLength(body),
        'x-api-key': apiKey,
        ...(key === null ? {} : { 'idempotency-key': key }),
      },
    })
    const late = setTimeout(() => {
      resolve({ kind: 'silent' })
      asked.destroy()
    }, silentMs)
    const dropping = dropAfterMs === undefined ? undefined : setTimeout(() => asked.destroy(), dropAfterMs)
    asked.on('error', (error: NodeJS.ErrnoException) => {
      resolve({ kind: error.code === 'ECONNREFUSED' ? 'unreached' : 'cut' })
    })
    asked.on('response', (response) => {
      let text = ''
      response.setEncoding('utf8')
      response.on('data', (chunk: string) => {
        text += chunk
      })
      response.on('error', () => resolve({ kind: 'cut' }))
      response.on('end', () => {
        const { statusCode: status = 0, headers } = response
        resolve({
          kind: 'answered',
          status,
          requestId: String(headers['x-request-id'] ?? ''),
          charged: parseCredits(String(headers['credits-charged'] ?? '0')),
          replayed: headers['idempotent-replayed'] === 'true',
          body: status === 200 ? '' : text.slice(0, 300),
        })
      })
    })
    asked.on('close', () => {
      clearTimeout(late)
      clearTimeout(dropping)
      resolve({ kind: 'cut' })
    })
    asked.end(body)
  })
