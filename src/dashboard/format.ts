import { formatCredits, parseCredits } from '../billing/money.ts'
import type { CreditAdjusted } from '../events/credits.ts'
import { type Html, html, type Renderable } from './html.ts'

/** Formats amounts and times for people. Amounts are integers until they are formatted, so they stay exact. */

/** Formats micro-credits as credits, such as 1,234,567.000001. */
export const credits = (micro: string): string => {
  const [whole = '', fraction] = formatCredits(BigInt(micro)).split('.')
  return fraction === undefined ? grouped(whole) : `${grouped(whole)}.${fraction}`
}

/** Like `credits`, with a plus sign for positive amounts. */
export const movement = (micro: string): string =>
  BigInt(micro) > 0n ? `+${credits(micro)}` : credits(micro)

export const count = (value: number | bigint | string): string => grouped(String(value))

// recheck: the text has at most 24 characters, because it is a number or a bigint of the database.
const grouped = (digits: string): string => digits.replace(/\B(?=(\d{3})+$)/g, ',')

/** A UTC time such as 2026-11-21 09:00:02. The page must name the time zone, in the head of the column or with `utc`. */
export const instant = (at: Date, { milliseconds = false } = {}): Html => {
  const iso = at.toISOString()
  return html`<time datetime="${iso}">${iso.slice(0, 10)} ${iso.slice(11, milliseconds ? 23 : 19)}</time>`
}

export const utc = (at: Date): Html => html`${instant(at)} UTC`

/** Times as this service writes them. Times that a person typed, and examples of times, have no milliseconds or are quoted. */
const instantInText = /(?<![\w"])\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/g

/** A sentence of a plan, a result or a refusal, with its times as on other pages. */
export const sentence = (text: string): Renderable => {
  const times = [...text.matchAll(instantInText)]
  const parts = text.split(instantInText)
  return parts.map((part, i) => [part, times[i] !== undefined && utc(new Date(times[i][0]))])
}

/** An id, with a copy button if scripts run. */
export const copyable = (id: string): Html => html`<span class="id whole" data-copyable>${id}</span>`

/** Writes a snake_case name as words. */
export const words = (name: string): string => name.replaceAll('_', ' ')

const corrections: Readonly<Record<string, string>> = {
  refund: 'refund',
  reversal: 'automatic reversal',
  adjustment: 'balance corrected',
  void: 'lot taken back',
  rerate: 're-rate',
} satisfies Record<CreditAdjusted['kind'], string>

/** The kind of a correction in words. */
export const correctionWords = (kind: string): string => corrections[kind] ?? words(kind)

/** Capitalizes a string, unless it begins with an identifier or an address, such as request_id or https://. */
export const capitalized = (text: string): string => {
  const [first = ''] = text.split(' ', 1)
  return /[_.:/]./.test(first) ? text : `${text.charAt(0).toUpperCase()}${text.slice(1)}`
}

/** Like `credits`, for a decimal amount from an event. */
export const decimal = (text: string): string => credits(String(parseCredits(text)))

/** A negative balance is marked with a word, because some people do not see its colour. */
export const balance = (micro: string): Html =>
  BigInt(micro) < 0n
    ? html`<span class="bad">${credits(micro)}</span> <span class="mark bad">overdrawn</span>`
    : html`${credits(micro)}`
