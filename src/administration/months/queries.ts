import { z } from 'zod'
import { formatCredits, parseCredits } from '../../billing/money.ts'
import { type Month, monthAfter, monthBefore, monthStart } from '../../billing/months.ts'
import { closedTotals, type StatementSummary } from '../../billing/statement.ts'
import type { MonthClosed } from '../../events/credits.ts'
import { type Next, query, titled } from '../declare.ts'
import { month, organization } from '../fields.ts'
import { chargedByMonth, listCharges, listDay } from './charges.ts'
import { closableAt, type MonthStatement, monthStatement, monthsOf, statementHeadJson } from './statements.ts'

const eventsRead = (events: number): string => `${events} events of the ledger have been read.`

/** A charge or an expiry, which reduces the balance, as a positive amount. */
const costOf = (change: string): string => formatCredits(-parseCredits(change))

const listMonths = query({
  name: 'ledger months',
  action: 'accounts.read',
  slow: true,
  summary:
    'list the months of an organization (UTC); open months show the charges and calls so far, calls refused by a rate limit do not count, and later corrections of a closed month appear in the month that is open then',
  input: z.object({ organization: organization() }),
  columns: [
    { name: 'month', label: 'Month (newest first)', kind: 'name' },
    { name: 'opening', label: 'Opening', kind: 'balance' },
    { name: 'closing', label: 'Closing', kind: 'balance' },
    { name: 'charged', label: 'Charged', kind: 'credits' },
    { name: 'calls', label: 'Calls', kind: 'number' },
    { name: 'state', label: 'State' },
  ],
  empty: 'No credits or calls yet',
  nextOfRow: [
    {
      name: 'ledger totals',
      label: 'Show',
      given: (row) => ({ organization: row.organization_id, month: row.month }),
    },
  ],
  run: async ({ foundation, caughtUp, progress }, { organization: organizationId }) => {
    await caughtUp()
    const lines = linesOf(
      await monthsOf(foundation, organizationId, { onProgress: (events) => progress(eventsRead(events)) }),
    )
    const open = lines.filter(({ state }) => state === 'open')
    const charged = await chargedByMonth(foundation.pool, organizationId, open.at(-1)?.month ?? null)
    const rows = lines.map(({ totals, ...line }) => {
      const sums = line.state === 'open' ? (charged.get(line.month) ?? { charged: '0', calls: 0 }) : totals
      return {
        organization_id: organizationId,
        ...line,
        charged: sums?.charged ?? null,
        calls: sums?.calls ?? null,
      }
    })
    return { json: rows }
  },
})

/** The months, newest first. A month without totals was closed together with a later month, or is open. */
const linesOf = ({ closed, open }: Awaited<ReturnType<typeof monthsOf>>) => {
  let balance = open.start.opening
  const afterClosed = [...open.sums]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([of, { net }]) => {
      const opening = formatCredits(balance)
      balance += net
      const closing = open.closings.find((one) => one.month >= of)
      const totals = closing?.month === of ? totalsOf(closing.closed.totals) : null
      const state = closing === undefined ? 'open' : totals === null ? 'closed with a later month' : 'closed'
      return { month: of, opening, closing: formatCredits(balance), state, totals }
    })
  return [
    ...afterClosed.reverse(),
    ...closed.map(({ month: of, closed: { totals } }) => ({
      month: of,
      opening: totals.opening,
      closing: totals.closing,
      state: 'closed',
      totals: totalsOf(totals),
    })),
  ]
}

const totalsOf = ({ charged, calls }: MonthClosed['totals']) => ({ charged: costOf(charged), calls })

