import type { FastifyPluginAsync, FastifyReply } from 'fastify'
import type { Health } from './health.ts'

/** Reports through `/readyz` that the process is shutting down. */
export type Unready = {
  /** Called when a client checks readiness. True: the process is shutting down, so it should get no more requests. */
  asked(): boolean
}

/**
 * `/livez` and `/readyz`, on every host. They need no key. They are not calls, so they are not recorded, limited or charged.
 *
 * `/livez` reads nothing, because restarting a process would not bring a database back. `/readyz` is 503 if the process cannot do its work
 * or is ending. On public hosts it only names the failed checks; on the private port for metrics it shows all details.
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
    /** Whether only operators can reach this host. */
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
