/**
 * Where a profile comes from: cache, upstream, or nowhere; over a real database, a real event log and a running projector.
 * Only the upstream is scripted, behind the provider port.
 */
import { randomUUID } from 'node:crypto'
import { tmpdir } from 'node:os'
import pino from 'pino'
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest'
import { projections } from '../../projections/index.ts'
import { createClaims } from '../../src/capabilities/profile/claims.ts'
import { dropOldProfiles, eraseProfile } from '../../src/capabilities/profile/erase.ts'
import type {
  ProfileData,
  ProfileProvider,
  ProfileRef,
  ProviderAnswer,
} from '../../src/capabilities/profile/provider.ts'
import type { Retrieved } from '../../src/capabilities/profile/recording.ts'
import { createRetrieval, type Retrieval } from '../../src/capabilities/profile/retrieval.ts'
import { createVault } from '../../src/capabilities/profile/vault.ts'
import { parseConfig } from '../../src/config.ts'
import { logStart } from '../../src/event-log/port.ts'
import { decodeEvent } from '../../src/event-log/stored-event.ts'
import type { DomainEvent } from '../../src/events/catalogue.ts'
import { type Foundation, openFoundation } from '../../src/ops/foundation.ts'
import { createProjector } from '../../src/projector/run.ts'
import { testDatabase } from '../support/postgres.ts'

const logger = pino({ level: 'silent' })
const hourMs = 3_600_000
const dayMs = 24 * hourMs

let foundation: Foundation
let stop: () => Promise<void>
/** The time everything here lives in; far enough from now that nothing mixes them up. */
let nowMs = Date.parse('2026-03-01T12:00:00.000Z')
const clock = { now: () => nowMs }

beforeAll(async () => {
  const database = await testDatabase()
  foundation = await openFoundation(
    parseConfig({ DATABASE_URL: database.url, SECRET_KEY: 'a'.repeat(43), DATA_DIR: tmpdir() }),
    { logger },
  )
  const projector = createProjector({
    url: database.url,
    eventLog: foundation.eventLog,
    projections,
    logger,
    owner: randomUUID(),
  })
  void projector.run()
  stop = async () => {
    await projector.stop()
    await foundation.close()
    await database.drop?.()
  }
})
afterAll(() => stop())

const person = (more: Partial<ProfileData> = {}): ProfileData => ({
  firstname: 'Zorvina',
  lastname: 'Quillfeather',
  numOfConnections: 12,
  headline: null,
  about: null,
  skills: [],
  languages: [],
  address: null,
  educations: [],
  employment_history: [],
  emails: [],
  phone_numbers: [],
  ...more,
})

const foundAs = (lid: string, urn: string | null, more: Partial<ProfileData> = {}): ProviderAnswer => ({
  kind: 'found',
  ids: { lid, urn },
  data: person(more),
  observedAtMs: nowMs,
  redirected: false,
})

type Script = (ref: ProfileRef) => ProviderAnswer | Promise<ProviderAnswer>

/** An upstream that says what it is told to, and remembers who was asked for. */
const upstream = (script: Script): ProfileProvider & { asked: ProfileRef[]; script: Script } => {
  const self = {
    name: 'http',
    asked: [] as ProfileRef[],
    script,
    fetch: async (ref: ProfileRef): Promise<ProviderAnswer> => {
      self.asked.push(ref)
      return self.script(ref)
    },
  }
  return self
}

const vaultOf = () =>
  createVault({ pool: foundation.pool, sealer: foundation.secrets.sealer('profile-key'), clock })

/** One process's view; several of them share the database as processes do. */
const processOver = (provider: ProfileProvider): Retrieval =>
  createRetrieval({
    pool: foundation.pool,
    eventLog: foundation.eventLog,
    vault: vaultOf(),
    claims: createClaims(foundation.pool),
    provider,
    identifierHmac: foundation.secrets.identifierHmac,
    clock,
    logger,
    limits: { answerMaxMs: 3_000, claimPauseMs: 5 },
  })

let names = 0
/** Names nobody had before in this file. */
const freshLid = (): string => `person-${++names}-${randomUUID().slice(0, 8)}`
const freshUrn = (): string => String(1_000_000 + ++names)
const lid = (value: string): ProfileRef => ({ kind: 'lid', value })
const urn = (value: string): ProfileRef => ({ kind: 'urn', value })

