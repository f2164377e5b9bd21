import { ConfigError, parseConfig } from './config.ts'
import { EventsUnreadable, LogRewritten } from './event-log/port.ts'
import { ClusterUnfit } from './foundation/embedded/cluster.ts'
import { createLogger } from './foundation/logger.ts'
import { misspeltText, misspeltVariables } from './foundation/misspelt-variables.ts'
import { EpochKeyFault } from './guard/secrets/epoch-key-files.ts'
import { listenForEnd } from './start/ending.ts'
import { checkPorts, checkSurroundings } from './start/preflight.ts'

/** Starts the service, and shuts it down in order. */

const textOf = (error: unknown): string => {
  if (error instanceof ConfigError) return `Configuration: ${error.message}`
  if (error instanceof ClusterUnfit || error instanceof EpochKeyFault) return error.message
  if (error instanceof LogRewritten) return `Event log: ${error.message}`
  if (error instanceof EventsUnreadable)
    return `Event log: ${error.message}. Restore these events from a backup, then start again.`
  return error instanceof Error ? (error.stack ?? error.message) : String(error)
}

const fail = (error: unknown): never => {
  // The error was caused by a shutdown during the start.
  if (end.signal.aborted) process.exit(end.code())
  const known = error instanceof ConfigError
  process.stderr.write(`${textOf(error)}\n`)
  // A misspelled variable name can be the cause.
  if (known)
    for (const one of misspeltVariables(process.env)) process.stderr.write(`Warning: ${misspeltText(one)}\n`)
  process.exit(known ? 2 : 1)
}

// The service keeps running if nothing reads its output, for example because the terminal was closed.
for (const output of [process.stdout, process.stderr]) output.on('error', () => undefined)

const end = listenForEnd()
try {
  const config = parseConfig(process.env)
  const logger = createLogger(config.LOG_LEVEL)
  for (const one of misspeltVariables(process.env)) logger.warn(one, misspeltText(one))
  await checkSurroundings(config)
  await checkPorts(config)
  // Loading the service takes a second, which an invalid environment does not have to wait for.
  const { runService } = await import('./start/run.ts')
  await runService(config, { logger, end })
} catch (error) {
  fail(error)
}
