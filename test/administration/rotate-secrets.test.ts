/** SECRET_KEY is rotated in steps of one append each. After every step a process can start, and existing data are unchanged. */
import { mkdtemp, readdir, readFile, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import {
  planRotation,
  rotateSecrets,
  secretKeyStatus,
} from '../../src/administration/secrets/rotate-secrets.ts'
import { type Config, parseConfig } from '../../src/config.ts'
import { installationStream } from '../../src/events/streams.ts'
import { openInstallationKey } from '../../src/foundation/installation-key.ts'
import { secretKeysOf } from '../../src/foundation/secret-key.ts'
import { secretKeyOf } from '../../src/guard/secrets/installation-key.ts'
import { createSecrets } from '../../src/guard/secrets/secrets.ts'
import { createMemoryEventLog, type MemoryEventLog } from '../support/memory-event-log.ts'

const [oldText, newText, otherText] = ['old', 'new', 'other'].map(
  (name) => `the ${name} SECRET_KEY of this installation`,
) as [string, string, string]
const [oldId, newId, otherId] = [oldText, newText, otherText].map((text) => secretKeyOf(text).id)

let memory: MemoryEventLog
let dir = ''
beforeEach(async () => {
  memory = createMemoryEventLog()
  dir = await mkdtemp(join(tmpdir(), 'rotate-secrets-'))
})
afterEach(() => rm(dir, { recursive: true, force: true }))

const database = 'postgres://nobody@127.0.0.1:1/none'
const given = (SECRET_KEY: string, SECRET_KEY_NEW?: string): Config =>
  parseConfig({ DATA_DIR: dir, DATABASE_URL: database, SECRET_KEY, SECRET_KEY_NEW })
const generated = (): Config => parseConfig({ DATA_DIR: dir })

const starts = async (config: Config): Promise<string> => {
  const key = await openInstallationKey(memory.client('process'), { secretKeys: await secretKeysOf(config) })
  return createSecrets(key).apiKeyHmac('a secret')
}
const rotating = (config: Config, client = 'cli') => ({
  config,
  actor: 'user:ada',
  foundation: { eventLog: memory.client(client) },
})
const rotate = (config: Config, ...[step = 'add']: [Parameters<typeof rotateSecrets>[1]?]) =>
  rotateSecrets(rotating(config), step)
const slotsNow = async () =>
  (await secretKeyStatus(rotating(given(oldText)))).map(({ id }) => id).toReversed()

describe('SECRET_KEY in the environment', () => {
  beforeEach(async () => void (await starts(given(oldText))))

  test('is rotated: both keys work during the rotation, and only the new one at the end, and existing data are unchanged', async () => {
    const before = await starts(given(oldText))
    expect(await planRotation(rotating(given(oldText, newText)), 'add')).toEqual({
      before: [oldId],
      after: [oldId, newId],
    })
    expect(await rotate(given(oldText, newText))).toEqual({
      before: [oldId],
      after: [oldId, newId],
      changed: true,
    })
    for (const config of [given(oldText), given(newText), given(oldText, newText), given(newText, oldText)])
      expect(await starts(config)).toBe(before)
    expect(await rotate(given(newText), 'finish')).toEqual({
      before: [oldId, newId],
      after: [newId],
      changed: true,
    })
    expect(await rotate(given(newText), 'finish')).toEqual({
      before: [newId],
      after: [newId],
      changed: false,
    })
    expect(await starts(given(newText))).toBe(before)
    expect(await starts(given(oldText, newText))).toBe(before)
    await expect(starts(given(oldText))).rejects.toThrow(`another key (id ${newId})`)
  })

  test('does not change if a step is repeated', async () => {
    for (let n = 0; n < 3; n++) await rotate(given(oldText, newText))
    expect(memory.eventsOf(installationStream)).toHaveLength(3)
    for (let n = 0; n < 3; n++) await rotate(given(newText), 'finish')
    expect(memory.eventsOf(installationStream)).toHaveLength(4)
  })

  test('a second rotation is refused during the first', async () => {
    await rotate(given(oldText, newText))
    await expect(rotate(given(oldText, otherText))).rejects.toThrow(`a rotation to ${newId} is in progress`)
    await expect(planRotation(rotating(given(oldText, otherText)), 'add')).rejects.toThrow('in progress')
    expect(await slotsNow()).toEqual([oldId, newId])
  })

  test('of two concurrent rotations, the first is made and the second changes nothing', async () => {
    const outcomes = await Promise.allSettled([
      rotateSecrets(rotating(given(oldText, newText), 'one'), 'add'),
      rotateSecrets(rotating(given(oldText, otherText), 'two'), 'add'),
    ])
    expect(outcomes.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected'])
    const slots = await slotsNow()
    expect([[newId], [otherId]]).toContainEqual(slots.slice(1))
    await starts(given(oldText))
  })

  test('the previous key stays while SECRET_KEY here still has its value, or that of an unknown key', async () => {
    await rotate(given(oldText, newText))
    await expect(rotate(given(oldText), 'finish')).rejects.toThrow(`SECRET_KEY is not ${newId}`)
    await expect(rotate(given(oldText, newText), 'finish')).rejects.toThrow(`SECRET_KEY is not ${newId}`)
    await expect(rotate(given(otherText), 'finish')).rejects.toThrow(`SECRET_KEY is not ${newId}`)
    expect(await slotsNow()).toEqual([oldId, newId])
  })

  test('a rotation whose new key is lost can be cancelled, and the next rotation can start', async () => {
    await rotate(given(oldText, newText))
    await rotate(given(oldText), 'cancel')
    await expect(starts(given(newText))).rejects.toThrow('SECRET_KEY')
    await rotate(given(oldText, otherText))
    expect(await slotsNow()).toEqual([oldId, otherId])
  })

  test('without SECRET_KEY_NEW nothing happens', async () => {
    await expect(rotate(given(oldText))).rejects.toThrow('SECRET_KEY_NEW is not set')
    await expect(rotate(given(otherText, newText))).rejects.toThrow(
      'SECRET_KEY does not open the installation key',
    )
    expect(memory.eventsOf(installationStream)).toHaveLength(2)
  })

  test('stored data contains no key', async () => {
    await rotate(given(oldText, newText))
    const stored = memory
      .eventsOf(installationStream)
      .map(({ data }) => data)
      .join()
    for (const text of [oldText, newText]) {
      expect(stored).not.toContain(text)
      expect(stored).not.toContain(Buffer.from(text).toString('base64url'))
    }
  })
})

describe('SECRET_KEY in DATA_DIR', () => {
  const keyFiles = async () => (await readdir(dir)).filter((name) => name.startsWith('secret_key')).sort()

  test('is rotated to a generated key; a process can start after every step, and after an interrupted one', async () => {
    const before = await starts(generated())
    const former = await readFile(join(dir, 'secret_key'), 'utf8')
    expect(await planRotation(rotating(generated()), 'add')).toMatchObject({
      after: [expect.any(String), null],
    })
    expect(await keyFiles()).toEqual(['secret_key'])
    const { after } = await rotate(generated())
    expect(await keyFiles()).toEqual(['secret_key', 'secret_key_new'])
    expect((await stat(join(dir, 'secret_key_new'))).mode & 0o777).toBe(0o600)
    expect(await starts(generated())).toBe(before)
    const made = await readFile(join(dir, 'secret_key_new'), 'utf8')
    // The slot was removed but the files were not updated, as if the command had been killed between these steps.
    await rotateSecrets(rotating(given(made.trim())), 'finish')
    expect(await starts(generated())).toBe(before)
    expect(await rotate(generated(), 'finish')).toEqual({
      before: after.slice(1),
      after: after.slice(1),
      changed: true,
    })
    expect(await keyFiles()).toEqual(['secret_key'])
    expect(await readFile(join(dir, 'secret_key'), 'utf8')).toBe(made)
    expect(made).not.toBe(former)
    expect(await starts(generated())).toBe(before)
  })

  test('many concurrent commands create one key, and all of them end with that key', async () => {
    await starts(generated())
    const outcomes = await Promise.allSettled(
      Array.from({ length: 6 }, (_, n) => rotateSecrets(rotating(generated(), `cli ${n}`), 'add')),
    )
    expect(outcomes.some(({ status }) => status === 'fulfilled')).toBe(true)
    expect(await keyFiles()).toEqual(['secret_key', 'secret_key_new'])
    await rotate(generated())
    expect(memory.eventsOf(installationStream)).toHaveLength(3)
  })

  test('a cancelled rotation leaves the file unchanged', async () => {
    const before = await starts(generated())
    await rotate(generated())
    await rotate(generated(), 'cancel')
    expect(await keyFiles()).toEqual(['secret_key'])
    expect(await starts(generated())).toBe(before)
  })
})
