import type { FastifyPluginAsync, FastifyReply } from 'fastify'
import type { Health } from './health.ts'
import type { Metrics } from './metrics.ts'

/**
 * What machines ask about the process: `/livez`, `/readyz` and `/metrics`. They need no key and are no calls: nothing
 * of them is recorded, limited or charged.
 *
 * `/livez` touches nothing: a process that answers it runs, and restarting it would not bring a database back.
 * `/readyz` says whether to send it traffic: 503 while it could not do its work. The same for everybody who asks, so it
 * names what is wrong and never why.
 * `/metrics` is registered on the dashboard's host only, which partners' machines do not call. It has no password: what
 * keeps it private is HOST, the address it listens on. Its figures name no key and no organization.
 */
export const operations =
  ({
    health,
    showsRows,
    metrics,
  }: {
    health: Health
    showsRows: boolean
    metrics?: Metrics
  }): FastifyPluginAsync =>
  async (host) => {
    const methods = ['GET', 'HEAD'] as const
    host.route({
      method: [...methods],
      url: '/livez',
      handler: (_request, reply) => fresh(reply).send({ status: 'live' }),
    })
    host.route({
      method: [...methods],
      url: '/readyz',
      handler: async (_request, reply) => {
        const { ready, checks } = await health.readiness({ showsRows })
        return fresh(reply)
          .code(ready ? 200 : 503)
          .send({ status: ready ? 'ready' : 'not_ready', checks })
      },
    })
    if (metrics === undefined) return
    host.route({
      method: 'GET',
      url: '/metrics',
      handler: async (_request, reply) =>
        fresh(reply)
          .type(metrics.contentType)
          .send(await metrics.text()),
    })
  }

const fresh = (reply: FastifyReply): FastifyReply => reply.header('cache-control', 'no-store')
