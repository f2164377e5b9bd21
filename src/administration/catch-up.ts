import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Logger } from 'pino'
import { projections } from '../../projections/index.ts'
import type { Foundation } from '../foundation/foundation.ts'
import { readCheckpoints } from '../projector/checkpoints.ts'
import { createProjector } from '../projector/run.ts'

const pollMs = 50
const patienceMs = 60_000

/**
 * Resolves when every live projection has folded what the event log holds now. While the service runs its projector
 * does that; otherwise one runs here for as long as it takes. Throws after a minute without getting there.
 */
export const catchUp = async (
  { url, eventLog, pool, secrets }: Foundation,
  logger: Logger,
): Promise<void> => {
  const target = await eventLog.head()
  const behind = async (): Promise<boolean> =>
    (await readCheckpoints(pool)).some(({ position, state }) => state === 'live' && position < target)
  if (!(await behind())) return
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
    const deadline = performance.now() + patienceMs
    while (await behind()) {
      if (performance.now() > deadline)
        throw new Error(
          `the projections did not reach position ${target} within ${patienceMs / 1000} s; see "projection list"`,
        )
      await sleep(pollMs)
    }
  } finally {
    await projector.stop()
  }
}
