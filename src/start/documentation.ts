import type { FastifyPluginAsync } from 'fastify'
import service from '../../package.json' with { type: 'json' }
import { examples } from '../call/examples.ts'
import { openApiOf } from '../call/openapi.ts'
import { capabilities } from '../capabilities/index.ts'
import type { Config } from '../config.ts'
import { documentationPages } from '../documentation/routes.ts'

/** `/openapi.json`, for everyone: what can be asked, and what is answered. The same from every process and both hosts. */
export const documentation = ({
  HOST,
  DASHBOARD_PORT,
  DASHBOARD_URL,
  TLS_CERT,
}: Pick<Config, 'HOST' | 'DASHBOARD_PORT' | 'DASHBOARD_URL' | 'TLS_CERT'>): FastifyPluginAsync => {
  const callsOn = (host: 'api' | 'dashboard') =>
    capabilities.filter((one) => one.host === host).flatMap(({ calls }) => calls)
  const name = HOST.includes(':') ? `[${HOST}]` : HOST
  const text = JSON.stringify(
    openApiOf({
      ...{ api: callsOn('api'), dashboard: callsOn('dashboard'), version: service.version, examples },
      dashboardUrl:
        DASHBOARD_URL ?? `${TLS_CERT === undefined ? 'http' : 'https'}://${name}:${DASHBOARD_PORT}`,
    }),
  )
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
export const documentationForPeople = ({
  API_URL,
  DASHBOARD_PORT: port,
  DASHBOARD_URL,
}: Pick<Config, 'API_URL' | 'DASHBOARD_PORT' | 'DASHBOARD_URL'>): FastifyPluginAsync =>
  documentationPages({
    version: service.version,
    api: API_URL ?? null,
    dashboard: DASHBOARD_URL ?? null,
    port,
  })
