import { ulid } from 'ulid'
import { verifyLog } from '../../src/event-log/verify/verify-log.ts'
import { writeHistory } from './ledger-history.ts'
import { type BenchOptions, figureRow, median, type Row } from './row.ts'
import { withFoundation } from './store.ts'

/**
 * Verifies a whole log: every event's digest, the tree over all events, and its stored tiles. First it makes a checkpoint that
 * creates the tiles from the log's beginning, as an installation does once.
 */

const organizations = 50
const roundsMax = 5

export const eventLogVerify = ({ events, rounds, report }: BenchOptions): Promise<Row[]> =>
  withFoundation(async ({ foundation }) => {
    const written = await writeHistory(
      foundation.url,
      Array.from({ length: organizations }, () => ({
        organizationId: `org_${ulid()}`,
        events: Math.round(events / organizations),
      })),
    )
    report(`event-log verify: wrote ${written} events`)
    const startedAt = performance.now()
    const { size } = await foundation.checkpoints.make()
    const firstS = (performance.now() - startedAt) / 1_000
    report(`event-log verify: the first checkpoint of ${size} leaves took ${firstS.toFixed(2)} s`)
    const perSecond: number[] = []
    for (let round = 0; round < Math.min(rounds, roundsMax); round++) {
      const from = performance.now()
      const verdict = await verifyLog({ eventLog: foundation.eventLog, store: foundation.treeStore })
      perSecond.push((verdict.events * 1_000) / (performance.now() - from))
      const [fault] = verdict.faults
      if (fault !== undefined || verdict.checkpoints.recomputed === 0)
        throw new Error(`the log that was written does not verify: ${JSON.stringify(fault)}`)
      report(`event-log verify: ${Math.round(perSecond.at(-1) ?? 0)} events/s`)
    }
    return [
      figureRow('event-log verify: chains, tree and tiles', median(perSecond), 'events/s', {
        least: 200_000,
      }),
      figureRow('first checkpoint of a log', written / firstS, 'events/s', null),
    ]
  })
