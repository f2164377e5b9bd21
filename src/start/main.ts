import { ConfigError, parseConfig } from '../config.ts'
import { createLogger } from '../foundation/logger.ts'
import { misspeltText, misspeltVariables } from '../foundation/misspelt-variables.ts'
import { listenForEnd } from './ending.ts'
import { checkSurroundings } from './preflight.ts'
import { runService } from './run.ts'

/** Starts the service, says how to try it, and ends it in order: drain, flush, stop, exit 0. */

const fail = (error: unknown): never => {
  // Ended while starting: what fails then fails for that.
  if (end.signal.aborted) process.exit(end.code())
  const known = error instanceof ConfigError
  process.stderr.write(
    `${known ? `Configuration: ${error.message}` : error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`,
  )
  // What is wrong may be wrong because another name was typed.
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
