import { z } from 'zod'
import { creditsText, formatCredits, parseCredits } from '../../billing/money.ts'
import type { RerateLedgerPlanned } from '../../events/rerates.ts'
import { rerateStream } from '../../events/streams.ts'
import { type RerateRun, readRun } from '../../ledger/rerate/run.ts'
import { type Answer, type Next, query, type Sections, titled } from '../declare.ts'
import { document, id } from '../fields.ts'
import { checkPlanFile, type ProvedRun, planFileOf, provedRun } from './proof.ts'
import type { ReratePlan } from './rerates.ts'

/** The maximum number of ledgers of a run that are shown with their differences. The sums include all ledgers. */
const ledgersShownMax = 100

export const runFields = {
  run: id(
    { label: 'Re-rate', help: 'as in "rerate plan": rr_…' },
    /^rr_[0-9A-HJKMNP-TV-Z]{26}$/,
    'rr_01J8ZQ5V7N3K2M4P6R8T0W1X2Y; see "rerate list"',
  ),
  plan: document({
    label: 'Plan (JSON)',
    help: 'a file from "rerate plan --out"; refused if it is not the plan of this re-rate',
  }).optional(),
}

/** Reads a run, and checks that a given plan is its plan. Throws `CommandRefused`. */
export const checkedRun = async (
  foundation: Parameters<typeof provedRun>[0],
  { run, plan }: { readonly run: string; readonly plan?: unknown },
): Promise<ProvedRun> => {
  const found = await provedRun(foundation, run)
  if (plan !== undefined) checkPlanFile(found, plan)
  return found
}

const listed = query({
  name: 'rerate list',
  action: 'finance.read',
  summary: 'list every planned re-rate',
  input: z.object({}),
  anyHistory: true,
  columns: [
    { name: 'run', label: 'Re-rate', kind: 'id' },
    { name: 'state', label: 'Status' },
    { name: 'from', label: 'Calls from (UTC)', kind: 'instant' },
    { name: 'to', label: 'Calls before (UTC)', kind: 'instant' },
    { name: 'ledgers', label: 'Ledgers', kind: 'number' },
    { name: 'calls', label: 'Calls', kind: 'number' },
    { name: 'proposed_by', label: 'Proposed by' },
    { name: 'reason', label: 'Reason' },
  ],
  next: [{ name: 'rerate plan', label: 'Plan a re-rate' }],
  nextOfRow: [{ name: 'rerate show', label: 'Show', given: ({ run }) => ({ run }) }],
  run: async ({ foundation: { eventLog } }) => {
    const streams = (await eventLog.streams(rerateStream(''))).sort().reverse()
    const rows: unknown[] = []
    for (const stream of streams)
      rows.push(rowOf(await readRun(eventLog, stream.slice(rerateStream('').length))))
    return { json: rows }
  },
})

const rowOf = (found: RerateRun) => ({
  run: found.run,
  state: stateOf(found),
  from: found.proposed?.from ?? '',
  to: found.proposed?.to ?? '',
  ledgers: found.proposed?.ledgers ?? 0,
  calls: found.proposed?.calls ?? 0,
  proposed_by: found.proposed?.by ?? '',
  reason: found.proposed?.reason ?? '',
})

const show = query({
  name: 'rerate show',
  action: 'finance.read',
  summary: 'show the plan of a re-rate, and its outcome; verifies its digest and signature',
  input: z.object(runFields),
  anyHistory: true,
  run: async ({ foundation }, input) => runAnswer(await checkedRun(foundation, input)),
})

export const runAnswer = (found: ProvedRun): Answer & { readonly sections: Sections } => ({
  json: {
    run: found.run,
    ...planFileOf({ proposed: found.proposed, ledgers: [...found.ledgers.values()] }),
    state: stateOf(found),
    proposed_by: found.proposed.by,
    approved_by: found.approved?.by ?? null,
    done: [...found.done.values()],
    applied: found.applied,
    abandoned: found.abandoned,
  },
  sections: runSections(found),
  next: nextOf(found),
})

const stateOf = ({ proposed, applied, abandoned, approved, done, ledgers }: RerateRun): string => {
  if (proposed === null) return 'never finished'
  if (applied !== null) return 'applied'
  if (abandoned !== null) return 'abandoned'
  if (done.size > 0) return `applied to ${done.size} of ${ledgers.size} ledgers`
  return approved === null ? 'proposed' : 'approved'
}

