import { ulid } from 'ulid'
import service from '../../package.json' with { type: 'json' }
import { within } from '../concurrency/deadline.ts'
import type { Config } from '../config.ts'
import { createLogger } from '../foundation/logger.ts'
import { answerRateLimits } from '../guard/forked-counters.ts'
import { createCounters } from '../guard/rate-limit.ts'
import { createForkedMetrics } from '../metrics/forked-metrics.ts'
import type { ForkedProcesses } from '../metrics/forks.ts'
import { createMetrics } from '../metrics/metrics.ts'
import { announce } from './announce.ts'
import type { Ending } from './ending.ts'
import { createForks, type Forks, forkSays } from './forks.ts'
import { openProcess } from './opening.ts'

/**
 * The process that was started, where it forks api processes (API_PROCESSES): it keeps the other roles and the embedded
 * PostgreSQL, counts rate limits for all, and tells their metrics and health.
 */

/** Of a fork that is asked whether it is ready. */
const answerMaxMs = 1_000

export const runWithForks = async (config: Config, end: Ending): Promise<void> => {
  const logger = createLogger(config.LOG_LEVEL)
  const metrics = createMetrics({ service })
  const counters = createCounters()
  const forkedMetrics = createForkedMetrics(metrics)
  const replaced = metrics.meters.counter({
    name: 'api_process_restarts_total',
    help: 'Api processes that ended and were started again',
  })
  const forks = createForks({
    ...{ config, logger, replaced, signal: end.signal, family: ulid() },
    opened: (fork) => {
      answerRateLimits(fork.channel, counters)
      forkedMetrics.add(fork)
    },
  })
  let apiUrl = ''
  const { foundation, app, close } = await openProcess(
    { ...config, ROLES: config.ROLES.filter((role) => role !== 'api') },
    {
      logger,
      metrics: { ...metrics, text: forkedMetrics.text },
      kin: { counters, forks: readyOf(forks, config.API_PROCESSES) },
      besides: {
        start: async () => {
          apiUrl = await forks.start()
        },
        close: forks.close,
      },
    },
  )
  const reload = async (): Promise<void> => {
    forks.signal('SIGHUP')
    await app.reload()
  }
  end.started({ logger, reload, leave: app.leave, close })
  if (end.signal.aborted) return
  await announce(foundation, { ...app, apiUrl, processes: config.API_PROCESSES }, config, (line) =>
    process.stdout.write(`${line}\n`),
  )
}

/** Asks each; they remember their answers. */
const readyOf =
  (forks: Forks, wanted: number): ForkedProcesses =>
  async () => {
    const answers = await Promise.all(
      forks
        .answering()
        .map(({ channel }) =>
          within(channel.ask(forkSays.isReady, null), { waitMs: answerMaxMs }, () => false).catch(
            () => false,
          ),
        ),
    )
    return { wanted, answering: answers.filter((ready) => ready === true).length }
  }
