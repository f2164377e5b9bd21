import type { Meters } from '../call/capability.ts'
import type { DiskWatch } from '../guard/disk-space.ts'

/** Left out where the disk cannot be seen from here. */
export const meterDiskSpace = (meters: Meters, { seen }: Pick<DiskWatch, 'seen'>): void => {
  const gauge = (name: string, help: string, value: (now: NonNullable<ReturnType<typeof seen>>) => number) =>
    meters.gauge({ name: `disk_${name}`, help }, () => {
      const now = seen()
      return now === null ? [] : [{ value: value(now) }]
    })
  gauge(
    'free_ratio',
    'Free share of the disk of DATA_DIR, of bytes or files, whichever is scarcer',
    ({ space }) => space.freeRatio,
  )
  gauge('free_bytes', 'Free bytes of the disk of DATA_DIR', ({ space }) => space.freeBytes)
  gauge('full', '1 while new calls are refused because the disk is nearly full', ({ state }) =>
    state === 'full' ? 1 : 0,
  )
}
