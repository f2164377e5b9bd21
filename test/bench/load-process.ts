import { connect, type Socket } from 'node:net'
import { performance } from 'node:perf_hooks'
import { parseAddress } from '../../src/egress/address.ts'
import type { Load, LoadedPlace, LoadResult } from './load.ts'
import { randomOf } from './random.ts'

/**
 * Sends IP lookups over raw sockets and counts the answers. It is a separate process, so that it does not delay the measured
 * service or wait for it.
 */

/** Latencies are counted in steps of 10 microseconds, up to 10 s. Longer latencies count as 10 s. */
const stepUs = 10
const steps = 1_000_000
const lateAnswersMs = 10_000

/** Uniformly random public IPv4 addresses. A seed always produces the same addresses. */
const addressesOf = (seed: number): (() => string) => {
  let state = seed * 2_654_435_761 || 1
  return () => {
    for (;;) {
      state ^= state << 13
      state ^= state >>> 17
      state ^= state << 5
      const text = `${state >>> 24}.${(state >>> 16) & 255}.${(state >>> 8) & 255}.${state & 255}`
      if (parseAddress(text)?.reachable === true) return text
    }
  }
}

/** The requests to one process. */
const requestsOf = (
  { port, apiKeys }: LoadedPlace,
  {
    address,
    random,
    idempotencyKey,
  }: { address: () => string; random: () => number; idempotencyKey: () => string },
): (() => string) => {
  const heads = apiKeys.map(
    (apiKey) =>
      `POST /v1/ip/lookup HTTP/1.1\r\nhost: 127.0.0.1:${port}\r\ncontent-type: application/json\r\nx-api-key: ${apiKey}\r\n`,
  )
  return () => {
    const head = heads[heads.length === 1 ? 0 : Math.floor(random() * heads.length)]
    const ip = address()
    return `${head}${idempotencyKey()}content-length: ${ip.length + 9}\r\n\r\n{"ip":"${ip}"}`
  }
}

type Lane = {
  readonly place: number
  socket: Socket
  scheduledAt: number
  sentAt: number
  busy: boolean
  rest: number
  partial: string
}

