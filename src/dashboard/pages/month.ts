import type { MonthStatement } from '../../administration/months/statements.ts'
import { mayDo } from '../../administration/roles.ts'
import type { MicroCredits } from '../../billing/money.ts'
import { parseCredits } from '../../billing/money.ts'
import { monthAfter, monthStart } from '../../billing/months.ts'
import { closedTotals, type StatementSummary } from '../../billing/statement.ts'
import { balance, capitalized, cost, count, credits, decimal, movement, utc, words } from '../format.ts'
import { type Html, html, type Renderable } from '../html.ts'
import type { AccountRow } from '../queries.ts'
import { figures, layout, organizationHead, table, type Viewer } from './layout.ts'

type MonthView = {
  readonly viewer: Viewer
  readonly account: AccountRow
  readonly month: string
  readonly now: MonthStatement
  readonly before: MonthStatement
  readonly closableAtMs: number
  readonly atMs: number
}

export const monthPage = (view: MonthView): Html => {
  const { viewer, account, month, now, before } = view
  const path = `/organizations/${account.organization_id}/months/${month}`
  const totals = closedTotals(now.summary)
  return layout({
    title: `${account.name} in ${month}`,
    viewer,
    main: html`${organizationHead(viewer, account, '/months', month)}
<h1>${account.name} in ${month}</h1>
<p class="note">${stateOf(now)}</p>
${figures([
  ['Opening', balance(String(now.summary.opening))],
  ['Granted', decimal(totals.granted)],
  ['Charged', html`<strong>${cost(totals.charged)}</strong>`],
  ['Adjusted', movement(String(parseCredits(totals.adjusted)))],
  ['Expired', cost(totals.expired)],
  ['Closing', balance(String(now.summary.closing))],
  ['Calls', count(totals.calls)],
])}
<p class="actions">${
      mayDo(viewer.role, 'ledgers.export') &&
      html`<a class="button" href="${path}/statement.csv">Download CSV</a>
<a href="${path}/statement.jsonl">Download JSON Lines</a>`
    }
<a href="/organizations/${account.organization_id}/ledger/lines?from=${monthStart(month)}&amp;to=${monthStart(monthAfter(month))}">Statement lines</a></p>
${comparedSection(now.summary, before)}
${groupsSection('charges', 'Charges by rule', now.summary.charges, before.summary.charges)}
${groupsSection('free', 'Free calls by rule', now.summary.freeCalls, before.summary.freeCalls)}
${correctionsSection(now.summary)}
${closeSection(view)}`,
  })
}

const stateOf = ({ head, closing, through }: MonthStatement): Renderable => {
  if (closing === null) return html`Open, as of ledger revision ${count(through)}.`
  return closing.month !== head.month
    ? html`Closed with ${closing.month}, because nothing was recorded for this month. It has no separate digest.`
    : html`<span class="mark good">Closed</span> at ledger revision ${count(closing.revision)}, digest <span class="id whole">${closing.closed.digest}</span>. A download is refused if the file does not have this digest.`
}

type Compared = {
  readonly name: string
  readonly now: bigint
  readonly before: bigint
  /** `cost`: a charge or an expiry, as a positive amount. `change`: a change of the balance, with a sign. */
  readonly kind: 'amount' | 'cost' | 'change' | 'count'
}

const comparedSection = (now: StatementSummary, { head, summary }: MonthStatement): Html => {
  const [own, earlier] = [closedTotals(now), closedTotals(summary)]
  const amounts = (
    [
      ['granted', 'amount'],
      ['charged', 'cost'],
      ['adjusted', 'change'],
      ['expired', 'cost'],
      ['closing', 'amount'],
    ] as const
  ).map(([name, kind]): Compared => {
    const sign = kind === 'cost' ? -1n : 1n
    return { name, now: sign * parseCredits(own[name]), before: sign * parseCredits(earlier[name]), kind }
  })
  const rows = [
    ...amounts,
    { name: 'calls', now: BigInt(now.calls), before: BigInt(summary.calls), kind: 'count' } as const,
  ]
  return html`<section aria-labelledby="compared">
<h2 id="compared">Compared with ${head.month}</h2>
${comparedTable(`Totals, compared with ${head.month}`, 'Total', rows)}
</section>`
}

