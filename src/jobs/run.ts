import { PgBoss } from 'pg-boss'
import type { Logger } from 'pino'
import { projections } from '../../projections/index.ts'
import type { OpenCapability, QueuedJob, ScheduledJob, SealedStore } from '../call/capability.ts'
import { createOutage } from '../event-log/outage.ts'
import { askedCheckpointJob } from '../event-log/tree/checkpoints.ts'
import type { Foundation } from '../foundation/foundation.ts'
import { dropExpiredKept } from '../projector/kept.ts'
import { expireCredits } from './expire.ts'
import { queuedJobOptions } from './queue.ts'
import { reconcile, reconcileOnward, reconcileSecondsMax } from './reconcile.ts'
import { renewSeals } from './renew-seals.ts'
import { forgetAnswers, forgottenAtOnceMax, inPortions } from './retain.ts'

/** Work by the clock, once per installation however many processes run it. pg-boss keeps queue and schedule. */
export type Jobs = { stop(): Promise<void> }

/** What capabilities have done later, and what they keep sealed. */
type CapabilityWork = {
  readonly jobs?: OpenCapability['jobs']
  readonly stores?: readonly SealedStore[]
}

const stopTimeoutMs = 10_000
/** The first checkpoint of a long log reads all of it. */
const checkpointSecondsMax = 3_600
const pollingSeconds = { scheduled: 30, queued: 5 } as const

export const startJobs = async (
  foundation: Foundation,
  logger: Logger,
  { jobs = {}, stores = [] }: CapabilityWork = {},
): Promise<Jobs> => {
  const boss = new PgBoss({
    connectionString: foundation.url,
    application_name: 'jobs',
    max: 3,
    // A migration makes it: this role may not.
    createSchema: false,
  })
  // It asks again every few seconds and does not say when it was answered.
  const queue = createOutage({ logger, what: 'jobs: the queue' })
  boss.on('error', queue.failed)
  await boss.start()
  const logged = async (name: string, run: () => Promise<unknown>): Promise<void> => {
    try {
      const result = await run()
      logger.debug({ job: name, result }, 'job done')
    } catch (error) {
      logger.error({ err: error, job: name }, 'job failed')
      throw error
    }
  }
  const own = ownJobs(foundation, logger, stores)
  const schedule = async (
    name: string,
    { cron, run, portionMax, expireSeconds }: ScheduledJob,
  ): Promise<void> => {
    await boss.createQueue(name, { retryLimit: 0, policy: 'singleton' })
    if (expireSeconds !== undefined) await boss.updateQueue(name, { expireInSeconds: expireSeconds })
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
  for (const [name, job] of Object.entries({ ...own, ...jobs }))
    await ('cron' in job ? schedule(name, job) : serve(name, job))
  return { stop: () => boss.stop({ graceful: true, timeout: stopTimeoutMs }) }
}

const ownJobs = (
  foundation: Foundation,
  logger: Logger,
  stores: readonly SealedStore[],
): Record<string, ScheduledJob | QueuedJob> => {
  const checkpoint = async () => (await foundation.checkpoints.make()).size
  return {
    checkpoint: { cron: '7 * * * *', run: checkpoint },
    [askedCheckpointJob]: { run: checkpoint, concurrencyMax: 1, expireSeconds: checkpointSecondsMax },
    'expire-credits': { cron: '*/5 * * * *', run: () => expireCredits(foundation) },
    'forget-answers': {
      cron: '17 * * * *',
      run: () => inPortions(forgottenAtOnceMax, () => forgetAnswers(foundation.pool)),
    },
    // What a rebuild replaced is kept for some days.
    'drop-kept-rows': { cron: '29 * * * *', run: () => dropExpiredKept(foundation.pool, projections) },
    reconcile: { cron: '43 * * * *', run: () => reconcile(foundation.url, logger) },
    // Every day: all that came since ledgers were last found to agree with their read models and the tariff.
    'reconcile-ledgers': {
      cron: '37 2 * * *',
      expireSeconds: reconcileSecondsMax,
      run: () => reconcileOnward(foundation, logger),
    },
    'renew-seals': {
      cron: '3 * * * *',
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
