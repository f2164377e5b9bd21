import service from '../package.json' with { type: 'json' }
import { ConfigError, parseConfig } from './config.ts'
import { openingWith } from './foundation/closing.ts'
import { openFoundation } from './foundation/foundation.ts'
import { createLogger } from './foundation/logger.ts'
import { createMetrics } from './metrics/metrics.ts'
import { announce } from './start/announce.ts'
import { startApp } from './start/app.ts'
import { listenForEnd } from './start/ending.ts'
import { checkSurroundings } from './start/preflight.ts'

/** Starts the service, says how to try it, and ends it in order: drain, flush, stop, exit 0. */

const fail = (error: unknown): never => {
  const known = error instanceof ConfigError
  process.stderr.write(
    `${known ? `Configuration: ${error.message}` : error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`,
  )
  process.exit(known ? 2 : 1)
}

const end = listenForEnd()
try {
  const config = parseConfig(process.env)
  await checkSurroundings(config)
  const logger = createLogger(config.LOG_LEVEL)
  const metrics = createMetrics({ service })
  const { foundation, app, close } = await openingWith(async (closing) => {
    const foundation = await openFoundation(config, { logger, observe: metrics.ledger })
    closing.add(foundation.close)
    const app = await startApp(foundation, config, logger, metrics)
    closing.add(app.close)
    return { foundation, app, close: closing.close }
  })
  end.started({ logger, reload: app.reload, close })
  await announce(foundation, app, config, (line) => process.stdout.write(`${line}\n`))
} catch (error) {
  fail(error)
}
