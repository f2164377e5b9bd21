/** The limits at which a disk counts as low, full or recovered, and the log lines about it. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import {
  bytesText,
  createDiskWatch,
  type DiskSpace,
  diskStateOf,
  scarcestOf,
} from '../../src/guard/disk-space.ts'

const tera = 1e12
const mebi = 1024 ** 2

const large = (freeRatio: number): DiskSpace => ({ freeBytes: tera * freeRatio, totalBytes: tera, freeRatio })
const small = (freeBytes: number): DiskSpace => ({
  freeBytes,
  totalBytes: 1_000 * mebi,
  freeRatio: freeBytes / (1_000 * mebi),
})

describe('the state of a disk', () => {
  test.each([
    [0.06, 'ok', 'ok'],
    [0.0499, 'ok', 'low'],
    [0.0101, 'low', 'low'],
    [0.0099, 'low', 'full'],
    [0.0099, 'ok', 'full'],
    [0.012, 'full', 'full'],
    [0.0126, 'full', 'low'],
    [0.06, 'low', 'low'],
    [0.0626, 'low', 'ok'],
    [0.5, 'full', 'ok'],
  ] as const)('with %d free, after "%s", is "%s"', (ratio, before, expected) => {
    expect(diskStateOf(large(ratio), before)).toBe(expected)
  })

  test('of a small disk depends on bytes: a segment of the PostgreSQL log is 16 MiB on any disk', () => {
    expect(diskStateOf(small(300 * mebi))).toBe('ok')
    expect(diskStateOf(small(200 * mebi))).toBe('low')
    expect(diskStateOf(small(60 * mebi))).toBe('full')
    expect(diskStateOf(small(75 * mebi), 'full')).toBe('full')
    expect(diskStateOf(small(85 * mebi), 'full')).toBe('low')
  })

  test('depends on files if they are scarcer than bytes', () => {
    expect(diskStateOf({ freeBytes: tera, totalBytes: 2 * tera, freeRatio: 0.004 })).toBe('full')
  })
})

test("the figures of a directory's disk equal those of df", async () => {
  const dir = await mkdtemp(join(tmpdir(), 'disk-space-'))
  const { freeBytes, totalBytes, freeRatio } = await scarcestOf([dir])
  expect(freeBytes).toBeGreaterThan(0)
  expect(totalBytes).toBeGreaterThan(freeBytes)
  expect(freeRatio).toBeLessThanOrEqual(freeBytes / totalBytes)
  await rm(dir, { recursive: true })
})

test('of several disks the fullest one counts, and missing directories do not', async () => {
  const disks: Record<string, DiskSpace> = {
    '/data': large(0.5),
    '/data/postgres': small(300 * mebi),
    '/data/postgres/pg_wal': { ...large(0.9), freeBytes: 60 * mebi },
  }
  const read = async (dir: string): Promise<DiskSpace> => {
    const found = disks[dir]
    if (found === undefined) throw Object.assign(new Error('ENOENT'), { code: 'ENOENT' })
    return found
  }
  expect(await scarcestOf([...Object.keys(disks), '/nowhere'], read)).toBe(disks['/data/postgres/pg_wal'])
  expect(await scarcestOf(['/data', '/data/postgres'], read)).toBe(disks['/data/postgres'])
  await expect(scarcestOf(['/nowhere'], read)).rejects.toThrow('ENOENT')
})

test.each([
  [0, '0 B'],
  [999, '999 B'],
  [1_280, '1.3 kB'],
  [123_456_789, '123 MB'],
  [2.5e12, '2.5 TB'],
])('%d bytes are "%s"', (bytes, text) => {
  expect(bytesText(bytes)).toBe(text)
})

describe('the watch', () => {
  const logged: string[] = []
  const logger = {
    info: (_fields: object, message: string) => void logged.push(`info ${message}`),
    warn: (_fields: object, message: string) => void logged.push(`warn ${message}`),
    error: (_fields: object, message: string) => void logged.push(`error ${message}`),
  }
  beforeEach(() => {
    logged.length = 0
    vi.useFakeTimers()
  })
  afterEach(() => void vi.useRealTimers())

  const answering = (...answers: (DiskSpace | Error)[]) => {
    let asked = 0
    const read = async (): Promise<DiskSpace> => {
      const answer = answers[Math.min(asked++, answers.length - 1)] ?? new Error('no answer')
      if (answer instanceof Error) throw answer
      return answer
    }
    return { read, asked: () => asked }
  }
  const pass = (ms: number) => vi.advanceTimersByTimeAsync(ms)

  test('logs each change once, and recovers by itself', async () => {
    const { read } = answering(large(0.5), large(0.04), large(0.03), large(0.009), large(0.009), large(0.4))
    const watch = createDiskWatch({ dirs: ['/data'], logger, read })
    expect([watch.isFull(), watch.seen()]).toEqual([false, null])
    await watch.watch()
    await watch.watch()
    expect([watch.isFull(), watch.seen()?.state, logged]).toEqual([false, 'ok', []])
    await pass(2_000 + 250 + 250)
    expect(watch.isFull()).toBe(true)
    await pass(2_000)
    expect([watch.isFull(), watch.seen()?.state]).toEqual([false, 'ok'])
    expect(logged).toEqual([
      'warn disk space: the disk is nearly full; see "doctor"',
      'error disk space: the disk is full; new calls are refused until space is freed',
      'info disk space: there is enough free space again',
    ])
    watch.close()
  })

  test('keeps the last state while the disk cannot be read, logs that once, and keeps trying', async () => {
    const away = new Error('EIO')
    const { read } = answering(large(0.009), away, away, away, large(0.5))
    const watch = createDiskWatch({ dirs: ['/data'], logger, read })
    await watch.watch()
    await pass(3_000)
    expect(watch.isFull()).toBe(true)
    expect(logged.slice(1)).toEqual(['warn disk space: the free space cannot be read'])
    await pass(1_000)
    expect(watch.isFull()).toBe(false)
    watch.close()
  })

  test('refuses nothing if the disk could never be read, or is not on this host', async () => {
    const { read } = answering(new Error('ENOENT'))
    const unknown = createDiskWatch({ dirs: ['/nowhere'], logger, read })
    await unknown.watch()
    expect([unknown.isFull(), unknown.seen()]).toEqual([false, null])
    unknown.close()
    const elsewhere = answering(large(0))
    const none = createDiskWatch({ dirs: [], logger, read: elsewhere.read })
    await none.watch()
    expect([none.isFull(), none.seen(), elsewhere.asked()]).toEqual([false, null, 0])
  })

  test('ends when it is closed, even during a check', async () => {
    const measured = Promise.withResolvers<DiskSpace>()
    let asked = 0
    const read = () => {
      asked++
      return measured.promise
    }
    const watch = createDiskWatch({ dirs: ['/data'], logger, read })
    const looked = watch.watch()
    watch.close()
    measured.resolve(large(0.5))
    await looked
    // If the watch continued, its next check would follow after two seconds. The test cannot count timers instead, because other
    // test files in this process have timers.
    await pass(60_000)
    expect(asked).toBe(1)
  })
})
