import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Logger } from 'pino'
import { projections } from '../../../projections/index.ts'
import type { Position } from '../../event-log/port.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import { readCheckpoints } from '../../projector/checkpoints.ts'
import { createProjector } from '../../projector/run.ts'

const pollMs = 50
const patienceMs = 60_000

/**
 * Resolves when every live projection has folded the current event log. If the service is not running, this process runs a
 * projector. Throws after a minute in which nothing was folded.
 */
export const catchUp = async (
  { url, eventLog, pool, secrets }: Foundation,
  logger: Logger,
): Promise<void> => {
  const target = await eventLog.head()
  const positions = async (): Promise<Position[]> =>
    (await readCheckpoints(pool))
      .filter(({ position, state }) => state === 'live' && position < target)
      .map(({ position }) => position)
  let behind = await positions()
  if (behind.length === 0) return
  const projector = createProjector({
    url,
    eventLog,
    projections,
    seal: secrets.rowSeal,
    logger,
    owner: `cli-${process.pid}-${randomUUID()}`,
  })
  void projector.run()
  try {
    let deadline = performance.now() + patienceMs
    while (behind.length > 0) {
      if (performance.now() > deadline)
        throw new Error(
          `the projections did not reach position ${target}: nothing was folded for ${patienceMs / 1000} s; see "projection list"`,
        )
      await sleep(pollMs)
      const before = behind.join()
      behind = await positions()
      if (behind.join() !== before) deadline = performance.now() + patienceMs
    }
  } finally {
    await projector.stop()
  }
}
