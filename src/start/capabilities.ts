import type { Logger } from 'pino'
import { forgetHits, forgetPastPeriods, forgottenAtOnceMax } from '../capabilities/pixel/postgres-counters.ts'
import type { Config } from '../config.ts'
import type { Foundation } from '../foundation/foundation.ts'
import { openJobQueue } from '../jobs/queue.ts'
import { inPortions } from '../jobs/retain.ts'
import type { Metrics } from '../metrics/metrics.ts'
import { openEmailValidation } from '../open-email-validation.ts'
import { openProfiles, seedProfiles } from '../open-profile.ts'
import { openOutside } from '../outside.ts'

/** The capabilities that reach out or have work done later; what of them is used depends on the roles. */
export const openCapabilities = async (
  foundation: Foundation,
  config: Config,
  logger: Logger,
  metrics: Metrics,
) => {
  const outside = openOutside(config)
  const queue = openJobQueue(foundation.url, logger)
  const email = openEmailValidation(foundation, config, { outside, queue, logger, observe: metrics.email })
  const profiles = await openProfiles(foundation, config, { outside, logger, observe: metrics.profile })
  metrics.watch({ dns: outside.dns.status, mailboxes: email.mailboxes, profileProviders: profiles.providers })
  if (foundation.embedded && config.PROFILE_PROVIDER.includes('dataset'))
    await seedProfiles(foundation, config)
  return {
    forms: [email.form, profiles.form],
    jobs: {
      scheduled: {
        ...email.jobs.scheduled,
        ...profiles.jobs.scheduled,
        'forget-pixel-hits': {
          cron: '7 * * * *',
          run: () => inPortions(forgottenAtOnceMax, () => forgetHits(foundation.pool)),
        },
        'forget-pixel-periods': {
          cron: '11 * * * *',
          run: () => inPortions(forgottenAtOnceMax, () => forgetPastPeriods(foundation.pool)),
        },
      },
      queued: { ...email.jobs.queued, ...profiles.jobs.queued },
    },
    close: async () => {
      const closed = await Promise.allSettled([email.close(), profiles.close(), queue.close()])
      const failed = closed.flatMap((one) => (one.status === 'rejected' ? [one.reason] : []))
      if (failed.length > 0) throw new AggregateError(failed, 'not every capability could be closed')
    },
  }
}
