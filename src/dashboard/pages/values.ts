import type { Column, Row } from '../../administration/declare.ts'
import { parseCredits } from '../../billing/money.ts'
import { streamHref } from '../declared.ts'
import {
  balance,
  capitalized,
  copyable,
  correctionWords,
  count,
  decimal,
  instant,
  movement,
  sentence,
  utc,
  words,
} from '../format.ts'
import { type Html, html, type Renderable } from '../html.ts'
import { type Column as TableColumn, table } from './layout.ts'

/** Shows the values in answers of commands and queries. */

type Listed = {
  readonly caption: string
  readonly columns?: readonly Column[] | undefined
  readonly names?: Names
  readonly more?: readonly TableColumn<Row>[]
  readonly callsOf?: string | undefined
  readonly empty?: Renderable
}

export const noEntries = 'No entries'

/** A table of rows, or a sentence if there are none. Without `columns`, each member of the first row has a column. */
export const list = (
  rows: readonly Row[],
  { caption, columns, names = new Map(), empty = `${noEntries}.`, more = [], callsOf }: Listed,
): Html => {
  const [first = {}] = rows
  const belowOf = (column: string): readonly Column[] =>
    columns?.filter(({ below }) => below === column) ?? []
  const shown =
    columns?.filter(
      ({ name, sparse, below }) =>
        below === undefined &&
        !columns.some(({ named }) => named === name) &&
        (sparse === true
          ? rows.some((row) => [{ name }, ...belowOf(name)].some((one) => (row[one.name] ?? null) !== null))
          : rows.some((row) => row[name] !== undefined)),
    ) ??
    Object.entries(first).map(
      ([name, value]): Column => ({
        name,
        label: labelOf(name),
        ...(isNumber(value) && ({ kind: isChange(name) ? 'change' : 'number' } as const)),
      }),
    )
  if (rows.length === 0) return html`<p class="empty">${empty}</p>`
  return table<Row>({
    caption,
    rows,
    columns: [
      ...shown.map((column, i) => ({
        head: column.label,
        cell: (row: Row) =>
          column.name === 'request_id' && callsOf !== undefined
            ? callLink(callsOf, String(row.request_id))
            : column.limit === undefined
              ? [cellOf(row, column, names), valuesBelow(row, belowOf(column.name), names)]
              : meter(row, column),
        ...(['credits', 'change', 'balance', 'number', 'position'].includes(column.kind ?? '') &&
          ({ kind: 'number' } as const)),
        ...((column.kind === 'name' || column.named !== undefined || (i === 0 && column.kind === 'id')) &&
          ({ kind: 'name' } as const)),
      })),
      ...more,
    ],
  })
}

const valuesBelow = (row: Row, columns: readonly Column[], names: Names): Renderable =>
  columns.map(
    (column) =>
      (row[column.name] ?? null) !== null &&
      html`<span class="minor below">${column.label}: ${cellOf(row, column, names)}</span>`,
  )

const cellOf = (row: Row, { kind, name, label, named = '' }: Column, names: Names): Renderable => {
  const value = row[name]
  if (name === 'allowed_cidrs') return memberValue(name, value)
  if (typeof value !== 'string') return shownValue(value)
  if (kind === 'organization') return organizationLink(value, row[named] ?? names.get(value))
  if (kind === 'change') return movement(String(parseCredits(value)))
  if (kind === 'balance') return balance(String(parseCredits(value)))
  if (kind === 'call') return callLink(String(row.organization_id), value)
  if (kind === 'position') return html`<a href="/events/at/${value}">${count(value)}</a>`
  if (kind === 'stream') return html`<a class="id" href="${streamHref(value)}">${value}</a>`
  if (kind === 'work') return html`<a class="id" href="/jobs/${value}">${value}</a>`
  if (name === 'correction') return correctionWords(value)
  if (['kind', 'capability', 'outcome'].includes(name)) return words(value)
  return label.endsWith('(UTC)') && isoForm.test(value) ? instant(new Date(value)) : shownValue(value)
}

