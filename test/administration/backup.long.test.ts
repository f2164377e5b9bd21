/** Backups are complete and consistent, are refused if they were modified, and never bring back an erased person. */

import { randomBytes } from 'node:crypto'
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import pino from 'pino'
import { afterAll, describe, expect, test } from 'vitest'
import { projections } from '../../projections/index.ts'
import { createArchive, readArchive } from '../../src/administration/backup/archive.ts'
import { checkBackup } from '../../src/administration/backup/check.ts'
import { digestsName, macOf } from '../../src/administration/backup/contents.ts'
import { createBackup, type MadeBackup } from '../../src/administration/backup/create.ts'
import { createFinalBackup } from '../../src/administration/backup/final.ts'
import {
  checkRestorable,
  checkTarget,
  removeOldPasswords,
  restoreBackup,
  webhooksWithOldSecret,
} from '../../src/administration/backup/restore.ts'
import { keptTables, logTables } from '../../src/administration/backup/tables.ts'
import { recordOperation } from '../../src/administration/operator-events.ts'
import { rebuild } from '../../src/administration/projections/rebuilds.ts'
import { changePassword, createUser } from '../../src/administration/users/user-changes.ts'
import { passwordIsRight } from '../../src/administration/users/users.ts'
import { createWebhook, rotateWebhookSecret } from '../../src/administration/webhooks/webhooks.ts'
import { profile } from '../../src/capabilities/profile/index.ts'
import { eraseProfile } from '../../src/capabilities/profile/record/erase.ts'
import { erasureParts } from '../../src/capabilities/profile/storage.ts'
import { type Config, parseConfig } from '../../src/config.ts'
import { decodeEvent } from '../../src/event-log/stored-event.ts'
import { operatorStream } from '../../src/events/streams.ts'
import { keyDirOf } from '../../src/foundation/data-dir.ts'
import { type Foundation, openFoundation } from '../../src/foundation/foundation.ts'
import { removeMark } from '../../src/foundation/installation-mark.ts'
import { secretKeyOf } from '../../src/guard/secrets/installation-key.ts'
import { derivingFrom } from '../../src/guard/secrets/secrets.ts'
import { openHouse } from '../support/house.ts'
import { emptyDatabase, type TestDatabase, testDatabase } from '../support/postgres.ts'

const logger = pino({ level: 'silent' })

const opened: (() => Promise<unknown>)[] = []

const ownKeys = () => [secretKeyOf(house.config.SECRET_KEY ?? '')]

const file = (name: string): string => join(dir, name)

const backUp = (name: string): Promise<MadeBackup> =>
  createBackup(house.foundation, {
    path: file(name),
    actor: 'user:ann',
    onProgress: () => undefined,
  })

const dir = await mkdtemp(join(tmpdir(), 'backup-'))
const house = await openHouse({ environment: { ROLES: 'api,dashboard,projector' } })
const limits = { requests_per_minute: 1_000_000, requests_per_day: 1_000_000 }
const partner = await house.partner({ credits: '1000', limits })
for (let call = 0; call < 40; call++)
  await house.lookup(partner, { ip: '81.2.69.142' }, { 'idempotency-key': `first-${call}` })
await house.foundation.epochKeys.current()
await house.query(`insert into companies (domain, name, source, source_updated_at, preference, tie_break)
    select 'company-' || n || '.example', repeat('Ünï\\\\\\t', 40), 'test', now(), 0, '' from generate_series(1, 3000) n`)
const first = await backUp('first.tar')
for (let call = 0; call < 10; call++) await house.lookup(partner, { ip: '81.2.69.142' })
await house.partner({ credits: '7', limits })
const second = await backUp('second.tar')
afterAll(async () => {
  for (const close of opened.reverse()) await close()
  await house.close()
  await rm(dir, { recursive: true, force: true })
})

type Target = { readonly config: Config; readonly database: TestDatabase }

const target = async (environment: Readonly<Record<string, string>> = {}): Promise<Target> => {
  const database = await emptyDatabase()
  opened.push(database.drop)
  const same = { SECRET_KEY: house.config.SECRET_KEY ?? '', KEY_DIR: keyDirOf(house.config) }
  return { database, config: parseConfig({ DATABASE_URL: database.url, ...same, ...environment }) }
}

const restore = ({ config }: Target, name: string, keysLost = false) =>
  restoreBackup(config, { path: file(name), keysLost, logger, waitMs: 0, onProgress: () => undefined })

