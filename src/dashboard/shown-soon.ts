import { setTimeout as sleep } from 'node:timers/promises'
import { readCheckpoints } from '../projector/checkpoints.ts'
import type { Dashboard } from './page.ts'

const shownSoonMs = 1_000
const shownSoonPollMs = 25

/**
 * Waits at most a second for the rows to show the last change, so that the next page shows it. The change is recorded even if its row is
 * late.
 */
export const shownSoon = async ({ foundation: { eventLog, pool } }: Dashboard): Promise<void> => {
  const target = await eventLog.head()
  const end = performance.now() + shownSoonMs
  while (performance.now() < end) {
    if ((await readCheckpoints(pool)).every(({ position }) => position >= target)) return
    await sleep(shownSoonPollMs)
  }
}
