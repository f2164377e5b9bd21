import { formatMicro, microOf } from './micro.ts'
import type { ProjectedEvent, Query, StatelessProjection, Statement, TableName } from './projection.ts'

/**
 * The statement: one row per call or movement of credits, in ledger order. A call and its charge are one row.
 * `amount_micro` is what the balance changed by: negative for charges and expiries.
 */
export const ledgerLines: StatelessProjection = {
  name: 'ledger_lines',
  version: 1,
  prefixes: ['ledger-'],
  money: true,
  tables: [
    {
      name: 'ledger_lines',
      columns: `
        organization_id text not null, revision bigint not null, event_id uuid not null, kind text not null,
        request_id text, key_id text, capability text, outcome text, code text, amount_micro bigint not null,
        rule text, rule_version integer, price_book_version integer, charge_id uuid, lines json,
        idempotent boolean not null, effective_at timestamptz not null, primary key (organization_id, revision)`,
      indexes: [
        'create unique index on $table (event_id) where idempotent',
        `create index on $table (charge_id) where kind = 'adjustment'`,
      ],
    },
  ],
  fold: (events, table) => {
    const lines = new Lines()
    const orphans = new Lines()
    for (const event of events) {
      if (event.type !== 'CreditCharged') {
        const kind = kinds[event.type]
        if (kind !== undefined) kind(lines, event as never)
      } else if (lines.endsWith(event.metadata.causation_id)) lines.charge(event)
      else {
        // The call stood at the end of the batch before this one.
        orphans.open(event, { kind: 'call', revision: event.revision - 1 })
        orphans.charge(event)
      }
    }
    return [...insert(lines, table('ledger_lines')), ...chargeEarlier(orphans, table('ledger_lines'))]
  },
}

const columnNames = [
  'organization_id',
  'revision',
  'event_id',
  'kind',
  'request_id',
  'key_id',
  'capability',
  'outcome',
  'code',
  'amount_micro',
  'rule',
  'rule_version',
  'price_book_version',
  'charge_id',
  'lines',
  'idempotent',
  'effective_at',
] as const
type ColumnName = (typeof columnNames)[number]

/** Rows, kept as columns from the start: that is how they are written, and there are many. */
class Lines {
  readonly columns = Object.fromEntries(columnNames.map((name) => [name, []])) as unknown as Record<
    ColumnName,
    (string | null)[]
  >
  #last = -1

  /** Opens a row at zero, with nothing known beyond where and when. */
  open(event: ProjectedEvent, { kind, revision }: { kind: string; revision: number }): void {
    const { columns } = this
    this.#last++
    columns.organization_id.push(event.stream.slice('ledger-'.length))
    columns.revision.push(String(revision))
    columns.event_id.push(event.id)
    columns.kind.push(kind)
    columns.request_id.push(event.metadata.request_id ?? null)
    columns.key_id.push(null)
    columns.capability.push(null)
    columns.outcome.push(null)
    columns.code.push(null)
    columns.amount_micro.push('0')
    columns.rule.push(null)
    columns.rule_version.push(null)
    columns.price_book_version.push(null)
    columns.charge_id.push(null)
    columns.lines.push(null)
    columns.idempotent.push('f')
    columns.effective_at.push(event.metadata.effective_at)
  }

