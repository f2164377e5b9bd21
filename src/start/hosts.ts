import type { Logger } from 'pino'
import type { CallDependencies } from '../call/dependencies.ts'
import { createHost, type Host, type Reach } from '../call/route.ts'
import { type Config, twoPersonOf } from '../config.ts'
import { dashboard } from '../dashboard/dashboard.ts'
import type { Closing } from '../foundation/closing.ts'
import type { Foundation } from '../foundation/foundation.ts'
import { trustedProxies } from '../guard/caller-address.ts'
import type { Health } from '../metrics/health.ts'
import type { Metrics } from '../metrics/metrics.ts'
import { operations } from '../metrics/routes.ts'
import { type OpenCapabilities, openOutside } from './capabilities.ts'
import { createDataSources } from './data-sources.ts'
import { examine } from './doctor.ts'
import { documentation, documentationForPeople } from './documentation.ts'
import { downloads } from './downloads.ts'
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
  /** Looks for a renewed certificate now. */
  renewCertificate(): Promise<void>
}

/** Opens the hosts that answer calls, each where its role is one of this process. They answer when this resolves. */
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
    if (insecureCookies) logger.warn('INSECURE_COOKIES: a sign-in over plain HTTP can be listened to')
    const outside = openOutside(config)
    host.register(
      dashboard(foundation, logger, {
        ...{ insecureCookies, twoPerson: twoPersonOf(config), apiUrl: config.API_URL ?? apiUrl, outside },
        publicUrl: config.DASHBOARD_URL ?? null,
        provider: providerOf(config),
        dataSources: createDataSources(foundation, { config, logger }),
        idleMinutes: config.DASHBOARD_IDLE_MINUTES,
        requiredFactor: config.DASHBOARD_SECOND_FACTOR,
        examine: () => examine(process.env),
        projectionLags: health.projectionLags,
      }),
    )
    dashboardUrl = await open(host, { variable: 'DASHBOARD_PORT', address, port: DASHBOARD_PORT })
  }
  if (tls === null) return { apiUrl, dashboardUrl, renewCertificate: async () => undefined }
  const renewed = serveRenewed(config, { tls, servers: hosts.map(({ server }) => server), logger })
  closing.add(renewed.end)
  return { apiUrl, dashboardUrl, renewCertificate: renewed.look }
}

/** A host with the calls of its capabilities, the routes of operations and what partners download. Only the dashboard shows rows. */
const hostOf = (
  name: 'api' | 'dashboard',
  reach: Reach,
  { dependencies, capabilities, health, logger, config, foundation, leaving }: HostsOptions,
): Host => {
  const host = createHost(dependencies, capabilities.formsOn(name), reach)
  host.register(
    operations({
      ...{ health, showsRows: name === 'dashboard', unready: leaving.unready },
      secretKeys: foundation.secretRing.ring.given,
    }),
  )
  host.register(downloads(logger))
  host.register(documentation())
  if (name === 'api') host.register(documentationForPeople(config))
  return host
}
