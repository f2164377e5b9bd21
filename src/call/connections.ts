import { readFileSync } from 'node:fs'
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Server, Socket } from 'node:net'
import { TLSSocket } from 'node:tls'
import type { FastifyInstance } from 'fastify'
import { addressBlock, type TrustedProxies } from '../guard/caller-address.ts'

/**
 * The requests of each connection, answered one after the other. HTTP lets a client send many requests without reading an
 * answer. Node.js would start all of them and hold every answer in memory, so a request waits here until the answer
 * before it has been handed to the kernel.
 *
 * This also holds when invalid bytes arrive on a connection: earlier calls are charged, so their answers are sent first.
 */
export type OpenRequests = {
  /** Runs `start` when the answers before this one have left; never on a connection that ends with one of those. */
  began(request: IncomingMessage, response: ServerResponse, start: () => void): void
  answered(request: IncomingMessage): void
  /** Runs `last` when every complete request is answered. A second request for the same connection does nothing. */
  whenAnswered(socket: Socket, last: () => void): void
  /** Answers are the last of their connections from now on. */
  end(): void
  /** When an answer left on a connection that was kept open after it; milliseconds of `performance.now`. */
  readonly keptAtMs: number
  /** Whether an answer is made and has not left. */
  hasUnsent(): boolean
}

/** How fast a client must read an answer. */
export type ReadingBounds = {
  /** For an answer of any size. */
  readonly graceMs: number
  /** On top of that. */
  readonly bytesPerSecondMin: number
}

const readingBounds: ReadingBounds = { graceMs: 20_000, bytesPerSecondMin: 32 * 1024 }

/** For an answer of any size once the process ends. */
const endingGraceMs = 10_000
/** How often it looks for answers that are not read. */
const unreadCheckMs = 1_000
/** With more requests than this waiting, a connection is not read until some of them are answered. */
const waitingMax = 16

type Connection = {
  readonly requests: Set<IncomingMessage>
  readonly waiting: { readonly response: ServerResponse; readonly start: () => void }[]
  /** The answer that is being made or sent. */
  response: ServerResponse | null
  /** Since when its answer has been made and not been read, and how much of it was left then. */
  unread: { readonly sinceMs: number; readonly bytes: number } | null
  last?: () => void
  /** Stops reading a connection whose requests wait: reading the body of one of them would resume it. */
  hold: (() => void) | null
}

type Watched = OpenRequests & {
  /** Resets connections whose client does not read. Due from time to time. */
  resetUnread(): void
}

/** Before the host has any other hook: the requests of its connections from now on. */
export const openRequestsOn = (host: FastifyInstance, bounds?: ReadingBounds): OpenRequests => {
  const open = createOpenRequests(bounds)
  host.addHook('onRequest', (request, reply, done) => open.began(request.raw, reply.raw, done))
  host.addHook('onResponse', (request, _reply, done) => {
    open.answered(request.raw)
    done()
  })
  const looking = setInterval(open.resetUnread, unreadCheckMs).unref()
  host.server.once('close', () => clearInterval(looking))
  return open
}