const openRestored = async ({ config }: Target): Promise<Foundation> => {
  const foundation = await openFoundation(config, {
    logger,
    anyEventLog: true,
    anyHistory: true,
    anyMark: true,
  })
  opened.push(foundation.close)
  await rebuild(foundation, {
    projections,
    reason: 'restored',
    actor: 'user:ann',
    logger,
    mayForget: async () => true,
    onProgress: () => undefined,
  })
  await removeMark(foundation.pool)
  return foundation
}

const rowsIn = async (url: string, text: string): Promise<unknown[]> => {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  try {
    return (await client.query(text)).rows
  } finally {
    await client.end()
  }
}

/**
 * The tables that a backup does not contain, with the reason why a restored installation does not need them. The schemas
 * `projections` and `pgboss` are left out completely.
 */
const leftOutTables = {
  schema_migrations: 'made by the migrations of the restored installation',
  installation: 'stored at the first start: the event log that the rows were folded from',
  installation_mark: 'the mark of a database that was closed or is being restored, and of no other',
  projection_checkpoints: 'made by the rebuild',
  halted_streams: 'made by the rebuild',
  projection_rebuilds: 'work under way; requests and results are in the event log',
  projection_builds: 'work under way',
  log_tree: 'made again from the event log by the next checkpoint',
  log_tree_tiles: 'made again from the event log by the next checkpoint',
  closed_months: 'used only by release 1.0.0',
  closed_month_files: 'stored again, from the event log, by the first statement of each closed month',
  leases: 'of running processes',
  processes: 'of running processes',
  profile_fetches: 'of running processes',
  dashboard_forms: 'of submitted forms; open forms belong to sessions that end',
  log_mark: 'a lower bound for the end of the log, which begins at 0 again',
  work_progress: 'progress of long work, which no other installation does',
  admin_requests: 'answers of the last day, kept for repeated requests',
  dashboard_attempts: 'of the last minute',
  dashboard_sessions: 'people sign in again',
}

test('every table is either copied or left out for a documented reason', async () => {
  const rows = await house.query(
    `select relname as name from pg_class where relkind in ('r', 'p') and relnamespace = 'public'::regnamespace`,
  )
  expect(rows.map(({ name }) => String(name)).sort()).toEqual(
    [...logTables, ...keptTables, ...Object.keys(leftOutTables)].sort(),
  )
})

test('a backup is recorded with its author and its description', async () => {
  const events = (await house.foundation.eventLog.read(operatorStream, { direction: 'backwards', max: 20 }))
    .map(decodeEvent)
    .filter(({ type }) => type === 'BackupCreated')
  expect(events.map(({ data, metadata }) => ({ data, actor: metadata.actor }))).toMatchObject([
    {
      actor: 'user:ann',
      data: { sha256: second.sha256, bytes: second.bytes },
    },
    {
      actor: 'user:ann',
      data: { sha256: first.sha256, position: first.manifest.head.position },
    },
  ])
  expect((await stat(file('first.tar'))).mode & 0o777).toBe(0o600)
})

test('before the restore, a target is checked (empty, in use, or of another release), and it is not changed', async () => {
  const checking = async ({ config }: { readonly config: Config }): Promise<void> => {
    const asked = { path: file('second.tar'), keysLost: false, onProgress: () => undefined }
    const { backup } = await checkRestorable(config, asked)
    await checkTarget(config, { backup, logger, waitMs: 0 })
  }
  const there = await target()
  await checking(there)
  expect(
    await rowsIn(there.database.url, 'select from pg_tables where schemaname = current_schema()'),
  ).toEqual([])
  await expect(checking(house)).rejects.toThrow('this installation is not empty')
  const migrated = await testDatabase()
  opened.push(migrated.drop)
  const other = await target({ DATABASE_URL: migrated.url })
  await checking(other)
  await rowsIn(
    migrated.url,
    `insert into schema_migrations (number, name, sha256) values (9999, 'later.sql', '')`,
  )
  await expect(checking(other)).rejects.toThrow('but this database has those of 9999')
})