const ask = (
  retrieval: Retrieval,
  ref: ProfileRef,
  wants: 'cached' | 'fresh' = 'cached',
): Promise<Retrieved> => retrieval.retrieve(ref, { wants, beforeUpstream: async () => undefined })

/** Asks, and waits until what came of it can be read back. */
const askAndSettle = async (retrieval: Retrieval, ref: ProfileRef, wants: 'cached' | 'fresh' = 'cached') => {
  const retrieved = await ask(retrieval, ref, wants)
  await retrieval.close()
  return retrieved
}

const profileEvents = async (): Promise<DomainEvent[]> => {
  const events: DomainEvent[] = []
  const done = new AbortController()
  for await (const item of foundation.eventLog.subscribe({
    after: logStart,
    prefixes: ['profile-'],
    signal: done.signal,
  })) {
    if (item.kind === 'events') events.push(...item.events.map(decodeEvent))
    if (item.kind === 'caught-up') break
  }
  done.abort()
  return events
}

beforeEach(() => {
  nowMs += 400 * dayMs
})

describe('freshness', () => {
  test('what was fetched is served from the cache for 30 days, and its age told', async () => {
    const id = freshLid()
    const source = upstream(() => foundAs(id, null))
    const retrieval = processOver(source)
    expect(await askAndSettle(retrieval, lid(id))).toMatchObject({ kind: 'found', source: 'fresh', ageMs: 0 })
    nowMs += 24.5 * dayMs
    expect(await askAndSettle(retrieval, lid(id))).toMatchObject({
      kind: 'found',
      source: 'cached',
      ageMs: 24.5 * dayMs,
      data: { firstname: 'Zorvina' },
    })
    expect(source.asked).toHaveLength(1)
  })

  test('data of exactly 720 hours are served, a millisecond more are not, not even when the upstream fails', async () => {
    const id = freshLid()
    const source = upstream(() => foundAs(id, null))
    const retrieval = processOver(source)
    await askAndSettle(retrieval, lid(id))
    source.script = () => ({ kind: 'transient', detail: 'down' })
    nowMs += 720 * hourMs
    expect(await askAndSettle(retrieval, lid(id))).toMatchObject({ kind: 'found', ageMs: 720 * hourMs })
    nowMs += 1
    expect(await askAndSettle(retrieval, lid(id))).toEqual({
      kind: 'unavailable',
      retryAfterSeconds: expect.any(Number),
    })
  })

  test('a fetch of 55 seconds ago is fresh; of 56 it is not', async () => {
    const id = freshLid()
    const source = upstream(() => foundAs(id, null))
    const retrieval = processOver(source)
    await askAndSettle(retrieval, lid(id), 'fresh')
    nowMs += 55_000
    expect(await askAndSettle(retrieval, lid(id), 'fresh')).toMatchObject({ source: 'fresh', ageMs: 55_000 })
    expect(source.asked).toHaveLength(1)
    nowMs += 1_000
    expect(await askAndSettle(retrieval, lid(id), 'fresh')).toMatchObject({ source: 'fresh', ageMs: 0 })
    expect(source.asked).toHaveLength(2)
  })

  test('an upstream whose own data are older than a minute serves nobody who asks for fresh ones', async () => {
    const id = freshLid()
    const retrieval = processOver(
      upstream(() => ({
        kind: 'found',
        ids: { lid: id, urn: null },
        data: person(),
        observedAtMs: nowMs - 61_000,
        redirected: false,
      })),
    )
    expect(await askAndSettle(retrieval, lid(id), 'fresh')).toMatchObject({ kind: 'unavailable' })
    expect(await askAndSettle(retrieval, lid(id))).toMatchObject({
      kind: 'found',
      source: 'cached',
      ageMs: 61_000,
    })
  })

  test('from the 25th day on cached data are refreshed behind the answer', async () => {
    const id = freshLid()
    const source = upstream(() => foundAs(id, null))
    const retrieval = processOver(source)
    await askAndSettle(retrieval, lid(id))
    nowMs += 25 * dayMs
    expect(await askAndSettle(retrieval, lid(id))).toMatchObject({ source: 'cached', ageMs: 25 * dayMs })
    expect(source.asked).toHaveLength(2)
    expect(await askAndSettle(retrieval, lid(id))).toMatchObject({ source: 'cached', ageMs: 0 })
  })

  test('that nobody was found is believed for a day where cached answers will do, for 55 s where not', async () => {
    const id = freshLid()
    const source = upstream(() => ({ kind: 'not_found' }))
    const retrieval = processOver(source)
    expect(await askAndSettle(retrieval, lid(id))).toEqual({ kind: 'missing' })
    nowMs += 55_000
    expect(await askAndSettle(retrieval, lid(id), 'fresh')).toEqual({ kind: 'missing' })
    expect(source.asked).toHaveLength(1)
    nowMs += 1_000
    expect(await askAndSettle(retrieval, lid(id), 'fresh')).toEqual({ kind: 'missing' })
    expect(source.asked).toHaveLength(2)
    nowMs += 24 * hourMs + 1
    source.script = () => foundAs(id, null)
    expect(await askAndSettle(retrieval, lid(id))).toMatchObject({ kind: 'found' })
  })

  test.each([
    ['late', { kind: 'transient', detail: 'timeout' }, 5],
    ['talking nonsense', { kind: 'malformed', detail: 'json' }, 5],
    ['telling us to wait', { kind: 'rate_limited', retryAfterSeconds: 17 }, 17],
  ] as const)(
    'an upstream that is %s leaves no trace: the next call asks again',
    async (_, answer, seconds) => {
      const id = freshLid()
      const source = upstream(() => answer)
      const retrieval = processOver(source)
      expect(await askAndSettle(retrieval, lid(id))).toEqual({
        kind: 'unavailable',
        retryAfterSeconds: seconds,
      })
      source.script = () => foundAs(id, null)
      expect(await askAndSettle(retrieval, lid(id))).toMatchObject({ kind: 'found' })
    },
  )
})