const createOpenRequests = (bounds: ReadingBounds = readingBounds): Watched => {
  const now = (): number => performance.now()
  const connections = new Map<Socket, Connection>()
  let ending = false
  let keptAtMs = Number.NEGATIVE_INFINITY

  const begin = (connection: Connection, response: ServerResponse, start: () => void): void => {
    connection.response = response
    if (ending) response.shouldKeepAlive = false
    start()
  }

  const hold = (socket: Socket, connection: Connection): void => {
    connection.hold = () => void socket.pause()
    socket.on('resume', connection.hold)
    socket.pause()
  }

  const release = (socket: Socket, connection: Connection): void => {
    if (connection.hold === null) return
    socket.off('resume', connection.hold)
    connection.hold = null
    socket.resume()
  }

  return {
    began: (request, response, start) => {
      const { socket } = request
      const known = connections.get(socket)
      if (known === undefined) {
        const fresh: Connection = {
          ...{ requests: new Set([request]), waiting: [], response, unread: null, hold: null },
        }
        connections.set(socket, fresh)
        socket.once('close', () => connections.delete(socket))
        return begin(fresh, response, start)
      }
      known.requests.add(request)
      if (known.requests.size === 1) return begin(known, response, start)
      known.waiting.push({ response, start })
      if (known.waiting.length >= waitingMax && known.hold === null) hold(socket, known)
    },
    answered: (request) => {
      const { socket } = request
      const connection = connections.get(socket)
      if (connection?.requests.delete(request) !== true) return
      Object.assign(connection, { response: null, unread: null })
      // The answer was the last one of the connection.
      if (!socket.writable) return
      if (!ending) keptAtMs = now()
      if (connection.last !== undefined && !waits(connection.requests)) return connection.last()
      const next = connection.waiting.shift()
      if (connection.waiting.length < waitingMax) release(socket, connection)
      if (next !== undefined) begin(connection, next.response, next.start)
    },
    whenAnswered: (socket, last) => {
      const connection = connections.get(socket)
      if (connection === undefined) return last()
      if (connection.last !== undefined) return
      connection.last = last
      if (!waits(connection.requests)) last()
    },
    end: () => {
      ending = true
      for (const { response } of connections.values()) if (response !== null) response.shouldKeepAlive = false
    },
    get keptAtMs() {
      return keptAtMs
    },
    hasUnsent: () => [...connections.values()].some(({ response }) => isUnsent(response)),
    resetUnread: () => {
      for (const [socket, connection] of connections) {
        if (!isUnsent(connection.response)) continue
        connection.unread ??= { sinceMs: now(), bytes: socket.writableLength }
        const { sinceMs, bytes } = connection.unread
        const inTimeMs = bounds.graceMs + (bytes / bounds.bytesPerSecondMin) * 1_000
        const maxMs = ending ? Math.min(inTimeMs, endingGraceMs) : inTimeMs
        if (now() - sinceMs > maxMs) reset(socket)
      }
    },
  }
}

const isUnsent = (response: ServerResponse | null): boolean =>
  response?.writableEnded === true && !response.writableFinished

/** A reset frees what the kernel holds for the connection. Node.js has none for TLS. */
const reset = (socket: Socket): void =>
  void (socket instanceof TLSSocket ? socket.destroy() : socket.resetAndDestroy())

/** The incomplete request is the broken one. It will never be complete. */
const waits = (requests: ReadonlySet<IncomingMessage>): boolean =>
  [...requests].some(({ complete }) => complete)

/**
 * How many connections a host holds, and how many of them one address may hold. An idle connection costs a file descriptor and
 * some kilobytes. Without a bound of its own, one address could hold all of them and shut out the others.
 */

const connectionsMax = 10_000
/** A partner that makes 100 calls a second, each of up to eight seconds for a profile, needs 800. */
export const connectionsPerAddressMax = 1_000

/** For databases, mail servers, files and other things a process opens. */
const otherFilesMax = 256
/** API, dashboard, metrics. */
const hostsMax = 3
/** One address holds at most one of so many parts. */
const addressesMin = 2

/**
 * The bounds, less where the process may not open that many files: calls of others need a descriptor, and so do the
 * databases they ask.
 */
export const boundsFor = (openFilesMax: number): { readonly all: number; readonly perAddress: number } => {
  const share = Math.max(addressesMin, Math.floor((openFilesMax - otherFilesMax) / hostsMax))
  const all = Math.min(connectionsMax, share)
  return { all, perAddress: Math.min(connectionsPerAddressMax, Math.floor(all / addressesMin)) }
}

/** Infinity if the system does not report it; Linux does. */
const openFilesMax = (): number => {
  try {
    const [, soft] = /^Max open files +(\d+) /m.exec(readFileSync('/proc/self/limits', 'utf8')) ?? []
    return soft === undefined ? Number.POSITIVE_INFINITY : Number(soft)
  } catch {
    return Number.POSITIVE_INFINITY
  }
}

/** Connections over the bound are reset, not answered. A trusted proxy carries everyone's calls: it is not bounded. */
export const boundConnections = (
  server: Server,
  { trusts, refused }: { trusts: TrustedProxies; refused: () => void },
): void => {
  const { all, perAddress } = boundsFor(openFilesMax())
  server.maxConnections = all
  server.on('drop', refused)
  const held = new Map<string, number>()
  server.on('connection', (socket) => {
    // It was closed before anyone looked.
    if (socket.remoteAddress === undefined) return void socket.destroy()
    if (trusts(socket.remoteAddress)) return
    const block = addressBlock(socket.remoteAddress)
    const count = (held.get(block) ?? 0) + 1
    if (count > perAddress) {
      refused()
      // A reset leaves nothing behind in the kernel, where a proper end would wait for the other side's.
      socket.resetAndDestroy()
      return
    }
    held.set(block, count)
    socket.once('close', () => {
      const left = (held.get(block) ?? 1) - 1
      if (left === 0) held.delete(block)
      else held.set(block, left)
    })
  })
}
