import { ConfigError, parseConfig } from '../config.ts'
import { createLogger } from '../foundation/logger.ts'
import { misspeltText, misspeltVariables } from '../foundation/misspelt-variables.ts'
import { listenForEnd } from './ending.ts'
import { checkSurroundings } from './preflight.ts'
import { runService } from './run.ts'

/** Starts the service, prints how to try it, and ends it in order: drain, flush, stop, exit 0. */

const fail = (error: unknown): never => {
  // The service was ended during the start, which caused the error.
  if (end.signal.aborted) process.exit(end.code())
  const known = error instanceof ConfigError
  process.stderr.write(
    `${known ? `Configuration: ${error.message}` : error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`,
  )
  // A misspelt variable name may be the cause.
  if (known)
    for (const one of misspeltVariables(process.env)) process.stderr.write(`Warning: ${misspeltText(one)}\n`)
  process.exit(known ? 2 : 1)
}

const end = listenForEnd()
try {
  const config = parseConfig(process.env)
  const logger = createLogger(config.LOG_LEVEL)
  for (const one of misspeltVariables(process.env)) logger.warn(one, misspeltText(one))
  await checkSurroundings(config)
  await runService(config, { logger, end })
} catch (error) {
  fail(error)
}
