import { statfs } from 'node:fs/promises'
import type { OutageLogger } from '../concurrency/outage.ts'

/**
 * Watches the disk to which this installation writes. Without room for its next log segment, PostgreSQL would stop in the middle of calls, so
 * new calls are refused before that. Calls in progress are still answered.
 */

export type DiskSpace = {
  /** The bytes that an unprivileged process can still write. */
  readonly freeBytes: number
  readonly totalBytes: number
  /** The share of free bytes or of free inodes, whichever is smaller, because a disk without free inodes accepts no new files. */
  readonly freeRatio: number
}

type DiskState = 'ok' | 'low' | 'full'

export type DiskWatch = {
  /** Checks now, and then repeatedly until `close`. Never rejects. */
  watch(): Promise<void>
  /** Whether new calls must be refused. False if nothing is watched. */
  isFull(): boolean
  /** Returns the last reading, or null if there is none. */
  seen(): { readonly space: DiskSpace; readonly state: DiskState } | null
  close(): void
}

/** Each limit is a share of the disk, but at least a number of bytes. A segment of PostgreSQL's log needs 16 MiB. */
const limits = {
  low: { ratio: 0.05, bytes: 256 * 1024 * 1024 },
  full: { ratio: 0.01, bytes: 64 * 1024 * 1024 },
} as const
/** A state ends only when the free space is this many times its limit. Otherwise, the state would change constantly near the limit. */
const leaveFactor = 1.25
const lookMs = { ok: 2_000, low: 250, full: 1_000 } as const
/** Freeing disk space takes time, and a shorter time would cause too many retries. */
export const fullDiskRetrySeconds = 30

/**
 * Returns the reading of the disk with the least free space, because each directory can be on its own disk. Ignores missing directories. Throws
 * the error of `statfs` if no directory can be read.
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
  throw readings.find((one) => one.status === 'rejected')?.reason ?? new Error('no directory was given')
}

const rank = { full: 0, low: 1, ok: 2 } as const

const readDiskSpace = async (path: string): Promise<DiskSpace> => {
  const { bavail, bfree, blocks, bsize, ffree, files } = await statfs(path)
  // As in `df`, the space reserved for root counts neither as used nor as free.
  const usable = blocks - bfree + bavail
  const bytesRatio = usable === 0 ? 0 : bavail / usable
  // Some file systems do not limit the number of files.
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

/** `dirs` are the directories to which the installation writes. If they are on another host, the list is empty. */
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
      // The last state is kept, because the free space is unknown.
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
  if (state === 'full')
    logger.error(fields, 'disk space: the disk is full; new calls are refused until space is freed')
  else if (state === 'low') logger.warn(fields, 'disk space: the disk is nearly full; see "doctor"')
  else logger.info(fields, 'disk space: there is enough free space again')
}

export const spaceText = ({ freeBytes, totalBytes, freeRatio }: DiskSpace): string =>
  `${(freeRatio * 100).toFixed(1)} % free, ${bytesText(freeBytes)} of ${bytesText(totalBytes)}`

export const bytesText = (bytes: number): string => {
  const units = ['B', 'kB', 'MB', 'GB', 'TB', 'PB']
  const step = bytes < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log10(bytes) / 3))
  const value = bytes / 1_000 ** step
  return `${step === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[step]}`
}
