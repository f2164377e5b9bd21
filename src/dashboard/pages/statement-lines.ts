import type { LineReason } from '../../administration/ledgers/line-reasons.ts'
import { correctionWords, count, instant, movement, words } from '../format.ts'
import { html, type Renderable } from '../html.ts'
import type { StatementRow } from '../queries.ts'
import type { Column } from './layout.ts'

/** The reasons of grants and corrections, by revision. */
type Reasons = ReadonlyMap<string, LineReason>

export const lineColumns = (organizationId: string, reasons: Reasons): readonly Column<StatementRow>[] => [
  { head: 'Time (UTC)', cell: (line) => instant(line.effective_at, { milliseconds: true }) },
  { head: 'Description', cell: (line) => whatOf(line, reasons.get(line.revision)) },
  {
    head: 'Request id',
    // Only calls have a page. The request id of any other line is the id of an operator's request.
    cell: ({ request_id, kind, revision }) => {
      const id = kind === 'call' ? request_id : (reasons.get(revision)?.corrected_call ?? null)
      return (
        id !== null &&
        html`<a href="/organizations/${organizationId}/calls/${id}"><span class="id">${id}</span></a>`
      )
    },
  },
  { head: 'Outcome', cell: (line) => outcomeOf(line) },
  { head: 'Credits', kind: 'number', cell: (line) => movement(line.amount_micro) },
  { head: 'Rule', cell: (line) => ruleOf(line) },
]

const whatOf = (line: StatementRow, reason: LineReason | undefined): Renderable => {
  const key =
    line.key_id !== null &&
    html`<br><span class="minor">key <span class="free">${line.key_name ?? ''}</span> <span class="id">${line.key_id}</span></span>`
  switch (line.kind) {
    case 'call':
      return [words(line.capability ?? 'call'), key]
    case 'rate_limited':
      return ['rate limit', key]
    case 'refused':
      return ['refused calls', key]
    case 'grant':
      return ['credits granted', reasonOf(reason)]
    case 'expiry':
      return 'credits expired'
    default:
      return [
        reason?.correction == null ? words(line.kind) : correctionWords(reason.correction),
        reasonOf(reason),
      ]
  }
}

const reasonOf = (reason: LineReason | undefined): Renderable =>
  reason !== undefined &&
  html`<br><span class="minor"><span class="free">${reason.reason}</span>${reason.reference !== null && html` (<span class="free">${reason.reference}</span>)`}, by <span class="free">${reason.actor}</span>${
    reason.rerate_run !== null && html` <span class="id">${reason.rerate_run}</span>`
  }</span>`

const outcomeOf = (line: StatementRow): Renderable => {
  if (line.kind === 'rate_limited' || line.kind === 'refused')
    return html`${count(line.calls ?? '0')} calls refused <span class="code">${line.code}</span>`
  return [line.outcome, line.code !== null && html` <span class="code">${line.code}</span>`]
}

const ruleOf = (line: StatementRow): Renderable => {
  if (line.rule === null) return null
  const book =
    line.price_book_version !== null &&
    html`<br><span class="minor">price book ${line.price_book_version}</span>`
  const parts =
    line.lines !== null &&
    html`<ul class="parts">${line.lines.map(
      ({ sku, amount, rule, rule_version }) =>
        html`<li>${amount} ${words(sku)} (${rule} v${rule_version})</li>`,
    )}</ul>`
  return [line.rule, ` v${line.rule_version ?? ''}`, book, parts]
}
