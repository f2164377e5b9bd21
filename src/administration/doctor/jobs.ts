import type pg from 'pg'
import { type JobRow, knownJobs } from '../jobs.ts'
import { type Check, durationText, fault, ok, reasonOf, type Told, warning } from './finding.ts'

/** Whether the jobs run: what the queue in the database says of each one's last run. */

const messageCharsMax = 200

export const jobsCheck = (pool: Pick<pg.Pool, 'query'>): Check => ({
  about: 'jobs',
  look: async () => {
    const rows = await knownJobs(pool)
    if (rows.length === 0) return warning('no job was ever scheduled', 'Start a process with the role jobs.')
    const found = rows.flatMap(jobFindings)
    const late = found.filter(({ level }) => level === 'warning')
    // All of them late have one cause.
    const told = late.length > 3 && late.length === found.length ? [noneRuns(late.length)] : found
    const scheduled = rows.filter(({ cron }) => cron !== null).length
    return told.length > 0
      ? told
      : ok(`${scheduled} by the clock and ${rows.length - scheduled} on request: none fails or is late`)
  },
})

const noneRuns = (count: number): Told =>
  warning(
    `${count} jobs by the clock did not run when they were due`,
    'See that a process with the role jobs runs, and for how long: each job runs again at its next time.',
  )

/** What is to be said of one job. Pure. */
const jobFindings = ({
  name,
  cron,
  scheduled_ms: scheduledMs,
  state,
  message,
  ended_ms: endedMs,
  done_ms: doneMs,
}: JobRow): Told[] => {
  if (state === 'failed')
    return [
      (cron === null ? warning : fault)(
        `${name} failed ${durationText(endedMs ?? 0)} ago: ${reasonOf(message ?? 'no reason is kept').slice(0, messageCharsMax)}`,
        'The log of the process with the role jobs has the error. It runs again at its next time.',
      ),
    ]
  const everyMs = cron === null ? null : periodMsOf(cron)
  if (everyMs === null) return []
  const lastMs = doneMs ?? scheduledMs ?? 0
  if (lastMs <= 2 * everyMs + slackMs) return []
  return [
    warning(
      `${name} ${doneMs === null ? 'never ran' : `last ran ${durationText(doneMs)} ago`}, and is due every ${durationText(everyMs)}`,
      'See that a process with the role jobs runs.',
    ),
  ]
}

const minuteMs = 60_000
/** A job waits for its turn, and runs for some minutes. */
const slackMs = 10 * minuteMs

/** How often a schedule of ours is due; null for one of another form. Pure. */
const periodMsOf = (cron: string): number | null => {
  const [minute = '', hour, ...days] = cron.split(' ')
  if (days.some((one) => one !== '*') || days.length !== 3) return null
  const step = /^\*(?:\/(\d{1,2}))?$/.exec(minute)
  if (hour === '*' && step !== null) return Number(step[1] ?? 1) * minuteMs
  if (!/^\d{1,2}$/.test(minute)) return null
  if (hour === '*') return 60 * minuteMs
  return /^\d{1,2}$/.test(hour ?? '') ? 24 * 60 * minuteMs : null
}
