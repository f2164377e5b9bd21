import { setTimeout as sleep } from 'node:timers/promises'
import { readCheckpoints } from '../projector/checkpoints.ts'
import type { Dashboard } from './page.ts'

const shownSoonMs = 1_000
const shownSoonPollMs = 25

/**
 * Waits until the rows of these projections, or of all, show the last change, so that the next page does. Gives up after a second: the
 * change is made whether or not its row exists, and pages say how far behind the rows are.
 */
export const shownSoon = async (
  { foundation: { eventLog, pool } }: Dashboard,
  projections?: readonly string[],
): Promise<void> => {
  const target = await eventLog.head()
  const end = performance.now() + shownSoonMs
  while (performance.now() < end) {
    const waited = (await readCheckpoints(pool)).filter(({ name }) => projections?.includes(name) ?? true)
    if (waited.every(({ position }) => position >= target)) return
    await sleep(shownSoonPollMs)
  }
}
