import { z } from 'zod'
import type { Query } from '../../../projections/projection.ts'
import { formatCredits } from '../../billing/money.ts'
import { rowsOf } from '../../concurrency/query.ts'
import { callOutcome } from '../../events/calls.ts'
import { capability } from '../../events/capabilities.ts'
import type { Foundation } from '../../foundation/foundation.ts'
import { type Page, pagedList } from '../declare.ts'
import { apiKey, choice, instant, organization } from '../fields.ts'
import { wholeNumber } from '../input.ts'
import type { Operator } from '../operator.ts'
import { lastLine, linePlaces } from './line-places.ts'
import { lineReasons, reasonsMissing } from './line-reasons.ts'

const input = z.object({
  organization: organization(),
  from: instant({
    label: 'From',
    help: 'only lines that are effective from this instant on',
  }).optional(),
  to: instant({ label: 'To', help: 'only lines that are effective before this instant' }).optional(),
  kind: choice(
    {
      label: 'Kind',
      help: 'only lines of this kind; lines that count several calls are "refused" or "rate_limited"',
    },
    ['call', 'refused', 'rate_limited', 'grant', 'expiry', 'adjustment'],
  ).optional(),
  capability: choice(
    { label: 'Capability', help: 'only calls of this capability' },
    capability.options,
  ).optional(),
  outcome: choice({ label: 'Outcome', help: 'only calls with this outcome' }, callOutcome.options).optional(),
  key: apiKey().optional(),
})

export const listLines = pagedList({
  name: 'ledger lines',
  action: 'accounts.read',
  summary: "list the lines of an organization's statement, newest first",
  input,
  columns: [
    { name: 'effective_at', label: 'Time (UTC)', kind: 'instant' },
    { name: 'kind', label: 'Kind' },
    { name: 'capability', label: 'Capability', sparse: true },
    { name: 'key_name', label: 'Key', sparse: true },
    { name: 'request_id', label: 'Request id', kind: 'call', sparse: true },
    { name: 'outcome', label: 'Outcome', sparse: true },
    { name: 'code', label: 'Code', sparse: true },
    { name: 'calls', label: 'Calls', kind: 'number', sparse: true },
    { name: 'amount', label: 'Credits', kind: 'change' },
    { name: 'rule', label: 'Rule', sparse: true },
    { name: 'rule_version', label: 'Version', below: 'rule' },
    { name: 'price_book_version', label: 'Price book', below: 'rule' },
    { name: 'correction', label: 'Correction', below: 'kind' },
    { name: 'reason', label: 'Reason', sparse: true },
    { name: 'reference', label: 'Reference', below: 'reason' },
    { name: 'actor', label: 'By', below: 'reason' },
    { name: 'corrected_call', label: 'Corrected call', kind: 'call', below: 'request_id' },
    { name: 'rerate_run', label: 'Re-rate', below: 'reason' },
  ],
  empty: 'No lines match',
  page: async ({ foundation, operator, caughtUp }, asked, { cursor, max }) => {
    if (cursor === null) await caughtUp()
    const before = cursor === null ? null : wholeNumber('cursor', cursor, revisions)
    return linesPage(foundation, asked, { before, max, role: operator.role })
  },
})

const revisions = { min: 0, max: Number.MAX_SAFE_INTEGER }
const always = { from: '0001-01-01', to: '9999-12-31' }
/** The maximum number of revisions that are searched for one page. */
const lookedMax = 200_000n

const noReason = {
  correction: null,
  reason: null,
  reference: null,
  actor: null,
  rerate_run: null,
  corrected_call: null,
}

type LineRow = {
  revision: string
  effective_at: Date
  kind: string
  request_id: string | null
  key_id: string | null
  key_name: string | null
  capability: string | null
  outcome: string | null
  code: string | null
  calls: string | null
  amount_micro: string
  rule: string | null
  rule_version: number | null
  price_book_version: number | null
  lines: object[] | null
}

/** The lines from one revision to below another that match the filters, newest first. */
export const statementLines = (
  { organization: id, from, to, ...filters }: z.output<typeof input>,
  { first, below, max }: { readonly first: bigint; readonly below: bigint; readonly max: number },
): Query<LineRow> => {
  const { kind = null, capability: of = null, outcome = null, key = null } = filters
  return {
    text: `select l.revision::text, l.effective_at, l.kind, case when l.kind = 'call' then l.request_id end as request_id, l.key_id,
                  (select k.name from api_keys k where k.key_id = l.key_id) as key_name, l.capability, l.outcome, l.code,
                  l.calls::text, l.amount_micro::text, l.rule, l.rule_version, l.price_book_version, l.lines
             from ledger_lines l
            where l.ledger = ledger_key($1) and l.revision >= $2::bigint and l.revision < $3::bigint
              and ($4::text is null or l.kind = $4) and ($5::text is null or l.key_id = $5)
              and ($6::text is null or l.capability = $6) and ($7::text is null or l.outcome = $7)
              and l.effective_at >= $8 and l.effective_at < $9
            order by l.revision desc limit $10`,
    values: [
      id,
      String(first),
      String(below),
      kind,
      key,
      of,
      outcome,
      new Date(from ?? always.from),
      new Date(to ?? always.to),
      max,
    ],
  }
}

const linesPage = async (
  { eventLog, pool }: Pick<Foundation, 'eventLog' | 'pool'>,
  asked: z.output<typeof input>,
  {
    before,
    max,
    role,
  }: { readonly before: number | null; readonly max: number; readonly role: Operator['role'] },
): Promise<Page> => {
  const { organization: id, from = always.from, to = always.to } = asked
  const last = await lastLine(pool, id)
  const places =
    asked.from === undefined && asked.to === undefined
      ? null
      : await linePlaces(pool, id, { fromMs: Date.parse(from), untilMs: Date.parse(to) })
  const below = before === null ? BigInt(places?.last ?? last ?? 0n) + 1n : BigInt(before)
  const first = BigInt(places?.first ?? 0n)
  const above = below - lookedMax > first ? below - lookedMax : first
  const rows = await rowsOf(pool, statementLines(asked, { first: above, below, max: max + 1 }))
  const shown = rows.slice(0, max)
  const reasons = await lineReasons({ eventLog, pool }, { organizationId: id, role }, shown)
  const next = rows.length > max ? (shown.at(-1)?.revision ?? null) : above > first ? String(above) : null
  return {
    rows: shown.map(({ revision, calls, amount_micro, ...line }) => ({
      organization_id: id,
      revision: Number(revision),
      ...line,
      calls: calls === null ? null : Number(calls),
      amount: formatCredits(BigInt(amount_micro)),
      ...(reasons?.get(revision) ?? noReason),
    })),
    next,
    lacks: reasons === null ? reasonsMissing : null,
  }
}
