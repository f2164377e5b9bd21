import { isAudited } from '../src/events/audited.ts'
import { organizationOfStream } from '../src/events/streams.ts'
import type { ProjectedEvent, Query, StatelessProjection } from './projection.ts'
import { insert, type RowOf, type Table } from './rows.ts'

const entriesTable = {
  name: 'audit_entries',
  columns: {
    position: 'bigint not null',
    at: 'timestamptz not null',
    actor: 'text not null',
    type: 'text not null',
    stream: 'text not null',
    // The ids and names in the event, for example of keys and users.
    about: 'text[] not null',
  },
  key: ['position'],
  indexes: [
    'create index on $table (at)',
    'create index on $table (actor, position)',
    'create index on $table (type, position)',
    'create index on $table using gin (about)',
  ],
} as const satisfies Table

/**
 * The positions of changes that people made. The changes themselves are read from the event log. API calls are not included, so that
 * changes are found quickly.
 */
export const audit: StatelessProjection = {
  name: 'audit',
  version: 2,
  prefixes: [
    'ledger-',
    'key-',
    'pricebook',
    'profile-',
    'pixel-',
    'operator',
    'checkpoint',
    'rerate-',
    'signin-',
    'installation',
  ],
  money: false,
  tables: [entriesTable],
  fold: (events) => {
    const rows: RowOf<typeof entriesTable>[] = []
    for (const event of events)
      if (isAudited(event)) {
        const { position, stream, type, metadata } = event
        const at = metadata.recorded_at
        rows.push({ position, at, actor: metadata.actor, type, stream, about: aboutOf(event) })
      }
    return [insert(entriesTable, rows)]
  },
}

/** The names of the event members whose values are copied into `about`. */
const naming = new Set([
  'organization_id',
  'key_id',
  'successor_id',
  'user',
  'token_id',
  'webhook_id',
  'run',
  'rerate_run',
  'grant_id',
  'adjustment_id',
  'adjusts',
  'override_id',
  'subject_id',
  'domain',
  'sku',
  'month',
  'job',
  'run_id',
  'rebuild_id',
  'projection',
  'projections',
  'backup_id',
  'stream',
  'data',
])
const aboutMax = 20
const aboutCharsMax = 300

const aboutOf = ({ type, data, stream }: ProjectedEvent): string[] => {
  const about = new Set<string>()
  const organization = organizationOfStream(stream)
  if (organization !== null) about.add(organization)
  for (const [name, value] of Object.entries(data)) {
    if (naming.has(name)) for (const one of [value].flat()) if (typeof one === 'string') about.add(one)
    if (name === 'reference' && typeof value === 'string')
      for (const one of referencesIn(value)) about.add(one)
    if (name === 'proposal' && typeof value === 'number') about.add(`p${value}`)
    if (name === 'version' && type.startsWith('PriceBook')) about.add(String(value))
  }
  return [...about].filter((text) => text.length <= aboutCharsMax).slice(0, aboutMax)
}

/** The reference, and the common reference if the movement is one of many refunds (see `refund-calls.ts`). */
const referencesIn = (reference: string): string[] => {
  const [, common] = /^(.+)\/[0-9A-HJKMNP-TV-Z]{26}$/.exec(reference) ?? []
  return [reference, ...(common === undefined ? [] : [common])]
}

export type AuditRow = {
  readonly position: string
  readonly at: Date
  readonly actor: string
  readonly type: string
  readonly stream: string
  readonly about: readonly string[]
}

export type AuditFilter = {
  readonly since: string | null
  /** Selects the entries of these actors. Null selects all actors. */
  readonly actors: readonly string[] | null
  readonly about: string | null
  readonly type: string | null
  readonly oldestFirst: boolean
}

/** The next entries after a position, in the requested order. Null: the first entries. */
export const auditPage = (
  { since, actors, about, type, oldestFirst }: AuditFilter,
  { after, max }: { after: string | null; max: number },
): Query<AuditRow> => {
  const values: unknown[] = []
  const conditions: string[] = []
  const where = (value: unknown, condition: (parameter: string) => string): void => {
    if (value === null) return
    values.push(value)
    conditions.push(condition(`$${values.length}`))
  }
  where(since, (given) => `at >= ${given}`)
  where(actors, (given) => `actor = any (${given}::text[])`)
  where(about, (given) => `about @> array[${given}::text]`)
  where(type, (given) => `type = ${given}`)
  where(after, (given) => `position ${oldestFirst ? '>' : '<'} ${given}::bigint`)
  values.push(max)
  return {
    text: `select position::text, at, actor, type, stream, about from audit_entries
            ${conditions.length === 0 ? '' : `where ${conditions.join(' and ')}`}
            order by audit_entries.position ${oldestFirst ? 'asc' : 'desc'} limit $${values.length}`,
    values,
  }
}

/**
 * The grants and corrections with this reference or common reference, newest first. Readers verify each of them in the event log. Null
 * selects all ledgers. The references are selected first, because a planner without statistics would read all entries.
 */
export const movementsUnder = (
  reference: string,
  { ledgers, max }: { ledgers: readonly string[] | null; max: number },
): Query<Pick<AuditRow, 'position'>> => ({
  text: `with found as materialized (select position, stream, type from audit_entries where about @> array[$1::text])
         select position::text from found
          where type in ('CreditGranted', 'CreditAdjusted') and ($2::text[] is null or stream = any ($2))
          order by found.position desc limit $3`,
  values: [reference, ledgers, max],
})

/** The positions of the events that closed an organization's months, newest first. */
export const monthClosings = (organizationId: string): Query<{ readonly position: string }> => ({
  text: `select position::text from audit_entries
          where type = 'MonthClosed' and about @> array[$1::text] order by audit_entries.position desc`,
  values: [organizationId],
})

/** SQL: the last closed month of each organization. Its earlier months are closed too. The text array `about` of a closing is [organization, month]. */
export const lastClosedMonths = `
  select about[1] as organization_id, max(about[2]) as month from audit_entries where type = 'MonthClosed' group by 1`

/** The events of these types about a user, newest first. */
export const accountChanges = (
  user: string,
  { types, since, max }: { types: readonly string[]; since: string; max: number },
): Query<AuditRow> => ({
  text: `select position::text, at, actor, type, stream, about from audit_entries
          where about @> array[$1::text] and type = any ($2::text[]) and at >= $3
          order by audit_entries.position desc limit $4`,
  values: [user, types, since, max],
})

/** The last sign-in of each of these users, or null if a user has never signed in. Needs one index look-up for each user. */
export const lastSignIns = (
  names: readonly string[],
): Query<{ readonly name: string; readonly at: Date | null }> => ({
  text: `select name, (select a.at from audit_entries a
                        where a.actor = 'user:' || name and a.type = 'UserSignedIn'
                        order by a.position desc limit 1) as at
           from unnest($1::text[]) as name`,
  values: [names],
})
