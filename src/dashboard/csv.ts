import type { Readable } from 'node:stream'
import type { FastifyReply } from 'fastify'
import { formatCredits } from '../billing/money.ts'

/** Tables as CSV (RFC 4180), for spreadsheets. */

type CsvCell = string | number | { readonly number: string }

/** Puts an apostrophe before a string that a spreadsheet would interpret as a formula. */
const cellOf = (cell: CsvCell): string => {
  if (typeof cell === 'number') return String(cell)
  if (typeof cell === 'object') return cell.number
  const text = /^[=+\-@\t\r]/.test(cell) ? `'${cell}` : cell
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
}

export const csvOf = (head: readonly string[], rows: Iterable<readonly CsvCell[]>): string => {
  let text = `${head.join(',')}\r\n`
  for (const row of rows) text += `${row.map(cellOf).join(',')}\r\n`
  return text
}

/** The cell of an amount of micro-credits. */
export const amount = (micro: bigint | string): CsvCell => ({ number: formatCredits(BigInt(micro)) })

/** Sends a table as a file, which must not be cached, because its content depends on the user and the time. */
export const sendCsv = (reply: FastifyReply, name: string, body: string | Readable): FastifyReply =>
  reply
    .type('text/csv; charset=utf-8')
    .header('cache-control', 'no-store')
    .header('content-disposition', `attachment; filename="${name}.csv"`)
    .send(body)
