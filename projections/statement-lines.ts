import { lastRevision } from './ledger-lines.ts'
import type { Query } from './projection.ts'

/** The last revision of a ledger that has a line, or null. */
export const lastLineOf = (organizationId: string): Query<{ revision: string | null }> => ({
  text: `select (${lastRevision}) as revision`,
  values: [organizationId],
})

/**
 * The organizations and revisions that can contain calls of a request, in one organization or, if it is null, in all. The caller must
 * check each revision in the ledger itself.
 */
export const callsOfRequest = (
  requestId: string,
  organizationId: string | null,
): Query<{ organization_id: string; revision: string }> => ({
  text: `select organization_id, revision from ledger_lines
          where request_id = $1 and kind = 'call' and ($2::text is null or ledger = ledger_key($2))
          order by organization_id, revision limit 16`,
  values: [requestId, organizationId],
})

/**
 * The call that an event records, if the call had an Idempotency-Key. The rows do not contain the event ids of other calls, which are
 * derived from their request ids.
 */
export const callOfEvent = (
  eventId: string,
): Query<{ organization_id: string; revision: string; request_id: string | null }> => ({
  text: `select organization_id, revision::text, request_id from ledger_lines
          where event_id = $1::uuid and idempotent limit 1`,
  values: [eventId],
})

/** The maximum number of lines that are searched for the nearest call. Two adjacent calls are never further apart. */
const neighbourWithin = 10_000

/** The nearest other call of an organization, before or after a revision. */
export const neighbourCall = (
  organizationId: string,
  { revision, requestId, side }: { revision: number; requestId: string; side: 'before' | 'after' },
): Query<{ request_id: string }> => {
  const [is, order] = side === 'before' ? ['<', 'desc'] : ['>', 'asc']
  return {
    text: `select request_id from (
             select revision, kind, request_id from ledger_lines
              where ledger = ledger_key($1) and revision ${is} $2::bigint order by revision ${order} limit $4) near
            where kind = 'call' and request_id <> $3 order by revision ${order} limit 1`,
    values: [organizationId, revision, requestId, neighbourWithin],
  }
}

/** A charged call. `charge_id` is null for a call without an Idempotency-Key, because it can be derived from the request id. */
type ChargedCall = { request_id: string; charge_id: string | null }

const isChargedCall = `calls is not null and kind = 'call' and amount_micro <> 0 and request_id is not null`

/** The charged calls of an organization at some instants. */
export const chargedCallsAt = (
  organizationId: string,
  instants: readonly string[],
  max: number,
): Query<ChargedCall> => ({
  text: `select request_id, charge_id from ledger_lines
          where ledger = ledger_key($1) and effective_at = any ($2::timestamptz[]) and ${isChargedCall} limit $3`,
  values: [organizationId, instants, max],
})

/** The charged calls of an organization in ranges of revisions, newest first. */
export const chargedCallsNear = (
  organizationId: string,
  ranges: readonly { readonly from: number; readonly to: number }[],
  max: number,
): Query<ChargedCall> => ({
  text: `select l.request_id, l.charge_id
           from unnest($2::bigint[], $3::bigint[]) as near (first, last)
           join ledger_lines l on l.ledger = ledger_key($1) and l.revision between near.first and near.last
          where ${isChargedCall} order by l.revision desc limit $4`,
  values: [organizationId, ranges.map(({ from }) => from), ranges.map(({ to }) => to), max],
})

export type LinesRange = {
  /** Both revisions are inclusive. */
  readonly from: number
  readonly to: number
  readonly fromMs: number
  readonly toMs: number
}

/** The sums of the lines in a range of a ledger, by kind, rule and charge lines. */
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
          where ledger = ledger_key($1) and revision between $2 and $3
            and effective_at >= $4 and effective_at < $5
          group by kind, rule, lines::text`,
  values: [organizationId, from, to, new Date(fromMs), new Date(toMs)],
})

/** The lines in a range, in ledger order. */
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
          where ledger = ledger_key($1) and revision between $2 and $3
            and effective_at >= $4 and effective_at < $5
          order by revision`,
  values: [organizationId, from, to, new Date(fromMs), new Date(toMs)],
})
