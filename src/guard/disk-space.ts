import { statfs } from 'node:fs/promises'
import type { OutageLogger } from '../event-log/outage.ts'

/**
 * Watches the disk that this installation writes to. PostgreSQL stops in the middle of calls if it has no room for its next log segment, so
 * new calls are refused before that. Calls in progress are still answered.
 */

export type DiskSpace = {
  /** Bytes that a process without special rights can still write. */
  readonly freeBytes: number
  readonly totalBytes: number
  /** The share of free bytes or of free inodes, the smaller of the two, because a disk without free inodes accepts no new file either. */
  readonly freeRatio: number
}

type DiskState = 'ok' | 'low' | 'full'

export type DiskWatch = {
  /** Checks now, and then repeatedly until `close`. Never rejects. */
  watch(): Promise<void>
  /** Whether to refuse new calls. False while nothing is watched. */
  isFull(): boolean
  /** Returns the last reading; null: nothing is watched, or the disk was never read. */
  seen(): { readonly space: DiskSpace; readonly state: DiskState } | null
  close(): void
}

/** A limit is a share of the disk, but at least this many bytes. A segment of PostgreSQL's log takes 16 MiB. */
const limits = {
  low: { ratio: 0.05, bytes: 256 * 1024 * 1024 },
  full: { ratio: 0.01, bytes: 64 * 1024 * 1024 },
} as const
/** A state ends only when the free space is this many times its limit; otherwise, near the limit, every file would change the state. */
const leaveFactor = 1.25
const lookMs = { ok: 2_000, low: 250, full: 1_000 } as const
/** A shorter time would make too many callers retry at the same time, and no one frees disk space in a second. */
export const fullDiskRetrySeconds = 30

/**
 * Returns the reading of the directory whose disk has the least room, because each directory may be on its own disk. Ignores missing
 * directories. Throws the error of `statfs` if it can read none.
 */
export const scarcestOf = async (
  dirs: readonly string[],
  read: (dir: string) => Promise<DiskSpace> = readDiskSpace,
): Promise<DiskSpace> => {
  const readings = await Promise.allSettled(dirs.map((dir) => read(dir)))
  const spaces = readings.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []))
  const [scarcest] = spaces.toSorted(
    (one, other) => rank[diskStateOf(one)] - rank[diskStateOf(other)] || one.freeBytes - other.freeBytes,
  )
  if (scarcest !== undefined) return scarcest
  throw readings.find((one) => one.status === 'rejected')?.reason ?? new Error('no directory was named')
}

const rank = { full: 0, low: 1, ok: 2 } as const

const readDiskSpace = async (path: string): Promise<DiskSpace> => {
  const { bavail, bfree, blocks, bsize, ffree, files } = await statfs(path)
  // As in `df`, space reserved for root counts neither as used nor as free.
  const usable = blocks - bfree + bavail
  const bytesRatio = usable === 0 ? 0 : bavail / usable
  // Some file systems have no fixed number of files.
  const filesRatio = files === 0 ? 1 : ffree / files
  return {
    freeBytes: bavail * bsize,
    totalBytes: usable * bsize,
    freeRatio: Math.min(bytesRatio, filesRatio),
  }
}

const isBelow = ({ freeBytes, freeRatio }: DiskSpace, state: 'low' | 'full', factor: number): boolean =>
  freeRatio < limits[state].ratio * factor || freeBytes < limits[state].bytes * factor

/** Returns the new state of a disk; `before` is the previous state. */
export const diskStateOf = (space: DiskSpace, before: DiskState = 'ok'): DiskState => {
  if (isBelow(space, 'full', before === 'full' ? leaveFactor : 1)) return 'full'
  return isBelow(space, 'low', before === 'ok' ? 1 : leaveFactor) ? 'low' : 'ok'
}

/** `dirs` are the directories that are written to; the list is empty if their disk cannot be read from this host. */
export const createDiskWatch = ({
  dirs,
  logger,
  read = readDiskSpace,
}: {
  readonly dirs: readonly string[]
  readonly logger: OutageLogger
  readonly read?: (dir: string) => Promise<DiskSpace>
}): DiskWatch => {
  let seen: ReturnType<DiskWatch['seen']> = null
  let timer: NodeJS.Timeout | undefined
  let watching: Promise<void> | undefined
  let closed = false
  let failed = false

  const look = async (): Promise<void> => {
    try {
      const space = await scarcestOf(dirs, read)
      const before = seen?.state ?? 'ok'
      const state = diskStateOf(space, before)
      seen = { space, state }
      if (state !== before) tell(logger, dirs[0], seen)
      failed = false
    } catch (error) {
      // Keeps the last state, because a failed reading does not show how much room there is.
      if (!failed) logger.warn({ err: error, dir: dirs[0] }, 'disk space: the free space cannot be read')
      failed = true
    }
    if (!closed) timer = setTimeout(() => void look(), lookMs[seen?.state ?? 'ok']).unref()
  }
  return {
    watch: async () => {
      if (dirs.length === 0) return
      watching ??= look()
      await watching
    },
    isFull: () => seen?.state === 'full',
    seen: () => seen,
    close: () => {
      closed = true
      clearTimeout(timer)
    },
  }
}

const tell = (
  logger: OutageLogger,
  dir: string | undefined,
  { space, state }: { readonly space: DiskSpace; readonly state: DiskState },
): void => {
  const fields = { dir, free_bytes: space.freeBytes, free_ratio: Math.round(space.freeRatio * 1e4) / 1e4 }
  if (state === 'full') logger.error(fields, 'disk space: full; new calls are refused until there is more')
  else if (state === 'low') logger.warn(fields, 'disk space: low; see "doctor"')
  else logger.info(fields, 'disk space: enough again')
}

/** Returns the free space as text for logs and pages. */
export const spaceText = ({ freeBytes, totalBytes, freeRatio }: DiskSpace): string =>
  `${(freeRatio * 100).toFixed(1)} % free, ${bytesText(freeBytes)} of ${bytesText(totalBytes)}`

export const bytesText = (bytes: number): string => {
  const units = ['B', 'kB', 'MB', 'GB', 'TB', 'PB']
  const step = bytes < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log10(bytes) / 3))
  const value = bytes / 1_000 ** step
  return `${step === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[step]}`
}
