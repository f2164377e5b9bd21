import type { FastifyPluginAsync, FastifyReply } from 'fastify'
import { proofHeader, proofOf, questionHeader } from '../guard/installation-proof.ts'
import type { RingKey } from '../guard/secret-ring.ts'
import type { Health } from './health.ts'

/**
 * What machines ask about the process, on every host: `/livez` and `/readyz`. They need no key and are not calls:
 * they are not recorded, limited or charged.
 *
 * `/livez` touches nothing: a process that answers it runs, and restarting it would not bring a database back. `doctor` asks there
 * whether it is of this installation.
 * `/readyz` says whether to send it traffic: 503 while it could not do its work. Every client gets the same answer, so it
 * names what is wrong and never why.
 */
export const operations =
  ({
    health,
    showsRows,
    secretKeys,
  }: {
    health: Health
    showsRows: boolean
    /** Those that this process was given, the newest first; whether the database is there or not. */
    secretKeys: () => readonly RingKey[]
  }): FastifyPluginAsync =>
  async (host) => {
    const methods = ['GET', 'HEAD'] as const
    host.route({
      method: [...methods],
      url: '/livez',
      handler: ({ headers }, reply) => {
        const [key] = secretKeys()
        const proof = key === undefined ? null : proofOf(key, headers[questionHeader])
        if (proof !== null) reply.header(proofHeader, proof)
        return fresh(reply).send({ status: 'live' })
      },
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
