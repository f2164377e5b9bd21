import { randomUUID } from 'node:crypto'
import type { Logger } from 'pino'
import { projections } from '../../projections/index.ts'
import { countingApart } from '../administration/checks/database.ts'
import type { OpenCapability, SealedStore } from '../call/capability.ts'
import { capabilities as allCapabilities } from '../capabilities/index.ts'
import { type Config, ConfigError, twoPersonOf } from '../config.ts'
import { type Closing, openingWith } from '../foundation/closing.ts'
import { type Foundation, gated } from '../foundation/foundation.ts'
import { joinProcesses, type OwnProcess } from '../foundation/processes.ts'
import { EpochKeyFault } from '../guard/secrets/epoch-key-files.ts'
import { startJobs } from '../jobs/run.ts'
import { createHealth } from '../metrics/health.ts'
import { createMetricsHost } from '../metrics/host.ts'
import { createMetrics, type Metrics } from '../metrics/metrics.ts'
import { createProjector } from '../projector/run.ts'
import { openCalls } from './calls.ts'
import { type AnyCapability, openCapabilities } from './capabilities.ts'
import { type OpenHosts, openHosts } from './hosts.ts'
import { createLeaving, type Leaving } from './leaving.ts'
import { closeHost, listenForMetrics } from './listen.ts'
import { openWebhooks } from './webhooks.ts'

/** The running process, with the hosts and workers of its roles. */
export type App = Pick<OpenHosts, 'apiUrl' | 'dashboardUrl'> & {
  readonly metricsUrl: string
  /** Whether this process can answer calls. */
  isReady(): Promise<boolean>
  /** Reloads the location files and lists without interrupting calls. If a new file is invalid, the old one stays in use. */
  reload(): Promise<void>
  /** The first step of the shutdown: stops accepting requests, without interrupting those in progress. */
  readonly leave: Leaving['leave']
  /** Finishes the requests in progress, writes the counters, and closes everything. */
  close(): Promise<void>
}

const noHosts: OpenHosts = { apiUrl: null, dashboardUrl: null, renewCertificate: async () => undefined }

/**
 * Starts the configured roles, and resolves when their hosts answer. Hosts are opened last and closed first, because requests need everything
 * else to be open.
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
    // Only these roles seal data and need the epoch keys.
    const seals = has('api') || has('jobs')
    if (seals) await watchEpochKeys(foundation)
    if (has('projector')) closing.add(startProjector(foundation, logger))
    const asked = gated(foundation)
    const open = await openCapabilities(capabilities, { foundation: asked, config, logger, metrics })
    closing.add(open.close)
    if (has('jobs')) {
      const stores = capabilities.flatMap(({ sealed }) => sealed?.(foundation) ?? [])
      await openJobs(foundation, { config, logger, metrics, closing, stores, jobs: open.jobs })
    }
    const calls =
      has('api') || has('dashboard')
        ? await openCalls({ foundation: asked, config, logger, metrics, closing })
        : null
    await foundation.diskSpace.watch()
    const health = createHealth({
      ...foundation,
      config,
      liveModels: calls?.liveModels ?? [],
      ...(seals ? { epochKey: foundation.epochKeys } : {}),
      ...(calls === null ? {} : { clock: foundation.clockWatch }),
      rateLimitsShared: calls?.rateLimitsShared ?? null,
    })
    health.meter(metrics.meters)
    const leaving = createLeaving()
    const hosts =
      calls === null
        ? noHosts
        : await openHosts({
            config,
            logger,
            metrics,
            health,
            closing,
            leaving,
            foundation: asked,
            dependencies: calls.dependencies,
            capabilities: open,
          })
    const metricsHost = createMetricsHost({
      metrics,
      logger,
      health,
      unready: leaving.unready,
      showsRows: has('projector') || has('dashboard'),
    })
    closing.add(() => closeHost(metricsHost))
    const metricsUrl = await listenForMetrics(metricsHost, config, logger)
    if (has('api') || has('dashboard')) foundation.competition.listen(foundation.ledger.competed)
    if (has('api')) {
      const own = await joinProcesses({ pool: asked.pool, config, logger })
      closing.add(own.leave)
      closing.add(warnOfApart(own, logger))
    }
    return {
      apiUrl: hosts.apiUrl,
      dashboardUrl: hosts.dashboardUrl,
      metricsUrl,
      isReady: async () => (await health.readiness({ showsRows: false })).ready,
      reload: async () => {
        await open.reload()
        await hosts.renewCertificate()
      },
      leave: leaving.leave,
      close: closing.close,
    }
  })

type JobsOptions = {
  readonly config: Config
  readonly logger: Logger
  readonly metrics: Metrics
  readonly closing: Closing
  readonly stores: readonly SealedStore[]
  readonly jobs: OpenCapability['jobs']
}

const openJobs = async (
  foundation: Foundation,
  { config, logger, metrics, closing, stores, jobs }: JobsOptions,
): Promise<void> => {
  const webhooks = openWebhooks(foundation, { config, logger, metrics })
  closing.add(webhooks.close)
  const { meters } = metrics
  const started = await startJobs(foundation, logger, {
    jobs: { ...jobs, ...webhooks.jobs },
    stores,
    meters,
    twoPerson: twoPersonOf(config),
  })
  closing.add(() => started.stop())
  closing.add(webhooks.leaveOff)
}

/** A shorter interval would cause warnings about short overlaps while processes start and stop. */
const apartLookMs = 10_000

/** Warns while processes count rate limits separately. Returns a function that stops the checks. */
export const warnOfApart = (
  own: Pick<OwnProcess, 'known'>,
  logger: Pick<Logger, 'warn' | 'info'>,
): (() => void) => {
  let told: string | null = null
  const look = (): void => {
    const now = countingApart(own.known())
    if (now === told) return
    if (now === null) logger.info('rate limits: all processes count together again')
    else logger.warn(`rate limits: ${now}`)
    told = now
  }
  look()
  const timer = setInterval(look, apartLookMs)
  timer.unref()
  return () => clearInterval(timer)
}

const watchEpochKeys = ({ epochKeys }: Foundation): Promise<void> =>
  epochKeys.watch().catch((cause: unknown) => {
    if (cause instanceof EpochKeyFault) throw new ConfigError(`KEY_DIR: ${cause.message}`, { cause })
    throw cause
  })

const startProjector = ({ url, eventLog, secrets }: Foundation, logger: Logger): (() => Promise<void>) => {
  const projector = createProjector({
    url,
    eventLog,
    projections,
    logger,
    seal: secrets.rowSeal,
    owner: `${process.pid}-${randomUUID()}`,
  })
  void projector.run()
  return () => projector.stop()
}