const comparedTable = (caption: string, called: string, rows: readonly Compared[]): Html => {
  const shown = ({ kind }: Compared, value: bigint): string => {
    if (kind === 'count') return count(value)
    return kind === 'change' ? movement(String(value)) : credits(String(value))
  }
  return table({
    caption,
    rows,
    columns: [
      { head: called, kind: 'name', cell: ({ name }) => capitalized(name) },
      { head: 'This month', kind: 'number', cell: (row) => shown(row, row.now) },
      { head: 'Previous month', kind: 'number', cell: (row) => shown(row, row.before) },
      {
        head: 'Difference',
        kind: 'number',
        cell: (row) => {
          const difference = row.now - row.before
          if (row.kind !== 'count') return movement(String(difference))
          return difference > 0n ? `+${count(difference)}` : count(difference)
        },
      },
    ],
  })
}

type Group = StatementSummary['charges'][number]

const nameOf = ({ sku, rule, ruleVersion, capability, override }: Group): string =>
  [
    words(sku ?? capability ?? ''),
    rule === null ? 'a rate limit' : `${rule} v${ruleVersion ?? ''}`,
    override ? 'own price' : '',
  ]
    .filter((part) => part !== '')
    .join(', ')

const groupsSection = (
  id: string,
  title: string,
  now: readonly Group[],
  before: readonly Group[],
): Renderable => {
  if (now.length === 0) return null
  const earlier = new Map(before.map((group) => [nameOf(group), group]))
  return html`<section aria-labelledby="${id}">
<h2 id="${id}">${title}</h2>
${table({
  caption: title,
  rows: now,
  columns: [
    { head: 'Rule', kind: 'name', cell: nameOf },
    { head: id === 'free' ? 'Calls' : 'Lines', kind: 'number', cell: (group) => count(group.count) },
    {
      head: 'Previous month',
      kind: 'number',
      cell: (group) => count(earlier.get(nameOf(group))?.count ?? 0),
    },
    ...(id === 'free'
      ? []
      : [
          { head: 'Charged', kind: 'number' as const, cell: (group: Group) => spent(group.amount) },
          {
            head: 'Charged before',
            kind: 'number' as const,
            cell: (group: Group) => spent(earlier.get(nameOf(group))?.amount ?? 0n),
          },
        ]),
  ],
})}
</section>`
}

const spent = (amount: MicroCredits): string => credits(String(-amount))

const correctionsSection = ({ corrections }: StatementSummary): Renderable =>
  corrections.length > 0 &&
  html`<section aria-labelledby="corrections">
<h2 id="corrections">Corrections of earlier months</h2>
${table({
  caption: 'Lines of closed months, and refunds of earlier calls',
  rows: corrections,
  columns: [
    { head: 'Month', kind: 'name', cell: ({ month }) => month },
    { head: 'Lines', kind: 'number', cell: (row) => count(row.count) },
    { head: 'Credits', kind: 'number', cell: ({ amount }) => movement(String(amount)) },
  ],
})}
</section>`

const closeSection = ({ viewer, account, month, now, closableAtMs, atMs }: MonthView): Renderable => {
  if (now.closing !== null || !mayDo(viewer.role, 'ledgers.change')) return null
  return html`<section class="narrow" aria-labelledby="close">
<h2 id="close">Close ${month}</h2>
${
  atMs < closableAtMs
    ? html`<p class="empty">This month can be closed from ${utc(new Date(closableAtMs))} on. Until then, its calls may still be recorded.</p>`
    : html`<p>Closing ${month} writes off the lots that expired in the month, and records the totals and the digest of the statement in the ledger. After that, the file of the month never changes, and later corrections appear in the month that is open then. Closing a month cannot be undone.</p>
<p class="actions"><a class="button" href="/organizations/${account.organization_id}/ledger/close?month=${month}">Close ${month}</a></p>`
}
</section>`
}
