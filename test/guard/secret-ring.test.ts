/** The ring of SECRET_KEYs: what is made is made under the one in use, what is there is checked under every one. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { Unavailable } from '../../src/event-log/port.ts'
import { makeDataDir } from '../../src/foundation/data-dir.ts'
import { authenticate } from '../../src/guard/authenticate.ts'
import { createEpochKeyFiles, EpochKeyFault } from '../../src/guard/epoch-key-files.ts'
import type { DirectoryKey, KeyDirectory } from '../../src/guard/key-directory.ts'
import { readKeyStream } from '../../src/guard/key-stream-reader.ts'
import { createRehashing } from '../../src/guard/rehash-keys.ts'
import { createChangingRing, ringKeyOf, ringOf } from '../../src/guard/secret-ring.ts'
import { createSecrets } from '../../src/guard/secrets.ts'
import { composeApiKey } from '../../src/keys/api-key.ts'
import { until } from '../support/house.ts'
import { createMemoryEventLog } from '../support/memory-event-log.ts'

const [oldKey, newKey, otherKey] = ['old', 'new', 'other'].map(
  (name) => `the ${name} key, which is long enough to be one`,
) as [string, string, string]
const [oldId, newId, otherId] = [oldKey, newKey, otherKey].map((key) => ringKeyOf(key).id)
const old = createSecrets(oldKey)
const secrets = createSecrets(ringOf([newKey, oldKey]))
const later = createSecrets(newKey)

describe('a ring', () => {
  const idsOf = (keys: readonly { id: string }[]): string[] => keys.map(({ id }) => id)

  test('has the key in use first, whichever it was given first, and those never used before those that were', () => {
    const ring = createChangingRing([newKey, oldKey, otherKey].map(ringKeyOf))
    expect(idsOf(ring.keys())).toEqual([newId, oldId, otherId])
    expect(ring.eldest().id).toBe(otherId)
    expect(ring.use([oldId ?? ''])).toBe(true)
    expect(idsOf(ring.keys())).toEqual([oldId, newId, otherId])
    expect(ring.eldest().id).toBe(oldId)
    expect(ring.use([oldId ?? '', newId ?? ''])).toBe(true)
    expect(idsOf(ring.keys())).toEqual([newId, otherId, oldId])
    expect(ring.eldest().id).toBe(oldId)
  })

  test('without the key in use makes and checks nothing until it is given', () => {
    const ring = createChangingRing([ringKeyOf(oldKey)])
    const of = createSecrets(ring)
    const hmac = of.apiKeyHmac('x')
    expect(ring.use([oldId ?? '', newId ?? ''])).toBe(false)
    for (const attempt of [
      () => of.keyId(),
      () => of.apiKeyUnder('x', hmac),
      () => of.identifierHmacs('lid:a'),
      () => of.rowSeal.fits('x', ''),
      () => of.sealer('p').open('x', 'y'),
      () => of.memoryHmac('x'),
    ])
      expect(attempt).toThrow(Unavailable)
    ring.give([newKey, oldKey].map(ringKeyOf))
    expect(of.keyId()).toBe(newId)
    expect(of.apiKeyUnder('x', hmac)).toBe(oldId)
  })

  test('names a key by twelve digits that are the same everywhere and tell nothing of it', () => {
    expect(ringKeyOf(oldKey).id).toMatch(/^[0-9a-f]{12}$/)
    expect(ringKeyOf(oldKey)).toMatchObject({ id: oldId, check: ringOf([oldKey]).current().check })
    expect(new Set([oldId, newId, otherId]).size).toBe(3)
  })
})

describe('what was made under the former key', () => {
  test('is told by the key it is under, and nothing is told of what is under no key of the ring', () => {
    for (const [hmac, under] of [
      ['apiKeyHmac', 'apiKeyUnder'],
      ['operatorTokenHmac', 'operatorTokenUnder'],
      ['identifierHmac', 'identifierUnder'],
    ] as const) {
      expect(secrets[under]('x', old[hmac]('x'))).toBe(oldId)
      expect(secrets[under]('x', later[hmac]('x'))).toBe(newId)
      expect(secrets[under]('x', createSecrets(otherKey)[hmac]('x'))).toBeNull()
      expect(secrets[under]('y', old[hmac]('x'))).toBeNull()
      expect(secrets[hmac]('x')).toBe(later[hmac]('x'))
    }
  })

  test('is among the hashes it is looked up by, of which the first is made under the key in use', () => {
    expect(secrets.addressHmacs('x')).toEqual([later.addressHmac('x'), old.addressHmac('x')])
    expect(secrets.identifierHmacs('x')).toEqual([later.identifierHmac('x'), old.identifierHmac('x')])
    expect(secrets.requestHmacs('x')).toEqual([later.requestHmac('x'), old.requestHmac('x')])
    expect(secrets.cookieSecrets('x')).toEqual([later.apiKeyHmac('x'), old.apiKeyHmac('x')])
    expect(secrets.memoryHmac('x')).toEqual(old.memoryHmac('x'))
    expect(secrets.recipientHmac('x')).toBe(later.recipientHmac('x'))
  })

  test('is a seal that fits, and text that opens', () => {
    for (const seal of ['rowSeal', 'planSeal'] as const) {
      expect(secrets[seal].of('x')).toBe(later[seal].of('x'))
      expect(secrets[seal].fits('x', old[seal].of('x'))).toBe(true)
      expect(secrets[seal].fits('y', old[seal].of('x'))).toBe(false)
      expect(later[seal].fits('x', old[seal].of('x'))).toBe(false)
    }
    expect(secrets.rowSealUnder('x', old.rowSeal.of('x'))).toBe(oldId)
    const sealed = old.sealer('purpose').seal('text', 'context')
    const sealer = secrets.sealer('purpose')
    expect(sealer.open(sealed, 'context')).toBe('text')
    expect(sealer.under(sealed, 'context')).toBe(oldId)
    expect(sealer.open(sealed, 'another')).toBeNull()
    expect(sealer.under(sealer.seal('text', 'context'), 'context')).toBe(newId)
    expect(later.sealer('purpose').open(sealed, 'context')).toBeNull()
  })
})

describe('epoch keys', () => {
  let root = ''
  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), 'secret-ring-'))
  })
  afterEach(() => rm(root, { recursive: true, force: true }))

  const filesOf = (...keys: string[]) => {
    const dir = join(root, 'keys')
    return createEpochKeyFiles({ dir, makeDir: () => makeDataDir(dir, 'KEY_DIR'), secretKey: ringOf(keys) })
  }

  test('open with the key they were made with, as long as it is in the ring', async () => {
    await filesOf(oldKey).create(716)
    const made = filesOf(oldKey).readSync(716)
    const sealed = made?.sealer('p').seal('text', 'context') ?? ''
    const read = filesOf(newKey, oldKey).readSync(716)
    expect(read).toMatchObject({ id: made?.id, secretKey: oldId })
    expect(read?.sealer('p').open(sealed, 'context')).toBe('text')
    await filesOf(newKey, oldKey).create(717)
    expect(filesOf(newKey).readSync(717)).toMatchObject({ secretKey: newId })
    expect(() => filesOf(newKey).readSync(716)).toThrow(EpochKeyFault)
    expect(() => filesOf(oldKey).readSync(717)).toThrow(EpochKeyFault)
  })
})

describe('an API key that is used after a rotation', () => {
  const random = Uint8Array.from({ length: 128 }, (_, n) => (n * 37) % 248)
  const { apiKey, keyId, secret } = composeApiKey(random)
  const key = { keyId, secretHmac: old.apiKeyHmac(secret), organizationId: 'org_x', endsAtMs: Infinity }

  const directoryOf = (found: () => object): KeyDirectory => ({
    get: () => found() as DirectoryKey,
    caughtUp: Promise.resolve(),
    stop: async () => undefined,
  })

  test('is let in and told of, also where its header was verified before the rotation, and not again afterwards', () => {
    const ring = createChangingRing([newKey, oldKey].map(ringKeyOf))
    ring.use([oldId ?? ''])
    const now = createSecrets(ring)
    let state = key
    const directory = directoryOf(() => state)
    const told: string[] = []
    const enter = () =>
      authenticate(apiKey, {
        directory,
        secrets: now,
        nowMs: 0,
        rehash: (id, text) => told.push(`${id} ${text}`),
      })
    expect([enter(), enter()]).toEqual([key, key])
    expect(told).toEqual([])
    ring.use([oldId ?? '', newId ?? ''])
    expect(enter()).toEqual(key)
    expect(told).toEqual([`${keyId} ${secret}`])
    state = { ...key, secretHmac: now.apiKeyHmac(secret) }
    expect([enter(), enter()]).toEqual([state, state])
    expect(told).toHaveLength(1)
    state = { ...key, secretHmac: createSecrets(otherKey).apiKeyHmac(secret) }
    expect(authenticate(apiKey, { directory: directoryOf(() => state), secrets: now, nowMs: 0 })).toBe(
      'wrong_secret',
    )
  })

  test('has its hash made anew once, in its own stream, and is the same key', async () => {
    const log = createMemoryEventLog()
    const warnings: unknown[] = []
    const rehashing = createRehashing({
      eventLog: log.client('one'),
      secrets,
      logger: { warn: (fields: unknown) => warnings.push(fields) },
    })
    for (let n = 0; n < 3; n++) rehashing.rehash(keyId, secret)
    await rehashing.settled()
    expect(warnings).toEqual([])
    const stream = await readKeyStream(log.client('one'), keyId)
    expect(stream).toMatchObject({ revision: 0, revoked: false, unreadableAt: null })
  })

  test('keeps its hash where the event log is away, and has it made anew at its next use', async () => {
    const log = createMemoryEventLog()
    const eventLog = log.client('one')
    let away = true
    const warnings: unknown[] = []
    const rehashing = createRehashing({
      eventLog: {
        read: eventLog.read,
        append: async (...args) => {
          if (away) throw new Unavailable('it is away')
          return eventLog.append(...args)
        },
      },
      secrets,
      logger: { warn: (fields: unknown) => warnings.push(fields) },
    })
    rehashing.rehash(keyId, secret)
    await until('it gave up', async () => warnings.length === 1)
    away = false
    rehashing.rehash(keyId, secret)
    await rehashing.settled()
    expect((await readKeyStream(eventLog, keyId)).revision).toBe(0)
  })
})
