import fastify, {
  type FastifyError,
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
} from 'fastify'
import type { TrustedProxies } from '../guard/caller-address.ts'
import { callHeaders, errorBody, sendRefusal } from './answer.ts'
import type { CallRoom } from './conclude.ts'
import { boundConnections } from './connections.ts'
import { rawBadRequest, refusalOf } from './error-handler.ts'
import {
  echoedCharactersMax,
  noRoute,
  type Refusal,
  temporarilyUnavailable,
  unreadableBody,
  wrongMethod,
} from './errors.ts'
import type { AnyCapabilityForm } from './form.ts'
import { perform, performRefused } from './perform.ts'

/** Decision 3: a larger body is REQ_001 with 413. */
export const bodyBytesMax = 16 * 1024
const requestTimeoutMs = 30_000
const keepAliveTimeoutMs = 72_000
/** A connection that does not get to speak TLS by then is ended; Node.js would hold it for two minutes. */
const handshakeTimeoutMs = 10_000

const methods = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'] as const

/** How a host is reached. Without anything: by plain HTTP, and nobody's forwarded headers count. */
export type Reach = {
  readonly tls?: { readonly cert: Buffer; readonly key: Buffer } | null
  readonly trusts?: TrustedProxies
  /** A connection was over a bound and was reset. */
  readonly connectionRefused?: () => void
}

/**
 * An HTTP host that answers the given capabilities and refuses everything else in the catalogue's words. Bodies reach
 * the call as text: reading them is part of the call, after the caller is known.
 */
/** Answers what never became a call. */
const refuseIn =
  (room: CallRoom) =>
  (reply: FastifyReply, refusal: Refusal): FastifyReply => {
    const requestId = room.requestIds(room.clock.now())
    return sendRefusal(reply, refusal, callHeaders(requestId, undefined, undefined), requestId)
  }

export const createHost = (
  room: CallRoom,
  forms: readonly AnyCapabilityForm[],
  { tls = null, trusts = () => false, connectionRefused = () => undefined }: Reach = {},
): FastifyInstance => {
  const refuse = refuseIn(room)
  // Node.js would answer a missing Host itself, with an empty body.
  const server = { requireHostHeader: false }
  const host = fastify({
    trustProxy: trusts,
    bodyLimit: bodyBytesMax,
    requestTimeout: requestTimeoutMs,
    keepAliveTimeout: keepAliveTimeoutMs,
    exposeHeadRoutes: false,
    // Fastify's own answer while closing is not ours; see the hook below.
    return503OnClosing: false,
    http: server,
    ...(tls === null ? {} : { https: { ...server, ...tls, handshakeTimeout: handshakeTimeoutMs } }),
    frameworkErrors: (_error, _request, reply) => {
      refuse(reply as FastifyReply, unreadableBody('The request could not be read.'))
    },
    clientErrorHandler: (error, socket) => {
      if (error.code === 'ECONNRESET' || !socket.writable) return void socket.destroy()
      const tooLarge = error.code === 'HPE_HEADER_OVERFLOW'
      socket.end(
        rawBadRequest(
          room.requestIds(room.clock.now()),
          tooLarge ? '431 Request Header Fields Too Large' : '400 Bad Request',
        ),
      )
    },
  })
  boundConnections(host.server, { trusts, refused: connectionRefused })
  host.removeAllContentTypeParsers()
  host.addContentTypeParser('*', { parseAs: 'string' }, (_request, body, done) => done(null, body))

  const byPath = Map.groupBy(forms, ({ path }) => path)
  host.setNotFoundHandler((request, reply) => {
    // A method Fastify does not know by name, on a route that is there.
    const allowed = byPath.get(request.url.split('?')[0] ?? '')?.map(({ method }) => method)
    return allowed === undefined
      ? refuse(reply, noRoute(request.method, pathOf(request)))
      : refuse(reply.header('allow', allowed.join(', ')), wrongMethod(request.method, allowed))
  })
  let closing = false
  host.addHook('preClose', (done) => {
    closing = true
    done()
  })
  host.addHook('onRequest', (request, reply, done) => {
    if (closing) refuse(reply.header('connection', 'close'), temporarilyUnavailable())
    else if (request.headers.host === undefined && request.raw.httpVersion === '1.1')
      refuse(reply, unreadableBody('The Host header is missing.'))
    else done()
  })
  host.server.on('checkExpectation', (_request, response) => {
    const requestId = room.requestIds(room.clock.now())
    const refusal = unreadableBody('The expectation in the Expect header cannot be met.')
    const body = errorBody(refusal, requestId)
    const headers = callHeaders(requestId, undefined, undefined)
    response.writeHead(400, { ...headers, 'content-length': Buffer.byteLength(body) }).end(body)
  })
  host.setErrorHandler((error: FastifyError, request, reply) => {
    const refusal = refusalOf(error, bodyBytesMax)
    if (refusal.code === 'SYS_001')
      room.logger.error({ err: error, path: pathOf(request) }, 'a request failed outside a call')
    const form = forms.find(
      ({ path, method }) => path === request.routeOptions.url && method === request.method,
    )
    return form === undefined || refusal.code === 'SYS_001'
      ? refuse(reply, refusal)
      : performRefused(room, form, refusal, request, reply)
  })

  for (const [path, own] of byPath) {
    for (const form of own)
      host.route({
        method: form.method,
        url: path,
        handler: (request, reply) => perform(room, form, request, reply),
      })
    const allowed = own.map(({ method }) => method)
    host.route({
      method: methods.filter((method) => !allowed.some((taken) => taken === method)),
      url: path,
      handler: (request, reply) =>
        refuse(reply.header('allow', allowed.join(', ')), wrongMethod(request.method, allowed)),
    })
  }
  return host
}

const pathOf = (request: FastifyRequest): string =>
  (request.url.split('?')[0] ?? '').slice(0, echoedCharactersMax)
