import { microOf } from './micro.ts'
import type { ProjectedEvent, Query, StatelessProjection, TableName } from './projection.ts'
import { insert, type RowOf, type Table, update } from './rows.ts'

const linesTable = {
  name: 'ledger_lines',
  columns: {
    organization_id: 'text not null',
    revision: 'bigint not null',
    event_id: 'uuid not null',
    kind: 'text not null',
    request_id: 'text',
    key_id: 'text',
    capability: 'text',
    outcome: 'text',
    code: 'text',
    // How many calls the line is of; null for a movement of credits.
    calls: 'bigint',
    amount_micro: 'bigint not null',
    rule: 'text',
    rule_version: 'integer',
    price_book_version: 'integer',
    // What the call cost.
    charge_id: 'uuid',
    // The lot that was granted, or that expired.
    grant_id: 'uuid',
    // The charge that an adjustment corrects.
    adjusts: 'uuid',
    lines: 'json',
    idempotent: 'boolean not null',
    effective_at: 'timestamptz not null',
  },
  key: ['organization_id', 'revision'],
  indexes: [
    'create index on $table (request_id)',
    'create unique index on $table (event_id) where idempotent',
    'create index on $table (adjusts) where adjusts is not null',
  ],
} as const satisfies Table
type Line = RowOf<typeof linesTable>

/**
 * The statement: one row per call or movement of credits, in ledger order. A call and its charge are one row.
 * `amount_micro` is what the balance changed by: negative for charges and expiries.
 */
export const ledgerLines: StatelessProjection = {
  name: 'ledger_lines',
  version: 1,
  prefixes: ['ledger-'],
  money: true,
  tables: [linesTable],
  totals: (table) => ({
    text: `select s.organization_id, f.figure, f.amount::text as amount
             from (select organization_id, count(*) as lines, sum(amount_micro) as balance from ${table('ledger_lines')} group by 1) s
             cross join lateral (values ('lines', s.lines::numeric), ('balance', s.balance)) f (figure, amount)`,
    values: [],
  }),
  fold: (events) => {
    const lines: Line[] = []
    const chargedLater: Pick<Line, 'organization_id' | 'revision' | keyof Charge>[] = []
    for (const event of events)
      if (event.type === 'CreditCharged') {
        const call = lines.at(-1)
        if (call?.event_id === event.metadata.causation_id && call !== undefined)
          lines[lines.length - 1] = { ...call, ...chargeOf(event) }
        // The row of the call was written with the batch before this one.
        else chargedLater.push({ ...placeOf(event), revision: event.revision - 1, ...chargeOf(event) })
      } else {
        const line = lineOf(event)
        if (line !== null) lines.push(line)
      }
    return [insert(linesTable, lines), update(linesTable, chargedLater)]
  },
}

type Charge = Pick<
  Line,
  'amount_micro' | 'rule' | 'rule_version' | 'price_book_version' | 'charge_id' | 'lines'
>

const chargeOf = ({ data }: Extract<ProjectedEvent, { type: 'CreditCharged' }>): Charge => ({
  amount_micro: -microOf(data.amount),
  rule: data.rule,
  rule_version: data.rule_version,
  price_book_version: data.price_book_version,
  charge_id: data.charge_id,
  lines: data.lines.length > 1 ? data.lines : null,
})

const placeOf = ({ stream, revision }: ProjectedEvent): Pick<Line, 'organization_id' | 'revision'> => ({
  organization_id: stream.slice('ledger-'.length),
  revision,
})

/** The line an event opens; null for an event that leaves none. */
const lineOf = (event: ProjectedEvent): Line | null => {
  switch (event.type) {
    case 'KeyUsed': {
      const { key_id, capability, outcome, code = null, free_by, idempotent = false } = event.data
      const free = { rule: free_by?.rule ?? null, rule_version: free_by?.rule_version ?? null }
      return { ...blank(event, 'call'), key_id, capability, outcome, code, calls: 1, ...free, idempotent }
    }
    case 'RateLimitExceeded': {
      const { key_id, count } = event.data
      const refusal = { outcome: 'refused', code: 'RATE_001' }
      return { ...blank(event, 'rate_limited'), key_id, ...refusal, calls: count }
    }
    case 'CallsRefused': {
      const { key_id, outcome, code, counts, free_by } = event.data
      const calls = counts.reduce((sum, { count }) => sum + count, 0)
      const { rule, rule_version } = free_by
      return { ...blank(event, 'refused'), key_id, outcome, code, calls, rule, rule_version }
    }
    case 'CreditGranted': {
      const { amount, grant_id } = event.data
      return { ...blank(event, 'grant'), amount_micro: microOf(amount), grant_id }
    }
    case 'CreditExpired': {
      const { amount, grant_id } = event.data
      return { ...blank(event, 'expiry'), amount_micro: -microOf(amount), grant_id }
    }
    case 'CreditAdjusted': {
      const { amount, adjusts } = event.data
      return { ...blank(event, 'adjustment'), amount_micro: microOf(amount), adjusts }
    }
    default:
      return null
  }
}

/** A line of zero credits that says only where and when. */
const blank = (event: ProjectedEvent, kind: string): Line => ({
  ...placeOf(event),
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
             join ledger_lines a on a.adjusts = c.charge_id
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

/** Where calls of a request may be: of one organization, or of any where it is null. A hint; the ledger itself decides. */
export const callsOfRequest = (
  requestId: string,
  organizationId: string | null,
): Query<{ organization_id: string; revision: string }> => ({
  text: `select organization_id, revision from ledger_lines
          where request_id = $1 and kind = 'call' and ($2::text is null or organization_id = $2)
          order by organization_id, revision limit 16`,
  values: [requestId, organizationId],
})

export type LinesRange = {
  /** Revisions, both inclusive. */
  readonly from: number
  readonly to: number
  /** Effective times, the end exclusive. */
  readonly fromMs: number
  readonly toMs: number
}

/** In a range of a ledger: what lines of one kind, rule and make-up come to. */
export const lineSums = (
  organizationId: string,
  { from, to, fromMs, toMs }: LinesRange,
): Query<{
  kind: string
  rule: string | null
  lines: string | null
  count: number
  amount_micro: string
}> => ({
  text: `select kind, rule, lines::text as lines, count(*)::int as count, sum(amount_micro)::text as amount_micro
           from ledger_lines
          where organization_id = $1 and revision between $2 and $3
            and effective_at >= $4 and effective_at < $5
          group by kind, rule, lines::text`,
  values: [organizationId, from, to, new Date(fromMs), new Date(toMs)],
})

/** The lines of a range, in ledger order. */
export const linesOf = (
  organizationId: string,
  { from, to, fromMs, toMs }: LinesRange,
): Query<{
  revision: string
  kind: string
  request_id: string | null
  rule: string | null
  lines: string | null
  amount_micro: string
}> => ({
  text: `select revision, kind, request_id, rule, lines::text as lines, amount_micro::text as amount_micro
           from ledger_lines
          where organization_id = $1 and revision between $2 and $3
            and effective_at >= $4 and effective_at < $5
          order by revision`,
  values: [organizationId, from, to, new Date(fromMs), new Date(toMs)],
})
