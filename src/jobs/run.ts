import { PgBoss } from 'pg-boss'
import type { Logger } from 'pino'
import type { Foundation } from '../ops/foundation.ts'
import { expireCredits } from './expire.ts'
import { reconcile } from './reconcile.ts'
import { forgetAnswers, forgottenAtOnceMax } from './retain.ts'

/** Work by the clock, once per installation however many processes run it. pg-boss keeps queue and schedule. */
export type Jobs = { stop(): Promise<void> }

type Job = { readonly cron: string; readonly run: () => Promise<unknown> }

const stopTimeoutMs = 10_000

export const startJobs = async (foundation: Foundation, logger: Logger): Promise<Jobs> => {
  const jobs: Record<string, Job> = {
    'expire-credits': { cron: '*/5 * * * *', run: () => expireCredits(foundation) },
    'forget-answers': { cron: '17 * * * *', run: () => forgetAllAnswers(foundation) },
    reconcile: { cron: '43 * * * *', run: () => reconcile(foundation.url, logger) },
  }
  const boss = new PgBoss({ connectionString: foundation.url, application_name: 'jobs', max: 2 })
  boss.on('error', (error) => logger.warn({ err: error }, 'jobs: trouble with the queue'))
  await boss.start()
  for (const [name, { cron, run }] of Object.entries(jobs)) {
    await boss.createQueue(name, { retryLimit: 0, policy: 'singleton' })
    await boss.schedule(name, cron)
    await boss.work(name, { pollingIntervalSeconds: 30 }, async () => {
      try {
        const result = await run()
        logger.debug({ job: name, result }, 'job done')
      } catch (error) {
        logger.error({ err: error, job: name }, 'job failed')
        throw error
      }
    })
  }
  return { stop: () => boss.stop({ graceful: true, timeout: stopTimeoutMs }) }
}

/** As many portions as there are: what is promised to be forgotten within a day is, however much it is. */
const forgetAllAnswers = async ({ pool }: Foundation): Promise<number> => {
  let forgotten = 0
  for (;;) {
    const portion = await forgetAnswers(pool)
    forgotten += portion
    if (portion < forgottenAtOnceMax) return forgotten
  }
}
