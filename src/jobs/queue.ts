import type { Logger } from 'pino'
import type { CapabilityQueue } from '../call/capability.ts'
import { openBoss } from '../foundation/job-queue.ts'

/** Requests jobs that a process with the role `jobs` runs later. */
export type JobQueue = CapabilityQueue & { close(): Promise<void> }

/** A job is dropped if no process has run it within this time, because it is then no longer useful. */
const waitingSecondsMax = 24 * 3_600
const keptSeconds = 60

/** At most one job per key waits, and jobs are not retried. */
export const queuedJobOptions = {
  policy: 'short',
  retryLimit: 0,
  retentionSeconds: waitingSecondsMax,
  deleteAfterSeconds: keptSeconds,
} as const

/** Connects when the first job is requested, because most processes never request one. */
export const openJobQueue = (url: string, logger: Logger): JobQueue => {
  let opened: ReturnType<typeof openBoss> | undefined
  const queues = new Set<string>()
  return {
    send: async (name, data, { afterSeconds, key, priority = 0 }) => {
      opened ??= openBoss(url, logger)
      // If the connection fails, only this request fails. The next request connects again.
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
