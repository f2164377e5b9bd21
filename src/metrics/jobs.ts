import type { Meters } from '../call/capability.ts'
import { remembered } from '../concurrency/remembered.ts'

/** The label of a job is `name`: with the label `job` Prometheus says whom it asked. */

/** What the queue says of one job. */
type JobFigures = {
  readonly name: string
  /** Null: it is done when it is asked for. */
  readonly cron: string | null
  readonly done_at: Date | null
  /** How long ago it last succeeded, and was scheduled. */
  readonly done_ms: number | null
  readonly scheduled_ms: number | null
  readonly dead_letters: number
}

/** Jobs that count mail take minutes at most; the ones that read ledgers may take hours. */
const durationBuckets = [0.01, 0.1, 0.5, 1, 5, 15, 60, 300, 1_800, 7_200, 21_600]

type JobObserver = (job: string, outcome: 'succeeded' | 'failed', seconds: number) => void

/** What this process counts of the runs it does. `names`: of the jobs it runs, so that the first failure is seen as an increase. */
export const meterJobRuns = (meters: Meters, names: readonly string[]): JobObserver => {
  const runs = new Map(
    names.map((job) => [
      job,
      { succeeded: 0, failed: 0 } satisfies Record<Parameters<JobObserver>[1], number>,
    ]),
  )
  meters.total(
    {
      name: 'jobs_runs_total',
      help: 'Runs of jobs in this process, by how they ended; each try of a run counts',
      labels: ['name', 'outcome'],
    },
    () =>
      [...runs].flatMap(([name, counted]) =>
        Object.entries(counted).map(([outcome, value]) => ({ labels: { name, outcome }, value })),
      ),
  )
  const duration = meters.histogram({
    name: 'jobs_duration_seconds',
    help: 'How long runs of jobs took in this process',
    labels: ['name'],
    buckets: durationBuckets,
  })
  return (job, outcome, seconds) => {
    const counted = runs.get(job)
    if (counted !== undefined) counted[outcome]++
    duration(seconds, { name: job })
  }
}

/** What the queue says, whichever process ran the jobs. `read` is asked once for all gauges. */
export const jobGauges = (meters: Meters, read: () => Promise<readonly JobFigures[]>): void => {
  const figures = remembered(read)
  const gauge = (name: string, help: string, value: (one: JobFigures) => number | null): void =>
    meters.gauge({ name, help, labels: ['name'] }, async () =>
      (await figures()).flatMap((one) => {
        const found = value(one)
        return found === null ? [] : [{ labels: { name: one.name }, value: found }]
      }),
    )
  gauge(
    'jobs_last_success_timestamp_seconds',
    'When a run of the job last succeeded, in any process; left out for one that never did',
    ({ done_at }) => (done_at === null ? null : done_at.getTime() / 1_000),
  )
  gauge(
    'jobs_success_age_seconds',
    'Since a job by the clock last succeeded; before the first time, since it was scheduled',
    ({ cron, done_ms, scheduled_ms }) => {
      const ms = cron === null ? null : (done_ms ?? scheduled_ms)
      return ms === null ? null : ms / 1_000
    },
  )
  gauge(
    'jobs_dead_letters',
    'Runs of the job that were given up, and that no run has made good since',
    ({ dead_letters }) => dead_letters,
  )
}
