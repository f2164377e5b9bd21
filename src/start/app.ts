import { randomUUID } from 'node:crypto'
import type { AddressInfo } from 'node:net'
import type { FastifyInstance } from 'fastify'
import type { Logger } from 'pino'
import { apiKeys, keyIds } from '../../projections/api-keys.ts'
import { projections } from '../../projections/index.ts'
import type { LiveModel as DoubtingModel } from '../call/capability.ts'
import type { CallDependencies } from '../call/dependencies.ts'
import { createIdempotency } from '../call/idempotency.ts'
import { createRefusedCalls } from '../call/refused-calls.ts'
import { createRequestIds } from '../call/request-id.ts'
import { createReservations } from '../call/reservations.ts'
import { createHost, type Reach } from '../call/route.ts'
import { createStrangers } from '../call/strangers.ts'
import { capabilities as allCapabilities } from '../capabilities/index.ts'
import { type Config, ConfigError } from '../config.ts'
import { dashboard } from '../dashboard/dashboard.ts'
import type { Foundation } from '../foundation/foundation.ts'
import { trustedProxies } from '../guard/caller-address.ts'
import { EpochKeyFault } from '../guard/epoch-key-files.ts'
import { openKeyDirectory } from '../guard/key-directory.ts'
import { watchParked } from '../guard/parked-events.ts'
import { createRateLimiter } from '../guard/rate-limit.ts'
import { openSharedRateLimiter, type SharedRateLimiter } from '../guard/redis-counters.ts'
import { startJobs } from '../jobs/run.ts'
import { openPriceBooks } from '../ledger/price-books.ts'
import { createHealth, type LiveModel } from '../metrics/health.ts'
import { createMetricsHost, defaultMetricsPort } from '../metrics/host.ts'
import { createMetrics, type Metrics } from '../metrics/metrics.ts'
import { operations } from '../metrics/routes.ts'
import { createProjector } from '../projector/run.ts'
import { type AnyCapability, openCapabilities } from './capabilities.ts'
import { readTls, serveRenewed } from './tls.ts'

/** The running service: the hosts and workers this process was asked for. */
export type App = {
  readonly apiUrl: string | null
  readonly dashboardUrl: string | null
  readonly metricsUrl: string
  /** Reads location files and lists again; calls go on meanwhile, and a bad file leaves the old one in place. */
  reload(): Promise<void>
  /** Answers what is in flight, takes nothing new, flushes what was counted, and lets go of everything it opened. */
  close(): Promise<void>
}

/** Starts the roles of the configuration on an open foundation. Ready to answer when it resolves. */
export const startApp = async (
  foundation: Foundation,
  config: Config,
  logger: Logger,
  metrics: Metrics = createMetrics(),
  capabilities: readonly AnyCapability[] = allCapabilities,
): Promise<App> => {
  const has = (role: Config['ROLES'][number]): boolean => config.ROLES.includes(role)
  const closing: (() => Promise<void>)[] = []
  let apiUrl: string | null = null
  let dashboardUrl: string | null = null
  let metricsUrl: string
  let renewCertificate = async (): Promise<void> => undefined
  let reloadCapabilities = renewCertificate
  // Whoever answers or does later work seals; the others never need the keys.
  const epochKey: readonly LiveModel[] =
    has('api') || has('jobs') ? [{ name: 'epoch_key', failure: foundation.epochKeys.failure }] : []
  let health = createHealth({
    ...foundation,
    projections,
    liveModels: epochKey,
    monotonic: () => performance.now(),
  })
  try {
    if (epochKey.length > 0) await watchEpochKeys(foundation)
    if (has('projector')) closing.push(startProjector(foundation, logger))
    const open = await openCapabilities(capabilities, { foundation, config, logger, metrics })
    closing.push(open.close)
    reloadCapabilities = open.reload
    if (has('jobs')) {
      const stores = capabilities.flatMap(({ sealed }) => sealed?.(foundation) ?? [])
      const jobs = await startJobs(foundation, logger, { jobs: open.jobs, stores })
      closing.push(() => jobs.stop())
    }
    if (has('api') || has('dashboard')) {
      const { calls, shared, close, ...models } = await openCalls(foundation, config, logger, metrics)
      closing.push(close)
      const liveModels = [...models.liveModels, ...open.liveModels]
      metrics.watch({ liveModels })
      health = createHealth({
        ...foundation,
        projections,
        liveModels: [...epochKey, ...liveModels],
        monotonic: () => performance.now(),
        ...(shared === undefined ? {} : { rateLimitsShared: shared.shared }),
      })
      const tls = await readTls(config)
      const reach: Reach = {
        tls,
        trusts: trustedProxies(config.TRUSTED_PROXIES),
        connectionRefused: metrics.connectionRefused,
      }
      const hosts: FastifyInstance[] = []
      if (has('api')) {
        const host = createHost(calls, open.formsOn('api'), reach)
        hosts.push(host)
        host.register(operations({ health, showsRows: false }))
        closing.push(() => closeHost(host))
        apiUrl = await listen(host, config.HOST, config.API_PORT, 'API_PORT')
      }
      if (has('dashboard')) {
        const host = createHost(calls, open.formsOn('dashboard'), reach)
        hosts.push(host)
        host.register(operations({ health, showsRows: true }))
        const insecureCookies = config.INSECURE_COOKIES === '1'
        if (insecureCookies) logger.warn('INSECURE_COOKIES: who signs in over plain HTTP can be listened to')
        host.register(dashboard(foundation, logger, { insecureCookies }))
        closing.push(() => closeHost(host))
        dashboardUrl = await listen(host, config.HOST, config.DASHBOARD_PORT, 'DASHBOARD_PORT')
      }
      if (tls !== null) {
        const renewed = serveRenewed(config, { tls, servers: hosts.map(({ server }) => server), logger })
        renewCertificate = renewed.look
        closing.push(async () => renewed.end())
      }
    }
    metrics.watch({ projectionLags: health.projectionLags })
    const host = createMetricsHost({
      health,
      metrics,
      logger,
      showsRows: has('projector') || has('dashboard'),
    })
    closing.push(() => closeHost(host))
    metricsUrl = await listenForMetrics(host, config, logger)
  } catch (error) {
    for (const close of closing.reverse()) await close()
    throw error
  }
  return {
    apiUrl,
    dashboardUrl,
    metricsUrl,
    reload: async () => {
      await reloadCapabilities()
      await renewCertificate()
    },
    close: async () => {
      // Hosts first: they finish what is in flight, which still needs everything opened before them.
      const errors: unknown[] = []
      for (const close of closing.reverse()) await close().catch((error: unknown) => errors.push(error))
      if (errors.length > 0) throw new AggregateError(errors, 'not everything could be closed')
    },
  }
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
    seal: secrets.rowSeal,
    logger,
    owner: `${process.pid}-${randomUUID()}`,
  })
  void projector.run()
  return () => projector.stop()
}

