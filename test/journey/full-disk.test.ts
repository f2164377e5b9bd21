import { execFile } from 'node:child_process'
import { mkdtemp, open, readFile, rm, statfs } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterEach, expect, test } from 'vitest'
import {
  cli,
  cliJson,
  createPartner,
  eventually,
  exportLedger,
  failedStart,
  lookup,
  type Service,
  startService,
} from '../support/service.ts'

/**
 * The disk of the embedded PostgreSQL fills under load. Before PostgreSQL fails, new calls are refused and calls in flight are
 * answered. Once there is room, calls are accepted again. Before that, the disk is too small for the first start.
 */

const run = promisify(execFile)
const callers = 8
const mib = 1024 * 1024
/** The free space that the test leaves. Below 64 MiB calls are refused, and PostgreSQL needs 16 MiB for its next segment. */
const leftBytes = 44 * mib

const dataDir = await mkdtemp(join(tmpdir(), 'full-disk-'))
const environment = { DATA_DIR: dataDir, EMAIL_PROBE: 'off' }
let mounted = false
let service: Service | undefined

afterEach(async () => {
  await service?.end('SIGTERM')
  if (mounted) await run('umount', [dataDir])
  await rm(dataDir, { recursive: true, force: true })
})

/** Mounts a small disk that the test can fill. Returns false without root's rights. */
const smallDisk = async (size: string): Promise<boolean> => {
  if (process.getuid?.() !== 0) return false
  mounted = await run('mount', ['-t', 'tmpfs', '-o', `size=${size}`, 'tmpfs', dataDir]).then(
    () => true,
    () => false,
  )
  return mounted
}
const enlarge = (size: string) => run('mount', ['-o', `remount,size=${size}`, dataDir])

const freeBytes = async (): Promise<number> => {
  const { bavail, bsize } = await statfs(dataDir)
  return bavail * bsize
}

const fillUpTo = async (path: string, left: number): Promise<void> => {
  const file = await open(path, 'w')
  try {
    while ((await freeBytes()) > left + mib) await file.write(Buffer.alloc(mib))
  } finally {
    await file.close()
  }
}

const readiness = async (url: string) => {
  const response = await fetch(`${url}/readyz`)
  const { checks } = (await response.json()) as {
    checks: Record<string, { status: string; detail?: string }>
  }
  return { status: response.status, disk: checks.disk_space }
}

const figure = async (url: string, name: string): Promise<number> =>
  Number(new RegExp(`^${name} (\\S+)$`, 'm').exec(await (await fetch(`${url}/metrics`)).text())?.[1])

/** The output of a start that fails for lack of space shows the remedy, without a stack trace. */
const expectRemedy = async (remedy: string): Promise<void> => {
  const printed = await failedStart(environment)
  expect(printed).toContain('the service ended with 1 before it answered:')
  expect(printed).toContain(remedy)
  expect(printed).not.toMatch(/^ +at /m)
}

test('a full disk: starts that fail print the remedy; later, 503 with Retry-After before PostgreSQL fails, and calls are neither lost nor charged twice', async ({
  skip,
}) => {
  if (!(await smallDisk('4k'))) skip('only root can mount a disk that is small enough to fill')
  await expectRemedy(
    `The disk of DATA_DIR ${dataDir} is full. Free space, or set DATA_DIR to a directory on another disk.`,
  )
  await enlarge('30m')
  await expectRemedy('Check that the disk has space and is writable.')
  // A start with enough space works, although two were interrupted at different places.
  await enlarge('600m')
  const running = await startService(environment)
  service = running
  const partner = await createPartner('1000000', environment)
  const postmaster = async (): Promise<string> =>
    (await readFile(join(dataDir, 'postgres', 'postmaster.pid'), 'utf8')).split('\n')[0] ?? ''
  const pid = await postmaster()

  const answered: string[] = []
  const refused: string[] = []
  const strange: unknown[] = []
  let ended = false
  const call = async (caller: number): Promise<void> => {
    for (let i = 0; !ended; i++) {
      const { status, body, headers } = await lookup(
        running.apiUrl,
        partner.apiKey,
        `8.${caller}.${i % 250}.8`,
      )
      if (status === 200) answered.push(String(body.request_id))
      else {
        if (status !== 503 || body.code !== 'SYS_002' || headers.get('retry-after') !== '30')
          strange.push([status, body, headers.get('retry-after')])
        refused.push(String(body.request_id))
        // A caller that gets Retry-After waits. The wait here is shorter.
        await new Promise((resolve) => setTimeout(resolve, 20))
      }
    }
  }
  const calling = Promise.all(Array.from({ length: callers }, (_, caller) => call(caller)))
  await eventually(async () => (answered.length >= 200 ? true : undefined))
  expect((await readiness(running.apiUrl)).disk?.status).toBe('ok')

  await fillUpTo(join(dataDir, 'ballast'), leftBytes)
  await eventually(async () => (refused.length >= 100 ? true : undefined))
  const full = await readiness(running.apiUrl)
  expect(full).toEqual({ status: 503, disk: { status: 'failed' } })
  expect((await readiness(running.metricsUrl)).disk?.detail).toMatch(/% free, \d+(\.\d)? MB of 629 MB/)
  expect(await figure(running.metricsUrl, 'enrichment_disk_full')).toBe(1)
  expect(await figure(running.metricsUrl, 'enrichment_disk_free_ratio')).toBeLessThan(0.12)
  const { code, out } = await cli(['doctor', '--json'], environment)
  expect(code).toBe(1)
  expect(JSON.parse(out).findings).toContainEqual(
    expect.objectContaining({ about: 'disk of DATA_DIR', level: 'fault' }),
  )
  // Refused calls write nothing, so any number of them leaves the free space unchanged.
  const before = await freeBytes()
  const refusedBefore = refused.length
  await eventually(async () => (refused.length >= refusedBefore + 500 ? true : undefined))
  expect(before - (await freeBytes())).toBeLessThan(16 * mib)
  expect(await postmaster()).toBe(pid)

  const answeredBefore = answered.length
  await rm(join(dataDir, 'ballast'))
  await eventually(async () => (answered.length >= answeredBefore + 100 ? true : undefined))
  expect((await readiness(running.apiUrl)).status).toBe(200)
  ended = true
  await calling
  expect(strange).toEqual([])

  expect(running.output()).toContain('new calls are refused until space is freed')
  expect(running.output()).not.toContain('stopped unexpectedly')
  const events = await exportLedger(partner.organizationId, environment)
  const charges = events.filter(({ type }) => type === 'CreditCharged')
  expect(charges.map(({ metadata }) => metadata.request_id).toSorted()).toEqual(answered.toSorted())
  const recorded = new Set(events.map(({ metadata }) => metadata.request_id))
  expect(refused.filter((requestId) => recorded.has(requestId))).toEqual([])
  expect(await cliJson(['ledger', 'verify', partner.organizationId], environment)).toMatchObject({ ok: true })
  console.log(
    `${answered.length} answered, ${refused.length} refused; the PostgreSQL of the start still runs`,
  )
}, 180_000)
