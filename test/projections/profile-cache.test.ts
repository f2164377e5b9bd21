/** The rows of the profile cache for a history: one per person, and the same for any division into batches. */
import fc from 'fast-check'
import pg from 'pg'
import { afterAll, beforeEach, describe, expect, test } from 'vitest'
import {
  aliasesOf,
  type ProfileAliasRow,
  profileCache,
  profileOf,
  subjectsOf,
} from '../../projections/profile-cache.ts'
import type { ProjectedEvent, Query, TableName } from '../../projections/projection.ts'
import {
  type ProfileErased,
  type ProfileFetched,
  type ProfileGone,
  type ProfileMissed,
  profileErasedV1,
  profileFetchedV1,
  profileGoneV1,
  profileMissedV1,
} from '../../src/events/profile.ts'
import { profileStream } from '../../src/events/streams.ts'
import {
  createIndexes,
  createTables,
  createViews,
  liveTable,
  writeChanges,
} from '../../src/projector/tables.ts'
import { randomCases } from '../support/exhaustive.ts'
import { testDatabase } from '../support/postgres.ts'
import { rowsOf } from './history.ts'

const live = liveTable(profileCache)
const cut: TableName = (name) => `${name}_cut`

const database = await testDatabase()
const client = new pg.Client({ connectionString: database.url })
await client.connect()
for (const table of [live, cut]) {
  await createTables(client, profileCache, table)
  await createIndexes(client, profileCache, table)
}
await createViews(client, profileCache)
afterAll(async () => {
  await client?.end()
  await database.drop()
})
const emptyTables = (): Promise<unknown> =>
  client.query(`truncate ${profileCache.tables.flatMap(({ name }) => [live(name), cut(name)]).join(', ')}`)
beforeEach(emptyTables)

type ProfileEvent =
  | { readonly type: 'ProfileFetched'; readonly data: ProfileFetched }
  | { readonly type: 'ProfileMissed'; readonly data: ProfileMissed }
  | { readonly type: 'ProfileGone'; readonly data: ProfileGone }
  | { readonly type: 'ProfileErased'; readonly data: ProfileErased }

const fold = async (events: readonly ProfileEvent[], table: TableName = live): Promise<void> => {
  const projected = events.map(
    (event, n): ProjectedEvent => ({
      ...event,
      id: '00000000-0000-0000-0000-000000000000',
      position: BigInt(n + 1),
      stream: profileStream(event.data.subject_id),
      revision: n,
      recordedAtMs: 0,
      metadata: {
        schema_version: 1,
        actor: 'system',
        effective_at: '2026-01-01T00:00:00.000Z',
        recorded_at: '2026-01-01T00:00:00.000Z',
        digest: 'D'.repeat(43),
      },
    }),
  )
  await writeChanges(client, profileCache.fold(projected), table)
}

const subjects = ['1', '2', '3'].map((digit) => `sub_01K9PPPPPPPPPPPPPPPPPPPPP${digit}`)
const hmacs = ['a', 'b', 'c', 'd'].map((letter) => letter.repeat(43))
const keyIds = ['1', '2'].map((digit) => `00000000-0000-4000-8000-00000000000${digit}`)
const instants = Array.from({ length: 6 }, (_, n) => `2026-03-0${n + 1}T00:00:00.000Z`)
const [one = '', other = ''] = subjects
const [a = '', b = '', c = ''] = hmacs

const aliases = fc.uniqueArray(
  fc.record({ kind: fc.constantFrom('lid' as const, 'urn' as const), hmac: fc.constantFrom(...hmacs) }),
  { minLength: 1, maxLength: 3 },
)
const subject_id = fc.constantFrom(...subjects)
const provider = fc.constantFrom('dataset', 'page')
const at = fc.constantFrom(...instants)

const profileEvent: fc.Arbitrary<ProfileEvent> = fc.oneof(
  fc
    .record({
      subject_id,
      provider,
      observed_at: at,
      fetched_at: at,
      aliases,
      former_aliases: fc.oneof(fc.constant<ProfileFetched['former_aliases']>([]), aliases),
      key_id: fc.constantFrom(...keyIds),
      sealed: fc.constantFrom('sealed-one', 'sealed-two', 'sealed-three'),
    })
    .map((data) => ({ type: 'ProfileFetched' as const, data })),
  fc
    .record({
      subject_id,
      provider,
      reason: fc.constantFrom('not_found' as const, 'inaccessible' as const, 'mismatch' as const),
      observed_at: at,
      aliases,
    })
    .map((data) => ({ type: 'ProfileMissed' as const, data })),
  fc
    .record({
      subject_id,
      provider,
      reason: fc.constantFrom('gone' as const, 'not_found' as const, 'inaccessible' as const),
      observed_at: at,
    })
    .map((data) => ({ type: 'ProfileGone' as const, data })),
  fc
    .record({
      subject_id,
      reason: fc.constantFrom('request' as const, 'retention' as const, 'merged' as const),
      erased_at: at,
      note: fc.constant(null),
    })
    .map((data) => ({ type: 'ProfileErased' as const, data })),
)

