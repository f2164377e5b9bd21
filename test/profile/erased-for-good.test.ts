/**
 * The database files, including dead rows and the write-ahead log, are searched with SECRET_KEY for an erased person. The test
 * reads all the files, so it has its own embedded PostgreSQL.
 */
import { randomUUID } from 'node:crypto'
import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { projections } from '../../projections/index.ts'
import { catchUp } from '../../src/administration/projections/catch-up.ts'
import { createIdempotency } from '../../src/call/idempotency.ts'
import { importProfilesFrom } from '../../src/capabilities/profile/dataset/installed.ts'
import { profile } from '../../src/capabilities/profile/index.ts'
import { profileDataOf } from '../../src/capabilities/profile/mapping/mapping.ts'
import { createFetchClaims } from '../../src/capabilities/profile/record/claims.ts'
import { eraseProfile } from '../../src/capabilities/profile/record/erase.ts'
import { createRetrieval } from '../../src/capabilities/profile/record/retrieval.ts'
import { createVault } from '../../src/capabilities/profile/record/vault.ts'
import { erasureParts } from '../../src/capabilities/profile/storage.ts'
import { type Config, parseConfig } from '../../src/config.ts'
import { logStart } from '../../src/event-log/port.ts'
import { decodeEvent } from '../../src/event-log/stored-event.ts'
import { type Foundation, openFoundation } from '../../src/foundation/foundation.ts'
import { epochMs, epochOf } from '../../src/guard/secrets/epochs.ts'
import { renewSeals } from '../../src/jobs/own-jobs.ts'
import { openJobQueue } from '../../src/jobs/queue.ts'
import { createProjector } from '../../src/projector/run.ts'
import { openable, type Target } from '../support/byte-scan.ts'
import { exhaustive } from '../support/exhaustive.ts'
import { logger } from '../support/logger.ts'

const mark = 'Quillfeather'
const email = 'zorvina@quillfeather.example'
const claim = { organizationId: 'org_of-the-scan', key: 'a-key-of-the-scan', fingerprint: Buffer.alloc(32) }
const dayMs = 86_400_000

let dataDir = ''
let config: Config
let foundation: Foundation
let stopProjector = async (): Promise<void> => undefined

const open = async (): Promise<void> => {
  foundation = await openFoundation(config, { logger })
  const { url, eventLog, secrets } = foundation
  const projector = createProjector({
    url,
    eventLog,
    projections,
    seal: secrets.rowSeal,
    logger,
    owner: randomUUID(),
  })
  void projector.run()
  stopProjector = () => projector.stop()
}
const close = async (): Promise<void> => {
  await stopProjector()
  await foundation.close()
}

beforeAll(async () => {
  vi.useFakeTimers({
    toFake: ['Date'],
    shouldAdvanceTime: true,
    now: epochOf(Date.now()) * epochMs + 10 * dayMs,
  })
  dataDir = await mkdtemp(join(tmpdir(), 'erased-'))
  config = parseConfig({ DATA_DIR: dataDir })
  await open()
})
afterAll(async () => {
  await close().catch(() => undefined)
  vi.useRealTimers()
  await rm(dataDir, { recursive: true, force: true })
})

const sealerFor = (purpose: string) => foundation.epochKeys.sealer(purpose)

/** Stores data about one person in every place where the service stores personal data. */
const leaveTraces = async (): Promise<void> => {
  const { pool, eventLog, keyedEvents, secrets, url } = foundation
  const retrieval = createRetrieval({
    pool,
    eventLog,
    vault: createVault({ pool, sealer: sealerFor('profile-key'), clock: Date }),
    claims: createFetchClaims(pool),
    provider: {
      name: 'http',
      fetch: async () => ({
        kind: 'found',
        ids: { lid: 'zorvina', urn: '12' },
        data: profileDataOf({ firstname: 'Zorvina', lastname: mark }),
        observedAtMs: Date.now(),
        redirected: false,
      }),
    },
    identifierHmac: secrets.identifierHmac,
    clock: Date,
    logger,
  })
  const asked = { wants: 'cached', organizationId: 'org_a', beforeUpstream: async () => null } as const
  expect(await retrieval.retrieve({ kind: 'lid', value: 'zorvina' }, asked)).toMatchObject({ kind: 'found' })
  await retrieval.close()
  const line = JSON.stringify({ lid: 'zorvina', urn: '12', firstname: 'Zorvina', lastname: mark })
  const stream = (async function* () {
    yield Buffer.from(line)
  })()
  expect(await importProfilesFrom(foundation, config, { stream })).toMatchObject({ imported: 1 })
  const idempotency = createIdempotency({
    pool,
    eventLog,
    keyedEvents,
    secrets,
    sealer: sealerFor('idempotent-answer'),
  })
  await idempotency.claim(claim)
  await idempotency.finish(claim, { status: 200, body: JSON.stringify({ email }), paidRevision: null })
  const queue = openJobQueue(url, logger)
  const sealed = await sealerFor('mailbox-retry').seal(email, secrets.addressHmac(email))
  await queue.send('mailbox-retry', `${secrets.addressHmac(email)}:${sealed}`, {
    afterSeconds: 900,
    key: 'one',
  })
  await queue.close()
}

/** Shuts down cleanly, and returns everything in the data directory that can be decrypted. */
const scan = async (): Promise<string[]> => {
  const { secrets, eventLog } = foundation
  const payloads = new Map<string, string>()
  for await (const item of eventLog.subscribe({
    after: logStart,
    prefixes: ['profile-'],
    signal: AbortSignal.timeout(10_000),
  })) {
    if (item.kind === 'caught-up') break
    for (const { type, data } of item.kind === 'events' ? item.events.map(decodeEvent) : [])
      if (type === 'ProfileFetched') payloads.set(`${data.subject_id}/${data.key_id}`, data.sealed)
  }
  expect(payloads.size).toBe(1)
  const targets: Target[] = [
    { name: 'data set', purpose: 'profile-dataset', contexts: [secrets.identifierHmac('lid:zorvina')], mark },
    {
      name: 'answer',
      purpose: 'idempotent-answer',
      contexts: [`${claim.organizationId}\n${claim.key}`],
      mark: email,
    },
    { name: 'retry', purpose: 'mailbox-retry', contexts: [secrets.addressHmac(email)], mark: email },
  ]
  const { installationKey: key } = foundation
  await close()
  const found = await openable(dataDir, { key, targets, payloads, mark })
  await open()
  return found
}

const endOfEpoch = () =>
  renewSeals({
    keys: foundation.epochKeys,
    stores: profile.sealed?.(foundation) ?? [],
    clock: Date,
    databaseNowMs: async () => Date.now(),
    logger,
  })

test('an erased person can be read from heap and write-ahead log until the key of the epoch is destroyed, and not after', {
  skip: !exhaustive,
}, async () => {
  await leaveTraces()
  await catchUp(foundation, logger)
  const ref = { kind: 'lid', value: 'zorvina' } as const
  await eraseProfile(erasureParts(foundation), ref, { actor: 'cli', note: null })
  // So far only the rows are deleted, so the search finds everything that was written.
  expect(await scan()).toEqual(['answer', 'data set', 'profile', 'retry'])
  vi.setSystemTime((epochOf(Date.now()) + 1) * epochMs + 26 * 3_600_000)
  await endOfEpoch()
  expect((await readdir(join(dataDir, 'keys'))).filter((name) => name.endsWith('.key'))).toEqual([
    `${epochOf(Date.now())}.key`,
  ])
  expect(await scan()).toEqual([])
})
