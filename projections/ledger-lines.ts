import { hash } from 'node:crypto'
import { microOf } from './micro.ts'
import type { ProjectedEvent, Query, StatelessProjection, TableName } from './projection.ts'
import { insert, type RowOf, type Table, update, upsert } from './rows.ts'

/**
 * The ledgers that have lines. A line refers to its ledger by an eight-byte number, because PostgreSQL fills index pages completely only
 * if a key is not longer than two such numbers. If two ledgers have the same number, the later one is halted.
 */
const ledgersTable = {
  name: 'statement_ledgers',
  columns: { ledger: 'bigint not null', organization_id: 'text not null' },
  key: ['ledger', 'organization_id'],
  indexes: ['create unique index on $table (ledger)'],
} as const satisfies Table

const linesTable = {
  name: 'ledger_lines',
  // There is a row for every call, so rows must be small. Columns with a fixed width come first, so that there is no padding between them.
  columns: {
    ledger: 'bigint not null',
    revision: 'bigint not null',
    amount_micro: 'bigint not null',
    effective_at: 'timestamptz not null',
    // The number of calls in the line. Null: the line is a movement of credits.
    calls: 'bigint',
    rule_version: 'integer',
    price_book_version: 'integer',
    idempotent: 'boolean not null',
    // Null for a call without an Idempotency-Key, because its event's id can be derived from the request id.
    event_id: 'uuid',
    // The charge for a call with an Idempotency-Key. For other calls, the charge's id can be derived from the request id.
    charge_id: 'uuid',
    // The lot that was granted or has expired.
    grant_id: 'uuid',
    // The charge that an adjustment corrects.
    adjusts: 'uuid',
    kind: 'text not null',
    request_id: 'text',
    key_id: 'text',
    capability: 'text',
    outcome: 'text',
    code: 'text',
    rule: 'text',
    lines: 'json',
  },
  key: ['ledger', 'revision'],
  indexes: [
    'create index on $table (request_id)',
    'create unique index on $table (event_id) where idempotent',
    'create index on $table (adjusts) where adjusts is not null',
    // For the refunds and corrections of all organizations in a month or on a day.
    'create index on $table (effective_at) where calls is null',
    // For lists of the calls of all organizations by time, and of refused or failed calls.
    'create index on $table (effective_at, ledger, revision) where calls is not null',
    `create index on $table (effective_at, ledger, revision) where calls is not null and outcome <> 'answered'`,
  ],
} as const satisfies Table
type Line = RowOf<typeof linesTable>

/** Views and functions for readers. The condition `ledger = ledger_key(…)` selects the lines of an organization. */
const readers = (table: TableName): string[] => [
  `create or replace function ledger_key(organization_id text) returns bigint language sql immutable parallel safe
     return ('x' || left(encode(sha256(convert_to(organization_id, 'UTF8')), 'hex'), 16))::bit(64)::bigint`,
  `create or replace view ledger_lines as
     select l.*, n.organization_id from ${table('ledger_lines')} l left join ${table('statement_ledgers')} n using (ledger)`,
]

/**
 * The lines of statements: one row for each call or movement of credits, in ledger order. A call and its charge share one row.
 * `amount_micro` is the change in the balance, so it is negative for charges and expiries.
 */