/** The expected rows, computed event by event and without SQL. */
const expected = (events: readonly ProfileEvent[]) => {
  const people = new Map<string, Record<string, string | null>>()
  const known = new Map<string, Record<string, string | null>>()
  const meet = (
    subject: string,
    named: ProfileFetched['aliases'],
    news: { verified_at?: string; missed_at: string | null; missed_reason: string | null },
  ): void => {
    for (const { hmac, kind } of named)
      known.set(`${hmac} ${subject}`, {
        hmac,
        subject_id: subject,
        verified_at: known.get(`${hmac} ${subject}`)?.verified_at ?? null,
        ...news,
        kind,
      })
  }
  for (const event of events) {
    const { subject_id: subject } = event.data
    switch (event.type) {
      case 'ProfileFetched': {
        const { aliases: named, former_aliases: former, ...row } = event.data
        people.set(subject, { ...row, gone_at: null, gone_reason: null })
        meet(subject, named, { verified_at: row.fetched_at, missed_at: null, missed_reason: null })
        for (const alias of former)
          if (!known.has(`${alias.hmac} ${subject}`))
            meet(subject, [alias], { missed_at: null, missed_reason: null })
        break
      }
      case 'ProfileMissed': {
        const { aliases: named, observed_at, reason } = event.data
        meet(subject, named, { missed_at: observed_at, missed_reason: reason })
        break
      }
      case 'ProfileGone': {
        const { observed_at, reason, provider: by } = event.data
        const before = people.get(subject) ?? {
          subject_id: subject,
          provider: by,
          observed_at,
          fetched_at: observed_at,
          key_id: null,
          sealed: null,
        }
        people.set(subject, {
          ...before,
          ...(reason === 'gone' ? { key_id: null, sealed: null } : {}),
          gone_at: observed_at,
          gone_reason: reason,
        })
        break
      }
      case 'ProfileErased':
        people.delete(subject)
        for (const [key, alias] of known) if (alias.subject_id === subject) known.delete(key)
    }
  }
  return { people: people.values().toArray(), known: known.values().toArray() }
}

const stored = async () => {
  const select = async (name: string): Promise<Record<string, string | null>[]> =>
    (await client.query<Record<string, string | Date | null>>(`select * from ${name}`)).rows.map((row) =>
      Object.fromEntries(
        Object.entries(row).map(([column, value]) => [
          column,
          value instanceof Date ? value.toISOString() : value,
        ]),
      ),
    )
  return { people: await select('profile_cache'), known: await select('profile_aliases') }
}

const inOrder = (rows: readonly Record<string, string | null>[]): string[] =>
  rows.map((row) => JSON.stringify(Object.entries(row).sort())).sort()

test('the events in these histories are valid events of the log', () => {
  const schemas = {
    ProfileFetched: profileFetchedV1,
    ProfileMissed: profileMissedV1,
    ProfileGone: profileGoneV1,
    ProfileErased: profileErasedV1,
  }
  const seen = new Set<string>()
  fc.assert(
    fc.property(profileEvent, ({ type, data }) => {
      seen.add(type)
      schemas[type].parse(data)
    }),
    { seed: 11, numRuns: randomCases(80) },
  )
  expect([...seen].sort()).toEqual(Object.keys(schemas).sort())
})

test('the rows are those that the events describe, for any division into batches', async () => {
  const history = fc.array(fc.tuple(profileEvent, fc.boolean()), { maxLength: 24 })
  await fc.assert(
    fc.asyncProperty(history, async (steps) => {
      await emptyTables()
      const events = steps.map(([event]) => event)
      await fold(events)
      let batch: ProfileEvent[] = []
      for (const [event, ends] of steps) {
        batch.push(event)
        if (!ends) continue
        await fold(batch, cut)
        batch = []
      }
      await fold(batch, cut)
      expect(renamed(await rowsOf(client, profileCache, cut))).toEqual(
        renamed(await rowsOf(client, profileCache, live)),
      )
      const [want, got] = [expected(events), await stored()]
      expect({ people: inOrder(got.people), known: inOrder(got.known) }).toEqual({
        people: inOrder(want.people),
        known: inOrder(want.known),
      })
    }),
    { seed: 12, numRuns: randomCases(40) },
  )
})

