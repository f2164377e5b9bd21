import type { IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import fastify, {
  type FastifyError,
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
} from 'fastify'
import type { TrustedProxies } from '../guard/caller-address.ts'
import { type AnswerHeaders, callHeaders, errorBody, safeHeaders, sendRefusal } from './answer.ts'
import { boundConnections, type OpenRequests, openRequestsOn, type ReadingBounds } from './connections.ts'
import type { CallDependencies } from './dependencies.ts'
import { type BrokenRequest, brokenRequest, rawAnswer, refusalOf, unknownMethodIn } from './error-handler.ts'
import {
  echoedCharactersMax,
  noRoute,
  type Refusal,
  temporarilyUnavailable,
  unreadableBody,
  wrongMethod,
} from './errors.ts'
import type { AnyCapabilityForm } from './form.ts'
import { bodyBytesMax, createBodyReader } from './request-body.ts'
import { answerCall } from './sequence.ts'

const requestTimeoutDefaultMs = 30_000
const slowCheckMs = 1_000
const keepAliveTimeoutMs = 72_000
/** The time limit for a TLS handshake. The default in Node.js is two minutes. */
const handshakeTimeoutMs = 10_000
/** The maximum time for which a connection stays open after its last answer. */
const lingerMs = 1_000
/** How long calls are still accepted on open connections after the host begins to close. A later call could be charged and not answered. */
export const lastCallsMs = 1_000

/** How clients reach a host. By default, the host uses plain HTTP and ignores forwarded headers. */
export type Reach = {
  readonly tls?: { readonly cert: Buffer; readonly key: Buffer } | null
  readonly trusts?: TrustedProxies
  /** Called when a connection above a limit was reset. */
  readonly connectionRefused?: () => void
  /** The time limit for a request to arrive, from its first byte to its last; 30 s by default. */
  readonly requestTimeoutMs?: number
  readonly reading?: ReadingBounds
}

export type Host = FastifyInstance & { readonly open: OpenRequests }

const refuseIn =
  ({ requestIds, clock }: CallDependencies) =>
  (reply: FastifyReply, refusal: Refusal, headers: AnswerHeaders = {}): FastifyReply =>
    sendRefusal(reply, refusal, requestIds(clock.now()), {
      ...(refusal.retryAfterSeconds === undefined
        ? {}
        : { 'retry-after': String(refusal.retryAfterSeconds) }),
      ...headers,
    })

/** An HTTP host that answers the calls of the given forms, and refuses all other requests with an error from the catalogue. */
export const createHost = (
  dependencies: CallDependencies,
  forms: readonly AnyCapabilityForm[],
  reach: Reach = {},
): Host => {
  const refuse = refuseIn(dependencies)
  const bodies = createBodyReader()
  const host = openServer(reach, {
    unreadable: (reply) => refuse(reply, unreadableBody('The request could not be read.')),
    broken: (error, socket) => connections.endBroken(error, socket),
  })
  const open = openRequestsOn(host, reach.reading)
  const missing = missingOn(host, forms)
  const connections = brokenConnections({ dependencies, host, missing, open, breakOff: bodies.breakOff })
  host.removeAllContentTypeParsers()
  host.addContentTypeParser('*', (request: FastifyRequest) => bodies.read(request.raw))
  refuseBeforeCalls(host, { refuse, missing, connections })
  host.server.on('checkExpectation', (request, response) => {
    const requestId = dependencies.requestIds(dependencies.clock.now())
    const refusal = unreadableBody('The expectation in the Expect header cannot be met.')
    const body = errorBody(refusal, requestId)
    const headers = callHeaders(requestId, undefined, undefined)
    response.once('finish', () => open.answered(request))
    open.began(request, response, () =>
      response.writeHead(400, { ...headers, 'content-length': Buffer.byteLength(body) }).end(body),
    )
  })
  host.setErrorHandler((error: FastifyError, request, reply) => {
    const refusal = refusalOf(error)
    const { url, method } = request
    if (refusal.code === 'SYS_001')
      dependencies.logger.error({ err: error, path: pathOf(url) }, 'a request failed outside a call')
    const form = forms.find((one) => one.path === request.routeOptions.url && one.method === method)
    return form === undefined || refusal.code === 'SYS_001'
      ? refuse(reply, refusal)
      : answerCall(dependencies, { form, request, reply, unreadable: refusal })
  })
  let lastCallMs = Number.POSITIVE_INFINITY
  host.addHook('preClose', (done) => {
    lastCallMs = performance.now() + lastCallsMs
    done()
  })
  for (const form of forms)
    host.route({
      method: form.method,
      url: form.path,
      handler: (request, reply) =>
        performance.now() > lastCallMs
          ? refuse(reply, temporarilyUnavailable())
          : answerCall(dependencies, { form, request, reply }),
    })
  return Object.assign(host, { open })
}

const refuseSchema = () => {
  throw new Error('a route has a schema of Fastify; parse its input with zod')
}

/** Fastify's option for hosts without schemas. Otherwise, Fastify loads the compilers of Ajv, which takes a tenth of a second. */
export const withoutSchemas = {
  compilersFactory: { buildValidator: refuseSchema, buildSerializer: refuseSchema },
}

/** Opens the server with its limits. `unreadable` and `broken` answer bytes that are not a valid request. */
const openServer = (
  {
    tls = null,
    trusts = () => false,
    connectionRefused = () => undefined,
    requestTimeoutMs = requestTimeoutDefaultMs,
  }: Reach,
  { unreadable, broken }: { unreadable(reply: FastifyReply): void; broken: Broken },
): FastifyInstance => {
  const server = {
    // Node.js would answer a missing Host header itself, with an empty body.
    requireHostHeader: false,
    // If this timeout (60 s by default) were longer than the request timeout, Node.js would exchange the two values.
    headersTimeout: requestTimeoutMs,
    connectionsCheckingInterval: Math.min(slowCheckMs, requestTimeoutMs),
  }
  const host = fastify({
    schemaController: withoutSchemas,
    trustProxy: trusts,
    bodyLimit: bodyBytesMax,
    requestTimeout: requestTimeoutMs,
    keepAliveTimeout: keepAliveTimeoutMs,
    exposeHeadRoutes: false,
    // Requests that arrive on open connections while the host closes are answered at first (see `lastCallsMs`).
    return503OnClosing: false,
    http: server,
    ...(tls === null
      ? {}
      : { https: { ...server, ...tls, allowHalfOpen: true, handshakeTimeout: handshakeTimeoutMs } }),
    frameworkErrors: (_error, _request, reply) => unreadable(reply as FastifyReply),
    clientErrorHandler: broken,
  })
  // By default, Node.js ends the connection when the client has ended its side, and a charged answer would be lost. TLS also needs the
  // option `allowHalfOpen`.
  Reflect.set(host.server, 'httpAllowHalfOpen', true)
  boundConnections(host.server, { trusts, refused: connectionRefused })
  return host
}

/** Refuses requests before their body is read: if their framing is ambiguous, or if no route matches. */
const refuseBeforeCalls = (
  host: FastifyInstance,
  {
    refuse,
    missing,
    connections,
  }: {
    refuse: ReturnType<typeof refuseIn>
    missing: Missing
    connections: ReturnType<typeof brokenConnections>
  },
): void => {
  const refuseMissing = (request: FastifyRequest, reply: FastifyReply): FastifyReply => {
    const { refusal, headers } = missing(request.method, request.url)
    // The connection is closed, so that the host does not have to read the rest of a large body.
    const more = request.headers['transfer-encoding'] ?? request.headers['content-length'] ?? 0
    if (Number(more) <= bodyBytesMax) return refuse(reply, refusal, headers)
    connections.endsWith(request.raw)
    return refuse(reply, refusal, { ...headers, connection: 'close' })
  }
  host.setNotFoundHandler(refuseMissing)
  host.addHook('onRequest', (request, reply, done) => {
    reply.headers(safeHeaders)
    const fault = misframed(request.raw)
    if (fault !== null) {
      connections.endsWith(request.raw)
      refuse(reply, fault, { connection: 'close' })
    } else if (request.is404) refuseMissing(request, reply)
    else done()
  })
}

type Broken = (error: BrokenRequest, socket: Socket) => void

type Missing = (method: string, url: string) => { refusal: Refusal; headers: AnswerHeaders }

/** Returns the refusal of a method at an address: the route does not exist (404) or does not accept the method (405). */
const missingOn = (host: FastifyInstance, forms: readonly AnyCapabilityForm[]): Missing => {
  const methodsOf = new Map<string, string[]>()
  host.addHook('onRoute', ({ url, method }) => {
    // Pages with a parameter in the path are left out, because a 405 would reveal to people who are not signed in that the page exists.
    if (!/[:*]/.test(url)) methodsOf.set(url, [...(methodsOf.get(url) ?? []), ...[method].flat()])
  })
  return (method, url) => {
    const path = pathOf(url)
    const allowed = methodsOf.get(path) ?? takenBy(forms, path) ?? (method === 'CONNECT' ? [] : undefined)
    return allowed === undefined
      ? { refusal: noRoute(method, path.slice(0, echoedCharactersMax)), headers: {} }
      : { refusal: wrongMethod(method, allowed), headers: { allow: allowed.join(', ') } }
  }
}

/** Returns the methods of calls whose path with parameters matches the address; undefined if no path matches. */
const takenBy = (forms: readonly AnyCapabilityForm[], path: string): string[] | undefined => {
  const parts = path.split('/')
  const isAt = (form: AnyCapabilityForm): boolean => {
    const named = form.path.split('/')
    return named.length === parts.length && named.every((one, i) => one.startsWith(':') || one === parts[i])
  }
  const methods = forms.filter((form) => form.path.includes(':') && isAt(form)).map(({ method }) => method)
  return methods.length === 0 ? undefined : methods
}

/** Sends one answer on a connection with invalid or missing bytes, and then ends the connection. */
const brokenConnections = ({
  dependencies,
  host,
  missing,
  open,
  breakOff,
}: {
  dependencies: CallDependencies
  host: FastifyInstance
  missing: Missing
  open: OpenRequests
  breakOff: (socket: Socket, refusal: Refusal) => boolean
}) => {
  const answeredLast = new WeakSet<Duplex>()
  const end = (socket: Duplex, { refusal, headers }: ReturnType<Missing>): void => {
    answeredLast.add(socket)
    socket.end(rawAnswer(refusal, dependencies.requestIds(dependencies.clock.now()), headers))
    setTimeout(() => socket.destroy(), lingerMs).unref()
  }
  // Refuses tunnels with an answer. Node.js would close the connection without an answer.
  host.server.on('connect', ({ url = '' }, socket) => end(socket, missing('CONNECT', url)))
  return {
    /** The answer to this request ends its connection. */
    endsWith: ({ socket }: IncomingMessage) => void answeredLast.add(socket),
    endBroken: ((error, socket) => {
      if (answeredLast.has(socket)) return
      if (error.code === 'ECONNRESET' || !socket.writable) return void socket.destroy()
      const refusal = brokenRequest(error.code)
      // If the bytes belong to the body of a request, that request gets this answer.
      if (breakOff(socket, refusal)) return void answeredLast.add(socket)
      const unknown = unknownMethodIn(error)
      const last = unknown === null ? { refusal, headers: {} } : missing(unknown.method, unknown.url)
      open.whenAnswered(socket, () => end(socket, last))
    }) satisfies Broken,
  }
}

/** Returns the path of a request target, which may also contain a host (RFC 9112 §3.2.2). */
const pathOf = (url: string): string => {
  const [path = ''] = url.split(/[?#]/, 1)
  const origin = /^https?:\/\/[^/]*/i.exec(path)
  return origin === null ? path : path.slice(origin[0].length) || '/'
}

/** Matches a host with an optional port, as in a URI (RFC 3986 §3.2.2), and the empty text. */
const hostPattern = /^[A-Za-z0-9._~!$&'()*+,;=%:[\]-]{0,255}$/

/**
 * Refuses ambiguous requests that Node.js accepts but a proxy may read differently (RFC 9112 §3.2 and §6.1, RFC 9110 §5.3). Returns
 * null if the request is not ambiguous.
 */
const misframed = ({ rawHeaders, headers, httpVersion }: IncomingMessage): Refusal | null => {
  let hosts = 0
  let types = 0
  for (let n = 0; n < rawHeaders.length; n += 2) {
    const name = rawHeaders[n] ?? ''
    // The length is compared first, because converting every name to lower case would be slow.
    if (name.length === 4 && name.toLowerCase() === 'host') hosts++
    else if (name.length === 12 && name.toLowerCase() === 'content-type') types++
  }
  if (hosts === 0 && httpVersion === '1.1') return unreadableBody('The Host header is missing.')
  if (hosts > 1) return unreadableBody('The Host header is sent more than once.')
  if (!hostPattern.test(headers.host ?? '')) return unreadableBody('The Host header is not a valid host.')
  if (types > 1) return unreadableBody('The Content-Type header is sent more than once.')
  const coding = headers['transfer-encoding']
  if (coding !== undefined && (coding.toLowerCase() !== 'chunked' || httpVersion === '1.0'))
    return unreadableBody('The Transfer-Encoding must be chunked, and the request must use HTTP/1.1.')
  return null
}
