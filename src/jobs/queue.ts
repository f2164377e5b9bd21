import type { Logger } from 'pino'
import type { CapabilityQueue } from '../call/capability.ts'
import { openBoss } from '../foundation/job-queue.ts'

/** Work that is requested now and done later by a process that runs jobs. */
export type JobQueue = CapabilityQueue & { close(): Promise<void> }

/** A job that has waited this long, because no process runs jobs, is no longer worth doing. */
const waitingSecondsMax = 24 * 3_600
const keptSeconds = 60

/** At most one job per key waits, and jobs are not retried. */
export const queuedJobOptions = {
  policy: 'short',
  retryLimit: 0,
  retentionSeconds: waitingSecondsMax,
  deleteAfterSeconds: keptSeconds,
} as const

/** Connects on the first request, because most processes never make one. Runs no job itself. */
export const openJobQueue = (url: string, logger: Logger): JobQueue => {
  let opened: ReturnType<typeof openBoss> | undefined
  const queues = new Set<string>()
  return {
    send: async (name, data, { afterSeconds, key, priority = 0 }) => {
      opened ??= openBoss(url, logger)
      // A failed connection makes only this job fail. The next job tries again.
      opened.catch(() => {
        opened = undefined
      })
      const { boss } = await opened
      if (!queues.has(name)) {
        await boss.createQueue(name, queuedJobOptions)
        queues.add(name)
      }
      await boss.send(name, { data }, { startAfter: afterSeconds, singletonKey: key, priority })
    },
    close: async () => {
      const open = await opened?.catch(() => undefined)
      await open?.close()
    },
  }
}
