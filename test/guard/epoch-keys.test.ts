/** The keys for personal data: one for each epoch, in a directory shared by several processes. */
import { cp, mkdir, mkdtemp, readdir, readFile, rename, rm, stat, unlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { afterAll, afterEach, beforeEach, describe, expect, test } from 'vitest'
import { createEpochKeyFiles, EpochKeyFault } from '../../src/guard/secrets/epoch-key-files.ts'
import type { EpochKeys } from '../../src/guard/secrets/epoch-keys.ts'
import { destroyedByMs, epochMs, epochOf } from '../../src/guard/secrets/epochs.ts'
import { processKeys, secretKey } from '../support/epoch-keys.ts'
import { exhaustive } from '../support/exhaustive.ts'
import { testDatabase } from '../support/postgres.ts'

let pool: pg.Pool
let root = ''
let dir = ''
const epoch = 716
let nowMs = 0
const clock = { now: () => nowMs }
const opened: EpochKeys[] = []

const database = await testDatabase()
afterAll(() => database.drop())
beforeEach(async () => {
  pool = new pg.Pool({ connectionString: database.url, max: 8 })
  pool.on('error', () => undefined)
  await pool.query('truncate epoch_keys')
  root = await mkdtemp(join(tmpdir(), 'epoch-keys-'))
  dir = join(root, 'keys')
  nowMs = epoch * epochMs + 1_000
})
afterEach(async () => {
  for (const keys of opened.splice(0)) keys.close()
  // The pool is closed, so that a check in progress cannot register keys. The next test would miss their files in its directory.
  await pool.end()
  await rm(root, { recursive: true, force: true })
})

const process = (more: Partial<Parameters<typeof processKeys>[0]> = {}): EpochKeys => {
  const keys = processKeys({ pool, dir, clock, ...more })
  opened.push(keys)
  return keys
}
const seal = (keys: EpochKeys, text = 'a text') => keys.sealer('a purpose').seal(text, 'a context')
const open = (keys: EpochKeys, sealed: string) => keys.sealer('a purpose').open(sealed, 'a context')
const keyFiles = async () => (await readdir(dir)).sort()
const registered = async () =>
  (await pool.query('select key_id, epoch, destroyed_at is not null as gone from epoch_keys order by epoch'))
    .rows
const settle = async (keys: EpochKeys, of = epoch) => {
  for (const key of await keys.list()) if (key.epoch === of) await keys.settleDestroyed(key)
}

describe('a key', () => {
  test('is created when first needed, readable by its owner only, and what it seals begins with its id', async () => {
    const keys = process()
    await expect(stat(dir)).rejects.toThrow('ENOENT')
    const sealed = await seal(keys)
    const { id } = await keys.current()
    expect(sealed.slice(0, sealed.indexOf('.'))).toBe(id)
    expect(id).toMatch(/^716-[\w-]{8}$/)
    expect(open(keys, sealed)).toBe('a text')
    expect(await keyFiles()).toEqual(['716.key'])
    expect((await stat(dir)).mode & 0o777).toBe(0o700)
    expect((await stat(join(dir, '716.key'))).mode & 0o777).toBe(0o600)
    expect(await registered()).toEqual([{ key_id: id, epoch, gone: false }])
  })

  test('that many processes need at the same time is created once, and each opens what the others sealed', async () => {
    const all = Array.from({ length: 24 }, () => process())
    const sealed = await Promise.all(all.map((keys, n) => seal(keys, `text ${n}`)))
    expect(await keyFiles()).toEqual(['716.key'])
    expect(await registered()).toHaveLength(1)
    for (const keys of all)
      expect(sealed.map((one) => open(keys, one))).toEqual(all.map((_, n) => `text ${n}`))
  })

  test('is never read partially: while it is written, a read finds nothing or all of it', async () => {
    const files = createEpochKeyFiles({
      dir,
      makeDir: async () => void (await mkdir(dir, { recursive: true })),
      secretKey,
    })
    let seen = 0
    for (let n = 1; n <= 12; n++) {
      let made = false
      const making = Promise.all([1, 2, 3].map(() => files.create(n))).then(() => {
        made = true
      })
      while (!made) {
        if (files.readSync(n) !== null) seen++
        await files.list()
        await new Promise((resolve) => setImmediate(resolve))
      }
      await making
      expect(files.readSync(n)?.epoch).toBe(n)
    }
    expect(seen).toBeGreaterThan(0)
    expect((await keyFiles()).filter((name) => name.startsWith('.'))).toEqual([])
  })

  test('seals for one purpose and one context', async () => {
    const keys = process()
    const sealed = await seal(keys)
    expect(keys.sealer('another').open(sealed, 'a context')).toBeNull()
    expect(keys.sealer('a purpose').open(sealed, 'another')).toBeNull()
  })

  test.each([
    '',
    '.',
    'x.y',
    '716-aaaaaaaa.AAAA',
    '716-aaaaaaaa',
    '99999999-aaaaaaaa.A',
    '../716.A',
    'A'.repeat(200),
  ])('opens nothing that was never sealed: %j', async (text) => {
    const keys = process()
    await seal(keys)
    expect(open(keys, text)).toBeNull()
  })

  test('opens nothing without the installation key, and the installation key opens nothing without it', async () => {
    const sealed = await seal(process())
    const stranger = process({ secretKey: 'another secret key, guessed by a stranger' })
    expect(open(stranger, sealed)).toBeNull()
    expect(stranger.failure()?.message).toContain('belongs to another installation')
    await expect(seal(stranger)).rejects.toThrow('belongs to another installation')
    await unlink(join(dir, '716.key'))
    expect(open(process(), sealed)).toBeNull()
  })
})

describe('at the end of an epoch', () => {
  test('processes whose clocks differ open what the others sealed, each under the key of its own time', async () => {
    let lateMs = nowMs
    const [early, late] = [process(), process({ clock: { now: () => lateMs } })]
    nowMs = (epoch + 1) * epochMs + 60_000
    lateMs = (epoch + 1) * epochMs - 60_000
    const [one, other] = [await seal(early), await seal(late)]
    expect([one, other].map((sealed) => sealed.slice(0, 3))).toEqual(['717', '716'])
    expect([open(late, one), open(early, other)]).toEqual(['a text', 'a text'])
    lateMs = nowMs
    expect((await seal(late)).slice(0, 3)).toBe('717')
    expect(await keyFiles()).toEqual(['716.key', '717.key'])
  })

  test('a destroyed key opens nothing, and is not created again', async () => {
    const [keys, other] = [process(), process()]
    const sealed = await seal(keys)
    nowMs += epochMs
    await seal(keys)
    await settle(keys)
    expect(open(keys, sealed)).toBeNull()
    expect(open(process(), sealed)).toBeNull()
    expect((await keyFiles()).map((name) => name.replace(/-.{8}/, ''))).toEqual(['716.destroyed', '717.key'])
    expect((await registered()).map(({ gone }) => gone)).toEqual([true, false])
    expect((await seal(other)).slice(0, 3)).toBe('717')
  })

  test('no byte of a destroyed key remains under another name', async () => {
    const keys = process()
    await seal(keys)
    // Simulates a process that died after it had created a key file and before it removed the file's temporary name.
    await cp(join(dir, '716.key'), join(dir, '.716-of-a-process-that-died'))
    nowMs += epochMs
    await seal(keys)
    await settle(keys)
    expect((await keyFiles()).filter((name) => /^\.?716(?!.*destroyed)/.test(name))).toEqual([])
  })

  test('an interruption between the mark, the file and the database is completed later', async () => {
    const keys = process()
    await seal(keys)
    const { id } = await keys.current()
    nowMs += epochMs
    await seal(keys)
    await writeFile(join(dir, `${id}.destroyed`), '')
    await settle(process())
    expect((await registered()).map(({ gone }) => gone)).toEqual([true, false])
    await pool.query('update epoch_keys set destroyed_at = null')
    const again = process()
    expect((await again.list()).map(({ state }) => state)).toEqual(['present', 'destroyed'])
    await seal(again)
    await settle(again)
    expect((await registered()).map(({ gone }) => gone)).toEqual([true, false])
  })

  test('the remains of a process that was killed while it destroyed a key are removed by the next check', async () => {
    const keys = process()
    await seal(keys)
    const { id } = await keys.current()
    nowMs += epochMs
    await seal(keys)
    await writeFile(join(dir, `${id}.destroyed`), '')
    await rename(join(dir, '716.key'), join(dir, '.716-that-lost-its-name'))
    const next = process()
    expect((await next.list()).map(({ state }) => state)).toEqual(['present', 'destroyed'])
    await settle(next)
    expect((await keyFiles()).map((name) => name.replace(/-.{8}/, ''))).toEqual(['716.destroyed', '717.key'])
  })

  test('a reader of a key that is being destroyed finds all of it or nothing', {
    skip: !exhaustive,
  }, async () => {
    const keys = process()
    for (let round = 0; round < 40; round++) {
      nowMs += epochMs
      const { id, epoch: current } = await keys.current()
      const files = createEpochKeyFiles({ dir, makeDir: async () => undefined, secretKey })
      let destroyed = false
      const destroying = files.destroy({ id, epoch: current }).finally(() => {
        destroyed = true
      })
      while (!destroyed) expect([[], [id]]).toContainEqual((await files.list()).keys.map((key) => key.id))
      await destroying
      expect((await files.list()).keys).toEqual([])
    }
  })

  test('the last copy of data deleted today disappears at most 31 days later', async () => {
    const keys = process()
    await seal(keys)
    expect(await keys.lastCopyGoneByMs()).toBe(destroyedByMs(epoch))
    nowMs = (epoch + 1) * epochMs - 1
    expect((await keys.lastCopyGoneByMs()) - nowMs).toBeLessThanOrEqual(31 * 86_400_000)
    // One clock is fast, so the next key exists and may have sealed something.
    nowMs += 60_000
    await seal(process())
    nowMs -= 60_000
    expect(await keys.lastCopyGoneByMs()).toBe(destroyedByMs(epoch + 1))
  })
})

describe('a directory that does not match the data', () => {
  const lost =
    /^the keys? 716-.{8} under which this database's data is sealed (is|are) missing, so no new key is created\. Mount or restore/

  test('is refused if it is not mounted, and nothing is created in its place', async () => {
    await seal(process())
    await rename(dir, `${dir}-elsewhere`)
    for (const atMs of [nowMs, nowMs + epochMs]) {
      nowMs = atMs
      const keys = process()
      await expect(keys.watch()).rejects.toThrow(EpochKeyFault)
      await expect(keys.current()).rejects.toThrow(lost)
      await expect(seal(keys)).rejects.toThrow('nothing can be sealed: the key')
      expect(keys.failure()?.message).toMatch(lost)
    }
    await expect(stat(dir)).rejects.toThrow('ENOENT')
    await rename(`${dir}-elsewhere`, dir)
    const keys = process()
    await keys.watch()
    expect(keys.failure()).toBeNull()
  })

  test('is refused if it is empty, or belongs to another installation', async () => {
    await seal(process())
    await rename(dir, `${dir}-elsewhere`)
    await mkdir(dir)
    await expect(seal(process())).rejects.toThrow('is missing')
    expect(await keyFiles()).toEqual([])
    await pool.query('begin; truncate epoch_keys; commit')
    await cp(`${dir}-elsewhere`, dir, { recursive: true })
    await expect(seal(process({ secretKey: 'the secret key of another installation' }))).rejects.toThrow(
      '716.key is damaged or belongs to another installation',
    )
  })

  test('that is not shared is detected with the database: one process seals, the other refuses', async () => {
    const other = join(root, 'other')
    const both = await Promise.allSettled([seal(process()), seal(process({ dir: other }))])
    expect(both.filter(({ status }) => status === 'fulfilled')).toHaveLength(1)
    expect(String(both.find((one) => one.status === 'rejected')?.reason)).toMatch(
      /is missing|does not exist|a different key of epoch 716 than the directory of other processes/,
    )
    expect(await registered()).toHaveLength(1)
  })

  test('that was restored from a copy lacks the newest key, and does not bring back a destroyed one', async () => {
    const keys = process()
    const sealed = await seal(keys)
    await cp(dir, `${dir}-copy`, { recursive: true })
    nowMs += epochMs
    await seal(keys)
    await settle(keys)
    await rm(dir, { recursive: true })
    await cp(`${dir}-copy`, dir, { recursive: true })
    await expect(seal(process())).rejects.toThrow(/the key 717-.{8} under which/)
    nowMs -= epochMs
    await pool.query('delete from epoch_keys where epoch = 717')
    await expect(seal(process())).rejects.toThrow(`${sealed.slice(0, 12)} was destroyed, but exists again`)
  })

  test('that is newer than a restored database is used: destroyed keys stay destroyed', async () => {
    const keys = process()
    const sealed = await seal(keys)
    const { rows } = await pool.query('select * from epoch_keys')
    nowMs += epochMs
    await seal(keys)
    await settle(keys)
    await pool.query('truncate epoch_keys')
    await pool.query('insert into epoch_keys (key_id, epoch) values ($1, $2)', [
      rows[0].key_id,
      rows[0].epoch,
    ])
    const restored = process()
    expect((await seal(restored)).slice(0, 3)).toBe('717')
    expect(open(restored, sealed)).toBeNull()
    expect((await restored.list()).map(({ state, epoch: of }) => `${of} ${state}`)).toEqual([
      '717 present',
      '716 destroyed',
    ])
  })

  test('with a key that was not registered, because its process died, is used', async () => {
    await seal(process())
    await pool.query('truncate epoch_keys')
    const { id } = await process().current()
    expect(await registered()).toEqual([{ key_id: id, epoch, gone: false }])
  })

  test('with a damaged key is refused, with the name of the file', async () => {
    await seal(process())
    await writeFile(join(dir, '716.key'), (await readFile(join(dir, '716.key'), 'utf8')).slice(0, 30))
    await expect(seal(process())).rejects.toThrow('716.key is damaged')
  })

  test('that cannot be read is refused, with its name', async () => {
    await seal(process())
    await rm(join(dir, '716.key'))
    await mkdir(join(dir, '716.key'))
    await expect(seal(process())).rejects.toThrow(
      `${dir} cannot be read (EISDIR). Check KEY_DIR and its disk.`,
    )
  })
})

describe('a running process', () => {
  const untilTrue = async (condition: () => boolean): Promise<void> => {
    while (!condition()) await new Promise((resolve) => setTimeout(resolve, 5))
  }

  test('is not ready while its key is missing, and seals nothing; it recovers by itself', async () => {
    const keys = process({ watchMs: 10 })
    expect(keys.failure()?.message).toContain('has not been read yet')
    await keys.watch()
    expect(keys.failure()).toBeNull()
    await rename(dir, `${dir}-elsewhere`)
    await untilTrue(() => keys.failure() !== null)
    await expect(seal(keys)).rejects.toThrow('nothing can be sealed')
    await rename(`${dir}-elsewhere`, dir)
    await untilTrue(() => keys.failure() === null)
    expect(open(keys, await seal(keys))).toBe('a text')
  })

  test('seals nothing under a key that exists only in its memory, watched or not', async () => {
    const keys = process({ watchMs: 1 })
    await seal(keys)
    await rename(dir, `${dir}-elsewhere`)
    await new Promise((resolve) => setTimeout(resolve, 5))
    await expect(seal(keys)).rejects.toThrow('nothing can be sealed: the key 716')
  })

  test('removes from memory a key that another process destroyed', async () => {
    const [keys, other] = [process({ watchMs: 10 }), process()]
    await keys.watch()
    const sealed = await seal(keys)
    expect(open(keys, sealed)).toBe('a text')
    nowMs += epochMs
    await seal(other)
    await settle(other)
    await untilTrue(() => open(keys, sealed) === null)
    expect(keys.failure()).toBeNull()
  })

  test('has the key of the next epoch when it begins', async () => {
    const keys = process({ watchMs: 60_000 })
    await keys.watch()
    nowMs += epochMs
    expect(epochOf(nowMs)).toBe(epoch + 1)
    keys.failure()
    await untilTrue(() => keys.failure() === null)
    await expect(keys.current()).resolves.toMatchObject({ epoch: epoch + 1 })
  })
})
