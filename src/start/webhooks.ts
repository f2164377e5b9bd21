import { randomUUID } from 'node:crypto'
import type { Logger } from 'pino'
import type { OpenCapability } from '../call/capability.ts'
import { createOutage, type Outage } from '../concurrency/outage.ts'
import type { Config } from '../config.ts'
import type { Foundation } from '../foundation/foundation.ts'
import { type JobQueue, openJobQueue } from '../jobs/queue.ts'
import type { Metrics } from '../metrics/metrics.ts'
import { tellOfExpiringKeys } from '../webhooks/expiring-keys.ts'
import { createWebhookFollower } from '../webhooks/follow.ts'
import { dueWebhooks, forgetDeliveries, forgottenAtOnceMax } from '../webhooks/outbox.ts'
import { attemptOutcomes, type Sending, sendRound, webhookSealPurpose } from '../webhooks/send.ts'
import { openOutside } from './capabilities.ts'

type OpenWebhooks = {
  readonly jobs: NonNullable<OpenCapability['jobs']>
  /** Aborts the attempts in progress, because a receiver that does not answer must not delay the shutdown. */
  leaveOff(): void
  /** Must be called after the jobs have stopped. */
  close(): Promise<void>
}

const queueName = 'send-webhooks'
const concurrencyMax = 8
/** The time limit for the job of one round, which takes at most half of this. */
const roundSecondsMax = 60
const dueMax = 1_000

export const openWebhooks = (
  foundation: Foundation,
  { config, logger, metrics }: { config: Config; logger: Logger; metrics: Metrics },
): OpenWebhooks => {
  const { pool, eventLog, secrets } = foundation
  const queue = openJobQueue(foundation.url, logger)
  const outage = createOutage({ logger, what: 'webhooks: requesting the jobs that send messages' })
  const ending = new AbortController()
  const sending: Sending = {
    pool,
    logger,
    clock: { now: Date.now, monotonic: () => performance.now() },
    chance: Math.random,
    sealer: secrets.sealer(webhookSealPurpose),
    outside: openOutside(config),
    observe: meterWebhooks(metrics),
    signal: ending.signal,
  }
  const { ask, askAll, askDue } = asking({ queue, pool, outage })
  const round = async (webhookId: string): Promise<number> => {
    const { sent, more } = await sendRound(sending, webhookId)
    if (more !== null) await ask(webhookId, more)
    return sent
  }
  const follower = createWebhookFollower({
    pool,
    eventLog,
    logger,
    clock: Date,
    put: askAll,
    owner: `${process.pid}-${randomUUID()}`,
  })
  void follower.run()
  // Sends due messages now, instead of waiting up to a minute for the scheduled job.
  askDue().catch(outage.failed)
  return {
    jobs: {
      [queueName]: { run: round, concurrencyMax, expireSeconds: roundSecondsMax },
      'due-webhooks': {
        purpose: 'sends waiting webhook messages, and warns about expiring keys',
        cron: '* * * * *',
        expireSeconds: roundSecondsMax,
        run: async () => {
          await tellOfExpiringKeys(pool, Date.now())
          return askDue()
        },
      },
      'forget-webhooks': {
        purpose: 'deletes old webhook messages',
        cron: '29 * * * *',
        run: () => forgetDeliveries(pool, Date.now()),
        portionMax: forgottenAtOnceMax,
      },
    },
    leaveOff: () => ending.abort(),
    close: async () => {
      await follower.stop()
      await queue.close()
    },
  }
}

const asking = ({ queue, pool, outage }: { queue: JobQueue; pool: Foundation['pool']; outage: Outage }) => {
  // Slow and failing webhooks have the lowest priority, because each attempt can occupy a worker for ten seconds.
  const ask = (webhookId: string, { slow }: { readonly slow: boolean }): Promise<void> =>
    queue.send(queueName, webhookId, { afterSeconds: 0, key: webhookId, priority: slow ? 0 : 1 })
  return {
    ask,
    /** Never rejects. If a round cannot be requested, the scheduled job requests it within a minute. */
    askAll: async (webhookIds: readonly string[]): Promise<void> => {
      try {
        for (const webhookId of webhookIds) await ask(webhookId, { slow: false })
        outage.works()
      } catch (error) {
        outage.failed(error)
      }
    },
    askDue: async (): Promise<number> => {
      const due = await dueWebhooks(pool, { nowMs: Date.now(), max: dueMax })
      for (const { webhookId, failing } of due) await ask(webhookId, { slow: failing })
      return due.length
    },
  }
}

const meterWebhooks = ({ meters }: Metrics): NonNullable<Sending['observe']> =>
  meters.words(
    {
      name: 'webhook_attempts_total',
      help: 'Attempts to send a message to a webhook, by outcome: delivered, failed (will be retried), dead (was the last attempt), disabled (the webhook was disabled)',
    },
    'outcome',
    attemptOutcomes,
  )
