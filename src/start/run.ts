import type { Logger } from 'pino'
import release from '../../package.json' with { type: 'json' }
import type { Config } from '../config.ts'
import { openingWith } from '../foundation/closing.ts'
import { openFoundation } from '../foundation/foundation.ts'
import { createMetrics } from '../metrics/metrics.ts'
import { announce, standardOutput } from './announce.ts'
import { startApp } from './app.ts'
import type { Ending } from './ending.ts'
import { openTracing } from './tracing.ts'

/** Opens the foundation, starts the roles of the configuration on it, and says how to try them. Closing it ends the embedded PostgreSQL last. */
export async function runService(
  config: Config,
  { logger, end }: { readonly logger: Logger; readonly end: Ending },
): Promise<void> {
  // Nothing more can be answered or written: it ends at once, as after a crash.
  const onLost = (error: Error) => {
    logger.fatal({ err: error }, 'ending: the embedded PostgreSQL is gone')
    process.exit(1)
  }
  const metrics = createMetrics({ service: release })
  const { foundation, app, close } = await openingWith(async (closing) => {
    closing.add(await openTracing(config, logger))
    const opened = await openFoundation(config, { logger, observe: metrics.ledger, onLost })
    closing.add(opened.close)
    const started = await startApp(opened, config, logger, metrics)
    closing.add(started.close)
    return { foundation: opened, app: started, close: closing.close }
  })
  end.started({ logger, reload: app.reload, leave: app.leave, close })
  await announce(foundation, app, config, standardOutput)
}
