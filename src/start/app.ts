import { randomUUID } from 'node:crypto'
import type { Logger } from 'pino'
import { projections } from '../../projections/index.ts'
import { capabilities as allCapabilities } from '../capabilities/index.ts'
import { type Config, ConfigError } from '../config.ts'
import { openingWith } from '../foundation/closing.ts'
import type { Foundation } from '../foundation/foundation.ts'
import { EpochKeyFault } from '../guard/epoch-key-files.ts'
import { startJobs } from '../jobs/run.ts'
import { createHealth } from '../metrics/health.ts'
import { createMetricsHost } from '../metrics/host.ts'
import { createMetrics, type Metrics } from '../metrics/metrics.ts'
import { createProjector } from '../projector/run.ts'
import { openCalls } from './calls.ts'
import { type AnyCapability, openCapabilities } from './capabilities.ts'
import { type OpenHosts, openHosts } from './hosts.ts'
import { closeHost, listenForMetrics } from './listen.ts'

/** The running service: the hosts and workers this process was asked for. */
export type App = Pick<OpenHosts, 'apiUrl' | 'dashboardUrl'> & {
  readonly metricsUrl: string
  /** Reads location files and lists again; calls go on meanwhile, and a bad file leaves the old one in place. */
  reload(): Promise<void>
  /** Answers what is in flight, takes nothing new, flushes what was counted, and closes everything it opened. */
  close(): Promise<void>
}

const noHosts: OpenHosts = { apiUrl: null, dashboardUrl: null, renewCertificate: async () => undefined }

/**
 * Starts the roles of the configuration on an open foundation. Ready to answer when it resolves. Hosts are opened last and
 * closed first: they finish what is in flight, which still needs everything opened before them.
 */
export const startApp = (
  foundation: Foundation,
  config: Config,
  logger: Logger,
  metrics: Metrics = createMetrics(),
  capabilities: readonly AnyCapability[] = allCapabilities,
): Promise<App> =>
  openingWith(async (closing) => {
    const has = (role: Config['ROLES'][number]): boolean => config.ROLES.includes(role)
    // Only these seal; the other roles never need the keys.
    const seals = has('api') || has('jobs')
    if (seals) await watchEpochKeys(foundation)
    if (has('projector')) closing.add(startProjector(foundation, logger))
    const open = await openCapabilities(capabilities, { foundation, config, logger, metrics })
    closing.add(open.close)
    if (has('jobs')) {
      const stores = capabilities.flatMap(({ sealed }) => sealed?.(foundation) ?? [])
      const jobs = await startJobs(foundation, logger, { jobs: open.jobs, stores })
      closing.add(() => jobs.stop())
    }
    const calls =
      has('api') || has('dashboard')
        ? await openCalls({ foundation, config, logger, metrics, closing })
        : null
    const liveModels = calls === null ? [] : [...calls.liveModels, ...open.liveModels]
    const health = createHealth({
      ...foundation,
      projections,
      liveModels: [
        ...(seals ? [{ name: 'epoch_key', failure: foundation.epochKeys.failure }] : []),
        ...liveModels,
      ],
      monotonic: () => performance.now(),
      ...(calls?.rateLimitsShared === undefined ? {} : { rateLimitsShared: calls.rateLimitsShared }),
    })
    metrics.watch({ liveModels, projectionLags: health.projectionLags })
    const hosts =
      calls === null
        ? noHosts
        : await openHosts({
            ...{ foundation, config, logger, metrics, health, closing },
            dependencies: calls.dependencies,
            capabilities: open,
          })
    const metricsHost = createMetricsHost({
      ...{ health, metrics, logger },
      showsRows: has('projector') || has('dashboard'),
    })
    closing.add(() => closeHost(metricsHost))
    return {
      apiUrl: hosts.apiUrl,
      dashboardUrl: hosts.dashboardUrl,
      metricsUrl: await listenForMetrics(metricsHost, config, logger),
      reload: async () => {
        await open.reload()
        await hosts.renewCertificate()
      },
      close: closing.close,
    }
  })

const watchEpochKeys = ({ epochKeys }: Foundation): Promise<void> =>
  epochKeys.watch().catch((cause: unknown) => {
    if (cause instanceof EpochKeyFault) throw new ConfigError(`KEY_DIR: ${cause.message}`, { cause })
    throw cause
  })

const startProjector = ({ url, eventLog, secrets }: Foundation, logger: Logger): (() => Promise<void>) => {
  const projector = createProjector({
    ...{ url, eventLog, projections, logger },
    seal: secrets.rowSeal,
    owner: `${process.pid}-${randomUUID()}`,
  })
  void projector.run()
  return () => projector.stop()
}