describe('a backup is refused, and nothing is written, if it', () => {
  const untouched = async ({ database }: Target): Promise<void> => {
    const [row] = await rowsIn(
      database.url,
      `select coalesce((select position from log_head), 0)::int + (select count(*) from companies)::int as rows`,
    ).catch(() => [{ rows: 0 }])
    expect(row).toEqual({ rows: 0 })
  }

  test('has any modified byte; the error names the file', async () => {
    const whole = await readFile(file('second.tar'))
    const sound = await checkBackup(file('second.tar'), { secretKeys: ownKeys() })
    let refused = 0
    const places = 60
    for (let at = 11; at < whole.length; at += Math.ceil(whole.length / places)) {
      const damaged = Buffer.from(whole)
      damaged[at] = (damaged[at] ?? 0) ^ 0x20
      await writeFile(file('damaged.tar'), damaged)
      const result = await checkBackup(file('damaged.tar'), { secretKeys: ownKeys() }).catch(
        (error: unknown) => error,
      )
      if (result instanceof Error) {
        expect(result.message).toContain(file('damaged.tar'))
        refused++
      } else {
        // The changed byte has no meaning: it is padding, or a header field other than the name and the length.
        expect(result).toMatchObject({ manifest: sound.manifest, rows: sound.rows })
      }
    }
    expect(refused).toBeGreaterThan((places * 2) / 3)
  })

  test('is truncated, even if only the end is missing', async () => {
    const whole = await readFile(file('second.tar'))
    const there = await target()
    for (const length of [0, 100, 700, whole.length >> 1, whole.length - 3_000]) {
      await writeFile(file('cut.tar'), whole.subarray(0, length))
      await expect(restore(there, 'cut.tar')).rejects.toThrow(/cut\.tar/)
      await untouched(there)
    }
  })

  test('is not a backup, or is empty', async () => {
    await writeFile(file('noise'), randomBytes(10_000))
    const there = await target()
    await expect(restore(there, 'noise')).rejects.toThrow(/noise is damaged, incomplete or not a backup/)
    await expect(restore(there, 'nowhere')).rejects.toThrow(/nowhere cannot be read \(ENOENT\)/)
  })

  test('was made with another SECRET_KEY', async () => {
    const there = await target({ SECRET_KEY: 'another secret of the test, long enough to be one' })
    await expect(restore(there, 'second.tar')).rejects.toThrow(/^SECRET_KEY: .*a different key was given/)
    await untouched(there)
  })

  test('was made by someone without SECRET_KEY, even if every digest in it is right', async () => {
    const entries: { name: string; sha256: string }[] = []
    const forged = await createArchive(file('forged.tar'))
    for await (const { name, bytes, sha256 } of readArchive(file('first.tar'))) {
      if (name === digestsName) break
      if (name.startsWith('tables/companies/')) continue
      await forged.add(name, bytes)
      entries.push({ name, sha256 })
    }
    const copied = { entries, rows: { ...first.rows, companies: 0 } }
    await forged.add(
      digestsName,
      Buffer.from(JSON.stringify({ ...copied, mac: macOf(derivingFrom('guessed'), copied) })),
    )
    await forged.finish()
    await expect(restore(await target(), 'forged.tar')).rejects.toThrow(
      /damaged, or was made by another installation/,
    )
  })

  test('has keys that are not in KEY_DIR; with --keys-lost the restore continues', async () => {
    const there = await target({ KEY_DIR: file('other-keys') })
    await expect(restore(there, 'second.tar')).rejects.toThrow(/^KEY_DIR: .*other-keys lacks the key/)
    await untouched(there)
    await restore(there, 'second.tar', true)
  })

  test('belongs to an event log that does not answer', async () => {
    const there = await target({ EVENT_LOG_URL: 'esdb://127.0.0.1:1?tls=false' })
    await expect(restore(there, 'second.tar')).rejects.toThrow(/^EVENT_LOG_URL: /)
    // The rows exist, but the log is not at its configured place, so processes do not start.
    await expect(openFoundation(there.config, { logger })).rejects.toThrow('is being restored here')
  })

  test('would be written to an existing file or into a missing directory', async () => {
    await expect(backUp('first.tar')).rejects.toThrow(/exists and is not overwritten/)
    await expect(backUp('nowhere/third.tar')).rejects.toThrow(/cannot be written \(ENOENT\)/)
  })
})

