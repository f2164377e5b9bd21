import type { FastifyPluginAsync, FastifyReply } from 'fastify'
import type { Health } from './health.ts'

/** Lets `/readyz` report that the process is shutting down. */
export type Unready = {
  /** Called whenever readiness is checked. Returns true if the process is shutting down, so that it gets no more requests. */
  asked(): boolean
}

/**
 * `/livez` and `/readyz`, on every host. They need no key. They are not calls, so they are not recorded, limited or charged.
 *
 * `/livez` checks nothing else, because a restart would not repair a database. `/readyz` answers 503 if the process cannot do its work or is
 * shutting down. Public hosts show only the status of each check; the private metrics port shows all details.
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