export const ledgerLines: StatelessProjection = {
  name: 'ledger_lines',
  version: 2,
  prefixes: ['ledger-'],
  money: true,
  tables: [ledgersTable, linesTable],
  readers,
  totals: {
    figures: ['lines', 'balance'],
    of: (table) => ({
      text: `select n.organization_id, f.figure, f.amount::text as amount
               from (select ledger, count(*) as lines, sum(amount_micro) as balance from ${table('ledger_lines')} group by 1) s
               join ${table('statement_ledgers')} n using (ledger)
               cross join lateral (values ('lines', s.lines::numeric), ('balance', s.balance)) f (figure, amount)`,
      values: [],
    }),
  },
  fold: (events) => {
    const ledgers = new Map<string, RowOf<typeof ledgersTable>>()
    const placeOf = ({ stream, revision }: ProjectedEvent): Place => {
      let ledger = ledgers.get(stream)
      if (ledger === undefined) {
        const organization_id = stream.slice('ledger-'.length)
        ledger = { ledger: ledgerKeyOf(organization_id), organization_id }
        ledgers.set(stream, ledger)
      }
      return { ledger: ledger.ledger, revision }
    }
    const lines: Line[] = []
    // The id of the last call's `KeyUsed` event.
    let last = ''
    const chargedLater: (Place & Charge)[] = []
    for (const event of events)
      if (event.type === 'CreditCharged') {
        const call = lines.at(-1)
        if (call !== undefined && event.metadata.causation_id === last)
          lines[lines.length - 1] = { ...call, ...chargeOf(event, call) }
        // The call was in the previous batch, so its row already exists.
        else
          chargedLater.push({
            ...placeOf(event),
            revision: event.revision - 1,
            ...chargeOf(event, { idempotent: true }),
          })
      } else {
        const line = lineOf(event, placeOf)
        if (line === null) continue
        lines.push(line)
        last = event.id
      }
    return [
      upsert(ledgersTable, [...ledgers.values()]),
      insert(linesTable, lines),
      update(linesTable, chargedLater, { charge_id: 'case when t.idempotent then excluded.charge_id end' }),
    ]
  },
}

type Place = Pick<Line, 'ledger' | 'revision'>

type Charge = Pick<
  Line,
  'amount_micro' | 'rule' | 'rule_version' | 'price_book_version' | 'charge_id' | 'lines'
>

const chargeOf = (
  { data }: Extract<ProjectedEvent, { type: 'CreditCharged' }>,
  { idempotent }: Pick<Line, 'idempotent'>,
): Charge => ({
  amount_micro: -microOf(data.amount),
  rule: data.rule,
  rule_version: data.rule_version,
  price_book_version: data.price_book_version,
  charge_id: idempotent ? data.charge_id : null,
  lines: data.lines.length > 1 ? data.lines : null,
})

/** The line that begins with this event, or null. */
const lineOf = (event: ProjectedEvent, placeOf: (event: ProjectedEvent) => Place): Line | null => {
  const blank = (kind: string): Line => blankLine(event, placeOf(event), kind)
  switch (event.type) {
    case 'KeyUsed': {
      const { key_id, capability, outcome, code = null, free_by, idempotent = false } = event.data
      const free = { rule: free_by?.rule ?? null, rule_version: free_by?.rule_version ?? null }
      const event_id = idempotent || event.metadata.request_id === undefined ? event.id : null
      return {
        ...blank('call'),
        event_id,
        key_id,
        capability,
        outcome,
        code,
        calls: 1,
        ...free,
        idempotent,
      }
    }
    case 'RateLimitExceeded': {
      const { key_id, count } = event.data
      const refusal = { outcome: 'refused', code: 'RATE_001' }
      return { ...blank('rate_limited'), key_id, ...refusal, calls: count }
    }
    case 'CallsRefused': {
      const { key_id, outcome, code, counts, free_by } = event.data
      const calls = counts.reduce((sum, { count }) => sum + count, 0)
      const { rule, rule_version } = free_by
      return { ...blank('refused'), key_id, outcome, code, calls, rule, rule_version }
    }
    case 'CreditGranted': {
      const { amount, grant_id } = event.data
      return { ...blank('grant'), amount_micro: microOf(amount), grant_id }
    }
    case 'CreditExpired': {
      const { amount, grant_id } = event.data
      return { ...blank('expiry'), amount_micro: -microOf(amount), grant_id }
    }
    case 'CreditAdjusted': {
      const { amount, adjusts } = event.data
      return { ...blank('adjustment'), amount_micro: microOf(amount), adjusts }
    }
    default:
      return null
  }
}

