import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { checkOf, secretKeyOf } from '../../src/guard/secrets/installation-key.ts'
import { derivingFrom } from '../../src/guard/secrets/secrets.ts'
import { type EventStoreDouble, startEventStoreDouble } from '../support/eventstore-double.ts'
import { type TestDatabase, testDatabase } from '../support/postgres.ts'
import {
  cli,
  cliJson,
  createPartner,
  eventually,
  lookup,
  type Partner,
  type Service,
  startService,
} from '../support/service.ts'

/** SECRET_KEY is rotated during live traffic, by real processes that are restarted one by one. The tests build on each other. */

const [firstKey, secondKey, thirdKey] = [
  'the first key of this installation, long enough',
  'the second key of this installation as long',
  'a third key that it comes to later, as long',
]
const [firstId, secondId] = [firstKey, secondKey].map((key) => secretKeyOf(key).id)

type Rotated = { before: string[]; after: string[] }

describe('an installation of several processes over its own event log', () => {
  let double: EventStoreDouble
  let database: TestDatabase
  let empty: TestDatabase
  let services: Service[] = []
  let partner: Partner
  let dir = ''
  const statuses: number[] = []
  let calling = true
  let calls: Promise<void>

  const withKey = (SECRET_KEY: string, SECRET_KEY_NEW?: string): Record<string, string> => ({
    ...{ DATABASE_URL: database.url, EVENT_LOG_URL: double.url, SECRET_KEY, ROLES: 'api,projector' },
    ...{ KEY_DIR: join(dir, 'keys') },
    ...(SECRET_KEY_NEW === undefined ? {} : { SECRET_KEY_NEW }),
  })
  const call = async (service = services[0]) =>
    (await lookup(service?.apiUrl ?? '', partner.apiKey, '10.1.2.3', { 'idempotency-key': 'the-same' }))
      .status
  const restart = async (key: string): Promise<void> => {
    services = [await startService(withKey(key)), ...services]
    await services.pop()?.end('SIGTERM')
  }

  beforeAll(async () => {
    dir = await mkdtemp(join(tmpdir(), 'journey-rotation-'))
    double = await startEventStoreDouble({})
    database = await testDatabase()
    empty = await testDatabase()
    services = [await startService(withKey(firstKey)), await startService(withKey(firstKey))]
    partner = await createPartner('100000', withKey(firstKey))
    await eventually(async () => ((await call()) === 200 ? true : undefined))
    calls = (async () => {
      while (calling) {
        const [service] = services
        statuses.push((await lookup(service?.apiUrl ?? '', partner.apiKey, '10.0.0.4')).status)
      }
    })()
  }, 240_000)

  afterAll(async () => {
    calling = false
    await calls
    await Promise.all(services.map((service) => service.end('SIGKILL')))
    await double?.close()
    await database?.drop()
    await empty?.drop()
    await rm(dir, { recursive: true, force: true })
  })

  test('a backup is made before the rotation, for later', async () => {
    await cliJson(['backup', 'create', join(dir, 'before.tar')], withKey(firstKey))
  }, 120_000)

  test('of two simultaneous rotations one adds its key, and a process starts with both the old and the new key', async () => {
    const both = await Promise.all(
      [secondKey, thirdKey].map((key) =>
        cli(['secrets', 'rotate', '--yes', '--json'], withKey(firstKey, key)),
      ),
    )
    expect(both.map(({ code }) => code).sort()).toEqual([0, 1])
    const added = both[0]?.code === 0 ? secondKey : thirdKey
    const { keys } = await cliJson<{ keys: { secret_key: string; state: string }[] }>(
      ['secrets', 'status'],
      withKey(firstKey),
    )
    expect(keys).toMatchObject([
      { secret_key: secretKeyOf(added).id, state: 'current' },
      { secret_key: firstId, state: 'former' },
    ])
    if (added === thirdKey) {
      await cliJson(['secrets', 'rotate', '--cancel', '--yes'], withKey(firstKey))
      await cliJson<Rotated>(['secrets', 'rotate', '--yes'], withKey(firstKey, secondKey))
    }
    await restart(firstKey)
    await restart(secondKey)
    for (const service of services) expect(await call(service)).toBe(200)
  }, 240_000)

  test('the old key is removed when every process runs with the new one, and opens nothing afterwards', async () => {
    const early = await cli(['secrets', 'rotate', '--finish', '--yes'], withKey(firstKey))
    expect([early.code, early.err]).toEqual([1, expect.stringContaining(`SECRET_KEY is not ${secondId}`)])
    await restart(secondKey)
    expect(await cliJson<Rotated>(['secrets', 'rotate', '--finish', '--yes'], withKey(secondKey))).toEqual({
      before: [firstId, secondId],
      after: [secondId],
    })
    for (const service of services) expect(await call(service)).toBe(200)
    await restart(secondKey)
    expect(await call()).toBe(200)
    const refused = await cli(['org', 'list'], withKey(firstKey))
    expect([refused.code, refused.err]).toEqual([
      2,
      expect.stringMatching(new RegExp(`^SECRET_KEY: .*another key \\(${secondId}\\)`)),
    ])
    calling = false
    await calls
    expect(statuses.length).toBeGreaterThan(10)
    expect(new Set(statuses)).toEqual(new Set([200]))
  }, 240_000)

  test('the operator who rotated is recorded, and no key is', async () => {
    const events = await cliJson<{ type: string; metadata: { actor: string } }[]>(
      ['event-log', 'show', 'installation'],
      withKey(secondKey),
    )
    expect(new Set(events.map(({ type }) => type))).toEqual(
      new Set(['InstallationCreated', 'InstallationKeyWrapped']),
    )
    expect(events[0]?.metadata.actor).toBe('system')
    expect(events.at(-1)?.metadata.actor).toMatch(/^cli:/)
    for (const key of [firstKey, secondKey, thirdKey]) expect(JSON.stringify(events)).not.toContain(key)
  })

  test('the backup made before the rotation needs the old key, and names it; it is verified without a database', async () => {
    const verify = (key: string, next?: string) =>
      cli(['backup', 'verify', join(dir, 'before.tar')], {
        ...withKey(key, next),
        ...{ DATABASE_URL: 'postgres://nobody@127.0.0.1:1/none', EVENT_LOG_URL: '' },
      })
    expect((await verify(firstKey)).code).toBe(0)
    expect((await verify(firstKey, secondKey)).code).toBe(0)
    expect((await verify(secondKey)).code).toBe(1)
  }, 120_000)

  test('when the database is lost but not the event log, every key works as before over an empty database', async () => {
    await Promise.all(services.map((service) => service.end('SIGTERM')))
    services = []
    const environment = { ...withKey(secondKey), DATABASE_URL: empty.url }
    const wrong = await cli(['org', 'list'], { ...environment, SECRET_KEY: firstKey })
    expect([wrong.code, wrong.err]).toEqual([2, expect.stringMatching(/^SECRET_KEY: /)])
    services = [await startService(environment)]
    await eventually(async () => ((await call()) === 200 ? true : undefined), 60_000)
  }, 240_000)
})

