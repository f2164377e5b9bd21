import service from '../../package.json' with { type: 'json' }
import type { Config } from '../config.ts'
import { createLogger } from '../foundation/logger.ts'
import { createMetrics } from '../metrics/metrics.ts'
import { announce } from './announce.ts'
import type { Ending } from './ending.ts'
import { openProcess } from './opening.ts'

/** All roles in one process. */
export const runAlone = async (config: Config, end: Ending): Promise<void> => {
  const logger = createLogger(config.LOG_LEVEL)
  const metrics = createMetrics({ service })
  const { foundation, app, close } = await openProcess(config, { logger, metrics })
  end.started({ logger, reload: app.reload, leave: app.leave, close })
  await announce(foundation, app, config, (line) => process.stdout.write(`${line}\n`))
}