describe('one fetch for everybody', () => {
  test('1,000 callers at once, in two processes, ask the upstream once', async () => {
    const id = freshLid()
    const answering = Promise.withResolvers<void>()
    const source = upstream(async () => {
      await answering.promise
      return foundAs(id, null)
    })
    const processes = [processOver(source), processOver(source)]
    const callers = Array.from({ length: 1_000 }, (_, n) =>
      ask(processes[n % 2] as Retrieval, lid(id), 'fresh'),
    )
    await vi.waitFor(() => expect(source.asked).toHaveLength(1), { timeout: 20_000 })
    answering.resolve()
    const answers = await Promise.all(callers)
    expect(answers.filter((answer) => answer.kind === 'found' && answer.source === 'fresh')).toHaveLength(
      1_000,
    )
    expect(source.asked).toHaveLength(1)
    await Promise.all(processes.map((one) => one.close()))
  }, 30_000)

  test('a caller who cannot wait any longer is told to come back, and the fetch goes on into the cache', async () => {
    const id = freshLid()
    const answering = Promise.withResolvers<void>()
    const source = upstream(async () => {
      await answering.promise
      return foundAs(id, null)
    })
    const retrieval = createRetrieval({
      pool: foundation.pool,
      eventLog: foundation.eventLog,
      vault: vaultOf(),
      claims: createClaims(foundation.pool),
      provider: source,
      identifierHmac: foundation.secrets.identifierHmac,
      clock,
      logger,
      limits: { answerMaxMs: 100, claimPauseMs: 5 },
    })
    expect(await ask(retrieval, lid(id))).toMatchObject({ kind: 'unavailable' })
    answering.resolve()
    await retrieval.close()
    expect(await ask(retrieval, lid(id))).toMatchObject({ kind: 'found', source: 'cached' })
  })

  test('a claim left behind by a dead process is outlived', async () => {
    const id = freshLid()
    await foundation.pool.query(
      `insert into profile_fetches (claim, holder, until) values ($1, 'dead', now() + interval '300 ms')`,
      [foundation.secrets.identifierHmac(`lid:${id}`)],
    )
    const retrieval = processOver(upstream(() => foundAs(id, null)))
    expect(await askAndSettle(retrieval, lid(id))).toMatchObject({ kind: 'found' })
  })

  test('a caller who cannot pay ends before the upstream is asked', async () => {
    const source = upstream(() => foundAs('x', null))
    const broke = processOver(source).retrieve(lid(freshLid()), {
      wants: 'fresh',
      beforeUpstream: () => Promise.reject(new Error('cannot pay')),
    })
    await expect(broke).rejects.toThrow('cannot pay')
    expect(source.asked).toEqual([])
  })
})

