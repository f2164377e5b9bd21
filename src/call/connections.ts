import { readFileSync } from 'node:fs'
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Server, Socket } from 'node:net'
import { TLSSocket } from 'node:tls'
import type { FastifyInstance } from 'fastify'
import { addressBlock, type TrustedProxies } from '../guard/caller-address.ts'

/**
 * Answers the requests of each connection one after the other. HTTP allows a client to send many requests without reading an answer. Node.js
 * would start them all and keep every answer in memory. Here, a request waits until the kernel has accepted the previous answer.
 *
 * If invalid bytes arrive, earlier calls on the connection are still answered first, because they are charged.
 */
export type OpenRequests = {
  /** Runs `start` when the previous answers have been sent, unless one of them ends the connection. */
  began(request: IncomingMessage, response: ServerResponse, start: () => void): void
  answered(request: IncomingMessage): void
  /** Runs `last` when every complete request has been answered. Another call for the same connection does nothing. */
  whenAnswered(socket: Socket, last: () => void): void
  /** From now on, every answer ends its connection. */
  end(): void
  /** The time when an answer was last sent on a connection that stayed open, in milliseconds of `performance.now`. */
  readonly keptAtMs: number
  /** Whether an answer is ready and not yet sent. */
  hasUnsent(): boolean
}

/** The minimum speed at which a client must read an answer. */
export type ReadingBounds = {
  /** The time allowed for an answer of any size. */
  readonly graceMs: number
  /** The minimum rate. It gives larger answers more time. */
  readonly bytesPerSecondMin: number
}

const readingBounds: ReadingBounds = { graceMs: 20_000, bytesPerSecondMin: 32 * 1024 }

/** The limit for any answer while the process ends. */
const endingGraceMs = 10_000
const unreadCheckMs = 1_000
/** The maximum number of waiting requests. The connection is not read until some of them are answered. */
const waitingMax = 16

type Connection = {
  /** In order of arrival. This is not a set, because V8 would rebuild it every few requests, and old tables keep the requests in memory. */
  readonly requests: IncomingMessage[]
  readonly waiting: { readonly response: ServerResponse; readonly start: () => void }[]
  response: ServerResponse | null
  /** The time since which the answer has been ready and unread, and the number of its unread bytes at that time. */
  unread: { readonly sinceMs: number; readonly bytes: number } | null
  last?: () => void
  /** Pauses the connection while requests wait. Called again after reading a body has resumed the connection. */
  hold: (() => void) | null
}

type Watched = OpenRequests & {
  /** Resets connections whose client does not read. Must be called regularly. */
  resetUnread(): void
}

/** Must be called before the host gets any other hook. */
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
          requests: [request],
          waiting: [],
          response,
          unread: null,
          hold: null,
        }
        connections.set(socket, fresh)
        socket.once('close', () => connections.delete(socket))
        return begin(fresh, response, start)
      }
      known.requests.push(request)
      if (known.requests.length === 1) return begin(known, response, start)
      known.waiting.push({ response, start })
      if (known.waiting.length >= waitingMax && known.hold === null) hold(socket, known)
    },
    answered: (request) => {
      const { socket } = request
      const connection = connections.get(socket)
      const place = connection?.requests.indexOf(request) ?? -1
      if (connection === undefined || place === -1) return
      connection.requests.splice(place, 1)
      Object.assign(connection, { response: null, unread: null })
      // This was the connection's last answer.
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

/** A reset frees the kernel's memory for the connection. Node.js cannot reset TLS sockets. */
const reset = (socket: Socket): void =>
  void (socket instanceof TLSSocket ? socket.destroy() : socket.resetAndDestroy())

/** Requests with invalid bytes never become complete and do not count. */
const waits = (requests: readonly IncomingMessage[]): boolean => requests.some(({ complete }) => complete)

/**
 * The maximum number of connections of a host, in total and from one address. An idle connection costs a file descriptor and some
 * kilobytes. Without the second limit, one address could use all connections.
 */

const connectionsMax = 10_000
/** A partner needs 800 connections for 100 profile calls per second, because each call can take eight seconds. */
export const connectionsPerAddressMax = 1_000

/** File descriptors for everything except callers, such as databases, mail servers and files. */
const otherFilesMax = 256
const hostsMax = 3
/** One address can use at most 1/`addressesMin` of the connections. */
const addressesMin = 2

/** Returns the limits, lowered if the process may not open that many files, because calls and databases also need file descriptors. */
export const boundsFor = (openFilesMax: number): { readonly all: number; readonly perAddress: number } => {
  const share = Math.max(addressesMin, Math.floor((openFilesMax - otherFilesMax) / hostsMax))
  const all = Math.min(connectionsMax, share)
  return { all, perAddress: Math.min(connectionsPerAddressMax, Math.floor(all / addressesMin)) }
}

/** With fewer files, callers would get only a few connections, and PostgreSQL may not start. */
export const openFilesMin = 512

/** Returns infinity if the system does not report a limit. Linux does. */
export const openFilesMax = (): number => {
  try {
    const [, soft] = /^Max open files +(\d+) /m.exec(readFileSync('/proc/self/limits', 'utf8')) ?? []
    return soft === undefined ? Number.POSITIVE_INFINITY : Number(soft)
  } catch {
    return Number.POSITIVE_INFINITY
  }
}

/** Resets connections above the limits. The limit per address does not apply to trusted proxies, because they carry everyone's calls. */
export const boundConnections = (
  server: Server,
  { trusts, refused }: { trusts: TrustedProxies; refused: () => void },
): void => {
  const { all, perAddress } = boundsFor(openFilesMax())
  server.maxConnections = all
  server.on('drop', refused)
  const held = new Map<string, number>()
  server.on('connection', (socket) => {
    // The connection is already closed.
    if (socket.remoteAddress === undefined) return void socket.destroy()
    if (trusts(socket.remoteAddress)) return
    const block = addressBlock(socket.remoteAddress)
    const count = (held.get(block) ?? 0) + 1
    if (count > perAddress) {
      refused()
      // After a normal close, the kernel would wait until the other side closes as well.
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