const run = async (load: Load): Promise<LoadResult> => {
  const address = addressesOf(load.seed)
  const random = randomOf(load.seed)
  let keys = 0
  const idempotencyKey = (): string =>
    load.idempotencyKeys === undefined ? '' : `idempotency-key: ${load.idempotencyKeys}-${keys++}\r\n`
  const requests = load.places.map((place) => requestsOf(place, { address, random, idempotencyKey }))
  const answeredAt = load.places.map(() => 0)
  const fromSchedule = new Uint32Array(steps)
  const fromSend = new Uint32Array(steps)
  const others: Record<string, number> = {}
  let answered = 0
  let inFlight = 0
  let ended = false
  let finish: () => void = () => undefined
  const finished = new Promise<void>((resolve) => {
    finish = resolve
  })
  const idle: Lane[] = []
  /** In a fixed-rate run, the scheduled send times at which no connection was free. */
  const overdue: number[] = []
  let overdueAt = 0

  const send = (lane: Lane, scheduledAt: number): void => {
    const request = requests[lane.place]?.() ?? ''
    lane.scheduledAt = scheduledAt
    lane.sentAt = performance.now()
    lane.busy = true
    inFlight++
    lane.socket.write(request, 'latin1')
  }

  const done = (lane: Lane, status: string): void => {
    const now = performance.now()
    lane.busy = false
    inFlight--
    if (status === '200') {
      answered++
      answeredAt[lane.place] = (answeredAt[lane.place] ?? 0) + 1
    } else others[status] = (others[status] ?? 0) + 1
    const schedule = Math.min(steps - 1, Math.floor(((now - lane.scheduledAt) * 1_000) / stepUs))
    const sent = Math.min(steps - 1, Math.floor(((now - lane.sentAt) * 1_000) / stepUs))
    fromSchedule[schedule] = (fromSchedule[schedule] ?? 0) + 1
    fromSend[sent] = (fromSend[sent] ?? 0) + 1
    if (load.rate === null) {
      if (!ended) send(lane, now)
    } else if (overdueAt < overdue.length) send(lane, overdue[overdueAt++] ?? now)
    else idle.push(lane)
    if (ended && inFlight === 0) finish()
  }

  /** There is one answer per request and no pipelining, so an answer ends as its content-length says. */
  const received = (lane: Lane, text: string): void => {
    if (lane.rest > 0) {
      lane.rest -= text.length
      if (lane.rest <= 0) done(lane, lane.partial)
      return
    }
    const whole = lane.partial === '' ? text : lane.partial + text
    const bodyAt = whole.indexOf('\r\n\r\n')
    if (bodyAt === -1) {
      lane.partial = whole
      return
    }
    const lengthAt = whole.indexOf('content-length: ')
    const length = Number.parseInt(whole.slice(lengthAt + 16, lengthAt + 24), 10)
    const status = whole.slice(9, 12)
    const rest = bodyAt + 4 + length - whole.length
    lane.rest = rest
    lane.partial = rest > 0 ? status : ''
    if (rest <= 0) done(lane, status)
  }

  const open = (place: number): Promise<Lane> =>
    new Promise((resolve, reject) => {
      const lane: Lane = {
        place,
        socket: connect({
          host: '127.0.0.1',
          port: load.places[place]?.port ?? 0,
          noDelay: true,
          onread: {
            buffer: Buffer.allocUnsafe(16_384),
            callback: (size, buffer) => {
              received(lane, Buffer.from(buffer.buffer, buffer.byteOffset, size).toString('latin1'))
              return true
            },
          },
        }),
        scheduledAt: 0,
        sentAt: 0,
        busy: false,
        rest: 0,
        partial: '',
      }
      lane.socket.once('connect', () => resolve(lane))
      lane.socket.on('error', (error) => {
        reject(error)
        others.socket = (others.socket ?? 0) + 1
      })
      lane.socket.on('close', () => {
        if (!lane.busy) return
        others.closed = (others.closed ?? 0) + 1
        inFlight--
        if (ended && inFlight === 0) finish()
      })
    })

  const lanes = await Promise.all(
    Array.from({ length: load.connections }, (_, n) => open(n % load.places.length)),
  )
  const before = process.cpuUsage()
  const startedAt = performance.now()
  const endsAt = startedAt + load.seconds * 1_000
  let ticking: NodeJS.Timeout | undefined
  if (load.rate === null) for (const lane of lanes) send(lane, startedAt)
  else {
    idle.push(...lanes)
    const everyMs = 1_000 / load.rate
    let next = startedAt
    ticking = setInterval(() => {
      const now = performance.now()
      for (; next <= now && next < endsAt; next += everyMs) {
        const lane = idle.pop()
        if (lane === undefined) overdue.push(next)
        else send(lane, next)
      }
    }, 1)
  }
  await new Promise((resolve) => setTimeout(resolve, load.seconds * 1_000))
  ended = true
  const countedMs = performance.now() - startedAt
  const answeredInTime = answered
  clearInterval(ticking)
  if (inFlight > 0)
    await Promise.race([finished, new Promise((resolve) => setTimeout(resolve, lateAnswersMs).unref())])
  const used = process.cpuUsage(before)
  for (const { socket } of lanes) socket.destroy()
  return {
    answered,
    answeredAt,
    perSecond: (answeredInTime * 1_000) / countedMs,
    others,
    unanswered: inFlight + overdue.length - overdueAt,
    p50Ms: percentile(fromSchedule, 0.5),
    p99Ms: percentile(fromSchedule, 0.99),
    p99FromSendMs: percentile(fromSend, 0.99),
    generatorLoad: (used.user + used.system) / 1_000 / countedMs,
  }
}

const percentile = (histogram: Uint32Array, share: number): number => {
  const total = histogram.reduce((sum, count) => sum + count, 0)
  let seen = 0
  for (const [step, count] of histogram.entries()) {
    seen += count
    if (seen >= total * share) return ((step + 1) * stepUs) / 1_000
  }
  return 0
}

process.on('message', (load: Load) => {
  void run(load).then(
    (result) => process.send?.({ result }),
    (error: unknown) => process.send?.({ error: String(error) }),
  )
})