const renamed = (rows: Record<string, string[]>) => Object.values(rows)

const fetched = (more: Partial<ProfileFetched> = {}): ProfileEvent => ({
  type: 'ProfileFetched',
  data: {
    subject_id: one,
    provider: 'dataset',
    observed_at: '2026-03-01T00:00:00.000Z',
    fetched_at: '2026-03-02T00:00:00.000Z',
    aliases: [{ kind: 'lid', hmac: a }],
    former_aliases: [],
    key_id: keyIds[0] ?? '',
    sealed: 'sealed-one',
    ...more,
  },
})
const missed = (more: Partial<ProfileMissed> = {}): ProfileEvent => ({
  type: 'ProfileMissed',
  data: {
    subject_id: one,
    provider: 'dataset',
    reason: 'not_found',
    observed_at: '2026-03-05T00:00:00.000Z',
    aliases: [{ kind: 'lid', hmac: a }],
    ...more,
  },
})
const erased = (subject: string): ProfileEvent => ({
  type: 'ProfileErased',
  data: { subject_id: subject, reason: 'request', erased_at: '2026-03-06T00:00:00.000Z', note: null },
})

const ask = async <Row extends pg.QueryResultRow>({ text, values }: Query<Row>): Promise<Row[]> =>
  (await client.query<Row>(text, [...values])).rows

const found = async (hmac: string): Promise<ProfileAliasRow | undefined> => (await ask(profileOf(hmac)))[0]

describe('an identifier leads', () => {
  test('to no person if it was never requested', async () => {
    await fold([fetched()])
    expect(await found(b)).toBeUndefined()
  })

  test('to the person fetched last', async () => {
    await fold([fetched(), fetched({ sealed: 'sealed-two', fetched_at: '2026-03-03T00:00:00.000Z' })])
    expect(await found(a)).toMatchObject({
      subject_id: one,
      sealed: 'sealed-two',
      fetched_at: new Date('2026-03-03T00:00:00.000Z'),
      gone_at: null,
    })
  })

  test('after a miss, to a miss that remembers the person', async () => {
    await fold([fetched(), missed()])
    expect(await found(a)).toMatchObject({
      subject_id: one,
      verified_at: new Date('2026-03-02T00:00:00.000Z'),
      missed_at: new Date('2026-03-05T00:00:00.000Z'),
      missed_reason: 'not_found',
    })
  })

  test('if it led to several people, to the one of the latest event', async () => {
    await fold([
      fetched({ subject_id: other, fetched_at: '2026-03-04T00:00:00.000Z' }),
      fetched({ subject_id: one, fetched_at: '2026-03-03T00:00:00.000Z' }),
    ])
    expect((await found(a))?.subject_id).toBe(other)
    await fold([missed({ subject_id: one, reason: 'mismatch' })])
    expect(await found(a)).toMatchObject({ subject_id: one, missed_reason: 'mismatch' })
  })

  test('to no person if a person had it earlier; an erasure of that person still covers it', async () => {
    await fold([fetched({ former_aliases: [{ kind: 'lid', hmac: c }] })])
    expect(await found(c)).toMatchObject({ subject_id: one, verified_at: null, missed_at: null })
    expect((await ask(subjectsOf([c]))).map(({ hmac }) => hmac).sort()).toEqual([a, c])
  })

  test('after an erasure, to no person; the sealed payload has been removed from the rows', async () => {
    await fold([fetched(), fetched({ subject_id: other, aliases: [{ kind: 'urn', hmac: b }] }), erased(one)])
    expect(await found(a)).toBeUndefined()
    expect((await found(b))?.subject_id).toBe(other)
    expect((await stored()).people.map((row) => row.subject_id)).toEqual([other])
  })
})

describe('the scope of an erasure', () => {
  test('is every person to whom any of the identifiers ever led, with all their identifiers', async () => {
    await fold([
      fetched({ aliases: [a, b].map((hmac) => ({ kind: 'lid' as const, hmac })) }),
      missed({ subject_id: other, aliases: [a, c].map((hmac) => ({ kind: 'urn' as const, hmac })) }),
      fetched({ subject_id: subjects[2] ?? '', aliases: [{ kind: 'lid', hmac: hmacs[3] ?? '' }] }),
    ])
    const reached = (await ask(subjectsOf([a]))).map(({ subject_id: subject, hmac }) => `${subject} ${hmac}`)
    expect(reached.sort()).toEqual([`${one} ${a}`, `${one} ${b}`, `${other} ${a}`, `${other} ${c}`].sort())
    expect((await ask(aliasesOf(one))).map(({ hmac }) => hmac).sort()).toEqual([a, b])
  })
})
