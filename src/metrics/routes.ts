import type { FastifyPluginAsync, FastifyReply } from 'fastify'
import type { Health } from './health.ts'

/**
 * What machines ask about the process, on every host: `/livez` and `/readyz`. They need no key and are not calls:
 * they are not recorded, limited or charged.
 *
 * `/livez` touches nothing: a process that answers it runs, and restarting it would not bring a database back.
 * `/readyz` says whether to send it traffic: 503 while it could not do its work. Every client gets the same answer, so it
 * names what is wrong and never why.
 */
export const operations =
  ({ health, showsRows }: { health: Health; showsRows: boolean }): FastifyPluginAsync =>
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
  }

export const fresh = (reply: FastifyReply): FastifyReply => reply.header('cache-control', 'no-store')
