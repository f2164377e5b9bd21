import cluster from 'node:cluster'
import service from '../../package.json' with { type: 'json' }
import { type Channel, channelOf } from '../concurrency/channel.ts'
import { type Config, ConfigError } from '../config.ts'
import { createLogger } from '../foundation/logger.ts'
import { tellLastMetrics, tellMetrics } from '../metrics/forked-metrics.ts'
import { createMetrics } from '../metrics/metrics.ts'
import type { Ending } from './ending.ts'
import { familyVariable, forkSays } from './forks.ts'
import { openProcess } from './opening.ts'

/** An api process that another one forked: `with-forks.ts` is the other end. */

/** The process that forked this one; null where none of ours did. */
export const primaryOf = (end: Ending): Channel | null => {
  if (cluster.worker === undefined) return null
  // Otherwise Node.js ends a worker the moment its primary is gone, and what is in flight with it.
  cluster.worker.exitedAfterDisconnect = true
  const primary = channelOf(process)
  primary.onClosed(() => end.now('the process that forked this one is gone'))
  return primary
}

/** Answers calls until the primary, or a signal, ends it. */
export const runAsFork = async (config: Config, primary: Channel, end: Ending): Promise<void> => {
  const logger = createLogger(config.LOG_LEVEL)
  const metrics = createMetrics({ service, forked: true })
  tellMetrics(primary, metrics)
  const { app, close } = await openProcess(config, {
    logger,
    metrics,
    kin: { primary, family: process.env[familyVariable] },
  })
  primary.answer(forkSays.isReady, app.isReady)
  end.started({
    ...{ logger, reload: app.reload, leave: app.leave },
    close: async () => {
      await close()
      await tellLastMetrics(primary, metrics)
    },
  })
  await primary.tell(forkSays.answers, app.apiUrl)
}

/** Says why it ends, for the primary to say it once. */
export const tellFailure = (primary: Channel, error: unknown): Promise<void> =>
  primary.tell(forkSays.failed, {
    message: error instanceof Error ? error.message : String(error),
    configuration: error instanceof ConfigError,
  })
