import type { Meters } from '../call/capability.ts'

/** The label of a job is `name`, because Prometheus uses the label `job` for the target it scraped. */

/** Jobs about mail take minutes at most; jobs that read ledgers may take hours. */
const durationBuckets = [0.01, 0.1, 0.5, 1, 5, 15, 60, 300, 1_800, 7_200, 21_600]

type JobObserver = (job: string, outcome: 'succeeded' | 'failed', seconds: number) => void

/** Counts this process's job runs. Jobs in `names` start at 0, so that their first failure shows as an increase. */
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
      help: 'Job runs in this process, by outcome; each try counts',
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
