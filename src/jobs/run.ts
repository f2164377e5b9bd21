import { PgBoss } from 'pg-boss'
import type { Logger } from 'pino'
import { deadLetterQueue, pruneDeadLetters } from '../administration/jobs.ts'
import {
  type Meters,
  type OpenCapability,
  type QueuedJob,
  type ScheduledJob,
  type SealedStore,
  usualJobSecondsMax,
} from '../call/capability.ts'
import { createOutage } from '../event-log/outage.ts'
import { askedCheckpointJob } from '../event-log/tree/checkpoints.ts'
import type { Foundation } from '../foundation/foundation.ts'
import { meterJobRuns } from '../metrics/jobs.ts'
import { expireCredits } from './expire.ts'
import { queuedJobOptions } from './queue.ts'
import { reconcile, reconcileOnward, reconcileSecondsMax } from './reconcile.ts'
import { renewSeals } from './renew-seals.ts'
import { forgetAnswers, forgottenAtOnceMax, inPortions } from './retain.ts'
import { verifyLogOnward, verifyLogSecondsMax } from './verify-log.ts'

/** Work by the clock, once per installation however many processes run it. pg-boss keeps queue and schedule. */
export type Jobs = { stop(): Promise<void> }

/** What capabilities have done later, and what they keep sealed. */
type CapabilityWork = {
  readonly jobs?: OpenCapability['jobs']
  readonly stores?: readonly SealedStore[]
  readonly meters?: Meters
}

const stopTimeoutMs = 10_000
/** The first checkpoint of a long log reads all of it. */
const checkpointSecondsMax = 3_600
/** The sums over all statements have half an hour, and connecting some more. */
const sumsSecondsMax = 2_100
const pollingSeconds = { scheduled: 30, queued: 5 } as const

/**
 * How runs by the clock are kept: one at a time, tried three times within about two minutes, and then a dead letter. What may have failed
 * of itself has passed by then; what has not needs a person, and the next run by the clock tries it anyway.
 */
const scheduledJobOptions = {
  retryLimit: 2,
  retryDelay: 30,
  retryBackoff: true,
  retryDelayMax: 120,
  deadLetter: deadLetterQueue,
  // A process that runs jobs hears of one at once: a person may be waiting for it.
  notify: true,
} as const
/** A dead letter that no one looked at in this time is forgotten. */
const deadLetterSeconds = 30 * 86_400

export const startJobs = async (
  foundation: Foundation,
  logger: Logger,
  { jobs = {}, stores = [], meters }: CapabilityWork = {},
): Promise<Jobs> => {
  const boss = new PgBoss({
    connectionString: foundation.url,
    application_name: 'jobs',
    max: 3,
    // One more connection; where a pooler in between does not pass notices on, jobs are looked for every 30 s as before.
    useListenNotify: true,
    // A migration makes it: this role may not.
    createSchema: false,
  })
  // It asks again every few seconds and does not say when it was answered.
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
    { cron, run, portionMax, expireSeconds }: ScheduledJob,
  ): Promise<void> => {
    await boss.createQueue(name, { policy: 'singleton' })
    // A release before this one may have made it, with other options.
    await boss.updateQueue(name, { ...scheduledJobOptions, expireInSeconds: expireSeconds })
    await boss.schedule(name, cron)
    await boss.work(name, { pollingIntervalSeconds: pollingSeconds.scheduled }, () =>
      logged(name, () => (portionMax === undefined ? run() : inPortions(portionMax, run))),
    )
  }
  const serve = async (name: string, { run, concurrencyMax, expireSeconds }: QueuedJob): Promise<void> => {
    await boss.createQueue(name, queuedJobOptions)
    // The first `send` has made the queue, without knowing how long its jobs may take.
    await boss.updateQueue(name, { expireInSeconds: expireSeconds })
    await boss.work<{ data: string }>(
      name,
      {
        pollingIntervalSeconds: pollingSeconds.queued,
        // A worker takes the next job at once while many wait; otherwise the pauses would slow the queue down.
        burstWhenReadyExceeds: concurrencyMax,
        localConcurrency: concurrencyMax,
      },
      async ([job]) => logged(name, async () => (job === undefined ? null : run(job.data.data))),
    )
  }
  for (const [name, job] of Object.entries(all))
    await ('cron' in job ? schedule(name, job) : serve(name, job))
  // A release before this one may have scheduled jobs that nothing does any more.
  for (const { name } of await boss.getSchedules()) if (!(name in all)) await boss.unschedule(name)
  return { stop: () => boss.stop({ graceful: true, timeout: stopTimeoutMs }) }
}

const ownJobs = (
  foundation: Foundation,
  logger: Logger,
  stores: readonly SealedStore[],
): Record<string, ScheduledJob | QueuedJob> => {
  const checkpoint = async () => (await foundation.checkpoints.make()).size
  return {
    checkpoint: { cron: '7 * * * *', expireSeconds: checkpointSecondsMax, run: checkpoint },
    [askedCheckpointJob]: { run: checkpoint, concurrencyMax: 1, expireSeconds: checkpointSecondsMax },
    'expire-credits': {
      cron: '*/5 * * * *',
      expireSeconds: usualJobSecondsMax,
      run: () => expireCredits(foundation, Date.now()),
    },
    'forget-answers': {
      cron: '17 * * * *',
      expireSeconds: usualJobSecondsMax,
      run: () => inPortions(forgottenAtOnceMax, () => forgetAnswers(foundation.pool)),
    },
    reconcile: {
      cron: '43 * * * *',
      expireSeconds: sumsSecondsMax,
      run: () => reconcile(foundation.url, logger),
    },
    // Every day: all that came since ledgers were last found to agree with their read models and the tariff.
    'reconcile-ledgers': {
      cron: '37 2 * * *',
      expireSeconds: reconcileSecondsMax,
      run: () => reconcileOnward(foundation, logger),
    },
    // Every day: a chain that somebody broke is not found by those who only go on from its end. What was verified before is not read again.
    'verify-log': {
      cron: '11 4 * * *',
      expireSeconds: verifyLogSecondsMax,
      run: () => verifyLogOnward(foundation, logger),
    },
    'renew-seals': {
      cron: '3 * * * *',
      expireSeconds: usualJobSecondsMax,
      run: () =>
        renewSeals({
          keys: foundation.epochKeys,
          stores,
          clock: Date,
          databaseNowMs: () => databaseNowMs(foundation.pool),
          logger,
        }),
    },
  }
}

const databaseNowMs = async (pool: Foundation['pool']): Promise<number> => {
  const { rows } = await pool.query<{ now: Date }>('select now()')
  return rows[0]?.now.getTime() ?? Number.NaN
}
