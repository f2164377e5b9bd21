import type { FastifyPluginAsync } from 'fastify'
import service from '../../package.json' with { type: 'json' }
import { examples } from '../call/examples.ts'
import { openApiOf } from '../call/openapi.ts'
import { capabilities } from '../capabilities/index.ts'
import type { Config } from '../config.ts'
import { documentationPages } from '../documentation/routes.ts'

/** `/openapi.json`, for everyone: what can be asked, and what is answered. The same from every process and both hosts. */
export const documentation = (): FastifyPluginAsync => {
  const calls = capabilities.flatMap((one) => one.calls)
  const text = JSON.stringify(openApiOf({ calls, version: service.version, examples }))
  return async (host) => {
    host.get('/openapi.json', (_request, reply) =>
      reply
        .type('application/json; charset=utf-8')
        .header('cache-control', 'no-cache')
        .header('access-control-allow-origin', '*')
        .send(text),
    )
  }
}

/** `/docs`: the pages partners read. */
export const documentationForPeople = ({ API_URL }: Pick<Config, 'API_URL'>): FastifyPluginAsync =>
  documentationPages({ version: service.version, api: API_URL ?? null })
