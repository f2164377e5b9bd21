import { PgBoss } from 'pg-boss'
import type { Logger } from 'pino'
import { deadLetterQueue, pruneDeadLetters } from '../administration/jobs/jobs.ts'
import type { Meters, OpenCapability, QueuedJob, ScheduledJob, SealedStore } from '../call/capability.ts'
import { createOutage } from '../concurrency/outage.ts'
import type { Foundation } from '../foundation/foundation.ts'
import { jobsApplication } from '../foundation/job-queue.ts'
import { meterJobRuns } from '../metrics/jobs.ts'
import { serveLongWork } from './long-work.ts'
import { ownJobs } from './own-jobs.ts'
import { queuedJobOptions } from './queue.ts'

/** Each scheduled job runs once per installation, regardless of the number of processes. pg-boss stores the queue and the schedule. */
export type Jobs = { stop(): Promise<void> }

type Options = {
  /** The jobs that capabilities request, and the stores of their sealed data. */
  readonly jobs?: OpenCapability['jobs']
  readonly stores?: readonly SealedStore[]
  readonly meters?: Meters
  /** Whether a second person must approve a change. */
  readonly twoPerson?: boolean
}

const stopTimeoutMs = 10_000
const pollingSeconds = { scheduled: 30, queued: 5 } as const

/**
 * A scheduled run is tried three times within about two minutes, and then becomes a dead letter. A fault that lasts longer usually needs a
 * person, and the next scheduled run tries again anyway.
 */
const scheduledJobOptions = {
  retryLimit: 2,
  retryDelay: 30,
  retryBackoff: true,
  retryDelayMax: 120,
  deadLetter: deadLetterQueue,
  // Notifies the workers immediately, because someone may be waiting for the result.
  notify: true,
} as const
/** A scheduled job usually takes seconds, but can take much longer after the service has been down for hours. */
const usualSecondsMax = 900
/** A dead letter that is not retried within this time is deleted. */
const deadLetterSeconds = 30 * 86_400

export const startJobs = async (
  foundation: Foundation,
  logger: Logger,
  { jobs = {}, stores = [], meters, twoPerson = true }: Options = {},
): Promise<Jobs> => {
  const boss = new PgBoss({
    connectionString: foundation.url,
    application_name: jobsApplication,
    max: 3,
    // This needs one more connection. If a pooler does not forward notifications, jobs are still found by polling every 30 s.
    useListenNotify: true,
    // A migration creates the schema, because this database role is not allowed to.
    createSchema: false,
  })
  // pg-boss retries every few seconds, but does not report when it can reach the database again.
  const queue = createOutage({ logger, what: 'jobs: the queue' })
  boss.on('error', queue.failed)
  await boss.start()
  await boss.createQueue(deadLetterQueue, { retentionSeconds: deadLetterSeconds })
  const all = { ...ownJobs(foundation, logger, stores), ...jobs }
  const observe = meters === undefined ? () => undefined : meterJobRuns(meters, Object.keys(all))
  const logged = async (name: string, run: () => Promise<unknown>): Promise<object> => {
    const startedAt = performance.now()
    const seconds = (): number => (performance.now() - startedAt) / 1_000
    try {
      const result = await run()
      observe(name, 'succeeded', seconds())
      logger.debug({ job: name, result }, 'job done')
      return typeof result === 'number' ? { did: result } : {}
    } catch (error) {
      observe(name, 'failed', seconds())
      logger.error({ err: error, job: name }, 'job failed')
      await pruneDeadLetters(foundation.pool).catch(() => undefined)
      throw error
    }
  }
  const schedule = async (
    name: string,
    { purpose, cron, run, portionMax, expireSeconds = usualSecondsMax }: ScheduledJob,
  ): Promise<void> => {
    await boss.createQueue(name, { policy: 'singleton' })
    // An earlier release may have created the queue with other options.
    await boss.updateQueue(name, { ...scheduledJobOptions, expireInSeconds: expireSeconds })
    await boss.schedule(name, cron, { purpose })
    await boss.work(name, { pollingIntervalSeconds: pollingSeconds.scheduled }, () =>
      logged(name, () => (portionMax === undefined ? run() : inPortions(portionMax, run))),
    )
  }
  const serve = async (name: string, { run, concurrencyMax, expireSeconds }: QueuedJob): Promise<void> => {
    await boss.createQueue(name, queuedJobOptions)
    // The first `send` may already have created the queue, but without a time limit for its jobs.
    await boss.updateQueue(name, { expireInSeconds: expireSeconds })
    await boss.work<{ data: string }>(
      name,
      {
        pollingIntervalSeconds: pollingSeconds.queued,
        // If more jobs than this are waiting, a worker takes the next one without a pause.
        burstWhenReadyExceeds: concurrencyMax,
        localConcurrency: concurrencyMax,
      },
      async ([job]) => logged(name, async () => (job === undefined ? null : run(job.data.data))),
    )
  }
  for (const [name, job] of Object.entries(all))
    await ('cron' in job ? schedule(name, job) : serve(name, job))
  await serveLongWork(boss, foundation, { logger, twoPerson })
  // An earlier release may have scheduled jobs that no longer exist.
  for (const { name } of await boss.getSchedules()) if (!(name in all)) await boss.unschedule(name)
  return { stop: () => boss.stop({ graceful: true, timeout: stopTimeoutMs }) }
}

/** Repeats `run` until it handles less than a full portion. Returns the total. */
const inPortions = async (portionMax: number, run: () => Promise<number>): Promise<number> => {
  let total = 0
  for (;;) {
    const portion = await run()
    total += portion
    if (portion < portionMax) return total
  }
}
