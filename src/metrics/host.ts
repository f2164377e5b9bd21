import fastify, { type FastifyInstance } from 'fastify'
import type { Logger } from 'pino'
import { safeHeaders } from '../call/answer.ts'
import { boundConnections, openRequestsOn } from '../call/connections.ts'
import { brokenRequest, rawAnswer } from '../call/error-handler.ts'
import { createRequestIds } from '../call/request-id.ts'
import { withoutSchemas } from '../call/route.ts'
import type { Health } from './health.ts'
import type { Metrics } from './metrics.ts'
import { fresh, operations, type Unready } from './routes.ts'

/**
 * The host for Prometheus, on a separate port. Every process has it, regardless of its roles. It has no authentication, so METRICS_HOST must be
 * a private address. The figures never name a key, an organization, an address or a person.
 */

/** The port that Prometheus lists for the OpenTelemetry exporter. */
export const defaultMetricsPort = 9464

const requestTimeoutMs = 10_000
const bodyBytesMax = 1_024

export const createMetricsHost = ({
  health,
  metrics,
  showsRows,
  unready,
  logger,
}: {
  health: Health
  metrics: Metrics
  /** Whether this process shows or updates read models. If so, it is not ready while they are far behind. */
  showsRows: boolean
  unready?: Unready
  logger: Logger
}): FastifyInstance => {
  const requestIds = createRequestIds()
  const host = fastify({
    schemaController: withoutSchemas,
    requestTimeout: requestTimeoutMs,
    // Otherwise, Node.js would also apply the shorter request timeout to the headers.
    http: { headersTimeout: requestTimeoutMs },
    bodyLimit: bodyBytesMax,
    exposeHeadRoutes: false,
    return503OnClosing: false,
    clientErrorHandler: (error, socket) => {
      if (error.code === 'ECONNRESET' || !socket.writable) return void socket.destroy()
      socket.end(rawAnswer(brokenRequest(error.code), requestIds(Date.now())))
    },
  })
  openRequestsOn(host)
  host.addHook('onRequest', (_request, reply, done) => {
    reply.headers(safeHeaders)
    done()
  })
  boundConnections(host.server, { trusts: () => false, refused: metrics.connectionRefused })
  host.register(operations({ health, showsRows, unready, isPrivate: true }))
  host.route({
    method: 'GET',
    url: '/metrics',
    handler: async (_request, reply) =>
      fresh(reply)
        .type(metrics.contentType)
        .send(await metrics.text()),
  })
  host.setNotFoundHandler((_request, reply) =>
    reply.code(404).type('text/plain; charset=utf-8').send('This host has /metrics, /livez and /readyz.\n'),
  )
  host.setErrorHandler((error: { statusCode?: number }, request, reply) => {
    const status = error.statusCode ?? 500
    if (status >= 500)
      logger.error({ err: error, path: request.routeOptions.url }, 'a request to the metrics host failed')
    reply.code(status).type('text/plain; charset=utf-8').send('The request failed.\n')
  })
  return host
}
