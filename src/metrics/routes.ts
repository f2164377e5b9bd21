import type { FastifyPluginAsync, FastifyReply } from 'fastify'
import type { Health } from './health.ts'

/** The reason the process ends, for `/readyz`. */
export type Unready = {
  /** Called when a client asks whether to send requests here. True: no more, this process ends. */
  asked(): boolean
}

/**
 * Routes for machines on every host: `/livez` and `/readyz`. They need no key and are not calls:
 * they are not recorded, limited or charged.
 *
 * `/livez` touches nothing: a process that answers it runs, and restarting it would not bring a database back.
 * `/readyz` answers whether to send it traffic: 503 while it could not do its work, and once it ends. On the hosts of partners and
 * people anyone may ask, so it only names the failed checks. The port of metrics, which is private, shows all details.
 */
export const operations =
  ({
    health,
    showsRows,
    unready = { asked: () => false },
    isPrivate = false,
  }: {
    health: Health
    showsRows: boolean
    unready?: Unready | undefined
    /** Only operators can reach this host. */
    isPrivate?: boolean
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
        if (unready.asked())
          return fresh(reply)
            .code(503)
            .send({ status: 'not_ready', checks: { process: { status: 'ending' } } })
        const { ready, checks } = await health.readiness({ showsRows })
        return fresh(reply)
          .code(ready ? 200 : 503)
          .send({ status: ready ? 'ready' : 'not_ready', checks: isPrivate ? checks : withoutDetail(checks) })
      },
    })
  }

const withoutDetail = (checks: Readonly<Record<string, { readonly status: string }>>) =>
  Object.fromEntries(Object.entries(checks).map(([name, { status }]) => [name, { status }]))

export const fresh = (reply: FastifyReply): FastifyReply => reply.header('cache-control', 'no-store')
