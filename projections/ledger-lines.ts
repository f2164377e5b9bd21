import { formatMicro, microOf } from './micro.ts'
import { columnsOf, type ProjectedEvent, type Projection, type Query, type Statement } from './projection.ts'

/**
 * The statement: one row per call or movement of credits, in ledger order. A call and its charge are one row.
 * `amount_micro` is what the balance changed by: negative for charges and expiries.
 */
export const ledgerLines: Projection = {
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
      indexes: ['create unique index on $table (event_id) where idempotent'],
    },
  ],
  fold: (events, table) => {
    const rows: Row[] = []
    const orphans: Row[] = []
    for (const event of events) {
      if (event.type === 'CreditCharged') {
        const call = rows.at(-1)
        if (call !== undefined && call[column.eventId] === event.metadata.causation_id) charge(call, event)
        else orphans.push(charge(emptyRow(event, event.revision - 1), event))
        continue
      }
      const row = rowOf(event)
      if (row !== null) rows.push(row)
    }
    return [...insert(rows, table('ledger_lines')), ...chargeEarlier(orphans, table('ledger_lines'))]
  },
}

type Row = (string | null)[]

const column = {
  organizationId: 0,
  revision: 1,
  eventId: 2,
  kind: 3,
  requestId: 4,
  keyId: 5,
  capability: 6,
  outcome: 7,
  code: 8,
  amount: 9,
  rule: 10,
  ruleVersion: 11,
  priceBook: 12,
  chargeId: 13,
  lines: 14,
  idempotent: 15,
  effectiveAt: 16,
} as const
const width = 17

const emptyRow = (event: ProjectedEvent, revision: number): Row => {
  const row: Row = new Array(width).fill(null)
  row[column.organizationId] = event.stream.slice('ledger-'.length)
  row[column.revision] = String(revision)
  row[column.eventId] = event.id
  row[column.requestId] = event.metadata.request_id ?? null
  row[column.amount] = '0'
  row[column.idempotent] = 'f'
  row[column.effectiveAt] = event.metadata.effective_at
  return row
}

const rowOf = (event: ProjectedEvent): Row | null => {
  const row = emptyRow(event, event.revision)
  switch (event.type) {
    case 'KeyUsed': {
      const { key_id, capability, outcome, code, free_by, idempotent } = event.data
      row[column.kind] = 'call'
      row[column.keyId] = key_id
      row[column.capability] = capability
      row[column.outcome] = outcome
      row[column.code] = code ?? null
      row[column.rule] = free_by?.rule ?? null
      row[column.ruleVersion] = free_by === undefined ? null : String(free_by.rule_version)
      if (idempotent === true) row[column.idempotent] = 't'
      return row
    }
    case 'RateLimitExceeded':
      row[column.kind] = 'rate_limited'
      row[column.keyId] = event.data.key_id
      row[column.outcome] = String(event.data.count)
      row[column.code] = 'RATE_001'
      return row
    case 'CreditGranted':
      row[column.kind] = 'grant'
      row[column.amount] = formatMicro(microOf(event.data.amount))
      row[column.chargeId] = event.data.grant_id
      return row
    case 'CreditExpired':
      row[column.kind] = 'expiry'
      row[column.amount] = formatMicro(-microOf(event.data.amount))
      row[column.chargeId] = event.data.grant_id
      return row
    case 'CreditAdjusted':
      row[column.kind] = 'adjustment'
      row[column.amount] = formatMicro(microOf(event.data.amount))
      row[column.chargeId] = event.data.adjusts
      return row
    default:
      return null
  }
}

const charge = (row: Row, { data }: Extract<ProjectedEvent, { type: 'CreditCharged' }>): Row => {
  row[column.amount] = formatMicro(-microOf(data.amount))
  row[column.rule] = data.rule
  row[column.ruleVersion] = String(data.rule_version)
  row[column.priceBook] = String(data.price_book_version)
  row[column.chargeId] = data.charge_id
  if (data.lines.length > 1) row[column.lines] = JSON.stringify(data.lines)
  return row
}

const insert = (rows: readonly Row[], table: string): Statement[] =>
  rows.length === 0
    ? []
    : [
        {
          text: `insert into ${table} (organization_id, revision, event_id, kind, request_id, key_id, capability, outcome, code,
                   amount_micro, rule, rule_version, price_book_version, charge_id, lines, idempotent, effective_at)
                 select a, b::bigint, c::uuid, d, e, f, g, h, i, j::bigint, k, l::integer, m::integer, n::uuid, o::json,
                        p::boolean, q::timestamptz
                 from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
                             $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[],
                             $16::text[], $17::text[]) as u (a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q)`,
          columns: columnsOf(rows, width),
        },
      ]

/** The call stood at the end of the batch before: its row is there and learns what it cost. */
const chargeEarlier = (rows: readonly Row[], table: string): Statement[] =>
  rows.length === 0
    ? []
    : [
        {
          text: `update ${table} t set amount_micro = u.c::bigint, rule = u.d, rule_version = u.e::integer,
                   price_book_version = u.f::integer, charge_id = u.g::uuid, lines = u.h::json
                 from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[])
                   as u (a, b, c, d, e, f, g, h)
                 where t.organization_id = u.a and t.revision = u.b::bigint`,
          columns: columnsOf(
            rows.map((row) =>
              [
                column.organizationId,
                column.revision,
                column.amount,
                column.rule,
                column.ruleVersion,
                column.priceBook,
                column.chargeId,
                column.lines,
              ].map((i) => row[i] ?? null),
            ),
            8,
          ),
        },
      ]

/** Where an idempotent call stands in its ledger, found by the id of its first event; no row if it never happened. */
export const idempotentCall = (
  organizationId: string,
  eventId: string,
): Query<{ revision: string; amount_micro: string }> => ({
  text: 'select revision, amount_micro from ledger_lines where event_id = $2 and idempotent and organization_id = $1',
  values: [organizationId, eventId],
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
