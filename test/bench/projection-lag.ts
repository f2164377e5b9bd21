import { setTimeout as sleep } from 'node:timers/promises'
import type { Foundation } from '../../src/foundation/foundation.ts'
import { eventually } from '../support/service.ts'

/** Measures how far the projections are behind the event log, with any engine. */

const catchUpTimeoutMs = 120_000
const lagSampleMs = 100

type Standing = { readonly at: number; readonly head: bigint; readonly projected: bigint }

const standing = async ({ pool, eventLog }: Foundation): Promise<Standing> => {
  const head = await eventLog.head()
  const { rows } = await pool.query<{ projected: string }>(
    'select min(position) as projected from projection_checkpoints',
  )
  return { at: performance.now(), head, projected: BigInt(rows[0]?.projected ?? 0) }
}

export const caughtUp = async (foundation: Foundation): Promise<void> => {
  await eventually(async () => {
    const { head, projected } = await standing(foundation)
    return projected >= head || undefined
  }, catchUpTimeoutMs)
}

/**
 * Records the positions of the head and the projections during a load. Returns how far behind the slowest projection was at the
 * end: the time since the log's head was at the position of that projection.
 */
export const watchLag = (foundation: Foundation, forMs: number): { lagS(): Promise<number> } => {
  const endsAt = performance.now() + forMs
  const seen: Standing[] = []
  const watching = (async () => {
    while (performance.now() < endsAt) {
      seen.push(await standing(foundation))
      await sleep(Math.max(1, Math.min(lagSampleMs, endsAt - performance.now())))
    }
  })()
  return {
    lagS: async () => {
      await watching
      const end = seen.at(-1)
      if (end === undefined || end.projected >= end.head) return 0
      const passed = seen.find(({ head }) => head > end.projected)
      return passed === undefined ? 0 : (end.at - passed.at) / 1_000
    },
  }
}
