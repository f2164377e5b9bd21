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
