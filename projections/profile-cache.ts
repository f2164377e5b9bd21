import type { ProfileErased, ProfileFetched, ProfileGone, ProfileMissed } from '../src/events/profile.ts'
import type { Query, StatelessProjection, TableName } from './projection.ts'
import { type Change, type RowOf, remove, type Table, update, upsert, upsertOnly } from './rows.ts'

const cacheTable = {
  name: 'profile_cache',
  columns: {
    subject_id: 'text not null',
    provider: 'text not null',
    observed_at: 'timestamptz not null',
    fetched_at: 'timestamptz not null',
    key_id: 'text',
    sealed: 'text',
    gone_at: 'timestamptz',
    gone_reason: 'text',
  },
  key: ['subject_id'],
} as const satisfies Table

const aliasesTable = {
  name: 'profile_aliases',
  columns: {
    hmac: 'text not null',
    subject_id: 'text not null',
    kind: 'text not null',
    verified_at: 'timestamptz',
    missed_at: 'timestamptz',
    missed_reason: 'text',
  },
  key: ['hmac', 'subject_id'],
  indexes: ['create index on $table (subject_id)'],
} as const satisfies Table
type Alias = RowOf<typeof aliasesTable>

/**
 * The newest sealed payload of each person, and the identifiers of the person. The payload cannot be read without its key, which is
 * stored outside the event log.
 */
export const profileCache: StatelessProjection = {
  name: 'profile_cache',
  version: 1,
  prefixes: ['profile-'],
  money: false,
  tables: [cacheTable, aliasesTable],
  fold: (events) => {
    const folding = new Folding()
    for (const event of events) {
      if (event.type === 'ProfileFetched') folding.fetched(event.data)
      else if (event.type === 'ProfileMissed') folding.missed(event.data)
      else if (event.type === 'ProfileGone') folding.gone(event.data)
      else if (event.type === 'ProfileErased') folding.erased(event.data)
    }
    return folding.changes()
  },
}

/** The result of a batch for a subject: its newest data, and whether it was reported as gone afterwards. */
type Row = {
  readonly data: ProfileFetched | null
  /** If the person was reported as gone after the data: the first and the last report, and whether the data must be deleted. */
  readonly gone: { readonly first: ProfileGone; readonly last: ProfileGone; readonly purged: boolean } | null
}

/**
 * Calculates the result of a batch for every subject and alias. The last event counts. An erasure discards the results of earlier
 * events in the batch.
 */
class Folding {
  readonly #erased = new Set<string>()
  readonly #rows = new Map<string, Row>()
  readonly #aliases = new Map<string, Alias>()
  readonly #former = new Map<string, Alias>()

  fetched(data: ProfileFetched): void {
    this.#rows.set(data.subject_id, { data, gone: null })
    for (const alias of data.aliases)
      this.#alias({ ...aliasOf(data.subject_id, alias), verified_at: data.fetched_at })
    for (const alias of data.former_aliases) {
      const former = aliasOf(data.subject_id, alias)
      const key = keyOf(former)
      if (!this.#former.has(key)) this.#former.set(key, former)
    }
  }

  missed({ subject_id, aliases, observed_at, reason }: ProfileMissed): void {
    for (const alias of aliases)
      this.#alias({ ...aliasOf(subject_id, alias), missed_at: observed_at, missed_reason: reason })
  }

  gone(gone: ProfileGone): void {
    const { data, gone: before } = this.#rows.get(gone.subject_id) ?? { data: null, gone: null }
    const purged = gone.reason === 'gone' || before?.purged === true
    this.#rows.set(gone.subject_id, { data, gone: { first: before?.first ?? gone, last: gone, purged } })
  }

  erased({ subject_id }: ProfileErased): void {
    this.#erased.add(subject_id)
    this.#rows.delete(subject_id)
    for (const aliases of [this.#aliases, this.#former])
      for (const [key, alias] of aliases) if (alias.subject_id === subject_id) aliases.delete(key)
  }

  #alias(alias: Alias): void {
    const before = this.#aliases.get(keyOf(alias))
    // An identifier that was not found keeps the time at which it was last verified.
    this.#aliases.set(keyOf(alias), {
      ...alias,
      verified_at: alias.verified_at ?? before?.verified_at ?? null,
    })
  }