describe('whose data it is', () => {
  test('name and number lead to the same person, fetched once', async () => {
    const [name, number] = [freshLid(), freshUrn()]
    const source = upstream(() => foundAs(name, number))
    const retrieval = processOver(source)
    const first = await askAndSettle(retrieval, lid(name))
    const second = await askAndSettle(retrieval, urn(number))
    expect(second).toMatchObject({ kind: 'found', source: 'cached' })
    expect(second).toMatchObject({ subjectId: first.kind === 'found' ? first.subjectId : null })
    expect(source.asked).toHaveLength(1)
  })

  test('an answer about somebody else is nobody', async () => {
    const [name, other] = [freshLid(), freshLid()]
    const retrieval = processOver(upstream(() => foundAs(other, null)))
    expect(await askAndSettle(retrieval, lid(name))).toEqual({ kind: 'missing' })
    const wrongNumber = processOver(upstream(() => foundAs(other, freshUrn())))
    expect(await askAndSettle(wrongNumber, urn(freshUrn()))).toEqual({ kind: 'missing' })
  })

  test('a name taken over by somebody else leads to nobody: neither to its former owner nor to the new one', async () => {
    const [name, number, stranger] = [freshLid(), freshUrn(), freshUrn()]
    const source = upstream(() => foundAs(name, number))
    const retrieval = processOver(source)
    await askAndSettle(retrieval, lid(name))
    source.script = () => foundAs(name, stranger, { firstname: 'Somebody else' })
    nowMs += hourMs
    expect(await askAndSettle(retrieval, lid(name), 'fresh')).toEqual({ kind: 'missing' })
    expect(await askAndSettle(retrieval, lid(name))).toEqual({ kind: 'missing' })
    // By number both are who they are.
    expect(await askAndSettle(retrieval, urn(number))).toMatchObject({ data: { firstname: 'Zorvina' } })
    expect(await askAndSettle(retrieval, urn(stranger))).toMatchObject({
      data: { firstname: 'Somebody else' },
    })
  })

  test('a renamed person is found by the old name and by the new one', async () => {
    const [old, young, number] = [freshLid(), freshLid(), freshUrn()]
    const source = upstream(() => foundAs(old, number))
    const retrieval = processOver(source)
    const before = await askAndSettle(retrieval, lid(old))
    source.script = () => foundAs(young, number)
    nowMs += hourMs
    const renamed = await askAndSettle(retrieval, lid(old), 'fresh')
    expect(renamed).toMatchObject({ kind: 'found', ids: { lid: young } })
    expect(await askAndSettle(retrieval, lid(young))).toMatchObject({
      source: 'cached',
      subjectId: before.kind === 'found' ? before.subjectId : null,
    })
  })

  test('a name that is gone is asked for by its number before the person is', async () => {
    const [old, young, number] = [freshLid(), freshLid(), freshUrn()]
    const source = upstream(() => foundAs(old, number))
    const retrieval = processOver(source)
    await askAndSettle(retrieval, lid(old))
    source.script = ({ kind }) => (kind === 'urn' ? foundAs(young, number) : { kind: 'not_found' })
    nowMs += hourMs
    expect(await askAndSettle(retrieval, lid(old), 'fresh')).toMatchObject({
      kind: 'found',
      ids: { lid: young },
    })
  })

  test('somebody known who is gone is a tombstone for 30 days, and their data are unreadable at once', async () => {
    const name = freshLid()
    const source = upstream(() => foundAs(name, null))
    const retrieval = processOver(source)
    const before = await askAndSettle(retrieval, lid(name))
    source.script = () => ({ kind: 'gone' })
    nowMs += hourMs
    expect(await askAndSettle(retrieval, lid(name), 'fresh')).toMatchObject({ kind: 'deleted', ageMs: 0 })
    nowMs += dayMs
    expect(await askAndSettle(retrieval, lid(name))).toMatchObject({ kind: 'deleted', ageMs: dayMs })
    expect(source.asked).toHaveLength(2)
    const subject = before.kind === 'found' ? before.subjectId : ''
    const { rows } = await foundation.pool.query('select 1 from profile_keys where subject_id = $1', [
      subject,
    ])
    expect(rows).toEqual([])
  })

  test('somebody never known who is gone was not found', async () => {
    const retrieval = processOver(upstream(() => ({ kind: 'gone' })))
    expect(await askAndSettle(retrieval, lid(freshLid()))).toEqual({ kind: 'missing' })
  })
})

