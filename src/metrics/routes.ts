import type { FastifyPluginAsync, FastifyReply } from 'fastify'
import { proofHeader, proofOf, questionHeader, type SecretKey } from '../guard/installation-key.ts'
import type { Check, Health } from './health.ts'

/** What ends the process, for `/readyz`. */
export type Unready = {
  /** Somebody asks whether to send requests here. True: no more, this process ends. */
  asked(): boolean
}

/**
 * What machines ask about the process, on every host: `/livez` and `/readyz`. They need no key and are not calls:
 * they are not recorded, limited or charged.
 *
 * `/livez` touches nothing: a process that answers it runs, and restarting it would not bring a database back. `doctor` asks there
 * whether it is of this installation.
 * `/readyz` says whether to send it traffic: 503 while it could not do its work, and once it ends. On the hosts of partners and
 * people everyone may ask, so it only names what is wrong. The port of metrics, which is private, says everything.
 */
export const operations =
  ({
    health,
    showsRows,
    secretKeys,
    unready = { asked: () => false },
    isPrivate = false,
  }: {
    health: Health
    showsRows: boolean
    unready?: Unready | undefined
    /** Only operators reach this host. */
    isPrivate?: boolean
    /** Those that this process was started with. */
    secretKeys: readonly SecretKey[]
  }): FastifyPluginAsync =>
  async (host) => {
    const methods = ['GET', 'HEAD'] as const
    host.route({
      method: [...methods],
      url: '/livez',
      handler: ({ headers }, reply) => {
        const [key] = secretKeys
        const proof = key === undefined ? null : proofOf(key, headers[questionHeader])
        if (proof !== null) reply.header(proofHeader, proof)
        return fresh(reply).send({ status: 'live' })
      },
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

const withoutDetail = (checks: Readonly<Record<string, Check>>): Record<string, Pick<Check, 'status'>> =>
  Object.fromEntries(Object.entries(checks).map(([name, { status }]) => [name, { status }]))

export const fresh = (reply: FastifyReply): FastifyReply => reply.header('cache-control', 'no-store')