describe('the embedded default', () => {
  let dataDir = ''
  let service: Service | undefined
  const environment = () => ({ DATA_DIR: dataDir })

  beforeAll(async () => {
    dataDir = await mkdtemp(join(tmpdir(), 'journey-rotation-'))
  })

  afterAll(async () => {
    await service?.end('SIGKILL')
    await rm(dataDir, { recursive: true, force: true })
  })

  /** Tries every text in a file that could be the key. */
  const unwrappedKeyIn = async (key_check: string): Promise<string[]> => {
    const seen = new Set<string>()
    const found: string[] = []
    for (const entry of await readdir(dataDir, { recursive: true, withFileTypes: true })) {
      if (!entry.isFile()) continue
      const text = (await readFile(join(entry.parentPath, entry.name))).toString('latin1')
      // A heap page may add a byte or two in front that could belong to the key.
      for (const [run] of text.matchAll(/(?<![\w-])[\w-]{43,46}(?![\w-])/g))
        for (let at = 0; at + 43 <= run.length; at++) {
          const candidate = run.slice(at, at + 43)
          if (seen.has(candidate)) continue
          seen.add(candidate)
          if (checkOf(derivingFrom(candidate)) === key_check) found.push(entry.name)
        }
    }
    expect(seen.size).toBeGreaterThan(10)
    return found
  }

  test('makes the new key itself while it runs; the key it wraps is in no file, and a process can start after every step', async () => {
    service = await startService(environment())
    const demo = JSON.parse(await readFile(join(dataDir, 'demo.json'), 'utf8')) as { api_key: string }
    const answer = async () => (await lookup(service?.apiUrl ?? '', demo.api_key, '10.0.0.1')).status
    const again = async (): Promise<void> => {
      await service?.end('SIGTERM')
      service = await startService(environment())
      expect(await answer()).toBe(200)
    }
    expect(await answer()).toBe(200)
    const former = await readFile(join(dataDir, 'secret_key'), 'utf8')
    await cliJson<Rotated>(['secrets', 'rotate', '--yes'], environment())
    await again()
    const made = await readFile(join(dataDir, 'secret_key_new'), 'utf8')
    await cliJson<Rotated>(['secrets', 'rotate', '--finish', '--yes'], environment())
    expect(await answer()).toBe(200)
    expect(await readFile(join(dataDir, 'secret_key'), 'utf8')).toBe(made)
    expect(made).not.toBe(former)
    await again()
    const [event] = await cliJson<{ data: { key_check: string } }[]>(
      ['event-log', 'show', 'installation'],
      environment(),
    )
    await service?.end('SIGTERM')
    expect(await unwrappedKeyIn(event?.data.key_check ?? '')).toEqual([])
  }, 240_000)
})