const nextOf = ({ run, applied, abandoned, approved }: ProvedRun): readonly Next[] =>
  applied !== null || abandoned !== null
    ? []
    : [
        approved === null
          ? { name: 'rerate approve', label: 'Approve', given: { run } }
          : { name: 'rerate apply', label: 'Apply', given: { run } },
        { name: 'rerate abandon', label: 'Abandon', given: { run } },
      ]

const differenceOf = ({ given, taken }: { given: string; taken: string }): string =>
  formatCredits(parseCredits(taken) - parseCredits(given))

/** The plan in the form that people see before they approve it. */
export const planSections = ({ proposed, ledgers }: ReratePlan, done?: ProvedRun['done']): Sections => {
  const { run, from, to, organization_id, book, reason, calls, calls_affected, given, taken } = proposed
  const shown = ledgers.slice(0, ledgersShownMax)
  return [
    {
      run,
      calls_from: from,
      calls_before: to,
      ...(organization_id !== null && { organization_id }),
      prices: book.version === null ? 'not published' : `price book ${book.version}`,
      reason,
      calls,
      calls_with_another_cost: calls_affected,
      given_back: given,
      taken,
      difference: differenceOf(proposed),
      plan_digest: proposed.plan_digest,
      signed_by:
        proposed.signature.signed_by === 'hmac'
          ? "the installation's secret"
          : `key ${proposed.signature.signed_by}`,
    },
    ...(book.version === null ? ['Prices of this re-rate', book.rules] : []),
    ledgers.length > shown.length ? `The first ${shown.length} of ${ledgers.length} ledgers` : 'Ledgers',
    shown.map((ledger) => ledgerRow(ledger, done)),
    ...shown.flatMap(ledgerSections),
  ]
}

const ledgerRow = (ledger: RerateLedgerPlanned, done?: ProvedRun['done']) => {
  const { organization_id, calls, calls_affected, balance, uncollected, unaffordable } = ledger
  const outcome = done?.get(organization_id)
  return {
    organization_id,
    calls,
    calls_with_another_cost: calls_affected,
    difference: differenceOf(ledger),
    balance,
    cannot_be_collected: uncollected,
    calls_beyond_the_balance:
      unaffordable.calls === 0
        ? 0
        : `${unaffordable.calls}, such as ${unaffordable.first.slice(0, 3).join(', ')}`,
    outcome:
      outcome === undefined
        ? null
        : 'adjustment_id' in outcome
          ? `adjusted by ${outcome.amount} at revision ${outcome.revision}`
          : `left out: ${outcome.reason}`,
  }
}

const ledgerSections = ({ organization_id, differences, refunded }: RerateLedgerPlanned): Sections => [
  ...titled(
    `Differences for ${organization_id}`,
    differences.map(({ sku, rule, calls, now, rerated }) => ({
      sku,
      rule: rule ?? 'given back, or already re-rated',
      calls,
      now,
      rerated,
      difference: formatCredits(parseCredits(rerated) - parseCredits(now)),
    })),
  ),
  ...(refunded === undefined || refunded.calls === 0
    ? []
    : [
        `Refunded or reversed calls of ${organization_id}: ${refunded.calls}. The re-rate keeps the ${creditsText(refunded.given_back)} given back.`,
        refunded.first,
      ]),
]

const runSections = (found: ProvedRun): Sections => {
  const { proposed, approved, applied, abandoned } = found
  return [
    {
      status: stateOf(found),
      proposed_by: proposed.by,
      proposed_at: proposed.at,
      ...(approved !== null && { approved_by: approved.by, approved_at: approved.at }),
      ...(applied !== null && {
        applied_by: applied.by,
        applied_at: applied.at,
        left_out: applied.left_out,
        balances_changed_by: applied.amount,
        not_collected: applied.uncollected,
      }),
      ...(abandoned !== null && { abandoned_by: abandoned.by, abandoned_because: abandoned.reason }),
    },
    ...planSections({ proposed, ledgers: [...found.ledgers.values()] }, found.done),
  ]
}

export const declarations = [listed, show]