  changes(): Change[] {
    const erased = [...this.#erased].map((subject_id) => ({ subject_id }))
    const fetched = [...this.#rows.values()].flatMap(({ data }) => data ?? [])
    const gone = [...this.#rows.values()].flatMap((row) => row.gone ?? [])
    return [
      remove(cacheTable, erased),
      remove(aliasesTable, erased),
      upsert(cacheTable, fetched.map(fetchedRow)),
      upsertOnly(cacheTable, gone.map(goneRow), ['gone_at', 'gone_reason']),
      update(
        cacheTable,
        gone.flatMap(({ last: { subject_id }, purged }) =>
          purged ? { subject_id, key_id: null, sealed: null } : [],
        ),
      ),
      upsert(aliasesTable, [...this.#aliases.values()], {
        verified_at: 'coalesce(excluded.verified_at, t.verified_at)',
      }),
      // If a previous identifier already belongs to a subject, its row stays unchanged.
      upsertOnly(aliasesTable, [...this.#former.values()], []),
    ]
  }
}

const keyOf = ({ hmac, subject_id }: Alias): string => `${hmac} ${subject_id}`

const aliasOf = (subject_id: string, { hmac, kind }: ProfileFetched['aliases'][number]): Alias => ({
  hmac,
  subject_id,
  kind,
  verified_at: null,
  missed_at: null,
  missed_reason: null,
})

const fetchedRow = (data: ProfileFetched): RowOf<typeof cacheTable> => ({
  subject_id: data.subject_id,
  provider: data.provider,
  observed_at: data.observed_at,
  fetched_at: data.fetched_at,
  key_id: data.key_id,
  sealed: data.sealed,
  gone_at: null,
  gone_reason: null,
})

/** A row without data, for a person who was reported as gone before any data was recorded. */
const goneRow = ({ first, last }: NonNullable<Row['gone']>): RowOf<typeof cacheTable> => ({
  subject_id: last.subject_id,
  provider: first.provider,
  observed_at: first.observed_at,
  fetched_at: first.observed_at,
  key_id: null,
  sealed: null,
  gone_at: last.observed_at,
  gone_reason: last.reason,
})

/** The subject to which an identifier belongs, with its cached data. */
export type ProfileAliasRow = {
  subject_id: string
  verified_at: Date | null
  missed_at: Date | null
  missed_reason: string | null
  provider: string | null
  observed_at: Date | null
  fetched_at: Date | null
  key_id: string | null
  sealed: string | null
  gone_at: Date | null
  gone_reason: string | null
}

/** Selects the subject of an identifier, or the latest one if there are several. `hmac` is an SQL expression. */
export const profileBy = (hmac: string): string => `
  select a.subject_id, a.verified_at, a.missed_at, a.missed_reason,
         c.provider, c.observed_at, c.fetched_at, c.key_id, c.sealed, c.gone_at, c.gone_reason
    from profile_aliases a left join profile_cache c using (subject_id)
   where a.hmac = ${hmac} order by greatest(a.verified_at, a.missed_at) desc nulls last, a.subject_id desc limit 1`

export const profileOf = (hmac: string): Query<ProfileAliasRow> => ({
  text: profileBy('$1'),
  values: [hmac],
})

type SubjectAliasRow = { subject_id: string; hmac: string; kind: string; verified_at: Date | null }

/** The identifiers of a subject. */
export const aliasesOf = (subjectId: string): Query<SubjectAliasRow> => ({
  text: `select subject_id, hmac, kind, verified_at from profile_aliases
          where subject_id = $1 order by verified_at desc nulls last, hmac limit 1000`,
  values: [subjectId],
})

/** For erasing a person: every subject to which one of these identifiers ever belonged, with all identifiers of these subjects. */
export const subjectsOf = (hmacs: readonly string[]): Query<SubjectAliasRow> => ({
  text: `select subject_id, hmac, kind, verified_at from profile_aliases
          where subject_id in (select subject_id from profile_aliases where hmac = any($1::text[])) limit 10000`,
  values: [hmacs],
})

/** The erased people whose rows a rebuild would restore, because the log has lost the erasure. */
export const profilesOnlyInLog = (live: TableName, next: TableName): Query<{ subject_id: string }> => ({
  text: `select n.subject_id from ${next('profile_cache')} n
          where not exists (select from ${live('profile_cache')} l where l.subject_id = n.subject_id)
          order by 1`,
  values: [],
})