/** A line of zero credits that contains only the place, the time and the kind. */
const blankLine = (event: ProjectedEvent, place: Place, kind: string): Line => ({
  ...place,
  event_id: event.id,
  kind,
  request_id: event.metadata.request_id ?? null,
  key_id: null,
  capability: null,
  outcome: null,
  code: null,
  calls: null,
  amount_micro: 0n,
  rule: null,
  rule_version: null,
  price_book_version: null,
  charge_id: null,
  grant_id: null,
  adjusts: null,
  lines: null,
  idempotent: false,
  effective_at: event.metadata.effective_at,
})

/**
 * The last revision of organization `$1` that has a line. With `max(revision)`, PostgreSQL would read every line of the ledger, because
 * the view is a join.
 */
export const lastRevision =
  'select revision from ledger_lines where ledger = ledger_key($1) order by revision desc limit 1'

export type IdempotentCallsAsk = { readonly organizationId: string; readonly eventId: string }

export type IdempotentCallRow = {
  /** The index in `asks` to which this row belongs. */
  ask: number
  last_revision: string
  revision: string | null
}

/**
 * One row for each item of `asks`, with the revision of the call (found by the id of its event) and the last revision with a line.
 * `revision` is null if the call does not exist. With a plain join, PostgreSQL would read all calls with an Idempotency-Key if its statistics are
 * older than the first of them.
 */
export const idempotentCalls = (asks: readonly IdempotentCallsAsk[]): Query<IdempotentCallRow> => ({
  text: `select asked.ask - 1 as ask, coalesce(last.revision, -1) as last_revision, call.revision
           from unnest($1::text[], $2::uuid[]) with ordinality as asked (organization_id, event_id, ask)
           left join lateral (
             select revision from ledger_lines where ledger = ledger_key(asked.organization_id)
              order by revision desc limit 1) last on true
           left join lateral (
             select revision from ledger_lines
              where event_id = asked.event_id and idempotent and ledger = ledger_key(asked.organization_id)
              limit 1) call on true`,
  values: [asks.map(({ organizationId }) => organizationId), asks.map(({ eventId }) => eventId)],
})

export type UnbalancedRow = { organization_id: string; movements_micro: string; balance_micro: string }

/** The accounts whose balance is not the sum of their movements. There must be none. */
export const unbalancedAccounts = (): Query<UnbalancedRow> => ({
  text: `select a.organization_id, coalesce(m.micro, 0)::text as movements_micro,
                (coalesce(l.micro, 0) - a.overdrawn_micro)::text as balance_micro
           from accounts a
           left join (select ledger, sum(amount_micro) as micro from ledger_lines group by 1) m on m.ledger = ledger_key(a.organization_id)
           left join (select organization_id, sum(remaining_micro) as micro from account_lots group by 1) l using (organization_id)
          where coalesce(m.micro, 0) <> coalesce(l.micro, 0) - a.overdrawn_micro
          order by a.organization_id`,
  values: [],
})

/** The lines that are missing in rows folded from a shorter log: their number and sum, by organization and kind. */
export const linesOnlyInRows = (
  live: TableName,
  next: TableName,
): Query<{ organization_id: string; kind: string; lines: string; amount_micro: string }> => ({
  text: `select o.organization_id, case when l.kind = 'call' and l.amount_micro <> 0 then 'charge' else l.kind end as kind,
                count(*)::text as lines, sum(l.amount_micro)::text as amount_micro
           from ${live('ledger_lines')} l join ${live('statement_ledgers')} o using (ledger)
          where not exists (select from ${next('ledger_lines')} n
                             where n.ledger = l.ledger and n.revision = l.revision
                               and n.request_id is not distinct from l.request_id and n.event_id is not distinct from l.event_id)
          group by 1, 2 order by 1, 2`,
  values: [],
})

/** The number of a ledger: the first eight bytes of the SHA-256 of its organization's id. In SQL, `ledger_key` returns the same number. */
export const ledgerKeyOf = (organizationId: string): bigint =>
  Buffer.from(hash('sha256', organizationId, 'hex').slice(0, 16), 'hex').readBigInt64BE()
