import { formatCredits, parseCredits } from '../billing/money.ts'
import { type Html, html } from './html.ts'

/** Formats amounts and instants for people. Amounts are exact: integers from the database to the page. */

/** Micro-credits, as the read models give them, in credits: 1,234,567.000001. */
export const credits = (micro: string): string => {
  const [whole = '', fraction] = formatCredits(BigInt(micro)).split('.')
  return fraction === undefined ? grouped(whole) : `${grouped(whole)}.${fraction}`
}

/** The same with a plus sign if the balance grew. */
export const movement = (micro: string): string =>
  BigInt(micro) > 0n ? `+${credits(micro)}` : credits(micro)

export const count = (value: number | bigint | string): string => grouped(String(value))

// recheck: of at most 24 characters: numbers and the database's bigints.
const grouped = (digits: string): string => digits.replace(/\B(?=(\d{3})+$)/g, ',')

/** 2026-11-21 09:00:02, in UTC. The page states the time zone: in the column's head, or with `utc`. */
export const instant = (at: Date, { milliseconds = false } = {}): Html => {
  const iso = at.toISOString()
  return html`<time datetime="${iso}">${iso.slice(0, 10)} ${iso.slice(11, milliseconds ? 23 : 19)}</time>`
}

export const utc = (at: Date): Html => html`${instant(at)} UTC`

/** An id with a button that copies it, where scripts run. */
export const copyable = (id: string): Html => html`<span class="id whole" data-copyable>${id}</span>`

/** snake_case names of events as words. */
export const words = (name: string): string => name.replaceAll('_', ' ')

export const capitalized = (text: string): string => `${text.charAt(0).toUpperCase()}${text.slice(1)}`

/** The same of a decimal number of credits, as events have it. */
export const decimal = (text: string): string => credits(String(parseCredits(text)))

/** A balance: a negative balance is marked by more than its colour. */
export const balance = (micro: string): Html =>
  BigInt(micro) < 0n
    ? html`<span class="bad">${credits(micro)}</span> <span class="mark bad">overdrawn</span>`
    : html`${credits(micro)}`
