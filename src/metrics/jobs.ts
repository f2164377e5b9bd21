import type { Meters } from '../call/capability.ts'

/** A job's name is in the label `name`, because Prometheus uses the label `job` for the scraped target. */

/** Most jobs take seconds or minutes, but jobs that read ledgers can take hours. */
const durationBuckets = [0.01, 0.1, 0.5, 1, 5, 15, 60, 300, 1_800, 7_200, 21_600]

type JobObserver = (job: string, outcome: 'succeeded' | 'failed', seconds: number) => void

/** Counts this process's job runs. The counts for `names` start at 0, so that even the first failure is an increase. */
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
      help: 'Job runs in this process, by outcome; retries count as runs',
      labels: ['name', 'outcome'],
    },
    () =>
      [...runs].flatMap(([name, counted]) =>
        Object.entries(counted).map(([outcome, value]) => ({ labels: { name, outcome }, value })),
      ),
  )
  const duration = meters.histogram({
    name: 'jobs_duration_seconds',
    help: 'Duration of job runs in this process',
    labels: ['name'],
    buckets: durationBuckets,
  })
  return (job, outcome, seconds) => {
    const counted = runs.get(job)
    if (counted !== undefined) counted[outcome]++
    duration(seconds, { name: job })
  }
}
