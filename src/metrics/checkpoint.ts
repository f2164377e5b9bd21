import type { Meters } from '../call/capability.ts'
import type { Checkpoints } from '../event-log/tree/checkpoints.ts'

/** How old the last signed checkpoint is. Left out before the first. */
export const meterCheckpoints = (meters: Meters, checkpoints: Pick<Checkpoints, 'last'>): void => {
  meters.gauge(
    {
      name: 'checkpoint_age_seconds',
      help: 'Age of the last signed checkpoint of the event log; one is signed every hour',
    },
    async () => {
      const last = await checkpoints.last()
      return last === null ? [] : [{ value: Math.max(0, (Date.now() - Date.parse(last.at)) / 1_000) }]
    },
  )
}