const showTotals = query({
  name: 'ledger totals',
  action: 'accounts.read',
  slow: true,
  summary:
    'show the totals of a month; each is compared with the previous month, refunds are in the adjusted amount, and calls refused by a rate limit do not count',
  input: z.object({
    organization: organization(),
    month: month({ label: 'Month (UTC)', help: 'such as 2026-11 (default: this month)' }).optional(),
  }),
  run: async ({ foundation, progress }, { organization: organizationId, month: asked }) => {
    const nowMs = Date.now()
    const of = asked ?? new Date(nowMs).toISOString().slice(0, 7)
    const read = (one: Month) =>
      monthStatement(foundation, {
        organizationId,
        month: one,
        nowMs,
        file: null,
        onProgress: (events) => progress(eventsRead(events)),
      })
    const found = await read(of)
    const before = await read(monthBefore(of))
    const { head, closing, summary } = found
    const headJson = statementHeadJson(found)
    const totals = amountsOf(summary)
    const closable_from =
      closing === null && nowMs < closableAt(of) ? new Date(closableAt(of)).toISOString() : null
    const compared = comparedRows(totals, amountsOf(before.summary))
    const charges = groupRows(summary.charges, before.summary.charges).map(
      ({ name, count, amount, ...earlier }) => ({
        sku: name,
        rule: earlier.rule,
        lines: count,
        lines_before: earlier.countBefore,
        charged: formatCredits(-amount),
        charged_before: formatCredits(-earlier.amountBefore),
      }),
    )
    const free_calls = groupRows(summary.freeCalls, before.summary.freeCalls).map(
      ({ name, rule, count, countBefore }) => ({
        capability: name,
        rule,
        calls: count,
        calls_before: countBefore,
      }),
    )
    const corrections = summary.corrections.map((one) => ({
      month: one.month,
      lines: one.count,
      change: formatCredits(one.amount),
    }))
    return {
      json: {
        ...headJson,
        closable_from,
        ...totals,
        previous_month: monthBefore(of),
        compared,
        charges,
        free_calls,
        corrections,
      },
      sections: [
        `${head.name} in ${of}`,
        { ...totals, closable_from, digest: headJson.digest, note: stateOf(found) },
        `Compared with ${monthBefore(of)}`,
        compared,
        ...titled('Charges by rule', charges),
        ...titled('Free calls by rule', free_calls),
        ...titled('Corrections of closed months, and refunds of earlier calls', corrections),
      ],
      next: nextOf(organizationId, of, closing === null && closable_from === null && found.begun),
      chosen: { month: of },
    }
  },
})

const nextOf = (organizationId: string, of: Month, isClosable: boolean): Next[] => {
  const given = { organization: organizationId, month: of }
  const range = { from: monthStart(of), to: monthStart(monthAfter(of)) }
  return [
    { name: 'ledger statement', label: 'Statement as CSV', given: { ...given, csv: 'on' } },
    { name: 'ledger statement', label: 'Statement as JSON Lines', given: { ...given, jsonl: 'on' } },
    {
      name: 'ledger lines',
      label: 'Statement lines',
      given: { organization: organizationId, ...range },
    },
    { name: 'ledger verify', label: 'Verify the ledger', given: { organization: organizationId } },
    ...(isClosable ? [{ name: 'ledger close', label: `Close ${of}`, given } as const] : []),
  ]
}

const stateOf = ({ head, closing, through, begun }: MonthStatement): string => {
  if (closing === null)
    return begun
      ? `Open, as of ledger revision ${through}.`
      : 'Nothing to close: the ledger has no lines in this month or before it.'
  return closing.month === head.month
    ? `Closed at ledger revision ${closing.revision}. A download is refused if the file does not have this digest.`
    : `Closed with ${closing.month}, because nothing was recorded for this month. It has no separate digest.`
}

const amountsOf = (summary: StatementSummary) => {
  const { opening, granted, charged, adjusted, expired, closing, calls } = closedTotals(summary)
  return { opening, granted, charged: costOf(charged), adjusted, expired: costOf(expired), closing, calls }
}

const comparedRows = (now: ReturnType<typeof amountsOf>, before: ReturnType<typeof amountsOf>) =>
  (['granted', 'charged', 'adjusted', 'expired', 'closing', 'calls'] as const).map((total) => ({
    total,
    this_month: String(now[total]),
    previous_month: String(before[total]),
    difference: formatCredits(parseCredits(String(now[total])) - parseCredits(String(before[total]))),
  }))

type Group = StatementSummary['charges'][number]

const keyOf = ({ sku, capability, rule, ruleVersion, override }: Group) => ({
  name: sku ?? capability,
  rule: rule === null ? 'a rate limit' : `${rule} v${ruleVersion ?? ''}${override ? ', own price' : ''}`,
})

/** Groups of calls, each with the count and the amount of the same group in the previous month. */
const groupRows = (now: readonly Group[], before: readonly Group[]) => {
  const earlier = new Map(before.map((group) => [JSON.stringify(keyOf(group)), group]))
  return now.map((group) => {
    const same = earlier.get(JSON.stringify(keyOf(group)))
    const { count, amount } = group
    return { ...keyOf(group), count, amount, countBefore: same?.count ?? 0, amountBefore: same?.amount ?? 0n }
  })
}

export const declarations = [listMonths, showTotals, listCharges, listDay]