  set(name: ColumnName, value: string | null): void {
    this.columns[name][this.#last] = value
  }

  endsWith(eventId: string | undefined): boolean {
    return this.#last >= 0 && this.columns.event_id[this.#last] === eventId
  }

  charge({ data }: Event<'CreditCharged'>): void {
    this.set('amount_micro', formatMicro(-microOf(data.amount)))
    this.set('rule', data.rule)
    this.set('rule_version', String(data.rule_version))
    this.set('price_book_version', String(data.price_book_version))
    this.set('charge_id', data.charge_id)
    if (data.lines.length > 1) this.set('lines', JSON.stringify(data.lines))
  }

  get length(): number {
    return this.#last + 1
  }
}

type Event<T extends ProjectedEvent['type']> = Extract<ProjectedEvent, { type: T }>

/** What opens a row, and what it says. Everything else leaves no line. */
const kinds: { readonly [T in ProjectedEvent['type']]?: (lines: Lines, event: Event<T>) => void } = {
  KeyUsed: (lines, event) => {
    const { key_id, capability, outcome, code, free_by, idempotent } = event.data
    lines.open(event, { kind: 'call', revision: event.revision })
    lines.set('key_id', key_id)
    lines.set('capability', capability)
    lines.set('outcome', outcome)
    if (code !== undefined) lines.set('code', code)
    if (free_by !== undefined) {
      lines.set('rule', free_by.rule)
      lines.set('rule_version', String(free_by.rule_version))
    }
    if (idempotent === true) lines.set('idempotent', 't')
  },
  RateLimitExceeded: (lines, event) => {
    lines.open(event, { kind: 'rate_limited', revision: event.revision })
    lines.set('key_id', event.data.key_id)
    lines.set('outcome', String(event.data.count))
    lines.set('code', 'RATE_001')
  },
  CallsRefused: (lines, event) => {
    const { key_id, code, counts, free_by } = event.data
    lines.open(event, { kind: 'refused', revision: event.revision })
    lines.set('key_id', key_id)
    lines.set('outcome', String(counts.reduce((sum, { count }) => sum + count, 0)))
    lines.set('code', code)
    lines.set('rule', free_by.rule)
    lines.set('rule_version', String(free_by.rule_version))
  },
  CreditGranted: (lines, event) => {
    lines.open(event, { kind: 'grant', revision: event.revision })
    lines.set('amount_micro', formatMicro(microOf(event.data.amount)))
    lines.set('charge_id', event.data.grant_id)
  },
  CreditExpired: (lines, event) => {
    lines.open(event, { kind: 'expiry', revision: event.revision })
    lines.set('amount_micro', formatMicro(-microOf(event.data.amount)))
    lines.set('charge_id', event.data.grant_id)
  },
  CreditAdjusted: (lines, event) => {
    lines.open(event, { kind: 'adjustment', revision: event.revision })
    lines.set('amount_micro', formatMicro(microOf(event.data.amount)))
    lines.set('charge_id', event.data.adjusts)
  },
}

const insert = (lines: Lines, table: string): Statement[] =>
  lines.length === 0
    ? []
    : [
        {
          text: `insert into ${table} (${columnNames.join(', ')})
                 select a, b::bigint, c::uuid, d, e, f, g, h, i, j::bigint, k, l::integer, m::integer, n::uuid, o::json,
                        p::boolean, q::timestamptz
                 from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
                             $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[],
                             $16::text[], $17::text[]) as u (a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q)`,
          columns: columnNames.map((name) => lines.columns[name]),
        },
      ]

/** The call's row is there and learns what it cost. */
const chargeEarlier = (lines: Lines, table: string): Statement[] =>
  lines.length === 0
    ? []
    : [
        {
          text: `update ${table} t set amount_micro = u.c::bigint, rule = u.d, rule_version = u.e::integer,
                   price_book_version = u.f::integer, charge_id = u.g::uuid, lines = u.h::json
                 from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[])
                   as u (a, b, c, d, e, f, g, h)
                 where t.organization_id = u.a and t.revision = u.b::bigint`,
          columns: (
            [
              'organization_id',
              'revision',
              'amount_micro',
              'rule',
              'rule_version',
              'price_book_version',
              'charge_id',
              'lines',
            ] as const
          ).map((name) => lines.columns[name]),
        },
      ]

export type IdempotentCallRow = { last_revision: string; event_id: string | null; revision: string | null }

/**
 * Where idempotent calls, and the adjustments that gave their charges back, are in a ledger, by the ids of their events, with the
 * last revision that has a line: one row at least, its `event_id` null where there is no such call.
 */
export const idempotentCalls = (
  organizationId: string,
  eventIds: readonly string[],
): Query<IdempotentCallRow> => ({
  text: `with calls as (
           select event_id, revision, charge_id from ledger_lines
            where event_id = any ($2::uuid[]) and idempotent and organization_id = $1),
         found as (
           select event_id, revision from calls
           union all
           select a.event_id, a.revision from calls c
             join ledger_lines a on a.charge_id = c.charge_id and a.kind = 'adjustment'
            where a.organization_id = $1 and a.event_id = any ($2::uuid[]))
         select last.revision as last_revision, found.event_id, found.revision
           from (select coalesce(max(revision), -1) as revision from ledger_lines where organization_id = $1) last
           left join found on true`,
  values: [organizationId, eventIds],
})

/** Accounts whose balance is not the sum of their movements. Must give no rows. */
export const unbalancedAccounts = (): Query<{
  organization_id: string
  movements_micro: string
  balance_micro: string
}> => ({
  text: `select a.organization_id, coalesce(m.micro, 0)::text as movements_micro,
                (coalesce(l.micro, 0) - a.overdrawn_micro)::text as balance_micro
           from accounts a
           left join (select organization_id, sum(amount_micro) as micro from ledger_lines group by 1) m using (organization_id)
           left join (select organization_id, sum(remaining_micro) as micro from account_lots group by 1) l using (organization_id)
          where coalesce(m.micro, 0) <> coalesce(l.micro, 0) - a.overdrawn_micro
          order by a.organization_id`,
  values: [],
})

/** What rows know of credits and rows folded from a shorter log do not: lines by organization and kind, with their sum. */
export const linesOnlyInRows = (
  live: TableName,
  next: TableName,
): Query<{ organization_id: string; kind: string; lines: string; amount_micro: string }> => ({
  text: `select l.organization_id, case when l.kind = 'call' and l.amount_micro <> 0 then 'charge' else l.kind end as kind,
                count(*)::text as lines, sum(l.amount_micro)::text as amount_micro
           from ${live('ledger_lines')} l
          where not exists (select from ${next('ledger_lines')} n
                             where n.organization_id = l.organization_id and n.revision = l.revision and n.event_id = l.event_id)
          group by 1, 2 order by 1, 2`,
  values: [],
})

/** The last revision of a ledger that has a line; null where none has. */
export const lastLineOf = (organizationId: string): Query<{ revision: string | null }> => ({
  text: 'select max(revision) as revision from ledger_lines where organization_id = $1',
  values: [organizationId],
})