describe('erasure', () => {
  const erase = (ref: ProfileRef) =>
    eraseProfile(
      {
        pool: foundation.pool,
        eventLog: foundation.eventLog,
        vault: vaultOf(),
        identifierHmac: foundation.secrets.identifierHmac,
        eraseFromDataset: async () => [],
        clock,
      },
      ref,
      { actor: 'cli', note: null },
    )

  test('reaches a person by any identifier, at once, for ever', async () => {
    const [name, number] = [freshLid(), freshUrn()]
    const source = upstream(() => foundAs(name, number))
    const retrieval = processOver(source)
    await askAndSettle(retrieval, lid(name))
    expect(await erase(urn(number))).toEqual({ subjects: 1, identifiers: 2 })
    for (const ref of [lid(name), urn(number)])
      for (const wants of ['cached', 'fresh'] as const)
        expect(await askAndSettle(retrieval, ref, wants)).toEqual({ kind: 'missing' })
    expect(source.asked).toHaveLength(1)
  })

  test('wins against a fetch under way: nothing of it is kept or served', async () => {
    const [name, number] = [freshLid(), freshUrn()]
    const answering = Promise.withResolvers<void>()
    const source = upstream(async () => {
      await answering.promise
      return foundAs(name, number)
    })
    const retrieval = processOver(source)
    const asking = ask(retrieval, lid(name))
    await vi.waitFor(() => expect(source.asked).toHaveLength(1), { timeout: 20_000 })
    await erase(lid(name))
    answering.resolve()
    expect(await asking).toEqual({ kind: 'missing' })
    await retrieval.close()
    const { rows } = await foundation.pool.query('select 1 from profile_aliases where hmac = $1', [
      foundation.secrets.identifierHmac(`lid:${name}`),
    ])
    expect(rows).toEqual([])
  })

  test('leaves nothing readable in the event log, in any table, or in a rebuilt projection', async () => {
    const [name, number] = [freshLid(), freshUrn()]
    const marks = ['Xylophora', 'Brindlemoor', 'xylophora@example.org', name]
    const retrieval = processOver(
      upstream(() =>
        foundAs(name, number, {
          firstname: 'Xylophora',
          lastname: 'Brindlemoor',
          emails: [{ value: 'xylophora@example.org', sub_type: 'PERSONAL' }],
        }),
      ),
    )
    await askAndSettle(retrieval, lid(name))
    await erase(lid(name))
    const { rows: tables } = await foundation.pool.query<{ name: string }>(
      `select format('%I.%I', schemaname, tablename) as name from pg_tables
        where schemaname not in ('pg_catalog', 'information_schema')`,
    )
    for (const { name: table } of tables) {
      const { rows } = await foundation.pool.query<{ row: string }>(
        `select row_to_json(t)::text as row from ${table} t`,
      )
      const text = rows.map(({ row }) => row).join('\n')
      for (const mark of marks) expect([table, text.includes(mark)]).toEqual([table, false])
    }
    const log = JSON.stringify(await profileEvents(), (_, value) =>
      typeof value === 'bigint' ? String(value) : value,
    )
    for (const mark of marks) expect(log.includes(mark)).toBe(false)
  })

  test('keys older than 30 days are dropped, with what they opened', async () => {
    const name = freshLid()
    const source = upstream(() => foundAs(name, null))
    const retrieval = processOver(source)
    await askAndSettle(retrieval, lid(name))
    nowMs += 30 * dayMs + 1
    while ((await dropOldProfiles({ eventLog: foundation.eventLog, vault: vaultOf(), clock })) > 0) {
      // As many portions as there are.
    }
    const { rows } = await foundation.pool.query('select 1 from profile_keys')
    expect(rows).toEqual([])
    source.script = () => foundAs(name, null)
    expect(await askAndSettle(retrieval, lid(name))).toMatchObject({ kind: 'found', source: 'fresh' })
  })
})
