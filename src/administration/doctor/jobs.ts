import type pg from 'pg'
import { type Check, durationText, fault, ok, reasonOf, type Told, warning } from './finding.ts'

/** Whether the jobs run: what the queue in the database says of each one's last run. */

type Row = {
  readonly name: string
  readonly cron: string | null
  readonly scheduled_ms: number | null
  readonly state: string | null
  readonly message: string | null
  readonly ended_ms: number | null
  readonly done_ms: number | null
}

const jobs = `
  select q.name, s.cron, extract(epoch from now() - s.created_on)::float8 * 1000 as scheduled_ms,
         l.state::text as state, coalesce(l.output->>'message', l.output->>'value') as message,
         extract(epoch from now() - l.completed_on)::float8 * 1000 as ended_ms,
         (select extract(epoch from now() - max(j.completed_on))::float8 * 1000
            from pgboss.job j where j.name = q.name and j.state = 'completed') as done_ms
    from pgboss.queue q left join pgboss.schedule s on s.name = q.name
    left join lateral (
      select j.state, j.output, j.completed_on from pgboss.job j
       where j.name = q.name and j.state in ('completed', 'failed') order by j.completed_on desc nulls last limit 1) l on true
   where q.name not like '\\_\\_%'
   order by q.name limit 200`

const messageCharsMax = 200

export const jobsCheck = (pool: Pick<pg.Pool, 'query'>): Check => ({
  about: 'jobs',
  look: async () => {
    const { rows: made } = await pool.query<{ made: boolean }>(
      `select to_regclass('pgboss.schedule') is not null and to_regclass('pgboss.job') is not null as made`,
    )
    const { rows } = made[0]?.made === true ? await pool.query<Row>(jobs) : { rows: [] }
    if (rows.length === 0) return warning('no job was ever scheduled', 'Start a process with the role jobs.')
    const found = rows.flatMap(jobFindings)
    const late = found.filter(({ level }) => level === 'warning')
    // All of them late have one cause.
    const told = late.length > 3 && late.length === found.length ? [noneRuns(late.length)] : found
    return told.length > 0 ? told : ok(`${rows.length} are known, and none fails or is late`)
  },
})

const noneRuns = (count: number): Told =>
  warning(
    `${count} jobs did not run when they were due`,
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
}: Row): Told[] => {
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
