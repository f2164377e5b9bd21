import type { ProfileErased, ProfileFetched, ProfileGone, ProfileMissed } from '../src/events/profile.ts'
import {
  columnsOf,
  type Query,
  type StatelessProjection,
  type Statement,
  type TableName,
} from './projection.ts'

/**
 * What is known of people: the newest payload of each, sealed, and which identifiers lead to whom. Everything here is
 * unreadable without the payload's key, which lives outside the event log.
 */
export const profileCache: StatelessProjection = {
  name: 'profile_cache',
  version: 1,
  prefixes: ['profile-'],
  money: false,
  tables: [
    {
      name: 'profile_cache',
      columns: `
        subject_id text primary key, provider text not null, observed_at timestamptz not null,
        fetched_at timestamptz not null, key_id text, sealed text, gone_at timestamptz, gone_reason text`,
    },
    {
      name: 'profile_aliases',
      columns: `
        hmac text not null, subject_id text not null, kind text not null,
        verified_at timestamptz, missed_at timestamptz, missed_reason text, primary key (hmac, subject_id)`,
      indexes: ['create index on $table (subject_id)'],
    },
  ],
  fold: (events, table) => {
    const folding = new Folding()
    for (const event of events) {
      if (event.type === 'ProfileFetched') folding.fetched(event.data)
      else if (event.type === 'ProfileMissed') folding.missed(event.data)
      else if (event.type === 'ProfileGone') folding.gone(event.data)
      else if (event.type === 'ProfileErased') folding.erased(event.data)
    }
    return folding.statements(table)
  },
}

/** What a batch says of a subject: its newest data, whether it was gone after them, and whether they may be kept then. */
type Row = {
  readonly data: ProfileFetched | null
  readonly gone: ProfileGone | null
  /** The first time they were gone: a row without data begins with it. */
  readonly since: ProfileGone | null
  readonly purged: boolean
}
type Alias = {
  readonly hmac: string
  readonly subjectId: string
  readonly kind: string
  readonly verifiedAt: string | null
  readonly missedAt: string | null
  readonly reason: string | null
}

/** The last word of a batch on every subject and alias. An erasure forgets what the batch said before it as well. */
class Folding {
  readonly #erased = new Set<string>()
  readonly #rows = new Map<string, Row>()
  readonly #aliases = new Map<string, Alias>()
  readonly #former = new Map<string, Pick<Alias, 'hmac' | 'subjectId' | 'kind'>>()

