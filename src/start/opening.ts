import type { Logger } from 'pino'
import type { Config } from '../config.ts'
import { openingWith } from '../foundation/closing.ts'
import { type Foundation, openFoundation } from '../foundation/foundation.ts'
import type { Metrics } from '../metrics/metrics.ts'
import { type App, type Kin, startApp } from './app.ts'
import { openTracing } from './tracing.ts'

/** What a process runs, and the one way to close it. */
type OpenProcess = {
  readonly foundation: Foundation
  readonly app: App
  /** Answers what is in flight and lets go of everything, the embedded PostgreSQL last. */
  close(): Promise<void>
}

type OpeningOptions = {
  readonly logger: Logger
  readonly metrics: Metrics
  readonly kin?: Kin
  /** What must answer before the service does, and is closed before it. Begun as soon as there is a database. */
  readonly besides?: { start(): Promise<unknown>; close(): Promise<void> }
}

/** Opens the foundation and starts the roles of the configuration on it. Ready to answer when it resolves. */
export const openProcess = (
  config: Config,
  { logger, metrics, kin = {}, besides }: OpeningOptions,
): Promise<OpenProcess> =>
  openingWith(async (closing) => {
    closing.add(await openTracing(config, logger))
    const guest = kin.primary !== undefined
    const { family } = kin
    const foundation = await openFoundation(config, { logger, observe: metrics.ledger, guest, family })
    closing.add(foundation.close)
    if (besides === undefined) {
      const app = await startApp(foundation, config, logger, metrics, undefined, kin)
      closing.add(app.close)
      return { foundation, app, close: closing.close }
    }
    // Closed whether or not the app could be started, and before it.
    closing.add(besides.close)
    const starting = besides.start()
    starting.catch(() => undefined)
    const app = await startApp(foundation, config, logger, metrics, undefined, kin)
    closing.add(app.close)
    closing.add(besides.close)
    await starting
    return { foundation, app, close: closing.close }
  })
