import type { Logger } from 'pino'
import type { OwnProcess, Process } from '../foundation/processes.ts'

/**
 * Processes that count rate limits apart multiply every limit. Those with one REDIS_URL count together; the table of processes shows
 * the others.
 */

/** Processes come and go; a limit that is doubled for so long is no accident. */
const lookMs = 10_000

type Counting = Pick<Process, 'counters' | 'roles'>

/** What is wrong, and what to do; null while all api processes count together. */
export const apartIn = (processes: readonly Counting[]): string | null => {
  const api = processes.filter(({ roles }) => roles.includes('api'))
  const places = new Set(api.map(({ counters }) => counters)).size
  return places < 2
    ? null
    : `each of ${places} processes counts for itself; set REDIS_URL to one Redis for all`
}

/** Warns where processes count apart, now or later. Gives what ends the looking. */
export const warnOfApart = (
  own: Pick<OwnProcess, 'known'>,
  logger: Pick<Logger, 'warn' | 'info'>,
): (() => void) => {
  let told: string | null = null
  const look = (): void => {
    const now = apartIn(own.known())
    if (now === told) return
    if (now === null) logger.info('rate limits: processes count together')
    else logger.warn(`rate limits: ${now}`)
    told = now
  }
  look()
  const timer = setInterval(look, lookMs)
  timer.unref()
  return () => clearInterval(timer)
}