  fetched(data: ProfileFetched): void {
    this.#rows.set(data.subject_id, { data, gone: null, since: null, purged: false })
    for (const { hmac, kind } of data.aliases)
      this.#alias({
        hmac,
        subjectId: data.subject_id,
        kind,
        verifiedAt: data.fetched_at,
        missedAt: null,
        reason: null,
      })
    for (const { hmac, kind } of data.former_aliases) {
      const key = `${hmac} ${data.subject_id}`
      if (!this.#former.has(key)) this.#former.set(key, { hmac, subjectId: data.subject_id, kind })
    }
  }

  missed({ subject_id, aliases, observed_at, reason }: ProfileMissed): void {
    for (const { hmac, kind } of aliases)
      this.#alias({ hmac, subjectId: subject_id, kind, verifiedAt: null, missedAt: observed_at, reason })
  }

  gone(gone: ProfileGone): void {
    const before = this.#rows.get(gone.subject_id)
    const purged = gone.reason === 'gone' || before?.purged === true
    this.#rows.set(gone.subject_id, {
      data: before?.data ?? null,
      gone,
      since: before?.since ?? gone,
      purged,
    })
  }

  erased({ subject_id }: ProfileErased): void {
    this.#erased.add(subject_id)
    this.#rows.delete(subject_id)
    for (const aliases of [this.#aliases, this.#former])
      for (const [key, alias] of aliases) if (alias.subjectId === subject_id) aliases.delete(key)
  }

  #alias(alias: Alias): void {
    const key = `${alias.hmac} ${alias.subjectId}`
    const before = this.#aliases.get(key)
    // A miss does not make forgotten that the identifier led there once: whose it was decides who may be believed.
    this.#aliases.set(key, { ...alias, verifiedAt: alias.verifiedAt ?? before?.verifiedAt ?? null })
  }

  statements(table: TableName): Statement[] {
    const rows = [...this.#rows.values()]
    return [
      ...forget(table, [...this.#erased]),
      ...keepRows(
        table,
        rows.flatMap(({ data }) => data ?? []),
      ),
      ...keepGone(
        table,
        rows.flatMap(({ gone, since, purged }) =>
          gone === null || since === null ? [] : [{ gone, since, purged }],
        ),
      ),
      ...keepAliases(table, [...this.#aliases.values()]),
      ...keepFormer(table, [...this.#former.values()]),
    ]
  }
}

const forget = (table: TableName, subjects: readonly string[]): Statement[] =>
  subjects.length === 0
    ? []
    : ['profile_cache', 'profile_aliases'].map((name) => ({
        text: `delete from ${table(name)} where subject_id = any($1::text[])`,
        columns: [subjects],
      }))

const keepRows = (table: TableName, fetched: readonly ProfileFetched[]): Statement[] =>
  fetched.length === 0
    ? []
    : [
        {
          text: `insert into ${table('profile_cache')} (subject_id, provider, observed_at, fetched_at, key_id, sealed)
                 select a, b, c::timestamptz, d::timestamptz, e, f
                 from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[]) as u (a, b, c, d, e, f)
                 on conflict (subject_id) do update set provider = excluded.provider, observed_at = excluded.observed_at,
                   fetched_at = excluded.fetched_at, key_id = excluded.key_id, sealed = excluded.sealed, gone_at = null, gone_reason = null`,
          columns: columnsOf(
            fetched.map((data) => [
              data.subject_id,
              data.provider,
              data.observed_at,
              data.fetched_at,
              data.key_id,
              data.sealed,
            ]),
            6,
          ),
        },
      ]

const keepGone = (
  table: TableName,
  people: readonly { gone: ProfileGone; since: ProfileGone; purged: boolean }[],
): Statement[] =>
  people.length === 0
    ? []
    : [
        {
          text: `insert into ${table('profile_cache')} (subject_id, provider, observed_at, fetched_at, gone_at, gone_reason)
                 select a, b, c::timestamptz, c::timestamptz, d::timestamptz, e
                 from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) as u (a, b, c, d, e)
                 on conflict (subject_id) do update set gone_at = excluded.gone_at, gone_reason = excluded.gone_reason`,
          columns: columnsOf(
            people.map(({ gone, since }) => [
              gone.subject_id,
              since.provider,
              since.observed_at,
              gone.observed_at,
              gone.reason,
            ]),
            5,
          ),
        },
        {
          text: `update ${table('profile_cache')} set key_id = null, sealed = null where subject_id = any($1::text[])`,
          columns: [people.filter(({ purged }) => purged).map(({ gone }) => gone.subject_id)],
        },
      ]

/** Whoever is found by such an identifier stays who they are. */
const keepFormer = (
  table: TableName,
  aliases: readonly Pick<Alias, 'hmac' | 'subjectId' | 'kind'>[],
): Statement[] =>
  aliases.length === 0
    ? []
    : [
        {
          text: `insert into ${table('profile_aliases')} (hmac, subject_id, kind)
                 select a, b, c from unnest($1::text[], $2::text[], $3::text[]) as u (a, b, c) on conflict do nothing`,
          columns: columnsOf(
            aliases.map(({ hmac, subjectId, kind }) => [hmac, subjectId, kind]),
            3,
          ),
        },
      ]

const keepAliases = (table: TableName, aliases: readonly Alias[]): Statement[] =>
  aliases.length === 0
    ? []
    : [
        {
          text: `insert into ${table('profile_aliases')} as t (hmac, subject_id, kind, verified_at, missed_at, missed_reason)
                 select a, b, c, d::timestamptz, e::timestamptz, f
                 from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[]) as u (a, b, c, d, e, f)
                 on conflict (hmac, subject_id) do update set kind = excluded.kind,
                   verified_at = coalesce(excluded.verified_at, t.verified_at),
                   missed_at = excluded.missed_at, missed_reason = excluded.missed_reason`,
          columns: columnsOf(
            aliases.map(({ hmac, subjectId, kind, verifiedAt, missedAt, reason }) => [
              hmac,
              subjectId,
              kind,
              verifiedAt,
              missedAt,
              reason,
            ]),
            6,
          ),
        },
      ]

/** Where an identifier leads, and what is cached there. */
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

/** Of several subjects an identifier once led to, the one it was last heard of with. `hmac` is an expression in SQL. */
export const profileBy = (hmac: string): string => `
  select a.subject_id, a.verified_at, a.missed_at, a.missed_reason,
         c.provider, c.observed_at, c.fetched_at, c.key_id, c.sealed, c.gone_at, c.gone_reason
    from profile_aliases a left join profile_cache c using (subject_id)
   where a.hmac = ${hmac} order by greatest(a.verified_at, a.missed_at) desc nulls last, a.subject_id desc limit 1`

export const profileOf = (hmac: string): Query<ProfileAliasRow> => ({ text: profileBy('$1'), values: [hmac] })

export type SubjectAliasRow = { subject_id: string; hmac: string; kind: string; verified_at: Date | null }

/** The identifiers known to lead to a subject. */
export const aliasesOf = (subjectId: string): Query<SubjectAliasRow> => ({
  text: `select subject_id, hmac, kind, verified_at from profile_aliases
          where subject_id = $1 order by verified_at desc nulls last, hmac limit 1000`,
  values: [subjectId],
})

/** Every subject any of these identifiers ever led to, with all identifiers of those: what an erasure has to reach. */
export const subjectsOf = (hmacs: readonly string[]): Query<SubjectAliasRow> => ({
  text: `select subject_id, hmac, kind, verified_at from profile_aliases
          where subject_id in (select subject_id from profile_aliases where hmac = any($1::text[])) limit 10000`,
  values: [hmacs],
})

/** People whose rows are gone, and would be there again in rows folded from a log that does not tell of their erasure. */
export const profilesOnlyInLog = (live: TableName, next: TableName): Query<{ subject_id: string }> => ({
  text: `select n.subject_id from ${next('profile_cache')} n
          where not exists (select from ${live('profile_cache')} l where l.subject_id = n.subject_id)
          order by 1`,
  values: [],
})
