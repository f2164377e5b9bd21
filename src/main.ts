import type { Channel } from './concurrency/channel.ts'
import { ConfigError, parseConfig } from './config.ts'
import { createLogger } from './foundation/logger.ts'
import { misspeltText, misspeltVariables } from './foundation/misspelt-variables.ts'
import { runAlone } from './start/alone.ts'
import { listenForEnd } from './start/ending.ts'
import { checkSurroundings } from './start/preflight.ts'

/** Starts the service, says how to try it, and ends it in order: drain, flush, stop, exit 0. */

let primary: Channel | null = null

const fail = async (error: unknown): Promise<never> => {
  // Ended while starting: what fails then fails for that.
  if (end.signal.aborted) process.exit(end.code())
  const known = error instanceof ConfigError
  if (primary === null || !known)
    process.stderr.write(
      `${known ? `Configuration: ${error.message}` : error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`,
    )
  // What is wrong may be wrong because another name was typed.
  if (primary === null && known)
    for (const one of misspeltVariables(process.env)) process.stderr.write(`Warning: ${misspeltText(one)}\n`)
  if (primary !== null) await (await import('./start/as-fork.ts')).tellFailure(primary, error)
  process.exit(known ? 2 : 1)
}

const end = listenForEnd()
try {
  // Only a process with a channel can have been forked: any other one needs to load nothing to know.
  const fork = process.connected === true ? await import('./start/as-fork.ts') : null
  primary = fork?.primaryOf(end) ?? null
  const config = parseConfig(process.env)
  if (fork !== null && primary !== null) await fork.runAsFork(config, primary, end)
  else {
    const logger = createLogger(config.LOG_LEVEL)
    for (const one of misspeltVariables(process.env)) logger.warn(one, misspeltText(one))
    await checkSurroundings(config)
    if (config.API_PROCESSES === 1 || !config.ROLES.includes('api')) await runAlone(config, end)
    else await (await import('./start/with-forks.ts')).runWithForks(config, end)
  }
} catch (error) {
  await fail(error)
}