test('next to a log that is not in the backup, passwords that were changed later are removed, even if the log was copied', async () => {
  const { foundation } = house
  const made_at = new Date().toISOString()
  const names = ['eva', 'ida'] as const
  for (const name of names)
    await createUser(foundation, { name, role: 'viewer', organizationId: null, actor: 'cli' })
  const { password } = await changePassword(foundation, { name: 'ida', actor: 'cli' })
  const head = { position: String(Number.MAX_SAFE_INTEGER), digest: null }
  const before = { ...first.manifest, made_at, head }
  expect(await removeOldPasswords(foundation, { manifest: { ...before, holds_log: true } })).toEqual([])
  expect(await passwordIsRight(foundation.pool, { name: 'ida', password })).toBe(true)
  expect(await removeOldPasswords(foundation, { manifest: { ...before, holds_log: false } })).toEqual(['ida'])
  expect(await passwordIsRight(foundation.pool, { name: 'ida', password })).toBe(false)
})

test('next to a log that is not in the backup, webhooks whose secret was rotated later are named', async () => {
  const { foundation } = house
  const make = () =>
    createWebhook(foundation, {
      organizationId: null,
      url: new URL('https://example.com/hooks'),
      actor: 'cli',
      events: ['checkpoint'],
    })
  const [rotated, deleted] = [await make(), await make()]
  await make()
  for (const { webhookId } of [rotated, deleted])
    await rotateWebhookSecret(foundation, { webhookId, graceMs: 0, actor: 'cli' })
  const before = { ...first.manifest, made_at: new Date(0).toISOString() }
  // The backup was made before the second webhook was deleted, so its row is restored.
  await recordOperation(
    foundation.eventLog,
    {
      type: 'WebhookDeleted',
      data: { webhook_id: deleted.webhookId, organization_id: null, host: 'example.com' },
    },
    { actor: 'cli' },
  )
  const named = (holds_log: boolean) =>
    webhooksWithOldSecret(foundation, { manifest: { ...before, holds_log } })
  expect(await named(false)).toEqual([rotated.webhookId])
  expect(await named(true)).toEqual([])
})

test('a person erased after the backup stays erased after a restore', async () => {
  const parts = erasureParts(house.foundation)
  const hmac = house.foundation.secrets.identifierHmac('lid:erased-later')
  const subjectId = 'sub_01K9ZZZZZZZZZZZZZZZZZZZZZZ'
  await parts.vault.seal({ subjectId, hmacs: [hmac], text: 'data about a person' })
  await backUp('before-erasure.tar')
  await eraseProfile(parts, { kind: 'lid', value: 'erased-later' }, { actor: 'cli', note: null })
  const there = await target({ PROFILE_PROVIDER: 'dataset' })
  await restore(there, 'before-erasure.tar')
  const keys = `select 1 from profile_keys where subject_id = '${subjectId}'`
  expect(await rowsIn(there.database.url, keys)).toHaveLength(1)
  const foundation = await openRestored(there)
  expect(await profileOpened(foundation, there.config)).toBe(1)
  expect(await rowsIn(there.database.url, keys)).toEqual([])
  expect(await erasureParts(foundation).vault.suppressed([hmac])).toBe(true)
  expect(await profileOpened(foundation, there.config), 'once').toBe(0)
})

test('an older copy of KEY_DIR gets back the erasures that it lacks, so that the next restore finds them', async () => {
  const { foundation, config } = house
  const parts = erasureParts(foundation)
  const hmac = foundation.secrets.identifierHmac('lid:erased-before-the-copy')
  await parts.vault.forget({ hmacs: [hmac], subjectIds: [], at: new Date() })
  const listed = async () => (await foundation.erasures.list()).flatMap(({ hmacs }) => hmacs)
  expect(await listed()).not.toContain(hmac)
  expect(await profileOpened(foundation, config)).toBe(0)
  expect(await listed()).toContain(hmac)
  const once = await listed()
  await profileOpened(foundation, config)
  expect(await listed()).toEqual(once)
})

/** Opens the capability as a process does before it answers. Returns the number of people that it erased again. */
const profileOpened = async (foundation: Foundation, config: Config): Promise<number> => {
  const told: number[] = []
  const telling = pino({ level: 'warn' }, { write: (line) => told.push(JSON.parse(line).people as number) })
  const nothing = () => () => undefined
  const capability = await profile.open({
    ...foundation,
    settings: config,
    answersCalls: true,
    embedded: false,
    logger: telling,
    meters: { words: nothing, counter: nothing, histogram: nothing, total: nothing, gauge: nothing },
    // The capability does not use these parts before the first call.
    queue: { send: async () => undefined },
    outside: { fetchUpstream: async () => Promise.reject(new Error()) },
  } as unknown as Parameters<typeof profile.open>[0])
  await capability.close?.()
  return told.reduce((sum, people) => sum + people, 0)
}

