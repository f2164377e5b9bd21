import { randomUUID } from 'node:crypto'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import type { Logger } from 'pino'
import { apiKeys, keyIds } from '../../projections/api-keys.ts'
import type { CallDependencies } from '../call/dependencies.ts'
import { createIdempotency } from '../call/idempotency.ts'
import { createOverload, createSheddingLog, type Overload } from '../call/overload.ts'
import { createRefusedCalls } from '../call/refused-calls.ts'
import { createRequestIds } from '../call/request-id.ts'
import { createUnauthenticatedRequests } from '../call/unauthenticated.ts'
import { rowsOf } from '../concurrency/query.ts'
import type { Config } from '../config.ts'
import type { Closing } from '../foundation/closing.ts'
import type { Foundation } from '../foundation/foundation.ts'
import { openKeyDirectory } from '../guard/key-directory.ts'
import { createRateLimiter } from '../guard/limits/rate-limit.ts'
import { openRedisRateLimiter } from '../guard/limits/redis-rate-limiter.ts'
import { watchParked } from '../guard/parked-events.ts'
import { openPriceBooks } from '../ledger/prices/price-books.ts'
import { meterCalls } from '../metrics/calls-in-progress.ts'
import type { LiveModel } from '../metrics/health.ts'
import type { Metrics } from '../metrics/metrics.ts'

type CallsOptions = {
  readonly foundation: Foundation
  readonly config: Config
  readonly logger: Logger
  readonly metrics: Metrics
  readonly closing: Closing
}

type OpenCalls = {
  readonly dependencies: CallDependencies
  /** The in-memory models on which calls to every capability depend. */
  readonly liveModels: readonly LiveModel[]
  /** Whether all processes currently share their rate limit counters. Undefined: no shared counters are configured. */
  readonly rateLimitsShared: (() => boolean) | undefined
}

/** Opens everything that calls need. When this resolves, keys and prices are up to date with the event log. */
export const openCalls = async ({
  foundation,
  config,
  logger,
  metrics,
  closing,
}: CallsOptions): Promise<OpenCalls> => {
  const { eventLog, pool, secrets, ledger } = foundation
  const prices = openPriceBooks({ eventLog, logger })
  closing.add(prices.stop)
  const directory = await openKeyDirectory({ eventLog, listed: await listedKeys(foundation, logger), logger })
  closing.add(directory.stop)
  await Promise.all([directory.caughtUp, prices.caughtUp])
  const parked = await watchParked({ pool, projection: apiKeys.name, tell: directory.parked, logger })
  closing.add(parked.stop)
  closing.add(ledger.drain)
  await Promise.all([foundation.diskSpace.watch(), foundation.clockWatch.watch()])
  const refusedCalls = createRefusedCalls({ ledger, prices, logger, instanceId: randomUUID() })
  closing.add(refusedCalls.flush)
  const { overload, stop } = watchOverload(logger)
  closing.add(stop)
  meterCalls(metrics.meters, overload)
  const local = createRateLimiter()
  const { REDIS_URL: url } = config
  const observe = metrics.rateLimiter
  const shared = url === undefined ? null : await openRedisRateLimiter({ url, local, logger, observe })
  if (shared !== null) closing.add(shared.close)
  return {
    dependencies: {
      directory,
      secrets,
      limiter: shared ?? local,
      refusedCalls,
      overload,
      unauthenticated: createUnauthenticatedRequests(logger),
      ledger,
      prices,
      idempotency: createIdempotency({
        ...foundation,
        sealer: foundation.epochKeys.sealer('idempotent-answer'),
      }),
      requestIds: createRequestIds(),
      gates: foundation.gates,
      isFull: () => foundation.diskSpace.isFull(),
      clocksDiffer: () => foundation.clockWatch.failure() !== null,
      clock: Date,
      logger,
      observe: metrics.call,
    },
    liveModels: [
      { name: 'api_keys', failure: directory.failure, doubtful: () => directory.doubtful().length },
      { name: 'price_books', failure: prices.failure, doubtful: prices.doubtful },
    ],
    rateLimitsShared: shared?.shared,
  }
}

/** Returns the ids of the keys to load at the start. Other keys are looked up when they are first used, but only at a limited rate. */
const listedKeys = async ({ pool }: Foundation, logger: Logger): Promise<string[]> => {
  try {
    return (await rowsOf(pool, keyIds())).map(({ key_id }) => key_id)
  } catch (error) {
    logger.error({ err: error }, 'the rows of api_keys cannot be read; run "projection rebuild api_keys"')
    return []
  }
}

const lookMs = 250
const loopResolutionMs = 10

/** Returns the limit on calls in progress. Until `stop`, the limit is adjusted to the delay of the event loop. */
const watchOverload = (logger: Pick<Logger, 'warn'>): { readonly overload: Overload; stop(): void } => {
  const delay = monitorEventLoopDelay({ resolution: loopResolutionMs })
  delay.enable()
  const overload = createOverload(() => {
    const meanMs = delay.count === 0 ? lookMs : delay.mean / 1e6 - loopResolutionMs
    delay.reset()
    return meanMs
  })
  const shedding = createSheddingLog(overload, logger)
  const timer = setInterval(() => {
    overload.look()
    shedding()
  }, lookMs)
  timer.unref()
  const stop = (): void => {
    clearInterval(timer)
    delay.disable()
  }
  return { overload, stop }
}
