import { readFile } from 'node:fs/promises'
import type { FastifyPluginAsync } from 'fastify'
import type { Logger } from 'pino'
import service from '../../package.json' with { type: 'json' }
import { adminApi } from '../admin-api/admin-api.ts'
import type { CallDependencies } from '../call/dependencies.ts'
import { examples } from '../call/examples.ts'
import { openApiOf } from '../call/openapi.ts'
import { createHost, type Host, type Reach } from '../call/route.ts'
import { capabilities, serviceWords } from '../capabilities/index.ts'
import { type Config, twoPersonOf } from '../config.ts'
import { dashboard } from '../dashboard/dashboard.ts'
import { latencyFromPrometheus, latencyOfProcess } from '../dashboard/latency.ts'
import { documentationPages } from '../documentation/routes.ts'
import type { Closing } from '../foundation/closing.ts'
import type { Foundation } from '../foundation/foundation.ts'
import { trustedProxies } from '../guard/caller-address.ts'
import type { Health } from '../metrics/health.ts'
import type { Metrics } from '../metrics/metrics.ts'
import { operations } from '../metrics/routes.ts'
import { type OpenCapabilities, openOutside } from './capabilities.ts'
import type { Leaving } from './leaving.ts'
import { closeHost, listen, type Place } from './listen.ts'
import { providerOf } from './provider.ts'
import { readTls, serveRenewed } from './tls.ts'

type HostsOptions = {
  readonly foundation: Foundation
  readonly config: Config
  readonly logger: Logger
  readonly metrics: Metrics
  readonly dependencies: CallDependencies
  readonly capabilities: OpenCapabilities
  readonly health: Health
  readonly closing: Closing
  readonly leaving: Leaving
}

export type OpenHosts = {
  readonly apiUrl: string | null
  readonly dashboardUrl: string | null
  renewCertificate(): Promise<void>
}

/** Opens the hosts for this process's roles. When this resolves, they answer requests. */
export const openHosts = async (options: HostsOptions): Promise<OpenHosts> => {
  const { foundation, config, logger, metrics, health, closing, leaving } = options
  const tls = await readTls(config)
  const reach: Reach = {
    tls,
    trusts: trustedProxies(config.TRUSTED_PROXIES),
    connectionRefused: metrics.connectionRefused,
  }
  const hosts: Host[] = []
  const open = (host: Host, place: Place): Promise<string> => {
    hosts.push(host)
    leaving.add(host)
    closing.add(() => closeHost(host))
    return listen(host, place)
  }
  const { ROLES, HOST: address, API_PORT, DASHBOARD_PORT, INSECURE_COOKIES } = config
  let apiUrl: string | null = null
  let dashboardUrl: string | null = null
  if (ROLES.includes('api'))
    apiUrl = await open(hostOf('api', reach, options), { variable: 'API_PORT', address, port: API_PORT })
  if (ROLES.includes('dashboard')) {
    const host = hostOf('dashboard', reach, options)
    const insecureCookies = INSECURE_COOKIES === '1'
    if (insecureCookies) logger.warn('INSECURE_COOKIES is set: sign-ins over plain HTTP can be intercepted')
    const outside = openOutside(config)
    const publicUrl = config.DASHBOARD_URL ?? null
    host.register(
      dashboard(foundation, logger, {
        insecureCookies,
        settings: config,
        twoPerson: twoPersonOf(config),
        apiUrl: config.API_URL ?? apiUrl,
        outside,
        publicUrl,
        provider: providerOf(config),
        idleMinutes: config.DASHBOARD_IDLE_MINUTES,
        requiredFactor: config.DASHBOARD_SECOND_FACTOR,
        health,
        latency:
          config.PROMETHEUS_URL === undefined
            ? async () => latencyOfProcess(await metrics.p95Seconds())
            : latencyFromPrometheus({ url: config.PROMETHEUS_URL, fetchUpstream: outside.fetchUpstream }),
      }),
    )
    host.register(
      adminApi(foundation, logger, { twoPerson: twoPersonOf(config), settings: config, outside, publicUrl }),
    )
    dashboardUrl = await open(host, { variable: 'DASHBOARD_PORT', address, port: DASHBOARD_PORT })
  }
  if (tls === null) return { apiUrl, dashboardUrl, renewCertificate: async () => undefined }
  const renewed = serveRenewed(config, { tls, servers: hosts.map(({ server }) => server), logger })
  closing.add(renewed.end)
  return { apiUrl, dashboardUrl, renewCertificate: renewed.look }
}

/** Returns a host with the routes of its capabilities, the health checks, and the documentation. Only the dashboard host shows read models. */
const hostOf = (
  name: 'api' | 'dashboard',
  reach: Reach,
  { dependencies, capabilities, health, logger, config, leaving }: HostsOptions,
): Host => {
  const host = createHost(dependencies, capabilities.formsOn(name), reach)
  host.register(operations({ health, showsRows: name === 'dashboard', unready: leaving.unready }))
  host.register(downloads(logger))
  host.register(documentation)
  if (name === 'api') host.register(documentationForPeople(config))
  return host
}

let openApiText: string | undefined

/** The text of `/openapi.json`. It is created when it is first requested, because this takes too long for the start. */
const openApi = (): string => {
  const documents = capabilities.map(({ document }) => document)
  openApiText ??= JSON.stringify(
    openApiOf({ documents, service: serviceWords, version: service.version, examples }),
  )
  return openApiText
}

/** `/openapi.json`, which is public and the same in every process and on both hosts. */
const documentation: FastifyPluginAsync = async (host) => {
  host.get('/openapi.json', (_request, reply) =>
    reply
      .type('application/json; charset=utf-8')
      .header('cache-control', 'no-cache')
      .header('access-control-allow-origin', '*')
      .send(openApi()),
  )
}

/** `/docs`, the pages for partners. */
export const documentationForPeople = ({ API_URL }: Pick<Config, 'API_URL'>): FastifyPluginAsync =>
  documentationPages({ version: service.version, api: API_URL ?? null })

/** Scripts that let partners check their charges without trusting this service. For that reason, they import nothing from it. */
const scripts = ['verify-receipt.ts', 'recompute-ledger.ts'] as const
const folder = new URL('../../test/support/', import.meta.url)

/** `/docs/<script>`, a public download. */
const downloads =
  (logger: Logger): FastifyPluginAsync =>
  async (host) => {
    for (const name of scripts) {
      const text = await readFile(new URL(name, folder), 'utf8').catch((error: unknown) => {
        logger.warn(
          { err: error, script: name },
          'a script for partners is missing from this installation, so it cannot be downloaded',
        )
        return null
      })
      if (text !== null)
        host.get(`/docs/${name}`, (_request, reply) =>
          reply
            .type('text/plain; charset=utf-8')
            .header('content-disposition', `attachment; filename="${name}"`)
            .send(text),
        )
    }
  }