const openCalls = async (
  foundation: Foundation,
  config: Config,
  logger: Logger,
  metrics: Metrics,
): Promise<{
  calls: CallDependencies
  shared: SharedRateLimiter | undefined
  liveModels: readonly DoubtingModel[]
  close(): Promise<void>
}> => {
  const { eventLog, pool, secrets, epochKeys, ledger, keyedEvents } = foundation
  const directory = await openKeyDirectory({ eventLog, listed: await listedKeys(foundation, logger), logger })
  const prices = openPriceBooks({ eventLog, logger })
  await Promise.all([directory.caughtUp, prices.caughtUp])
  const parked = await watchParked({ pool, projection: apiKeys.name, tell: directory.parked, logger })
  const local = createRateLimiter()
  const shared =
    config.REDIS_URL === undefined
      ? undefined
      : await openSharedRateLimiter({ url: config.REDIS_URL, local, logger, observe: metrics.rateLimiter })
  if (shared !== undefined) metrics.watch({ rateLimitsShared: shared.shared })
  const refusedCalls = createRefusedCalls({ ledger, prices, logger, instanceId: randomUUID() })
  const calls: CallDependencies = {
    directory,
    secrets,
    limiter: shared ?? local,
    refusedCalls,
    strangers: createStrangers(logger),
    ledger,
    prices,
    idempotency: createIdempotency({
      pool,
      eventLog,
      keyedEvents,
      secrets,
      sealer: epochKeys.sealer('idempotent-answer'),
    }),
    reservations: createReservations(),
    requestIds: createRequestIds(),
    clock: Date,
    logger,
    observe: metrics.call,
  }
  return {
    calls,
    shared,
    liveModels: [
      { name: 'api_keys', failure: directory.failure, doubtful: () => directory.doubtful().length },
      { name: 'price_books', failure: prices.failure, doubtful: prices.doubtful },
    ],
    close: async () => {
      await shared?.close()
      await refusedCalls.flush()
      await ledger.drain()
      await parked.stop()
      await directory.stop()
      await prices.stop()
    },
  }
}

/** The keys their read model knows. Without it each is looked up when it is first used, at a bounded rate. */
const listedKeys = async ({ pool }: Foundation, logger: Logger): Promise<string[]> => {
  try {
    const { text, values } = keyIds()
    return (await pool.query<{ key_id: string }>(text, [...values])).rows.map(({ key_id }) => key_id)
  } catch (error) {
    logger.error({ err: error }, 'the rows of api_keys cannot be read; run "projection rebuild api_keys"')
    return []
  }
}

const idleCheckMs = 50

/** A connection kept alive becomes idle once its last call is answered, and would hold the host open for its time-out. */
const closeHost = async (host: FastifyInstance): Promise<void> => {
  const idle = setInterval(() => host.server.closeIdleConnections(), idleCheckMs)
  try {
    await host.close()
  } finally {
    clearInterval(idle)
  }
}

const listen = async (
  host: FastifyInstance,
  address: string,
  port: number,
  variable: string,
): Promise<string> => {
  try {
    await host.listen({ host: address, port })
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'EADDRINUSE')
      throw new ConfigError(
        `${variable}: port ${port} on ${address} is taken. Stop what listens there or set ${variable} to another port.`,
        { cause: error },
      )
    throw error
  }
  const { port: bound } = host.server.address() as AddressInfo
  const named = address.includes(':') ? `[${address}]` : address
  return `${host.initialConfig.https ? 'https' : 'http'}://${named}:${bound}`
}

/** Nobody chose the default port, so where another process has it any free one will do. The start announces which. */
const listenForMetrics = async (
  host: FastifyInstance,
  { METRICS_HOST, METRICS_PORT }: Config,
  logger: Logger,
): Promise<string> => {
  const variable = 'METRICS_PORT'
  if (METRICS_PORT !== undefined) return listen(host, METRICS_HOST, METRICS_PORT, variable)
  try {
    return await listen(host, METRICS_HOST, defaultMetricsPort, variable)
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error
    logger.info({ port: defaultMetricsPort }, 'metrics: the default port is taken, another one is used')
    return listen(host, METRICS_HOST, 0, variable)
  }
}