const finalOf = (config: Config, name: string) =>
  createFinalBackup(
    config,
    { path: file(name), actor: 'user:ann', onProgress: () => undefined },
    { logger, waitMs: 0 },
  )

describe('during an incomplete restore', () => {
  const refused = ({ config }: Target) =>
    expect(openFoundation(config, { logger })).rejects.toThrow('a backup is being restored here')

  test('processes do not start, any other restore is refused, and the same restore continues until all rows and read models exist', async () => {
    const there = await target()
    const loaded = await restore(there, 'second.tar')
    expect(loaded.rows.companies).toBe(3_000)
    await refused(there)
    expect(await restore(there, 'second.tar')).toMatchObject({ rows: loaded.rows, since: loaded.since })
    await expect(restore(there, 'first.tar')).rejects.toThrow('another backup is being restored here')
    await expect(finalOf(there.config, 'half.tar')).rejects.toThrow('a backup is being restored here')
    const elsewhere = { ...there.config, EVENT_LOG_URL: 'esdb://127.0.0.1:1?tls=false' }
    await expect(restore({ ...there, config: elsewhere }, 'second.tar')).rejects.toThrow(
      'EVENT_LOG_URL: this restore began with the event log PostgreSQL',
    )
    const { position } = second.manifest.head
    const same = async (text: string) =>
      expect(await rowsIn(there.database.url, text)).toEqual(
        await rowsIn(house.config.DATABASE_URL ?? '', text),
      )
    await same(`select * from log_segments where last_position <= ${position} order by last_position`)
    await same('select key_hash, status, answer from idempotent_calls order by key_hash')
    await same('select domain, name from companies order by domain')
    const foundation = await openRestored(there)
    const lots = 'select organization_id, remaining_micro from account_lots order by 1, 2'
    expect((await foundation.pool.query(lots)).rows).toEqual(await house.query(lots))
    expect(await foundation.ledger.account(partner.organizationId)).toBeDefined()
    await openFoundation(there.config, { logger }).then(({ close }) => opened.push(close))
    await expect(restore(there, 'second.tar')).rejects.toThrow(/not empty/)
  })

  test('that ended before a row was loaded, processes do not start either: the restore starts over, with any backup', async () => {
    const there = await target()
    await restore(there, 'second.tar')
    // The state after a process was killed between writing the mark and the rows.
    await rowsIn(
      there.database.url,
      `truncate log_segments, log_stream_marks, ${keptTables.join(', ')} cascade; update log_mark set position = 0;
       update installation_mark set loaded = false`,
    )
    await refused(there)
    await restore(there, 'first.tar')
    await refused(there)
    expect(await rowsIn(there.database.url, 'select position from log_head')).toEqual([
      { position: first.manifest.head.position },
    ])
    await openRestored(there)
  })
})

describe('a final backup', () => {
  test('is not made while the service runs, and does not close the installation', async () => {
    await expect(finalOf(house.config, 'running.tar')).rejects.toThrow(
      /Stop every process, then make the final/,
    )
    expect(await house.query('select from installation_mark')).toEqual([])
  })

  test('closes the installation, here an empty one; if it fails, the installation stays open', async () => {
    const own = { KEY_DIR: file('moved-keys') }
    const source = await target(own)
    await openFoundation(source.config, { logger }).then(({ close }) => close())
    await expect(finalOf(source.config, 'nowhere/final.tar')).rejects.toThrow(/cannot be written/)
    await openFoundation(source.config, { logger }).then(({ close }) => close())
    await finalOf(source.config, 'final.tar')
    const start = () => openFoundation(source.config, { logger })
    await expect(start()).rejects.toThrow(/^DATABASE_URL: this installation was closed on .*final\.tar/)
    await expect(restore(source, 'final.tar')).rejects.toThrow('this installation was closed')
    // The command was killed before the file existed, so the user requests the backup again.
    await finalOf(source.config, 'final-again.tar')
    await expect(start()).rejects.toThrow('final-again.tar')
    await rowsIn(source.database.url, 'delete from installation_mark')
    await start().then(({ close }) => close())
    const there = await target(own)
    await restore(there, 'final-again.tar')
    await openRestored(there)
  })
})