const meter = (row: Row, { name, label, limit = '' }: Column): Renderable => {
  const [used, most] = [row[name], row[limit]]
  if (typeof used !== 'number' || typeof most !== 'number') return used === null && most !== null && 'unknown'
  return html`${count(used)}${used >= most && html` <span class="mark bad">used up</span>`}
<meter min="0" max="${most}" value="${Math.min(used, most)}" aria-label="${label}: ${count(used)} of ${count(most)}">${count(used)} of ${count(most)}</meter>`
}

/** Whether a member is a change of credits, which is shown with a sign. */
const isChange = (name: string): boolean => ['difference', 'change', 'adjusted'].includes(name)

const isNumber = (value: unknown): boolean =>
  typeof value === 'number' || (typeof value === 'string' && decimalForm.test(value))

export const memberValue = (name: string, value: unknown, of: Row = {}): Renderable => {
  if (name === 'allowed_cidrs' && Array.isArray(value) && value.length === 0) return 'any address'
  if (name === 'request_id' && typeof of.organization_id === 'string')
    return callLink(of.organization_id, String(value))
  if (name === 'digest') return copyable(String(value))
  if (typeof value === 'string' && decimalForm.test(value)) {
    if (isChange(name)) return movement(String(parseCredits(value)))
    if (name === 'opening' || name === 'closing') return balance(String(parseCredits(value)))
  }
  return typeof value === 'string' && /(_id|^run)$/.test(name)
    ? html`<span data-copyable>${shownValue(value)}</span>`
    : shownValue(value)
}

const callLink = (organizationId: string, requestId: string): Html =>
  html`<a class="id whole" href="/organizations/${organizationId}/calls/${requestId}">${requestId}</a>`

/** A note, or a text of several lines, which is shown below the figures. */
export const isText = (name: string, value: unknown): boolean =>
  typeof value === 'string' && (name === 'note' || value.includes('\n'))

export const isList = (value: unknown): boolean =>
  Array.isArray(value) && value.length > 0 && typeof value[0] === 'object'

export const labelOf = (name: string): string =>
  name === 'allowed_cidrs'
    ? 'Allowed from'
    : capitalized(words(name).replace(/\b(?:api|ip|sku|url)\b/, (word) => word.toUpperCase()))

const isoForm = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/
const decimalForm = /^-?\d{1,12}(\.\d{1,6})?$/
export const organizationForm = /^org_\w+$/
const idForm = /^(wh_|rr_|[0-9a-f]{8}-)/

const plainText = (value: unknown): string => {
  if (Array.isArray(value)) return value.length === 0 ? 'none' : value.map(plainText).join('; ')
  if (typeof value !== 'object' || value === null) return value === null ? 'none' : String(value)
  return Object.entries(value)
    .filter(([, member]) => member !== null)
    .map(([name, member]) => `${words(name)} ${plainText(member)}`)
    .join(', ')
}

export const shownValue = (value: unknown): Renderable => {
  if (value === null || value === undefined) return null
  if (typeof value === 'boolean') return value ? 'yes' : 'no'
  if (typeof value === 'number') return count(value)
  if (typeof value === 'object') return sentence(plainText(value))
  const text = String(value)
  // A signed note must keep its line breaks.
  if (text.includes('\n')) return html`<pre class="kept" tabindex="0">${text}</pre>`
  if (isoForm.test(text)) return utc(new Date(text))
  if (decimalForm.test(text)) return decimal(text)
  if (organizationForm.test(text)) return html`<a class="id whole" href="/organizations/${text}">${text}</a>`
  return idForm.test(text) ? html`<span class="id whole">${text}</span>` : sentence(text)
}

/** Names of organizations by id, for rows without the name. */
export type Names = ReadonlyMap<string, string>

/** The name with the id below it; only the id if the name is unknown. */
const organizationLink = (id: string, name: unknown): Html => {
  const href = `/organizations/${id}`
  return typeof name !== 'string'
    ? html`<a href="${href}"><span class="id">${id}</span></a>`
    : html`<a href="${href}">${name}</a> <span class="id below">${id}</span>`
}
