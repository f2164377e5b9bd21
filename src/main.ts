import service from '../package.json' with { type: 'json' }
import { remedy as geoRemedy } from './capabilities/ip-lookup/geo-file.ts'
import { type Config, ConfigError, parseConfig } from './config.ts'
import { openFoundation } from './foundation/foundation.ts'
import { createLogger } from './foundation/logger.ts'
import { createMetrics } from './metrics/metrics.ts'
import { announce } from './start/announce.ts'
import { startApp } from './start/app.ts'
import { listenForEnd } from './start/ending.ts'
import { checkSurroundings, listenFault } from './start/preflight.ts'

/** Starts the service, says how to try it, and ends it in order: drain, flush, stop, exit 0. */

const fail = (error: unknown): never => {
  const known = error instanceof ConfigError
  process.stderr.write(
    `${known ? `Configuration: ${error.message}` : error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`,
  )
  process.exit(known ? 2 : 1)
}

/** What was found only while starting may still be a bad value of a variable. */
const startFault = (error: unknown, config: Config): unknown =>
  config.GEOIP_CITY_DB !== undefined && error instanceof Error && error.message.includes(geoRemedy)
    ? new ConfigError(`GEOIP_CITY_DB: ${error.message}`, { cause: error })
    : listenFault(error, config)

const end = listenForEnd()
try {
  const config = parseConfig(process.env)
  await checkSurroundings(config)
  const logger = createLogger(config.LOG_LEVEL)
  const metrics = createMetrics({ clock: Date, service })
  const foundation = await openFoundation(config, { logger, observe: metrics.ledger })
  const app = await startApp(foundation, config, logger, metrics).catch(async (error: unknown) => {
    await foundation.close()
    throw startFault(error, config)
  })
  end.started({
    logger,
    reload: app.reload,
    close: async () => {
      try {
        await app.close()
      } finally {
        await foundation.close()
      }
    },
  })
  await announce(foundation, app, config, (line) => process.stdout.write(`${line}\n`))
} catch (error) {
  fail(error)
}
